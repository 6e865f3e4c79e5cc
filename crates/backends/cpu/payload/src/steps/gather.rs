//! Rows of a table.

use rushlight_engine::pack;
use rushlight_format::ScalarType;

use crate::codec::{structure, union};
use crate::tensors::{Tensors, elements};
use crate::{PayloadError, QuantizedFormat, StepKind, Tensor, TensorId};

/// Rows of a table `[rows, width]`, selected by indices: i32 or i64 of an input, or integers stored as f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gather {
    pub table: TensorId,
    pub format: TableFormat,
    pub indices: TensorId,
    pub y: TensorId,
}

/// The elements of the table of a [`Gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    F32,
    /// A packed matrix whose columns are the `rows` rows of the table.
    Quantized {
        format: QuantizedFormat,
        rows: u32,
    },
}

structure! { Gather { table, format, indices, y } }

union! { TableFormat { 0 F32, 1 Quantized { format, rows } } }

impl StepKind for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.table, self.indices].into_iter().for_each(visit);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let Self { table, format, indices, y } = *self;
        tensors.quantized(y, false)?;
        let is_index = |tensor: &Tensor| matches!(tensor.dtype, ScalarType::Int | ScalarType::Float);
        if !tensors.tensor(indices).is_some_and(is_index) {
            tensors.dtype(indices, ScalarType::Long)?;
        }
        match format {
            TableFormat::F32 => tensors.dtype(table, ScalarType::Float),
            TableFormat::Quantized { format, rows } => {
                let width = tensors.last_size(y);
                let len = width.map(|width| elements(pack::quantized_len(&format.matrix(width, rows as usize))));
                tensors.weights(table, ScalarType::Byte, len)
            }
        }
    }
}

#[cfg(test)]
impl crate::examples::Examples for Gather {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use crate::examples::QUANTIZED;

        let step = |format| Gather { table: 1, format, indices: 2, y: 3 };
        let quantized = TableFormat::Quantized { format: QUANTIZED, rows: 9 };
        [(step(TableFormat::F32), "0801000203"), (step(quantized), "080101010202ac02090203")]
    }
}
