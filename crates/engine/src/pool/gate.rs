//! The protocol by which one thread lends a job to workers. All of the pool's atomic operations are here, and nothing
//! else.
//!
//! One word holds the job's number, the open flag, and the number of workers inside:
//!
//! - The caller *opens* the gate: the job's number goes up by one, the gate is open, and nobody is inside.
//! - A worker *enters* only an open gate. It adds itself to the count in the same exchange that sees the gate open.
//! - The caller *closes* the gate, so that nobody can enter, and waits until all workers have *left*.
//!
//! Writes of the caller before it opens the gate are visible to the workers who enter. Writes of a worker before it
//! leaves are visible to the caller when its wait ends. A late worker finds the gate closed and has missed nothing, so
//! the caller never waits for a worker that sleeps.
//!
//! A worker announces its sleep and then checks the gate once more. The caller opens the gate and then checks for
//! announcements. At least one of the two sees the other.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Fields of the state word: the number of workers inside, the open flag, and the lowest bit of the job's number.
const INSIDE: u64 = (1 << 31) - 1;
const OPEN: u64 = 1 << 31;
const NUMBER: u64 = 1 << 32;

/// The state word. At most 2^31 - 1 workers.
#[derive(Debug)]
pub(super) struct Gate(AtomicU64);

impl Gate {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Opens a closed gate, which only one thread at a time may do. Nobody is inside.
    pub(super) fn open(&self) {
        let number = self.0.load(Ordering::Relaxed) & !(NUMBER - 1);
        self.0.store(number.wrapping_add(NUMBER) | OPEN, Ordering::Release);
        // Pairs with the fence of `Sleep::announce`. The caller sees every sleep that was announced before this point.
        // A worker that announces its sleep later sees the gate open.
        fence(Ordering::SeqCst);
    }

    /// Enters a gate that is open and whose number is not `last`; returns its number.
    pub(super) fn enter(&self, last: u32) -> Option<u32> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let number = (word >> 32) as u32;
            if word & OPEN == 0 || number == last {
                return None;
            }
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(number),
                Err(now) => word = now,
            }
        }
    }

    /// Leaves, after [`enter`](Self::enter).
    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Closes the gate. Nobody can enter after this.
    pub(super) fn close(&self) {
        self.0.fetch_and(!OPEN, Ordering::Relaxed);
    }

    /// Returns true if all workers have left a closed gate.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) & INSIDE == 0
    }
}

/// Flag of a worker that sleeps or is about to.
#[derive(Debug)]
pub(super) struct Sleep(AtomicBool);

impl Sleep {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Announces that this worker will sleep. Returns false if the gate is open, so that the worker must not sleep.
    pub(super) fn announce(&self, gate: &Gate) -> bool {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        gate.0.load(Ordering::Relaxed) & OPEN == 0
    }

    /// Withdraws the announcement: this worker is awake.
    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Returns true if the caller must wake this worker after it opened the gate.
    pub(super) fn must_be_woken(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
