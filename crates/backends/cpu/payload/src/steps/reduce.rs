//! Reductions.

use rushlight_engine::Reduction;

use crate::codec::{structure, union};
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId};

/// Reduces the dimensions `first..first + count` of `x`, which is `[outer, reduced, inner]`, to `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce {
    pub op: Reduction,
    pub x: TensorId,
    pub y: TensorId,
    pub first: u32,
    pub count: u32,
}

structure! { Reduce { op, x, y, first, count } }

union! { Reduction { 0 Sum, 1 Mean, 2 Max, 3 Min } }

impl StepKind for Reduce {
    fn name(&self) -> &'static str {
        "reduction"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, _tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        Ok(())
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        sizes.elements(self.x) as f64
    }
}

#[cfg(test)]
impl crate::examples::Examples for Reduce {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        let step = |op| Reduce { op, x: 1, y: 2, first: 3, count: 4 };
        [
            (step(Reduction::Sum), "040001020304"),
            (step(Reduction::Mean), "040101020304"),
            (step(Reduction::Max), "040201020304"),
            (step(Reduction::Min), "040301020304"),
        ]
    }
}
