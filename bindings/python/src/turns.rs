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

/// Models that threads take turns with: one, or several that are alike. A thread that waits gets the first that is free.
pub struct Turns<T> {
    state: Mutex<State<T>>,
    users: Users,
}

/// For each model the number of the thread that has it, or 0.
type Users = Arc<[AtomicU64]>;

struct State<T> {
    /// The models that no thread has, with their positions. A model is missing while a thread has it, and after a panic lost it.
    free: Vec<(usize, Box<T>)>,
    /// The fork generation of the process that last took each model.
    taken_in: Vec<usize>,
    /// The fork generation of the process that used the models last.
    generation: usize,
    /// Waiting threads; the first is woken first.
    waiting: VecDeque<Thread>,
}

/// Waiting threads, each with the users of the models that it waits for.
static WAITING: Mutex<Vec<(u64, Users)>> = Mutex::new(Vec::new());

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
        Self::of(vec![model])
    }

    /// Any of these models is as good as another.
    pub fn of(models: Vec<T>) -> Self {
        let free: Vec<_> = models.into_iter().map(Box::new).enumerate().collect();
        let (generation, count) = (fork_generation(), free.len());
        let state = State { free, taken_in: vec![generation; count], generation, waiting: VecDeque::new() };
        Self { state: Mutex::new(state), users: (0..count).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The number of models.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    /// Calls `act` with a model when it is this thread's turn. Detaches from the interpreter meanwhile, because the
    /// model's user may wait for the interpreter, in an operator or a delegate in Python.
    ///
    /// # Errors
    /// If waiting would never end. Each model has one of these reasons:
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
        let (at, model) = self.take(py, in_order)?;
        let mut turn = Turn { turns: self, at, model: Some(model) };
        let model = turn.model.as_deref_mut();
        let result = py.detach(|| model.map(act));
        result.ok_or_else(lost)
    }

    fn take(&self, py: Python<'_>, in_order: bool) -> PyResult<(usize, Box<T>)> {
        let me = this_thread();
        let mut is_queued = false;
        loop {
            {
                let mut state = locked(&self.state);
                state.enter();
                let model = if in_order && !state.is_next() { None } else { state.free.pop() };
                if let Some((at, model)) = model {
                    self.users[at].store(me, Ordering::Relaxed);
                    state.taken_in[at] = state.generation;
                    if is_queued {
                        state.leave();
                    }
                    return Ok((at, model));
                }
                let waits_for_user = state.free.is_empty();
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
            locked(&WAITING).push((me, self.users.clone()));
            py.detach(|| thread::park_timeout(SIGNALS));
            locked(&WAITING).retain(|(thread, _)| *thread != me);
            if let Err(interrupt) = py.check_signals() {
                locked(&self.state).leave();
                return Err(interrupt);
            }
        }
    }

    /// Fails if waiting would never end: each model is lost, or its user waits for this thread.
    fn check(&self, state: &State<T>, me: u64) -> PyResult<()> {
        let waiting = locked(&WAITING);
        let mut search = Search { waiting: &waiting, me, seen: Vec::new(), has_met_me: false };
        let mut was_forked = false;
        for (user, taken_in) in self.users.iter().zip(&state.taken_in) {
            match user.load(Ordering::Relaxed) {
                // Lost in a panic.
                0 => {}
                _ if *taken_in != state.generation => was_forked = true,
                user if search.is_blocked(user) => {}
                _ => return Ok(()),
            }
        }
        let text = if search.has_met_me {
            "the model is in use while it calls a Python function, and that function, or one that waits for it, calls the model: \
             give the function a model of its own"
        } else if !search.seen.is_empty() {
            // Those threads wait for each other, and one of them will be told.
            return Ok(());
        } else if was_forked {
            "the model was in use by another thread when this process was forked, and is lost here: load it again in the \
             child, or fork while no thread uses it"
        } else {
            return Err(lost());
        };
        Err(PyRuntimeError::new_err(text))
    }
}

/// Follows threads, each of which waits for models that others have.
struct Search<'w> {
    waiting: &'w [(u64, Users)],
    me: u64,
    /// The threads that were followed.
    seen: Vec<u64>,
    has_met_me: bool,
}

impl Search<'_> {
    /// True if a thread is `me`, or waits, and so do all users of the models that it waits for.
    fn is_blocked(&mut self, thread: u64) -> bool {
        if thread == self.me {
            self.has_met_me = true;
            return true;
        }
        if self.seen.contains(&thread) {
            return true;
        }
        self.seen.push(thread);
        let waiting = self.waiting;
        let Some((_, users)) = waiting.iter().find(|(number, _)| *number == thread) else { return false };
        let mut users = users.iter().map(|user| user.load(Ordering::Relaxed)).filter(|user| *user != 0).peekable();
        users.peek().is_some() && users.all(|user| self.is_blocked(user))
    }
}

impl<T> State<T> {
    /// Forgets threads that waited when this process was forked: they do not exist here.
    fn enter(&mut self) {
        let generation = fork_generation();
        if self.generation != generation {
            self.generation = generation;
            self.waiting.clear();
        }
    }

    /// True if this thread is the first that waits, or none does.
    fn is_next(&self) -> bool {
        self.waiting.front().is_none_or(|first| first.id() == thread::current().id())
    }

    /// Removes this thread from those that wait. Wakes the next one if there is a model for it: it was this thread that was woken
    /// for each model that became free.
    fn leave(&mut self) {
        let me = thread::current().id();
        self.waiting.retain(|thread| thread.id() != me);
        if let (false, Some(next)) = (self.free.is_empty(), self.waiting.front()) {
            next.unpark();
        }
    }
}

/// The turn of a thread. Dropping it ends the turn.
struct Turn<'a, T> {
    turns: &'a Turns<T>,
    /// The position of the model.
    at: usize,
    model: Option<Box<T>>,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = locked(&self.turns.state);
        // A model in the middle of a call that panicked is not used again.
        let lost = if thread::panicking() { self.model.take() } else { None };
        state.free.extend(self.model.take().map(|model| (self.at, model)));
        self.turns.users[self.at].store(0, Ordering::Relaxed);
        let wakes_all = lost.is_some();
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
