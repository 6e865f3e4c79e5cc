//! Watching a method run.

use crate::interrupt::Interrupt;
use crate::tensor::Tensor;

/// What a method is doing.
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
}

impl EventTracer for () {}
