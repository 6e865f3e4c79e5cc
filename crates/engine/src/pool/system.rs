//! Threads of the system.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A thread that works for a pool.
pub(super) struct Worker(JoinHandle<()>);

impl Worker {
    /// Starts a thread; `None` if the system refuses.
    pub(super) fn start(index: usize, run: impl FnOnce() + Send + 'static) -> Option<Self> {
        thread::Builder::new().name(format!("rushlight-{index}")).spawn(run).ok().map(Self)
    }

    pub(super) fn unpark(&self) {
        self.0.thread().unpark();
    }

    /// Waits until the thread has ended.
    pub(super) fn join(self) {
        // Workers catch the panics of tasks, so joining cannot fail.
        let _ = self.0.join();
    }
}

/// A thread of the system does not end before its work does.
pub(super) fn check_lost() {}

/// The time that an idle worker spins.
#[derive(Default)]
pub(super) struct Patience(Option<Instant>);

impl Patience {
    const SPIN: Duration = Duration::from_millis(1);

    pub(super) fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() >= Self::SPIN
    }
}
