//! Copies to indexed places.

use alloc::vec::Vec;

use rushlight_format::ScalarType;

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::work::product;
use crate::{PayloadError, Size, Sizes, StepKind, TensorId, Work};

/// Copies slices to indexed places: `y[y_offset + indices[t] * y_step + i * y_strides] = x[x_offset + t * x_step + i *
/// x_strides]` for every index `i` below `sizes` and every `t`, in this order, with both buffers seen as one dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    pub x: TensorId,
    pub y: TensorId,
    /// Integers stored as f32, from `-dim_size` to below `dim_size`. Negative ones count from the end.
    pub indices: TensorId,
    /// The size of the dimension of `y` that the indices select from.
    pub dim_size: Size,
    /// The sizes of one slice.
    pub sizes: Vec<Size>,
    pub x_offset: Size,
    pub x_step: Size,
    pub x_strides: Vec<Size>,
    pub y_offset: Size,
    pub y_step: Size,
    pub y_strides: Vec<Size>,
}

structure! {
    Scatter { x, y, indices, dim_size, sizes, x_offset, x_step, x_strides, y_offset, y_step, y_strides }
}

impl StepKind for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.x, self.indices].into_iter().for_each(visit);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        tensors.quantized(self.x, tensors.is_quantized(self.y))?;
        tensors.dtype(self.indices, ScalarType::Float)?;
        tensors.strided(&self.sizes, [&self.x_strides, &self.y_strides])?;
        let others = [self.dim_size, self.x_offset, self.x_step, self.y_offset, self.y_step];
        others.into_iter().try_for_each(|size| tensors.check_size(size))
    }

    /// Elements are moved as they are.
    fn check_halves(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        match tensors.half(self.y) {
            Some(half) => tensors.dtype(self.x, half),
            None => tensors.no_half(self.x),
        }
    }

    /// The elements that are moved. The limit is `x`: slices do not overlap.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let slice = product(self.sizes.iter().map(|size| sizes.size(*size)));
        let operations = slice.saturating_mul(sizes.elements(self.indices));
        Some(Work { operations, limit: sizes.elements(self.x) })
    }

    fn is_work_fixed(&self) -> bool {
        self.sizes.iter().all(|size| size.fixed().is_some())
    }
}

#[cfg(test)]
impl crate::examples::Examples for Scatter {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use alloc::vec;

        let size = Size::Fixed;
        let step = Scatter {
            x: 1,
            y: 2,
            indices: 3,
            dim_size: size(4),
            sizes: vec![size(5), size(6)],
            x_offset: size(7),
            x_step: size(8),
            x_strides: vec![size(9), size(10)],
            y_offset: size(11),
            y_step: size(12),
            y_strides: vec![size(13), size(14)],
        };
        [(step, "0e0102030004020005000600070008020009000a000b000c02000d000e")]
    }
}
