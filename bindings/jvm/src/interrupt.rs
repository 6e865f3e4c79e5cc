//! Ending a call from another thread.

use std::sync::atomic::{AtomicI64, Ordering};

use rushlight::runtime::{EventTracer, Interrupt, Stop};

/// Ends a call when Java sets a word of the frame.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'f>(pub &'f AtomicI64);

impl Interrupt for Flag<'_> {
    fn poll(&self) -> Option<Stop> {
        (self.0.load(Ordering::Relaxed) != 0).then_some(Stop::Cancelled)
    }
}

impl EventTracer for Flag<'_> {
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }
}
