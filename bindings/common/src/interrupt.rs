//! Interrupts of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rushlight::runtime::{EventTracer, Interrupt, Stop};

/// A flag that another thread sets to end a call before its next step. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Flag(Arc<AtomicBool>);

impl Flag {
    /// Sets or clears the flag.
    pub fn set(&self, is_set: bool) {
        self.0.store(is_set, Ordering::Relaxed);
    }

    /// True if calls with this flag end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Interrupt for Flag {
    fn poll(&self) -> Option<Stop> {
        self.is_set().then_some(Stop::Cancelled)
    }
}

/// A tracer that only interrupts its call.
impl EventTracer for Flag {
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }
}
