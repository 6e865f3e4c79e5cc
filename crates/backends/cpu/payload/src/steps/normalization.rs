//! Layer and RMS normalization.

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId};

/// Layer normalization of the last `dims` dimensions, or RMS normalization if not `centered`. The result is multiplied
/// by `weight`, and `bias` is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    pub x: TensorId,
    pub y: TensorId,
    pub weight: Option<TensorId>,
    pub bias: Option<TensorId>,
    pub dims: u32,
    pub eps: f32,
    pub centered: bool,
}

structure! { Normalization { x, y, weight, bias, dims, eps, centered } }

impl StepKind for Normalization {
    fn name(&self) -> &'static str {
        "normalization"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
        self.weight.into_iter().chain(self.bias).for_each(visit);
    }

    fn check(&self, _tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        Ok(())
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        // Mean, difference, square and its mean, quotient, factor and offset.
        7.0 * sizes.elements(self.y) as f64
    }
}

#[cfg(test)]
impl crate::examples::Examples for Normalization {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        let step = Normalization { x: 1, y: 2, weight: Some(3), bias: None, dims: 4, eps: 0.5, centered: true };
        [(step, "060102010300040000003f01")]
    }
}
