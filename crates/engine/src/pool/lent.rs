//! Threads that the embedder lends to pools if the system cannot start threads. In browsers, JavaScript starts them
//! before a pool is made.
//!
//! A lent thread parks until a pool takes it, works until the pool is dropped, and parks again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// Threads that no pool uses.
static IDLE: Mutex<Vec<Arc<Lender>>> = Mutex::new(Vec::new());

/// Set when a lent thread ended by a trap. Code in the thread cannot catch a trap.
static IS_LOST: AtomicBool = AtomicBool::new(false);

struct Lender {
    thread: Thread,
    work: Mutex<Option<Work>>,
}

struct Work {
    run: Box<dyn FnOnce() + Send>,
    end: Arc<End>,
}

/// Signals that a thread has finished its work.
#[derive(Default)]
struct End {
    is_reached: Mutex<bool>,
    signal: Condvar,
}

/// The calling thread, lent to pools.
#[derive(Debug)]
pub struct LentThread(Arc<Lender>);

impl LentThread {
    /// Lends the calling thread to pools that are made from now on.
    #[allow(clippy::new_without_default, reason = "it enters the thread in a list")]
    pub fn new() -> Self {
        let lender = Arc::new(Lender { thread: thread::current(), work: Mutex::new(None) });
        lock(&IDLE).push(Arc::clone(&lender));
        Self(lender)
    }

    /// Works for pools in the lent thread.
    pub fn serve(self) -> ! {
        loop {
            let Some(Work { run, end }) = lock(&self.0.work).take() else {
                thread::park();
                continue;
            };
            run();
            // A thread that waits for the end may use this one again at once.
            lock(&IDLE).push(Arc::clone(&self.0));
            *lock(&end.is_reached) = true;
            end.signal.notify_all();
        }
    }
}

/// Records that a lent thread ended by a trap. Threads that wait for lent threads panic.
pub fn lose_lent_thread() {
    IS_LOST.store(true, Ordering::Relaxed);
}

/// A thread that works for a pool.
pub(super) struct Worker {
    lender: Arc<Lender>,
    end: Arc<End>,
}

impl Worker {
    /// Starts work in a lent thread; `None` if all threads are in use.
    pub(super) fn start(_index: usize, run: impl FnOnce() + Send + 'static) -> Option<Self> {
        let lender = lock(&IDLE).pop()?;
        let end = Arc::<End>::default();
        *lock(&lender.work) = Some(Work { run: Box::new(run), end: Arc::clone(&end) });
        lender.thread.unpark();
        Some(Self { lender, end })
    }

    pub(super) fn unpark(&self) {
        self.lender.thread.unpark();
    }

    /// Waits until the work is finished.
    pub(super) fn join(self) {
        let mut is_reached = lock(&self.end.is_reached);
        while !*is_reached {
            is_reached = self.end.signal.wait(is_reached).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Panics if a lent thread was lost. A lost thread never leaves the gate.
pub(super) fn check_lost() {
    assert!(!IS_LOST.load(Ordering::Relaxed), "a thread of the pool ended");
}

/// The time for which an idle worker spins. WebAssembly has no clock.
#[derive(Default)]
pub(super) struct Patience(u32);

impl Patience {
    /// Checks of the gate, 64 at a time, for about a millisecond.
    const CHECKS: u32 = 1 << 12;

    pub(super) fn is_over(&mut self) -> bool {
        self.0 += 1;
        self.0 > Self::CHECKS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lender").field("thread", &self.thread.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_lent_thread_works_for_one_after_another() {
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let lent = LentThread::new();
            ready.send(thread::current().id()).expect("a test that waits");
            lent.serve()
        });
        let id = is_ready.recv().expect("a thread");
        for _ in 0..3 {
            let (result, results) = mpsc::channel();
            let may_end = Arc::new(AtomicBool::new(false));
            let is_over = Arc::clone(&may_end);
            let work = move || {
                while !is_over.load(Ordering::Acquire) {
                    thread::park();
                }
                result.send(thread::current().id()).expect("a test that waits");
            };
            let worker = Worker::start(0, work).expect("an idle thread");
            assert!(Worker::start(1, || ()).is_none(), "it is in use");
            may_end.store(true, Ordering::Release);
            worker.unpark();
            assert_eq!(results.recv(), Ok(id));
            worker.join();
        }
    }
}
