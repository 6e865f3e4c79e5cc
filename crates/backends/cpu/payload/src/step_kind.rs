//! The trait of steps.

use crate::tensors::Tensors;
use crate::work::{Sizes, Work};
use crate::{PayloadError, TensorId};

/// A kind of step: a structure of the tensors and parameters that its kernel takes.
pub trait StepKind {
    /// Returns the kind of the step, for profiles.
    fn name(&self) -> &'static str;

    /// Returns the tensor that is written.
    fn output(&self) -> TensorId;

    /// Visits the tensors that are read.
    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId));

    /// Checks the parameters, and the element types and sizes of the tensors, which exist.
    ///
    /// # Errors
    /// For tensors or parameters that the step's kernel does not take.
    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError>;

    /// Checks that f16 and bf16 tensors in the arena or a state are only where the step takes them. Most steps take none.
    ///
    /// # Errors
    /// For other tensors of 16-bit floats.
    fn check_halves(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        tensors.no_halves(self.output(), |visit| self.for_each_input(visit))
    }

    /// Returns the work of a call, if the step's parameters can ask for more than its tensors have elements for.
    fn work(&self, _sizes: &dyn Sizes) -> Option<Work> {
        None
    }

    /// True if all sizes among the parameters on which the work depends are fixed.
    fn is_work_fixed(&self) -> bool {
        true
    }

    /// Returns the floating-point operations of a call, for profiles; 0 for steps that move elements.
    fn flops(&self, _sizes: &dyn Sizes) -> f64 {
        0.0
    }

    /// Returns the share of an input that a call reads, for profiles.
    fn share_read(&self, _input: TensorId, _sizes: &dyn Sizes) -> f64 {
        1.0
    }
}
