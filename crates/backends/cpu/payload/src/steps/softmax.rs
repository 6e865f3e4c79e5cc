//! Softmax.

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId};

/// Softmax or log-softmax of the last dimension in f32, or softmax from u8 to u8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    pub x: TensorId,
    pub y: TensorId,
    /// True for the logarithm of the softmax.
    pub log: bool,
}

structure! { Softmax { x, y, log } }

impl StepKind for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let is_quantized = tensors.is_quantized(self.x);
        tensors.quantized(self.y, is_quantized)?;
        if self.log { tensors.quantized(self.x, false) } else { Ok(()) }
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        // Maximum, difference, exponential, sum and quotient.
        5.0 * sizes.elements(self.y) as f64
    }
}

#[cfg(test)]
impl crate::examples::Examples for Softmax {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(Softmax { x: 1, y: 2, log: true }, "05010201")]
    }
}
