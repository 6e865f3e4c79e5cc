//! Interruption of a model's lowering and runs by signals, such as that of Ctrl-C.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rushlight::ProgressListener;
use rushlight::runtime::{EventTracer, Interrupt, Stop};

use crate::callback;
use crate::interpreter::attached;

/// How long a run goes on before it looks for signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// The most steps between two looks at the clock, which takes as long as a small step.
const STEPS: u32 = 8;

/// Polls for signals between the steps of lowering. What a handler raises is kept for [`callback::explained`].
pub struct WhileLowering;

impl ProgressListener for WhileLowering {
    fn report(&self, _: &'static str, _: u64, _: u64) {}

    fn is_cancelled(&self) -> bool {
        let Err(error) = attached(|py| py.check_signals()) else { return false };
        callback::interrupted(error);
        true
    }
}

/// Looks for signals while a model runs on this thread, between its steps.
pub struct Signals {
    last: Cell<Instant>,
    /// Steps until the clock is looked at again, and between the last two looks.
    left: Cell<u32>,
    interval: Cell<u32>,
    raised: RefCell<Option<PyErr>>,
}

impl Signals {
    pub fn new() -> Self {
        Self { last: Cell::new(Instant::now()), left: Cell::new(0), interval: Cell::new(0), raised: RefCell::default() }
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
        if let Some(left) = self.left.get().checked_sub(1) {
            self.left.set(left);
            return None;
        }
        let now = Instant::now();
        let elapsed = now - self.last.get();
        // Where steps are long, the clock is looked at before each.
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
