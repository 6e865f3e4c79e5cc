//! Dimensions, broadcasting and walks over strided tensors.

use rushlight_runtime::{Detail, Error, MAX_RANK, Result};

/// Sizes or strides on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Dims {
    len: usize,
    dims: [usize; MAX_RANK],
}

impl Dims {
    pub(crate) const EMPTY: Self = Self { len: 0, dims: [0; MAX_RANK] };

    /// Fails beyond [`MAX_RANK`].
    pub(crate) fn from_slice(dims: &[usize]) -> Result<Self> {
        let mut result = Self::EMPTY;
        for &dim in dims {
            result.push(dim)?;
        }
        Ok(result)
    }

    pub(crate) fn filled(len: usize, value: usize) -> Result<Self> {
        if len > MAX_RANK {
            return Err(Detail::Rank { expected: "at most 16", got: len }.into());
        }
        Ok(Self { len, dims: [value; MAX_RANK] })
    }

    pub(crate) fn push(&mut self, dim: usize) -> Result<()> {
        match self.dims.get_mut(self.len) {
            Some(slot) => {
                *slot = dim;
                self.len += 1;
                Ok(())
            }
            None => Err(Detail::Rank { expected: "at most 16", got: self.len + 1 }.into()),
        }
    }
}

impl core::ops::Deref for Dims {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.dims[..self.len]
    }
}

impl core::ops::DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.dims[..self.len]
    }
}

/// A dimension as PyTorch counts it (negative from the end) as an index. A rank-0 tensor accepts 0 and -1.
pub(crate) fn normalize_dim(dim: i64, rank: usize) -> Result<usize> {
    let n = rank.max(1) as i64;
    if dim < -n || dim >= n {
        return Err(Detail::Dim { dim, rank }.into());
    }
    Ok(if dim < 0 { dim + n } else { dim } as usize)
}

/// Number of elements, or an error on overflow.
pub(crate) fn numel(sizes: &[usize]) -> Result<usize> {
    sizes
        .iter()
        .try_fold(1usize, |n, &s| n.checked_mul(s))
        .ok_or_else(|| Error::invalid("the number of elements overflows"))
}

/// PyTorch's broadcast of two shapes, aligned at the last dimension.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let mut result = Dims::filled(rank, 1)?;
    for i in 0..rank {
        let at = |s: &[usize]| if i < s.len() { s[s.len() - 1 - i] } else { 1 };
        let (x, y) = (at(a), at(b));
        result[rank - 1 - i] = match (x, y) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            (expected, got) => return Err(Detail::Size { dim: rank - 1 - i, expected, got }.into()),
        };
    }
    Ok(result)
}

/// Strides that read a tensor as if it had the broadcast shape `sizes`: 0 along stretched dimensions.
pub(crate) fn broadcast_strides(from: &[usize], strides: &[usize], sizes: &[usize]) -> Result<Dims> {
    let mut result = Dims::filled(sizes.len(), 0)?;
    let offset =
        sizes.len().checked_sub(from.len()).ok_or(Detail::Rank { expected: "a broadcastable one", got: from.len() })?;
    for (i, (&size, &stride)) in from.iter().zip(strides).enumerate() {
        if size == sizes[offset + i] {
            result[offset + i] = if size == 1 { 0 } else { stride };
        } else if size != 1 {
            return Err(Detail::Size { dim: offset + i, expected: sizes[offset + i], got: size }.into());
        }
    }
    Ok(result)
}

/// Walks a shape in row-major order and keeps one element offset for each of `N` stride sets.
///
/// For speed, walk the outer dimensions only and loop over the innermost one with its stride.
pub(crate) struct Walk<const N: usize> {
    sizes: Dims,
    strides: [Dims; N],
    index: Dims,
    /// Element offsets of the current position, one a stride set.
    pub(crate) offsets: [usize; N],
}

impl<const N: usize> Walk<N> {
    /// Over the dimensions `sizes`; each stride set has the same length.
    pub(crate) fn new(sizes: &[usize], strides: [&[usize]; N]) -> Result<Self> {
        let mut all = [Dims::EMPTY; N];
        for (dims, strides) in all.iter_mut().zip(strides) {
            *dims = Dims::from_slice(strides)?;
        }
        let index = Dims::filled(sizes.len(), 0)?;
        Ok(Self { sizes: Dims::from_slice(sizes)?, strides: all, index, offsets: [0; N] })
    }

    /// Steps to the next position. False, and back at the start, after the last one.
    pub(crate) fn next(&mut self) -> bool {
        for dim in (0..self.sizes.len()).rev() {
            self.index[dim] += 1;
            if self.index[dim] < self.sizes[dim] {
                for (offset, strides) in self.offsets.iter_mut().zip(&self.strides) {
                    *offset += strides[dim];
                }
                return true;
            }
            for (offset, strides) in self.offsets.iter_mut().zip(&self.strides) {
                *offset -= strides[dim] * self.sizes[dim].saturating_sub(1);
            }
            self.index[dim] = 0;
        }
        false
    }

    /// The current position.
    pub(crate) fn index(&self) -> &[usize] {
        &self.index
    }
}
