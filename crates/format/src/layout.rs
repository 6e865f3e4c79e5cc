//! Element type, sizes and dim order of a tensor, checked together.

use crate::ScalarType;
use crate::error::ErrorKind;
use crate::flatbuf::{Table, Vector};
use crate::schema::Field;

/// Tensors of more dimensions are refused, as every ExecuTorch runtime does.
pub const MAX_RANK: usize = 16;

/// Element type, sizes and dim order of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorLayout<'a> {
    pub scalar_type: ScalarType,
    /// Each size is at least 0, and there are at most [`MAX_RANK`].
    pub sizes: Vector<'a, i32>,
    /// Dimensions from the outermost to the innermost in memory: a permutation of `0..rank`.
    pub dim_order: &'a [u8],
    numel: usize,
}

/// The fields of a table that hold a layout.
#[derive(Clone, Copy)]
pub(crate) struct LayoutFields {
    pub scalar_type: Field,
    pub sizes: Field,
    pub dim_order: Field,
}

impl<'a> TensorLayout<'a> {
    /// The product of the sizes.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// [`numel`](Self::numel) times the element size. Neither it nor any stride computed from the sizes (with 0
    /// counted as 1) exceeds `isize::MAX`.
    pub fn nbytes(&self) -> usize {
        self.numel.wrapping_mul(self.scalar_type.size())
    }

    #[inline]
    pub(crate) fn decode(table: Table<'_, 'a>, fields: LayoutFields) -> Self {
        let code = table.scalar(fields.scalar_type, 0u8);
        let scalar_type = ScalarType::from_code(code).unwrap_or_else(|| {
            table.unknown(fields.scalar_type, code);
            ScalarType::Byte
        });
        let sizes = table.required_vector::<i32>(fields.sizes);
        let numel = numel(table, fields.sizes, sizes, scalar_type);
        let dim_order = table.required_vector::<u8>(fields.dim_order).as_bytes();
        if !is_permutation(dim_order, sizes.len()) {
            table.report(fields.dim_order, ErrorKind::InvalidDimOrder);
        }
        Self { scalar_type, sizes, dim_order, numel }
    }
}

/// The number of elements, after checking rank, signs and that neither bytes nor strides overflow.
#[inline]
fn numel(table: Table<'_, '_>, field: Field, sizes: Vector<'_, i32>, scalar_type: ScalarType) -> usize {
    if sizes.len() > MAX_RANK {
        table.out_of_range(field, sizes.len() as u64, MAX_RANK);
        return 0;
    }
    // The bytes from the first to the last element, were no size 0. No product below exceeds it.
    let mut span = scalar_type.size();
    let mut numel = 1;
    for size in sizes {
        let Ok(size) = usize::try_from(size) else {
            table.report(field, ErrorKind::Negative { value: i64::from(size) });
            return 0;
        };
        span = span.saturating_mul(size.max(1));
        if span > isize::MAX as usize {
            table.report(field, ErrorKind::Overflow);
            return 0;
        }
        numel *= size;
    }
    numel
}

/// True if `dim_order` holds each of `0..rank` once. A `rank` above [`MAX_RANK`] was refused before; then this says anything.
#[inline]
fn is_permutation(dim_order: &[u8], rank: usize) -> bool {
    if dim_order.len() != rank {
        return false;
    }
    let mut missing = 1u32.wrapping_shl(rank as u32) - 1;
    for dim in dim_order {
        let bit = 1u32.wrapping_shl(u32::from(*dim));
        if u32::from(*dim) >= u32::BITS || missing & bit == 0 {
            return false;
        }
        missing ^= bit;
    }
    true
}
