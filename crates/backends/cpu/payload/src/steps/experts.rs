//! Matrix multiplications of a mixture of experts.

use rushlight_engine::pack;
use rushlight_format::ScalarType;

use super::matmul::{Matmul, MatmulKind};
use crate::codec::structure;
use crate::error::Nonzero;
use crate::tensors::Tensors;
use crate::{Int8Epilogue, PayloadError, PayloadFault, Sizes, StepKind, TensorId, Work};

/// GEMM of rows with the matrices of the experts that each row has chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// `b` has the columns of all experts, one expert after the other, and each has as many as `y`. The kind is
    /// `Packed`, `WeightOnly`, `Groupwise`, or `Int8` with dynamically quantized rows. It has no residual and no bias,
    /// and its per-column data covers the columns of all experts.
    pub matmul: Matmul,
    /// The expert of each row: integers below `count`, stored as f32.
    pub index: TensorId,
    /// Number of experts.
    pub count: u32,
}

structure! { Experts { matmul, index, count } }

impl StepKind for Experts {
    fn name(&self) -> &'static str {
        "experts"
    }

    fn output(&self) -> TensorId {
        self.matmul.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        self.matmul.for_each_input(visit);
        visit(self.index);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let Self { matmul, index, count } = self;
        Nonzero::Experts.check(&[*count])?;
        tensors.dtype(*index, ScalarType::Float)?;
        tensors.quantized(matmul.y, false)?;
        // The columns of each expert are whole panels.
        let is_whole = tensors.last_size(matmul.y).is_some_and(|columns| columns.is_multiple_of(pack::PANEL));
        if !self.is_plain() || !is_whole {
            return Err(PayloadError::new(PayloadFault::Experts));
        }
        matmul.check_with(tensors, *count as usize)
    }

    /// The work of the matmul.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        self.matmul.work(sizes)
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        self.matmul.flops(sizes)
    }

    /// The weights of experts that no row has chosen are not read. At most one expert is read for each row.
    fn share_read(&self, input: TensorId, sizes: &dyn Sizes) -> f64 {
        let chosen = sizes.elements(self.index) as f64 / f64::from(self.count.max(1));
        if input == self.matmul.b { chosen.min(1.0) } else { 1.0 }
    }
}

impl Experts {
    /// True if the weights can be split by columns, and the epilogue adds nothing.
    const fn is_plain(&self) -> bool {
        match &self.matmul.kind {
            MatmulKind::Packed { epilogue, .. } | MatmulKind::WeightOnly { epilogue, .. } => {
                epilogue.bias.is_none() && epilogue.residual.is_none()
            }
            MatmulKind::Int8 { epilogue: Int8Epilogue::Dynamic { bias, .. } } => bias.is_none(),
            MatmulKind::Groupwise { epilogue, .. } => epilogue.bias.is_none(),
            MatmulKind::Int8 { .. } | MatmulKind::Dense { .. } => false,
        }
    }
}

#[cfg(test)]
impl crate::examples::Examples for Experts {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use crate::{Epilogue, FloatFormat};

        let kind = MatmulKind::Packed { format: FloatFormat::F32, epilogue: Epilogue::default() };
        let matmul = Matmul { a: 1, b: 2, y: 3, kind };
        [(Experts { matmul, index: 4, count: 5 }, "1101020301000000000405")]
    }
}
