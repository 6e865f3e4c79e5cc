//! Stopping an execution from outside: deadlines, and cancellation by another thread.

use core::fmt;

use crate::error::{Detail, Result};

/// Says whether an execution has to stop: a clock and a deadline, or a flag that another thread sets.
///
/// An execution whose tracer returns one ([`EventTracer::interrupt`](crate::EventTracer::interrupt)) asks it before each
/// instruction, and delegates ask it before each of their steps. A step that has begun is finished first.
pub trait Interrupt {
    /// The reason to stop now; `None` to continue.
    fn poll(&self) -> Option<Stop>;
}

/// The interrupt of an execution, if it has one.
#[derive(Clone, Copy)]
pub struct Interrupts<'a>(pub Option<&'a dyn Interrupt>);

impl Interrupts<'_> {
    /// Fails if the execution has to stop before step `step`, counted from 0, of `steps`.
    #[inline(always)]
    pub fn check(self, step: usize, steps: usize) -> Result<()> {
        match self.0 {
            None => Ok(()),
            Some(interrupt) => ask(interrupt, step, steps),
        }
    }
}

impl fmt::Debug for Interrupts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupts").field(&self.0.is_some()).finish()
    }
}

#[inline(never)]
fn ask(interrupt: &dyn Interrupt, step: usize, steps: usize) -> Result<()> {
    match interrupt.poll() {
        None => Ok(()),
        Some(stop) => {
            let (step, steps) = (u32::try_from(step).unwrap_or(u32::MAX), u32::try_from(steps).unwrap_or(u32::MAX));
            Err(Detail::Stopped { stop, step: step.saturating_add(1), steps }.into())
        }
    }
}

/// Why an execution was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// It took longer than this limit, in milliseconds.
    TimeLimit { millis: u32 },
    /// The caller cancelled it.
    Cancelled,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TimeLimit { millis } if millis > 0 && millis % 1000 == 0 => {
                write!(f, "the time limit of {} s was reached", millis / 1000)
            }
            Self::TimeLimit { millis } => write!(f, "the time limit of {millis} ms was reached"),
            Self::Cancelled => f.write_str("the execution was cancelled"),
        }
    }
}
