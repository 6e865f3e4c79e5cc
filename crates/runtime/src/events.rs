//! Watching a method run.

use crate::cost::Cost;
use crate::delegate::MemoryKind;
use crate::interrupt::Interrupt;
use crate::tensor::Tensor;

/// An event of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole execution.
    Execute {
        method: &'a str,
    },
    /// An operator call; `operator` is its full name.
    Operator {
        instruction: usize,
        operator: &'static str,
    },
    /// A call of a delegate; `id` names its backend.
    Delegate {
        instruction: usize,
        id: &'a str,
    },
    Move {
        instruction: usize,
    },
    JumpFalse {
        instruction: usize,
    },
    Free {
        instruction: usize,
    },
    /// A copy of a tensor's data between host and device, for this instruction. Outputs are copied for the instruction
    /// after the last.
    Copy {
        instruction: usize,
        bytes: usize,
        from: MemoryKind,
        to: MemoryKind,
    },
}

/// Something that a delegate does in a call: a step, a kernel of a device, a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelegateEvent<'a> {
    /// The kind of step, the kernel or the wait.
    pub name: &'a str,
    /// Index of the step in the payload, if it is one.
    pub step: Option<usize>,
    /// The value of the graph that the step computes, the last one where several are fused; empty if it is not known.
    pub value: &'a str,
    /// The work of the step, if the delegate counts it.
    pub cost: Option<Cost>,
}

/// Receives what happens inside of delegates, between the beginning and the end of their
/// [`Event::Delegate`]. It is shared with the delegate, so an implementation stores events in cells.
pub trait DelegateTracer {
    fn begin(&self, _event: DelegateEvent<'_>) {}

    fn end(&self, _event: DelegateEvent<'_>) {}

    /// Something that a device timed by its own clock, in nanoseconds of it. It may come after the call in which it was.
    fn timed(&self, _event: DelegateEvent<'_>, _start: u64, _end: u64) {}
}

/// The tracer of a delegate's events, if there is one.
#[derive(Clone, Copy)]
pub struct DelegateEvents<'a>(pub Option<&'a dyn DelegateTracer>);

impl DelegateEvents<'_> {
    /// True if anyone receives events. Delegates ask before they do anything for them that costs time.
    pub fn is_on(self) -> bool {
        self.0.is_some()
    }

    pub fn begin(self, event: DelegateEvent<'_>) {
        if let Some(tracer) = self.0 {
            tracer.begin(event);
        }
    }

    pub fn end(self, event: DelegateEvent<'_>) {
        if let Some(tracer) = self.0 {
            tracer.end(event);
        }
    }

    pub fn timed(self, event: DelegateEvent<'_>, start: u64, end: u64) {
        if let Some(tracer) = self.0 {
            tracer.timed(event, start, end);
        }
    }
}

impl core::fmt::Debug for DelegateEvents<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("DelegateEvents").field(&self.is_on()).finish()
    }
}

/// Receives the events of one execution, and may stop it. The default methods ignore everything; `()` is the tracer that
/// costs nothing.
pub trait EventTracer {
    fn begin(&mut self, _event: Event<'_>) {}

    fn end(&mut self, _event: Event<'_>) {}

    /// True to receive the tensors that each instruction wrote, through [`tensor`](Self::tensor).
    fn wants_tensors(&self) -> bool {
        false
    }

    /// A tensor that the instruction wrote, as its argument `argument`.
    fn tensor(&mut self, _instruction: usize, _argument: usize, _tensor: Tensor<'_>) {}

    /// Returns the interrupt that is polled before each instruction, and by delegates before each of their steps.
    fn interrupt(&self) -> Option<&dyn Interrupt> {
        None
    }

    /// Returns what receives the events of delegates.
    fn delegate_events(&self) -> Option<&dyn DelegateTracer> {
        None
    }
}

impl EventTracer for () {}
