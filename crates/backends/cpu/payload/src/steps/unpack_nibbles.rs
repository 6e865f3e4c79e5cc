//! Unpacking of 4-bit integers.

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, StepKind, TensorId};

/// Unpacks the two 4-bit integers of each byte of `x`, as [`PackNibbles`](crate::PackNibbles) packed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackNibbles {
    pub x: TensorId,
    pub y: TensorId,
}

structure! { UnpackNibbles { x, y } }

impl StepKind for UnpackNibbles {
    fn name(&self) -> &'static str {
        "unpack nibbles"
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
impl crate::examples::Examples for UnpackNibbles {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(UnpackNibbles { x: 1, y: 2 }, "100102")]
    }
}
