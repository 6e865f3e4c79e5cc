//! Model of the thread pool's synchronization protocol (`gate.rs`), all of whose interleavings loom tries:
//! `RUSTFLAGS="--cfg loom" cargo test --release --manifest-path crates/engine/loom/Cargo.toml`.
#![cfg(all(loom, test))]

#[path = "../../src/pool/gate.rs"]
mod gate;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use gate::{Gate, Sleep};

/// The shared state of a pool: the job is written while nobody is inside the gate, and read and answered inside.
struct Shared {
    gate: Gate,
    sleep: Sleep,
    job: UnsafeCell<u32>,
    answers: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        let job = UnsafeCell::new(0);
        Arc::new(Self { gate: Gate::new(), sleep: Sleep::new(), job, answers: AtomicU64::new(0) })
    }

    /// Enters the gate, reads the job, answers it and leaves; returns its number.
    fn help(&self, last: u32) -> Option<u32> {
        let number = self.gate.enter(last)?;
        // SAFETY: inside the gate nobody writes, which loom checks.
        let job = self.job.with(|job| unsafe { *job });
        assert_eq!(job, number, "a job is seen whole");
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.gate.leave();
        Some(number)
    }

    /// Writes a job and opens the gate.
    fn lend(&self, job: u32) {
        // SAFETY: the gate is closed and empty, so that nobody reads, which loom checks.
        self.job.with_mut(|at| unsafe { *at = job });
        self.gate.open();
    }

    /// Closes the gate and waits until it is empty.
    fn end(&self) {
        self.gate.close();
        while !self.gate.is_empty() {
            thread::yield_now();
        }
    }
}

/// Lends two jobs to workers that try to enter twice.
fn lend_two_jobs(workers: usize) {
    let shared = Shared::new();
    let start = |_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let last = shared.help(0).unwrap_or(0);
            shared.help(last);
        })
    };
    let workers: Vec<_> = (0..workers).map(start).collect();
    for job in [1, 2] {
        shared.lend(job);
        shared.end();
    }
    let max_answers = 2 * workers.len() as u64;
    for worker in workers {
        worker.join().unwrap();
    }
    assert!(shared.answers.load(Ordering::Relaxed) <= max_answers);
}

#[test]
fn jobs_are_kept_apart_from_one_worker() {
    loom::model(|| lend_two_jobs(1));
}

/// Tries all interleavings with up to [`PREEMPTIONS`] preemptions: without a bound there are too many. Most errors need
/// two preemptions (Musuvathi and Qadeer, 2007).
#[test]
fn jobs_are_kept_apart_from_two_workers() {
    let mut model = Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| lend_two_jobs(2));
}

/// Maximum preemptions of an interleaving.
const PREEMPTIONS: usize = 3;

#[test]
fn sleepers_are_woken() {
    loom::model(|| {
        let shared = Shared::new();
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                while shared.help(0).is_none() {
                    if shared.sleep.announce(&shared.gate) {
                        thread::park();
                    }
                    shared.sleep.end();
                }
            })
        };
        shared.lend(1);
        if shared.sleep.must_be_woken() {
            worker.thread().unpark();
        }
        // The gate stays open: a worker that nobody woke would sleep forever, which loom reports as a deadlock.
        worker.join().unwrap();
        shared.end();
    });
}
