//! All interleavings of the thread pool's protocol, which stands alone in `gate.rs`, tried by loom:
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

/// What a job is to the pool: written while nobody is inside, read and answered inside.
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

    fn help(&self, last: u32) -> Option<u32> {
        let number = self.gate.enter(last)?;
        // SAFETY: inside the gate nobody writes, which loom checks.
        let job = self.job.with(|job| unsafe { *job });
        assert_eq!(job, number, "a job is seen whole");
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.gate.leave();
        Some(number)
    }

    fn lend(&self, job: u32) {
        // SAFETY: the gate is closed and empty, so that nobody reads, which loom checks.
        self.job.with_mut(|at| unsafe { *at = job });
        self.gate.open();
    }

    fn end(&self) {
        self.gate.close();
        while !self.gate.is_empty() {
            thread::yield_now();
        }
    }
}

/// Lends two jobs to helpers that try to enter twice.
fn lend_two_jobs(helpers: usize) {
    let shared = Shared::new();
    let start = |_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let last = shared.help(0).unwrap_or(0);
            shared.help(last);
        })
    };
    let helpers: Vec<_> = (0..helpers).map(start).collect();
    for job in [1, 2] {
        shared.lend(job);
        shared.end();
    }
    let most = 2 * helpers.len() as u64;
    for helper in helpers {
        helper.join().unwrap();
    }
    assert!(shared.answers.load(Ordering::Relaxed) <= most);
}

#[test]
fn jobs_are_kept_apart_from_one_helper() {
    loom::model(|| lend_two_jobs(1));
}

/// All interleavings in which the threads are stopped against their will so often, as there are too many without a
/// bound. Most errors need two such stops (Musuvathi and Qadeer, 2007).
#[test]
fn jobs_are_kept_apart_from_two_helpers() {
    let mut model = Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| lend_two_jobs(2));
}

const PREEMPTIONS: usize = 3;

#[test]
fn sleepers_are_woken() {
    loom::model(|| {
        let shared = Shared::new();
        let helper = {
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
            helper.thread().unpark();
        }
        // The gate stays open: a helper that nobody woke would sleep for ever, which loom finds.
        helper.join().unwrap();
        shared.end();
    });
}
