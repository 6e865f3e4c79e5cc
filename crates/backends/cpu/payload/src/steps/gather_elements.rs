//! Elements of rows.

use rushlight_format::ScalarType;

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, StepKind, TensorId};

/// Elements of rows, the last dimension of `x`: `y` has the elements at the positions in the same row of `index`, which
/// are integers stored as f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherElements {
    pub x: TensorId,
    pub index: TensorId,
    pub y: TensorId,
}

structure! { GatherElements { x, index, y } }

impl StepKind for GatherElements {
    fn name(&self) -> &'static str {
        "gather elements"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.x, self.index].into_iter().for_each(visit);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let all = [self.x, self.index, self.y];
        all.into_iter().try_for_each(|tensor| tensors.dtype(tensor, ScalarType::Float))
    }
}

#[cfg(test)]
impl crate::examples::Examples for GatherElements {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(GatherElements { x: 1, index: 2, y: 3 }, "13010203")]
    }
}
