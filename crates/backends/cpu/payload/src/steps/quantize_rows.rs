//! Quantization with scales that are chosen at run time.

use crate::codec::structure;
use crate::error::Nonzero;
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId};

/// Quantizes rows of `x` to u8 with the scales and zero points in `qparams`, as [`ChooseQparams`](crate::ChooseQparams)
/// writes them, and with the factors if there are any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeRows {
    pub x: TensorId,
    pub qparams: TensorId,
    pub y: TensorId,
    /// Smallest and largest quantized value.
    pub range: [u8; 2],
}

structure! { QuantizeRows { x, qparams, y, range } }

impl StepKind for QuantizeRows {
    fn name(&self) -> &'static str {
        "quantize rows"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.x, self.qparams].into_iter().for_each(visit);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        tensors.quantized(self.x, false)?;
        tensors.quantized(self.qparams, false)?;
        tensors.quantized(self.y, true)?;
        let [min, max] = self.range;
        Nonzero::Range.check(&[max.saturating_sub(min).into()])
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        // Quotient and rounding.
        2.0 * sizes.elements(self.x) as f64
    }
}

#[cfg(test)]
impl crate::examples::Examples for QuantizeRows {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(QuantizeRows { x: 1, qparams: 2, y: 3, range: [1, 254] }, "0d01020301fe")]
    }
}
