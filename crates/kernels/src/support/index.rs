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

    /// Calls `each` with the elements of a line as indices into a dimension of `size` elements, as
    /// [`position`](Self::position) has it.
    #[inline(always)]
    pub(crate) fn along(&self, line: Line, size: usize, wraps: bool, mut each: impl FnMut(usize)) -> Result<()> {
        match self {
            Self::Long(data) => line.indices(data, size, wraps, &mut each),
            Self::Int(data) => line.indices(data, size, wraps, &mut each),
        }
    }

    /// The element at offset `at` as an index into a dimension of `size` elements. Negative ones count from the end
    /// if `wraps`, else they are an error.
    #[inline]
    pub(crate) fn position(&self, at: usize, size: usize, wraps: bool) -> Result<usize> {
        position(self.get(at).unwrap_or(i64::MIN), size, wraps)
    }
}

/// Elements `at`, `at + step` and so on.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) at: usize,
    pub(crate) step: usize,
    pub(crate) len: usize,
}

impl Line {
    #[inline(always)]
    fn indices<T: Copy + Into<i64>>(
        self,
        data: &[T],
        size: usize,
        wraps: bool,
        each: &mut impl FnMut(usize),
    ) -> Result<()> {
        let mut at = self.at;
        for _ in 0..self.len {
            each(position(data[at].into(), size, wraps)?);
            at += self.step;
        }
        Ok(())
    }
}

#[inline(always)]
fn position(index: i64, size: usize, wraps: bool) -> Result<usize> {
    let positive = if wraps && index < 0 { index.wrapping_add(size as i64) } else { index };
    if (0..size as i64).contains(&positive) { Ok(positive as usize) } else { outside(index, size) }
}

#[cold]
fn outside(index: i64, size: usize) -> Result<usize> {
    Err(Detail::Index { index, size }.into())
}
