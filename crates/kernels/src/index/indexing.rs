//! Indexing by tensors: the elements that they select, and where PyTorch places them.

use rushlight_runtime::{Detail, MAX_RANK, Result, ScalarType, Tensor, TensorList, TensorMut};

use crate::support::copy::{Block, StridedCopy, copy_run};
use crate::support::index::{Indices, Line};
use crate::support::shape::{Dims, Walk, broadcast};

/// Strides of the tensor that is indexed, and of the result (or the values that take its place).
#[derive(Clone, Copy)]
pub(super) struct Strides<'a> {
    pub(super) indexed: &'a [usize],
    pub(super) other: &'a [usize],
}

/// An entry of the list of indices.
#[derive(Clone, Copy)]
enum Selector<'a> {
    /// One position of one dimension for each index.
    Positions(Indices<'a>),
    /// The positions of `rank` dimensions where the mask is true, of which there are `count`.
    Mask { data: &'a [u8], count: usize, contiguous: bool },
}

/// An entry of the list of indices. Sizes and strides are those of its tensor.
#[derive(Clone, Copy)]
struct Index<'a> {
    selector: Selector<'a>,
    sizes: &'a [usize],
    strides: &'a [usize],
    /// The first dimension of the indexed tensor that it is for.
    dim: usize,
}

/// The elements that a list of indices selects, and where PyTorch places them: the dimensions of the broadcast indices
/// stand in place of the indexed ones if those are side by side, else in front.
pub(super) struct Indexing<'a> {
    indices: [Index<'a>; MAX_RANK],
    len: usize,
    /// The broadcast shape of the indices; a mask counts as one dimension.
    positions: Dims,
    /// Sizes and numbers of the dimensions that are kept whole.
    kept: Dims,
    kept_dims: Dims,
    /// Number of kept dimensions before the positions.
    before: usize,
    sizes: Dims,
    /// Negative indices count from the end.
    wraps: bool,
}

impl<'a> Indexing<'a> {
    /// The selection that a list of indices makes from a tensor with these sizes.
    pub(super) fn new(sizes: &[usize], list: &TensorList<'a>) -> Result<Self> {
        let mut plan = Self::all(sizes, true)?;
        let mut dim = 0;
        // Groups of neighbouring indices, and whether the last entry belongs to one.
        let (mut groups, mut in_group) = (0, false);
        for i in 0..list.len() {
            let Some(tensor) = list.get_optional(i)? else {
                plan.keep(dim)?;
                dim += 1;
                in_group = false;
                continue;
            };
            if !in_group {
                groups += 1;
                in_group = true;
                plan.before = if groups == 1 { plan.kept.len() } else { 0 };
            }
            dim += plan.select(&tensor, dim)?;
        }
        if dim > sizes.len() {
            return Err(Detail::Rank { expected: "at least one for each index", got: sizes.len() }.into());
        }
        for dim in dim..sizes.len() {
            plan.keep(dim)?;
        }
        if groups == 0 {
            plan.before = plan.kept.len();
        }
        Ok(plan)
    }

    /// The selection of positions along one dimension by one tensor of indices, which must not be negative.
    pub(super) fn along(sizes: &[usize], dim: usize, index: &Tensor<'a>) -> Result<Self> {
        let mut plan = Self::all(sizes, false)?;
        for kept in (0..sizes.len()).filter(|&kept| kept != dim) {
            plan.keep(kept)?;
        }
        plan.before = dim;
        plan.select_positions(index, Indices::of(index)?, dim)?;
        Ok(plan)
    }

    fn all(sizes: &[usize], wraps: bool) -> Result<Self> {
        let none = Index { selector: Selector::Positions(Indices::Long(&[])), sizes: &[], strides: &[], dim: 0 };
        Ok(Self {
            indices: [none; MAX_RANK],
            len: 0,
            positions: Dims::EMPTY,
            kept: Dims::EMPTY,
            kept_dims: Dims::EMPTY,
            before: 0,
            sizes: Dims::from_slice(sizes)?,
            wraps,
        })
    }

    fn keep(&mut self, dim: usize) -> Result<()> {
        let size = self.sizes.get(dim).copied();
        self.kept.push(size.ok_or(Detail::Rank { expected: "at least one for each index", got: self.sizes.len() })?)?;
        self.kept_dims.push(dim)
    }

    /// Adds an index tensor and returns how many dimensions it takes.
    fn select(&mut self, tensor: &Tensor<'a>, dim: usize) -> Result<usize> {
        match tensor.dtype() {
            ScalarType::Bool | ScalarType::Byte => self.select_mask(tensor, dim),
            dtype => {
                let expected = "i64, i32, bool or u8 indices";
                let indices = Indices::of(tensor).map_err(|_| Detail::Dtype { expected, got: dtype })?;
                self.select_positions(tensor, indices, dim)
            }
        }
    }

    fn select_positions(&mut self, tensor: &Tensor<'a>, indices: Indices<'a>, dim: usize) -> Result<usize> {
        self.positions = broadcast(&self.positions, tensor.sizes())?;
        self.push(Selector::Positions(indices), tensor, dim)?;
        Ok(1)
    }

    fn select_mask(&mut self, tensor: &Tensor<'a>, dim: usize) -> Result<usize> {
        let masked = self.sizes.get(dim..).unwrap_or(&[]);
        if tensor.rank() == 0 || tensor.rank() > masked.len() {
            return Err(Detail::Rank { expected: "1 up to the number of dimensions left", got: tensor.rank() }.into());
        }
        for (i, (&expected, &got)) in masked.iter().zip(tensor.sizes()).enumerate() {
            if expected != got {
                return Err(Detail::Size { dim: i, expected, got }.into());
            }
        }
        let data = tensor.bytes();
        let count = data.iter().filter(|&&b| b != 0).count();
        self.positions = broadcast(&self.positions, &[count])?;
        self.push(Selector::Mask { data, count, contiguous: tensor.is_contiguous() }, tensor, dim)?;
        Ok(tensor.rank())
    }

    fn push(&mut self, selector: Selector<'a>, tensor: &Tensor<'a>, dim: usize) -> Result<()> {
        let slot = self.indices.get_mut(self.len);
        let slot = slot.ok_or(Detail::Rank { expected: "at least one for each index", got: self.sizes.len() })?;
        *slot = Index { selector, sizes: tensor.sizes(), strides: tensor.strides(), dim };
        self.len += 1;
        Ok(())
    }

    /// The shape of `x[indices]`.
    pub(super) fn result_sizes(&self) -> Result<Dims> {
        let (before, after) = self.kept.split_at(self.before);
        let mut sizes = Dims::from_slice(before)?;
        for &size in self.positions.iter().chain(after) {
            sizes.push(size)?;
        }
        Ok(sizes)
    }

    /// Copies the selected elements of `input` to `out`, which has the result's sizes.
    pub(super) fn take(&self, out: &mut TensorMut<'_>, input: Tensor<'_>) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let out_strides = Dims::from_slice(out.strides())?;
        let strides = Strides { indexed: input.strides(), other: &out_strides };
        let mut block = self.block(strides, false)?;
        let Some(block) = block.prepare() else { return Ok(()) };
        self.copy(strides, &block, out.bytes_mut(), input.bytes(), input.dtype().size(), false)
    }

    /// The copy of the kept dimensions that come after the positions.
    pub(super) fn block(&self, strides: Strides<'_>, put: bool) -> Result<StridedCopy> {
        let mut copy = StridedCopy::new();
        for i in self.before..self.kept.len() {
            let (indexed, other) = (strides.indexed[self.kept_dims[i]], strides.other[self.positions.len() + i]);
            let (dst, src) = if put { (indexed, other) } else { (other, indexed) };
            copy.dim(self.kept[i], dst, src)?;
        }
        Ok(copy)
    }

    /// Copies the selected elements from the indexed tensor to the other, or back if `put`.
    pub(super) fn copy(
        &self,
        strides: Strides<'_>,
        block: &Block<'_>,
        dst: &mut [u8],
        src: &[u8],
        width: usize,
        put: bool,
    ) -> Result<()> {
        let order = |indexed: usize, other: usize| if put { (indexed, other) } else { (other, indexed) };
        // Runs of the common short lengths get loops of their own.
        match block.run_len().map(|len| len * width) {
            Some(4) => self.copy_fixed::<4>(strides, dst, src, width, order),
            Some(8) => self.copy_fixed::<8>(strides, dst, src, width, order),
            Some(16) => self.copy_fixed::<16>(strides, dst, src, width, order),
            Some(bytes) => self.walk(strides, |indexed, other| {
                let (to, from) = order(indexed * width, other * width);
                copy_run(&mut dst[to..to + bytes], &src[from..from + bytes]);
            }),
            None => {
                let mut copied = Ok(());
                self.walk_blocks(strides, &mut |indexed, other| {
                    let (to, from) = order(indexed, other);
                    copied = copied.and(block.copy(dst, to, src, from, width));
                })?;
                copied
            }
        }
    }

    /// Copies runs of `N` bytes.
    fn copy_fixed<const N: usize>(
        &self,
        strides: Strides<'_>,
        dst: &mut [u8],
        src: &[u8],
        width: usize,
        order: impl Fn(usize, usize) -> (usize, usize),
    ) -> Result<()> {
        self.walk(strides, |indexed, other| {
            let (to, from) = order(indexed * width, other * width);
            if let (Some(to), Some(from)) = (dst[to..].first_chunk_mut::<N>(), src[from..].first_chunk::<N>()) {
                *to = *from;
            }
        })
    }

    /// The same as [`walk`](Self::walk), compiled once: for callers that do much in each call, or are rare.
    pub(super) fn walk_blocks(&self, strides: Strides<'_>, each: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.walk(strides, each)
    }

    /// Calls `each` with the offsets of every selected block in the indexed tensor and in the other, in the order of
    /// the result.
    fn walk(&self, strides: Strides<'_>, mut each: impl FnMut(usize, usize)) -> Result<()> {
        let mut before_strides = Dims::EMPTY;
        for &dim in &self.kept_dims[..self.before] {
            before_strides.push(strides.indexed[dim])?;
        }
        let before = &self.kept[..self.before];
        let mut planes = Walk::new(before, [&before_strides, &strides.other[..self.before]])?;
        let other = &strides.other[self.before..self.before + self.positions.len()];
        let (outer, inner, step) = match (self.positions.split_last(), other.split_last()) {
            (Some((&inner, outer)), Some((&step, strides))) => (Walk::new(outer, [strides])?, inner, step),
            _ => (Walk::new(&[], [&[]])?, 1, 0),
        };
        let mut rows = outer;
        let mut cursors = [IndexCursor { at: 0, step: 0 }; MAX_RANK];
        let indices = &self.indices[..self.len];
        loop {
            let [start, plane] = planes.offsets;
            loop {
                for (index, cursor) in indices.iter().zip(&mut cursors) {
                    *cursor = index.row(rows.index());
                }
                let mut to = plane + rows.offsets[0];
                if let ([Index { selector: Selector::Positions(indices), dim, .. }], [cursor, ..]) = (indices, &cursors)
                {
                    let line = Line { at: cursor.at, step: cursor.step, len: inner };
                    let (size, stride) = (self.sizes[*dim], strides.indexed[*dim]);
                    indices.along(line, size, self.wraps, |position| {
                        each(start + position * stride, to);
                        to += step;
                    })?;
                    if !rows.next() {
                        break;
                    }
                    continue;
                }
                for _ in 0..inner {
                    let mut offset = start;
                    for (index, cursor) in indices.iter().zip(&mut cursors) {
                        offset += index.next(cursor, self, strides.indexed)?;
                    }
                    each(offset, to);
                    to += step;
                }
                if !rows.next() {
                    break;
                }
            }
            if !planes.next() {
                return Ok(());
            }
        }
    }
}

/// Progress of one index along the innermost dimension of the positions: the next element of its tensor.
#[derive(Clone, Copy)]
struct IndexCursor {
    at: usize,
    step: usize,
}

impl Index<'_> {
    /// The cursor at the start of the row with these outer coordinates.
    fn row(&self, outer: &[usize]) -> IndexCursor {
        match self.selector {
            Selector::Positions(_) => {
                let mut dims = self.sizes.iter().zip(self.strides).rev();
                let step = dims.next().map_or(0, |(&size, &stride)| if size == 1 { 0 } else { stride });
                let at =
                    dims.zip(outer.iter().rev()).map(|((&size, &stride), &i)| if size == 1 { 0 } else { i * stride });
                IndexCursor { at: at.sum(), step }
            }
            Selector::Mask { count, .. } => IndexCursor { at: 0, step: usize::from(count != 1) },
        }
    }

    /// The offset that the next element of the index adds, by the strides of the indexed tensor.
    #[inline]
    fn next(&self, cursor: &mut IndexCursor, plan: &Indexing<'_>, strides: &[usize]) -> Result<usize> {
        match self.selector {
            Selector::Positions(indices) => {
                let size = plan.sizes.get(self.dim).copied().unwrap_or(0);
                let position = indices.position(cursor.at, size, plan.wraps)?;
                cursor.at += cursor.step;
                Ok(position * strides[self.dim])
            }
            Selector::Mask { data, contiguous, .. } => {
                let at = |mut index: usize, strides: &[usize]| {
                    let mut offset = 0;
                    for (&size, &stride) in self.sizes.iter().zip(strides).rev() {
                        offset += index % size * stride;
                        index /= size;
                    }
                    offset
                };
                let is_set = |&i: &usize| data[if contiguous { i } else { at(i, self.strides) }] != 0;
                let found = (cursor.at..data.len()).find(is_set).unwrap_or(0);
                cursor.at = found + cursor.step;
                Ok(at(found, &strides[self.dim..]))
            }
        }
    }
}
