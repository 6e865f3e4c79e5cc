//! Interrupts the lowering and the runs of a model by signals, such as that of Ctrl-C.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rushlight::ProgressListener;
use rushlight::runtime::{EventTracer, Interrupt, Stop};

use crate::callback;
use crate::interpreter::attached;

/// Interval between two checks for signals in a run.
const SIGNALS: Duration = Duration::from_millis(50);

/// Maximum number of steps between two reads of the clock, because a read takes as long as a small step.
const STEPS: u32 = 8;

/// Checks for signals between the steps of lowering. An exception of a handler is kept for [`callback::explained`].
pub struct WhileLowering;

impl ProgressListener for WhileLowering {
    fn report(&self, _: &'static str, _: u64, _: u64) {}

    fn is_cancelled(&self) -> bool {
        let Err(error) = attached(|py| py.check_signals()) else { return false };
        callback::interrupted(error);
        true
    }
}

/// Checks for signals, and for a cancellation, between the steps of a model that runs on this thread.
pub struct Signals {
    /// True when another thread has cancelled the run.
    cancelled: Option<Arc<AtomicBool>>,
    last: Cell<Instant>,
    /// Steps until the clock is read again, and between the last two reads.
    left: Cell<u32>,
    interval: Cell<u32>,
    raised: RefCell<Option<PyErr>>,
}

impl Signals {
    pub fn new(cancelled: Option<Arc<AtomicBool>>) -> Self {
        let (last, left, interval) = (Cell::new(Instant::now()), Cell::new(0), Cell::new(0));
        Self { cancelled, last, left, interval, raised: RefCell::default() }
    }

    /// The exception of a signal handler.
    pub fn raised(self) -> Option<PyErr> {
        self.raised.into_inner()
    }
}

impl EventTracer for Signals {
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }
}

impl Interrupt for Signals {
    fn poll(&self) -> Option<Stop> {
        if self.cancelled.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Some(Stop::Cancelled);
        }
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            return None;
        }
        let now = Instant::now();
        let elapsed = now - self.last.get();
        // If steps are long, the clock is read before each.
        let interval = if elapsed < SIGNALS / 5 { (2 * self.interval.get() + 1).min(STEPS) } else { 0 };
        self.interval.set(interval);
        self.left.set(interval);
        if elapsed < SIGNALS {
            return None;
        }
        self.last.set(now);
        let error = attached(|py| py.check_signals()).err()?;
        self.raised.replace(Some(error));
        Some(Stop::Cancelled)
    }
}
