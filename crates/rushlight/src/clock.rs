//! Clocks and deadlines, where the system has a clock. WebAssembly without a system interface has none: `Instant::now`
//! panics there.

use std::time::{Duration, Instant};

use rushlight_runtime::{DelegateTracer, Event, EventTracer, Interrupt, Stop, Tensor};

/// True if the system has a clock.
pub(crate) const HAS_CLOCK: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
#[cfg(feature = "lower")]
pub(crate) struct Stopwatch(Option<Instant>);

#[cfg(feature = "lower")]
impl Stopwatch {
    pub fn start() -> Self {
        Self(now())
    }

    /// The time since it was started; `None` without a clock.
    pub fn elapsed(self) -> Option<Duration> {
        self.0.map(|started| started.elapsed())
    }
}

fn now() -> Option<Instant> {
    HAS_CLOCK.then(Instant::now)
}

/// The time `limit` from now; `None` without a clock, and for limits that it cannot represent.
pub(crate) fn deadline(limit: Duration) -> Option<Instant> {
    now().and_then(|now| now.checked_add(limit))
}

/// Passes events on and stops the execution after a limit.
pub(crate) struct Timed<'t, T: ?Sized> {
    tracer: &'t mut T,
    limit: Duration,
    /// `None` without a clock, and for limits that it cannot represent.
    deadline: Option<Instant>,
}

impl<'t, T: EventTracer + ?Sized> Timed<'t, T> {
    /// Wraps a tracer with a deadline `limit` from now.
    pub fn new(tracer: &'t mut T, limit: Duration) -> Self {
        Self::until(tracer, limit, deadline(limit))
    }

    /// Wraps a tracer with a deadline that was `limit` away when the call began.
    pub fn until(tracer: &'t mut T, limit: Duration, deadline: Option<Instant>) -> Self {
        Self { tracer, limit, deadline }
    }
}

impl<T: EventTracer + ?Sized> EventTracer for Timed<'_, T> {
    fn begin(&mut self, event: Event<'_>) {
        self.tracer.begin(event);
    }

    fn end(&mut self, event: Event<'_>) {
        self.tracer.end(event);
    }

    fn wants_tensors(&self) -> bool {
        self.tracer.wants_tensors()
    }

    fn tensor(&mut self, instruction: usize, argument: usize, tensor: Tensor<'_>) {
        self.tracer.tensor(instruction, argument, tensor);
    }

    fn interrupt(&self) -> Option<&dyn Interrupt> {
        Some(self)
    }

    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        self.tracer.delegate_events()
    }
}

impl<T: EventTracer + ?Sized> Interrupt for Timed<'_, T> {
    fn poll(&self) -> Option<Stop> {
        if let Some(stop) = self.tracer.interrupt().and_then(Interrupt::poll) {
            return Some(stop);
        }
        let deadline = self.deadline?;
        let is_late = Instant::now() >= deadline;
        // Rounded up, so that no limit reads as none.
        let millis = self.limit.as_micros().div_ceil(1000);
        is_late.then(|| Stop::TimeLimit { millis: u32::try_from(millis).unwrap_or(u32::MAX) })
    }
}
