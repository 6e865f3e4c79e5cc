//! Ends a call before its last step: by the signal of the call, or by the end of its module.

use std::sync::Arc;

use napi_derive::napi;
use rushlight::runtime::{DelegateTracer, Event, EventTracer, Stop};
use rushlight::{Progress, ProgressListener};
use rushlight_bindings_common::Flag;
use rushlight_js_plain::Timer;

/// Ends the calls that have it. JavaScript makes one for each call with an `AbortSignal`.
#[napi]
#[derive(Debug, Default)]
pub struct Interrupt(Flag);

#[napi]
impl Interrupt {
    #[napi(constructor, catch_unwind)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends a running call before its next step, and a waiting call before its first step.
    #[napi(catch_unwind)]
    pub fn set(&self) {
        self.0.set(true);
    }
}

impl Interrupt {
    pub fn flag(&self) -> Flag {
        self.0.clone()
    }
}

/// The progress of a compilation that the flag ends.
pub fn progress(interrupt: Option<Flag>) -> Progress {
    struct Listener(Flag);

    impl ProgressListener for Listener {
        fn report(&self, _stage: &'static str, _done: u64, _total: u64) {}

        fn is_cancelled(&self) -> bool {
            self.0.is_set()
        }
    }

    interrupt.map_or_else(Progress::default, |flag| Progress::new(Arc::new(Listener(flag))))
}

/// The tracer of a call. It interrupts the call when a flag is set, and passes events on to a timer, if there is one.
#[derive(Debug)]
pub struct Watch<'t> {
    /// Set after the end of the module.
    pub is_ended: Flag,
    pub interrupt: Option<Flag>,
    pub timer: Option<&'t mut Timer>,
}

impl rushlight::runtime::Interrupt for Watch<'_> {
    fn poll(&self) -> Option<Stop> {
        self.is_ended.poll().or_else(|| self.interrupt.as_ref()?.poll())
    }
}

impl EventTracer for Watch<'_> {
    fn begin(&mut self, event: Event<'_>) {
        if let Some(timer) = &mut self.timer {
            EventTracer::begin(&mut **timer, event);
        }
    }

    fn end(&mut self, event: Event<'_>) {
        if let Some(timer) = &mut self.timer {
            EventTracer::end(&mut **timer, event);
        }
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        self.timer.as_deref()?.delegate_events()
    }

    fn interrupt(&self) -> Option<&dyn rushlight::runtime::Interrupt> {
        Some(self)
    }
}
