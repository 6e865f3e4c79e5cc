//! Pooling of images.

use rushlight_engine::{AveragePool, PoolKind};

use crate::codec::{structure, union};
use crate::error::Nonzero;
use crate::tensors::Tensors;
use crate::work::product;
use crate::{PayloadError, Sizes, StepKind, TensorId, Work};

/// Max or average pooling of images `[N, H, W, C]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pooling {
    pub kind: PoolKind,
    pub x: TensorId,
    pub y: TensorId,
    pub kernel: [u32; 2],
    pub stride: [u32; 2],
    /// Padding before and after, of height and width.
    pub padding: [[u32; 2]; 2],
    pub dilation: [u32; 2],
}

structure! {
    Pooling { kind, x, y, kernel, stride, padding, dilation }
    AveragePool { count_include_pad, divisor_override }
}

union! { PoolKind { 0 Max, 1 Average(average) } }

impl StepKind for Pooling {
    fn name(&self) -> &'static str {
        "pooling"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, _tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        Nonzero::Kernel.check(&self.kernel)?;
        Nonzero::Stride.check(&self.stride)?;
        Nonzero::Dilation.check(&self.dilation)
    }

    /// An operation for each element of `y` and each tap inside of the input. The limit is `y x`.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let (x, y) = (sizes.elements(self.x), sizes.elements(self.y));
        let [height, width] = self.kernel.map(u64::from);
        let inside = [height.min(sizes.dim(self.x, 1)), width.min(sizes.dim(self.x, 2))];
        Some(Work { operations: y.saturating_mul(product(inside)), limit: y.saturating_mul(x) })
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        sizes.elements(self.y) as f64 * f64::from(self.kernel[0]) * f64::from(self.kernel[1])
    }
}

#[cfg(test)]
impl crate::examples::Examples for Pooling {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        let (kernel, stride, padding, dilation) = ([1, 2], [3, 4], [[5, 6], [7, 8]], [9, 10]);
        let step = |kind| Pooling { kind, x: 1, y: 2, kernel, stride, padding, dilation };
        let average = AveragePool { count_include_pad: true, divisor_override: Some(5) };
        [
            (step(PoolKind::Max), "030001020102030405060708090a"),
            (step(PoolKind::Average(average)), "030101010501020102030405060708090a"),
        ]
    }
}
