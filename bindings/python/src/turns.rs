//! Models that threads use in turns.
//!
//! The thread whose turn it is takes the model out, and puts it back afterwards. Nothing is locked meanwhile. So a
//! function in Python, another thread or the child of a fork never meets a lock that stays locked forever.
//!
//! The mutexes here are only locked by threads that are attached to the interpreter. None of these threads calls Python
//! or detaches before it unlocks. So such a mutex is never locked when a process forks, and no thread waits for it
//! while it holds the GIL. A build without a GIL stops all attached threads before it forks, and none of them between
//! lock and unlock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rushlight_engine::fork_generation;

/// Interval at which a waiting thread checks for signals, such as that of Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// A model that threads take turns with.
pub struct Turns<T> {
    state: Mutex<State<T>>,
    /// The number of the thread that has the model, or 0.
    user: Arc<AtomicU64>,
}

struct State<T> {
    /// `None` while a thread has the model, and after a panic lost it.
    model: Option<Box<T>>,
    /// The fork generation of the process that took the model last.
    generation: usize,
    /// Waiting threads; the first is woken first.
    waiting: VecDeque<Thread>,
}

/// Waiting threads, each with the user of the model that it waits for.
static WAITING: Mutex<Vec<(u64, Arc<AtomicU64>)>> = Mutex::new(Vec::new());

thread_local! {
    /// The number of this thread, unique in the process; 0 until it is needed.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

fn this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let known = NUMBER.get();
    if known != 0 {
        return known;
    }
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    NUMBER.set(number);
    number
}

impl<T: Send> Turns<T> {
    pub fn new(model: T) -> Self {
        let state = State { model: Some(Box::new(model)), generation: fork_generation(), waiting: VecDeque::new() };
        Self { state: Mutex::new(state), user: Arc::default() }
    }

    /// Calls `act` with the model when it is this thread's turn. Detaches from the interpreter meanwhile, because the
    /// model's user may wait for the interpreter, in an operator or a delegate in Python.
    ///
    /// # Errors
    /// If waiting would never end:
    /// - This thread itself has the model, or the model's user waits for a model that this thread has.
    /// - A thread had the model when the process forked.
    /// - The model was lost in a panic.
    pub fn with<R: Send>(&self, py: Python<'_>, act: impl Send + FnOnce(&mut T) -> R) -> PyResult<R> {
        self.use_model(py, false, act)
    }

    /// As [`with`](Self::with), but after all threads that already wait. For a caller that uses the model again and
    /// again, and would otherwise take it each time before the next thread wakes.
    ///
    /// # Errors
    /// The errors of [`with`](Self::with).
    pub fn with_in_order<R: Send>(&self, py: Python<'_>, act: impl Send + FnOnce(&mut T) -> R) -> PyResult<R> {
        self.use_model(py, true, act)
    }

    fn use_model<R: Send>(&self, py: Python<'_>, in_order: bool, act: impl Send + FnOnce(&mut T) -> R) -> PyResult<R> {
        let mut turn = Turn { turns: self, model: Some(self.take(py, in_order)?) };
        let model = turn.model.as_deref_mut();
        let result = py.detach(|| model.map(act));
        result.ok_or_else(lost)
    }

    fn take(&self, py: Python<'_>, in_order: bool) -> PyResult<Box<T>> {
        let me = this_thread();
        let mut is_queued = false;
        loop {
            {
                let mut state = locked(&self.state);
                let model = if in_order && !state.is_next() { None } else { state.model.take() };
                if let Some(model) = model {
                    self.user.store(me, Ordering::Relaxed);
                    state.generation = fork_generation();
                    if is_queued {
                        state.leave();
                    }
                    return Ok(model);
                }
                let waits_for_user = state.model.is_none();
                if let Err(error) = if waits_for_user { self.check(&state, me) } else { Ok(()) } {
                    if is_queued {
                        state.leave();
                    }
                    return Err(error);
                }
                if !is_queued {
                    state.waiting.push_back(thread::current());
                    is_queued = true;
                }
            }
            locked(&WAITING).push((me, self.user.clone()));
            py.detach(|| thread::park_timeout(SIGNALS));
            locked(&WAITING).retain(|(thread, _)| *thread != me);
            if let Err(interrupt) = py.check_signals() {
                locked(&self.state).leave();
                return Err(interrupt);
            }
        }
    }

    /// Fails if waiting would never end: the model is lost, or its user waits for this thread.
    fn check(&self, state: &State<T>, me: u64) -> PyResult<()> {
        let user = self.user.load(Ordering::Relaxed);
        if user == 0 {
            return Err(lost());
        }
        if state.generation != fork_generation() {
            let text = "the model was in use by another thread when this process was forked, and is lost here: load it again \
                        in the child, or fork while no thread uses it";
            return Err(PyRuntimeError::new_err(text));
        }
        let waiting = locked(&WAITING);
        let mut thread = user;
        // Follows the chain of threads, each of which waits for a model of the next. It must not lead back here.
        for _ in 0..=waiting.len() {
            if thread == me {
                let text = "the model is in use while it calls a Python function, and that function, or one that waits for \
                            it, calls the model: give the function a model of its own";
                return Err(PyRuntimeError::new_err(text));
            }
            match waiting.iter().find(|(number, _)| *number == thread) {
                Some((_, user)) => thread = user.load(Ordering::Relaxed),
                None => break,
            }
        }
        Ok(())
    }
}

impl<T> State<T> {
    /// True if this thread is the first that waits, or none does.
    fn is_next(&mut self) -> bool {
        if self.model.is_some() && self.generation != fork_generation() {
            // Threads that waited at a fork do not exist in the child.
            self.waiting.clear();
        }
        self.waiting.front().is_none_or(|first| first.id() == thread::current().id())
    }

    /// Removes this thread from those that wait.
    fn leave(&mut self) {
        let me = thread::current().id();
        self.waiting.retain(|thread| thread.id() != me);
    }
}

/// The turn of a thread. Dropping it ends the turn.
struct Turn<'a, T> {
    turns: &'a Turns<T>,
    model: Option<Box<T>>,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = locked(&self.turns.state);
        // A model in the middle of a call that panicked is not used again.
        let lost = if thread::panicking() { self.model.take() } else { None };
        state.model = self.model.take();
        self.turns.user.store(0, Ordering::Relaxed);
        let wakes_all = state.model.is_none();
        for thread in state.waiting.iter().take(if wakes_all { usize::MAX } else { 1 }) {
            thread.unpark();
        }
        drop(state);
        // Dropping it may run Python code.
        drop(lost);
    }
}

fn lost() -> PyErr {
    PyRuntimeError::new_err("an earlier call failed in the middle; load the model again")
}

/// Locks a mutex that is only locked for a moment, by threads that are attached to the interpreter.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
