//! The largest elements of rows.

use rushlight_format::ScalarType;

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId, Work};

/// Maximum number of elements of a row that a [`TopK`] finds: its work grows with them.
pub const MAX_TOP_K: u64 = 128;

/// The largest `k` elements of each row, the last dimension of `x`. `y` is `[2, rows, k]`: values, then their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    pub x: TensorId,
    pub y: TensorId,
}

structure! { TopK { x, y } }

impl StepKind for TopK {
    fn name(&self) -> &'static str {
        "top k"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        [self.x, self.y].into_iter().try_for_each(|tensor| tensors.dtype(tensor, ScalarType::Float))
    }

    /// `x k` operations, with `k` of at most [`MAX_TOP_K`].
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let (x, y, k) = (sizes.elements(self.x), sizes.elements(self.y), sizes.last(self.y));
        Some(Work { operations: x.saturating_mul(k), limit: x.saturating_add(y).saturating_mul(MAX_TOP_K.into()) })
    }
}

#[cfg(test)]
impl crate::examples::Examples for TopK {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(TopK { x: 1, y: 2 }, "120102")]
    }
}
