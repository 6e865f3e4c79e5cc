//! Whole rows of contiguous tensors, selected by one tensor of indices.

use rushlight_runtime::{Result, Tensor};

use crate::support::copy::copy_run;
use crate::support::index::{Indices, Line};
use crate::support::shape::Dims;

/// Rows along the first dimension of a contiguous tensor. The selection is contiguous too: one row for each index.
pub(super) struct RowSelection<'a> {
    indices: Indices<'a>,
    count: usize,
    /// Rows of the indexed tensor.
    size: usize,
    /// Bytes of a row.
    bytes: usize,
    /// Negative indices count from the end.
    wraps: bool,
}

impl<'a> RowSelection<'a> {
    /// For a contiguous tensor with these sizes and elements of `width` bytes. `None` if the indices are masks or not in
    /// the order of their memory, or if there is nothing to copy.
    pub(super) fn new(sizes: &[usize], width: usize, index: &Tensor<'a>, wraps: bool) -> Option<Self> {
        let indices = Indices::of(index).ok()?;
        let (&size, row) = sizes.split_first()?;
        let bytes = row.iter().try_fold(width, |bytes, &size| bytes.checked_mul(size)).filter(|&bytes| bytes > 0)?;
        index.is_contiguous().then_some(Self { indices, count: index.numel(), size, bytes, wraps })
    }

    /// The sizes of the selection from a tensor with these sizes.
    pub(super) fn sizes(sizes: &[usize], index: &Tensor<'_>) -> Result<Dims> {
        let mut result = Dims::from_slice(index.sizes())?;
        for &size in sizes.iter().skip(1) {
            result.push(size)?;
        }
        Ok(result)
    }

    /// Copies the selected rows of `src` to `dst`.
    pub(super) fn take(&self, dst: &mut [u8], src: &[u8]) -> Result<()> {
        let mut rows = dst.chunks_exact_mut(self.bytes);
        self.each(|at| {
            if let (Some(to), Some(from)) = (rows.next(), src.get(at..at + self.bytes)) {
                copy_run(to, from);
            }
        })
    }

    /// Copies the rows of `src` over the selected ones of `dst`.
    pub(super) fn put(&self, dst: &mut [u8], src: &[u8]) -> Result<()> {
        let mut rows = src.chunks_exact(self.bytes);
        self.each(|at| {
            if let (Some(to), Some(from)) = (dst.get_mut(at..at + self.bytes), rows.next()) {
                copy_run(to, from);
            }
        })
    }

    /// Calls `f` with the offset in bytes of each selected row.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize)) -> Result<()> {
        let line = Line { at: 0, step: 1, len: self.count };
        self.indices.along(line, self.size, self.wraps, |position| f(position * self.bytes))
    }
}
