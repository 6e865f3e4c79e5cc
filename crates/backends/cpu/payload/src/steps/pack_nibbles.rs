//! Packing of 4-bit integers.

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, StepKind, TensorId};

/// Packs two 4-bit integers of `x` into a byte of `y`; the even element goes to the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackNibbles {
    pub x: TensorId,
    pub y: TensorId,
}

structure! { PackNibbles { x, y } }

impl StepKind for PackNibbles {
    fn name(&self) -> &'static str {
        "pack nibbles"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        [self.x, self.y].into_iter().try_for_each(|tensor| tensors.quantized(tensor, true))
    }
}

#[cfg(test)]
impl crate::examples::Examples for PackNibbles {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(PackNibbles { x: 1, y: 2 }, "0f0102")]
    }
}
