//! Tensors of indices: 32- or 64-bit integers.

use rushlight_runtime::{Detail, Result, ScalarType, Tensor};

/// The elements of an index tensor, in memory order.
#[derive(Clone, Copy)]
pub(crate) enum Indices<'a> {
    Long(&'a [i64]),
    Int(&'a [i32]),
}

impl<'a> Indices<'a> {
    pub(crate) fn of(tensor: &Tensor<'a>) -> Result<Self> {
        match tensor.dtype() {
            ScalarType::Long => Ok(Self::Long(tensor.as_slice()?)),
            ScalarType::Int => Ok(Self::Int(tensor.as_slice()?)),
            got => Err(Detail::Dtype { expected: "i64 or i32", got }.into()),
        }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<i64> {
        match self {
            Self::Long(data) => data.get(at).copied(),
            Self::Int(data) => data.get(at).map(|&i| i64::from(i)),
        }
    }

    /// The element at offset `at` as an index into a dimension of `size` elements. Negative ones count from the end
    /// if `wraps`, else they are an error.
    #[inline]
    pub(crate) fn position(&self, at: usize, size: usize, wraps: bool) -> Result<usize> {
        let index = self.get(at).unwrap_or(i64::MIN);
        let positive = if wraps && index < 0 { index.wrapping_add(size as i64) } else { index };
        if (0..size as i64).contains(&positive) { Ok(positive as usize) } else { outside(index, size) }
    }
}

#[cold]
fn outside(index: i64, size: usize) -> Result<usize> {
    Err(Detail::Index { index, size }.into())
}
