//! Scales and zero points that are chosen at run time.

use rushlight_engine::ZeroPointRule;

use crate::codec::{structure, union};
use crate::error::Nonzero;
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId};

/// Chooses a scale and a zero point for each row, the last dimension of `x`, or for the whole tensor. `y` is `[2,
/// rows]` or `[2, 1]`: scales, then zero points. With [`ZeroPointRule::Inverse`] it is `[3, rows]` or `[3, 1]`, with
/// the factors of values last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChooseQparams {
    pub x: TensorId,
    pub y: TensorId,
    pub rule: ZeroPointRule,
    /// True if all rows share one scale and zero point.
    pub per_tensor: bool,
    /// Smallest and largest quantized value.
    pub range: [u8; 2],
}

structure! { ChooseQparams { x, y, rule, per_tensor, range } }

union! { ZeroPointRule { 0 FromMin { eps }, 1 MinError, 2 Inverse { half } } }

impl StepKind for ChooseQparams {
    fn name(&self) -> &'static str {
        "choose qparams"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        tensors.quantized(self.x, false)?;
        tensors.quantized(self.y, false)?;
        let [min, max] = self.range;
        Nonzero::Range.check(&[max.saturating_sub(min).into()])
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        // Minimum and maximum.
        2.0 * sizes.elements(self.x) as f64
    }
}

#[cfg(test)]
impl crate::examples::Examples for ChooseQparams {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use rushlight_engine::Half;

        let step = |rule| ChooseQparams { x: 1, y: 2, rule, per_tensor: true, range: [1, 254] };
        [
            (step(ZeroPointRule::FromMin { eps: 0.25 }), "0c0102000000803e0101fe"),
            (step(ZeroPointRule::MinError), "0c0102010101fe"),
            (step(ZeroPointRule::Inverse { half: None }), "0c010202000101fe"),
            (step(ZeroPointRule::Inverse { half: Some(Half::F16) }), "0c01020201000101fe"),
        ]
    }
}
