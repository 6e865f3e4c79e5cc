//! Strided copies.

use alloc::vec::Vec;

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::work::product;
use crate::{PayloadError, Size, Sizes, StepKind, TensorId, Work};

/// Copies elements: `y[y_offset + i * y_strides] = x[x_offset + i * x_strides]` for every index `i` below `sizes`, with
/// both buffers seen as one dimension. Transposes, slices, concatenations and expansions are copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    pub x: TensorId,
    pub y: TensorId,
    pub sizes: Vec<Size>,
    pub x_offset: Size,
    pub x_strides: Vec<Size>,
    pub y_offset: Size,
    pub y_strides: Vec<Size>,
    /// Fills `y` first, if given; a byte if `y` is quantized.
    pub fill: Option<f32>,
}

structure! { Copy { x, y, sizes, x_offset, x_strides, y_offset, y_strides, fill } }

impl StepKind for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        tensors.strided(&self.sizes, [&self.x_strides, &self.y_strides])?;
        [self.x_offset, self.y_offset].into_iter().try_for_each(|size| tensors.check_size(size))
    }

    /// Elements are moved as they are.
    fn check_halves(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        match tensors.half(self.y) {
            Some(half) => tensors.dtype(self.x, half),
            None => tensors.no_half(self.x),
        }
    }

    /// The elements that are moved, and those that are filled. The limit is `y`, twice if it is filled.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let y = sizes.elements(self.y);
        let filled = if self.fill.is_some() { y } else { 0 };
        let moved = product(self.sizes.iter().map(|size| sizes.size(*size)));
        Some(Work { operations: moved.saturating_add(filled), limit: y.saturating_add(filled) })
    }

    fn is_work_fixed(&self) -> bool {
        self.sizes.iter().all(|size| size.fixed().is_some())
    }
}

#[cfg(test)]
impl crate::examples::Examples for Copy {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use alloc::vec;

        let step = Copy {
            x: 1,
            y: 2,
            sizes: vec![Size::Fixed(300), Size::Computed(1)],
            x_offset: Size::Fixed(3),
            x_strides: vec![Size::Fixed(4), Size::Fixed(5)],
            y_offset: Size::Computed(6),
            y_strides: vec![Size::Fixed(7), Size::Fixed(8)],
            fill: Some(0.5),
        };
        [(step, "0701020200ac0201010003020004000501060200070008010000003f")]
    }
}
