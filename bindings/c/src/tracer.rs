//! Interrupts and events of a call.

use rushlight::runtime::{DelegateTracer, Event, EventTracer, Interrupt};
use rushlight_bindings_common::Flag;

/// Ends a call when its flag is set, and passes its events on.
pub struct Tracer<F, D> {
    pub interrupt: Option<Flag>,
    /// Receives events, with true for those that begin.
    pub on_event: Option<F>,
    /// Receives the events of delegates.
    pub on_delegate: Option<D>,
}

impl<F: FnMut(Event<'_>, bool), D: DelegateTracer> EventTracer for Tracer<F, D> {
    fn begin(&mut self, event: Event<'_>) {
        if let Some(on_event) = &mut self.on_event {
            on_event(event, true);
        }
    }

    fn end(&mut self, event: Event<'_>) {
        if let Some(on_event) = &mut self.on_event {
            on_event(event, false);
        }
    }

    fn interrupt(&self) -> Option<&dyn Interrupt> {
        self.interrupt.as_ref().map(|flag| flag as &dyn Interrupt)
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        self.on_delegate.as_ref().map(|tracer| tracer as &dyn DelegateTracer)
    }
}
