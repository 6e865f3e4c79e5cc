//! Strided copies: the base of nearly every operator that moves elements.
//!
//! A [`StridedCopy`] is a list of dimensions, each with a size and a stride in the destination and in the source.
//! Slicing, permuting, expanding, flipping and concatenating differ only in their strides and start offsets. A run
//! first sorts the dimensions into the destination's memory order and merges those that are contiguous on both sides.
//! It then copies contiguous runs, or transposes strips if the two sides disagree on the innermost dimension.

use rushlight_runtime::{Complex, Detail, Error, MAX_RANK, Result, ScalarType, Tensor, TensorMut, copy_bytes};

use super::tile::{Compute, ComputeType, Cursor};

/// Room for twice the largest rank, because `repeat` splits each dimension in two.
const MAX_DIMS: usize = 32;

#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    dst: isize,
    src: isize,
}

/// A copy between two strided regions. Strides and offsets count elements.
pub(crate) struct StridedCopy {
    dims: [Dim; MAX_DIMS],
    len: usize,
    /// Offset of the first element in the destination.
    pub(crate) dst_offset: usize,
    /// Offset of the first element in the source.
    pub(crate) src_offset: usize,
}

impl StridedCopy {
    /// The copy of a single element.
    pub(crate) fn new() -> Self {
        Self { dims: [Dim { size: 0, dst: 0, src: 0 }; MAX_DIMS], len: 0, dst_offset: 0, src_offset: 0 }
    }

    /// The copy of a tensor's elements, of `sizes`, with the given strides.
    pub(crate) fn of(sizes: &[usize], dst: &[usize], src: &[usize]) -> Self {
        const { assert!(MAX_RANK <= MAX_DIMS) };
        let mut copy = Self::new();
        for (slot, ((&size, &dst), &src)) in copy.dims.iter_mut().zip(sizes.iter().zip(dst).zip(src)) {
            *slot = Dim { size, dst: dst as isize, src: src as isize };
            copy.len += 1;
        }
        copy
    }

    /// Adds a dimension.
    pub(crate) fn dim(&mut self, size: usize, dst: usize, src: usize) -> Result<()> {
        self.signed_dim(size, dst as isize, src as isize)
    }

    /// Adds a dimension whose strides may be negative.
    pub(crate) fn signed_dim(&mut self, size: usize, dst: isize, src: isize) -> Result<()> {
        let Some(slot) = self.dims.get_mut(self.len) else {
            return Err(Detail::Rank { expected: "at most 32", got: self.len + 1 }.into());
        };
        *slot = Dim { size, dst, src };
        self.len += 1;
        Ok(())
    }

    /// Copies from `src` to `dst`, converting elements where the types differ.
    pub(crate) fn run(&mut self, dst: &mut TensorMut<'_>, src: Tensor<'_>) -> Result<()> {
        if dst.dtype() == src.dtype() {
            let width = src.dtype().size();
            return self.run_bytes(dst.bytes_mut(), src.bytes(), width);
        }
        // A conversion to f32 computes in f32, except from f64 and complex types.
        match ComputeType::of(src.dtype())? {
            ComputeType::I32 | ComputeType::I64 | ComputeType::F32 if dst.dtype() == ScalarType::Float => {
                self.run_through::<f32>(dst, src)
            }
            ComputeType::I32 => self.run_through::<i32>(dst, src),
            ComputeType::I64 => self.run_through::<i64>(dst, src),
            ComputeType::F32 => self.run_through::<f32>(dst, src),
            ComputeType::F64 => self.run_through::<f64>(dst, src),
            ComputeType::C32 => self.run_through::<Complex<f32>>(dst, src),
            ComputeType::C64 => self.run_through::<Complex<f64>>(dst, src),
        }
    }

    /// Converts elements by way of `C`. Strides of the source are not negative.
    fn run_through<C: Compute>(&mut self, dst: &mut TensorMut<'_>, src: Tensor<'_>) -> Result<()> {
        let (load, store) = (C::load(src.dtype())?, C::store(dst.dtype())?);
        let (dst_offset, src_offset) = (self.dst_offset, self.src_offset);
        let Some(block) = self.prepare() else { return Ok(()) };
        block.check(dst_offset, dst.numel(), src_offset, src.numel())?;
        let mut tile = C::ZEROS;
        let tile = tile.as_mut();
        let mut stored = Ok(());
        block.rows(dst_offset, src_offset, |row| {
            let mut line = Cursor::line(row.src, row.src_stride.unsigned_abs(), row.len);
            let (mut to, mut left) = (row.dst, row.len);
            if row.dst_stride == 1 && dst.dtype() == C::DTYPE {
                match dst.as_mut_slice().map(|dst| dst.get_mut(to..to + left).unwrap_or_default()) {
                    Ok(whole) => load(&src, &mut line, whole),
                    Err(e) => stored = Err(e),
                }
                return;
            }
            while left > 0 {
                let count = left.min(C::TILE);
                load(&src, &mut line, &mut tile[..count]);
                // A tile at once if the destination has no gaps, else one by one.
                for elements in tile[..count].chunks(if row.dst_stride == 1 { count } else { 1 }) {
                    stored = stored.and(store(elements, dst, to));
                    to = to.wrapping_add_signed(row.dst_stride.wrapping_mul(elements.len() as isize));
                }
                left -= count;
            }
        });
        stored
    }

    /// Copies elements of `width` bytes (1, 2, 4, 8 or 16).
    pub(crate) fn run_bytes(&mut self, dst: &mut [u8], src: &[u8], width: usize) -> Result<()> {
        if !self.merge() {
            return Ok(());
        }
        let shift = self.widen(width);
        let (to, from) = (self.dst_offset, self.src_offset);
        self.block().copy(dst, to, src, from, width << shift)
    }

    /// Sorts the dimensions from the outermost to the innermost of the destination and merges contiguous ones. Returns
    /// `None` if there is nothing to copy.
    pub(crate) fn prepare(&mut self) -> Option<Block<'_>> {
        self.merge().then(|| self.block())
    }

    fn block(&self) -> Block<'_> {
        Block { dims: &self.dims[..self.len], reach: self.reach() }
    }

    fn merge(&mut self) -> bool {
        let dims = &mut self.dims[..self.len];
        if dims.iter().any(|d| d.size == 0) {
            return false;
        }
        for i in 1..dims.len() {
            let mut j = i;
            while j > 0 && dims[j - 1].dst.unsigned_abs() < dims[j].dst.unsigned_abs() {
                dims.swap(j - 1, j);
                j -= 1;
            }
        }
        let mut len = 0usize;
        for i in 0..dims.len() {
            let dim = dims[i];
            if dim.size == 1 {
                continue;
            }
            if let Some(outer) = len.checked_sub(1).map(|last| &mut dims[last]) {
                let size = dim.size as isize;
                if outer.dst == dim.dst.wrapping_mul(size) && outer.src == dim.src.wrapping_mul(size) {
                    *outer = Dim { size: outer.size * dim.size, ..dim };
                    continue;
                }
            }
            dims[len] = dim;
            len += 1;
        }
        self.len = len;
        true
    }

    /// Returns the extent of the copy below and above its start on each side, or `None` if it exceeds any memory.
    fn reach(&self) -> Option<[Reach; 2]> {
        let mut reach = [Reach::default(); 2];
        for dim in &self.dims[..self.len] {
            for (side, stride) in reach.iter_mut().zip([dim.dst, dim.src]) {
                let distance = stride.unsigned_abs().checked_mul(dim.size - 1)?;
                let end = if stride < 0 { &mut side.below } else { &mut side.above };
                *end = end.checked_add(distance)?;
            }
        }
        Some(reach)
    }

    /// Treats short contiguous runs as single wider elements if everything is aligned to them. Returns the shift of the
    /// element's width. Dimensions must be merged.
    fn widen(&mut self, width: usize) -> u32 {
        let Some(inner) = self.dims[..self.len].last().copied() else { return 0 };
        if self.len < 2 || inner.dst != 1 || inner.src != 1 || !inner.size.is_power_of_two() || inner.size * width > 16
        {
            return 0;
        }
        let outer = &mut self.dims[..self.len - 1];
        let bits = outer
            .iter()
            .fold(self.dst_offset | self.src_offset, |bits, d| bits | d.dst.unsigned_abs() | d.src.unsigned_abs());
        if bits & (inner.size - 1) != 0 {
            return 0;
        }
        let shift = inner.size.trailing_zeros();
        for dim in outer {
            dim.dst >>= shift;
            dim.src >>= shift;
        }
        self.dst_offset >>= shift;
        self.src_offset >>= shift;
        self.len -= 1;
        shift
    }
}

#[derive(Clone, Copy, Default)]
struct Reach {
    below: usize,
    above: usize,
}

impl Reach {
    fn is_inside(self, offset: usize, len: usize) -> bool {
        offset >= self.below && offset < len && self.above < len - offset
    }
}

/// A copy without its offsets, ready to be made many times.
pub(crate) struct Block<'a> {
    /// Sizes are 2 or more.
    dims: &'a [Dim],
    reach: Option<[Reach; 2]>,
}

/// Elements of a block along its innermost dimension. Offsets are from the start of the memory.
pub(crate) struct StridedRow {
    pub(crate) dst: usize,
    pub(crate) dst_stride: isize,
    pub(crate) src: usize,
    pub(crate) src_stride: isize,
    pub(crate) len: usize,
}

impl Block<'_> {
    /// The number of elements, if they are contiguous on both sides.
    pub(crate) fn run_len(&self) -> Option<usize> {
        match *self.dims {
            [] => Some(1),
            [Dim { size, dst: 1, src: 1 }] => Some(size),
            _ => None,
        }
    }

    /// Fails unless the block, from these offsets, stays within memories of these lengths, in elements.
    fn check(&self, to: usize, dst_len: usize, from: usize, src_len: usize) -> Result<()> {
        match self.reach {
            Some([dst, src]) if dst.is_inside(to, dst_len) && src.is_inside(from, src_len) => Ok(()),
            _ => Err(Error::invalid("the elements to copy lie outside of the tensor's memory")),
        }
    }

    /// Calls `each` with the rows of the block, in the destination's memory order. The caller checks the offsets.
    pub(crate) fn rows(&self, to: usize, from: usize, mut each: impl FnMut(StridedRow)) {
        let (inner, outer) = self.split();
        let mut rows = OuterIndex::new(outer, to, from);
        loop {
            each(StridedRow {
                dst: rows.dst,
                dst_stride: inner.dst,
                src: rows.src,
                src_stride: inner.src,
                len: inner.size,
            });
            if !rows.next() {
                return;
            }
        }
    }

    /// Copies elements of `width` bytes (1, 2, 4, 8 or 16) to element `to` of `dst` from element `from` of `src`.
    pub(crate) fn copy(&self, dst: &mut [u8], to: usize, src: &[u8], from: usize, width: usize) -> Result<()> {
        self.check(to, dst.len() / width, from, src.len() / width)?;
        let (inner, _) = self.split();
        if inner.dst == 1 && inner.src == 1 {
            self.copy_runs(dst, to, src, from, width);
        } else {
            dispatch_width!(width, N => self.copy_elements::<N>(dst, to, src, from));
        }
        Ok(())
    }

    /// Copies rows that are contiguous on both sides.
    fn copy_runs(&self, dst: &mut [u8], to: usize, src: &[u8], from: usize, width: usize) {
        let (inner, outer) = self.split();
        let len = inner.size * width;
        let (rows, outer) = last(outer);
        let mut planes = OuterIndex::new(outer, to, from);
        loop {
            let (mut to, mut from) = (planes.dst, planes.src);
            for _ in 0..rows.size {
                copy_run(&mut dst[to * width..to * width + len], &src[from * width..from * width + len]);
                to = to.wrapping_add_signed(rows.dst);
                from = from.wrapping_add_signed(rows.src);
            }
            if !planes.next() {
                return;
            }
        }
    }

    /// The innermost dimension and the others.
    fn split(&self) -> (Dim, &[Dim]) {
        if self.dims.is_empty() { (Dim { size: 1, dst: 1, src: 1 }, &[]) } else { last(self.dims) }
    }

    fn copy_elements<const N: usize>(&self, dst: &mut [u8], to: usize, src: &[u8], from: usize) {
        let dst = dst.as_chunks_mut::<N>().0;
        let src = src.as_chunks::<N>().0;
        let (inner, outer) = self.split();
        if inner.dst == 1 && inner.src.unsigned_abs() > 1 {
            // The source's innermost dimension, if it has one.
            if let Some(other) = outer.iter().position(|d| d.src == 1) {
                let mut rest = [inner; MAX_DIMS];
                let (before, after) = (&outer[..other], &outer[other + 1..]);
                rest[..other].copy_from_slice(before);
                rest[other..other + after.len()].copy_from_slice(after);
                let mut planes = OuterIndex::new(&rest[..before.len() + after.len()], to, from);
                loop {
                    transpose(dst, planes.dst, src, planes.src, outer[other], inner);
                    if !planes.next() {
                        return;
                    }
                }
            }
        }
        let (rows, outer) = last(outer);
        let mut planes = OuterIndex::new(outer, to, from);
        loop {
            let (mut to, mut from) = (planes.dst, planes.src);
            for _ in 0..rows.size {
                copy_row(dst, to, inner.dst, src, from, inner.src, inner.size);
                to = to.wrapping_add_signed(rows.dst);
                from = from.wrapping_add_signed(rows.src);
            }
            if !planes.next() {
                return;
            }
        }
    }
}

/// Splits the last dimension off; one of size 1 if there is none.
fn last(dims: &[Dim]) -> (Dim, &[Dim]) {
    match dims.split_last() {
        Some((&last, outer)) => (last, outer),
        None => (Dim { size: 1, dst: 0, src: 0 }, dims),
    }
}

/// Walks the outer dimensions of a block.
struct OuterIndex<'a> {
    dims: &'a [Dim],
    index: [usize; MAX_DIMS],
    dst: usize,
    src: usize,
}

impl<'a> OuterIndex<'a> {
    fn new(dims: &'a [Dim], dst: usize, src: usize) -> Self {
        Self { dims, index: [0; MAX_DIMS], dst, src }
    }

    fn next(&mut self) -> bool {
        for (dim, index) in self.dims.iter().zip(&mut self.index[..self.dims.len()]).rev() {
            *index += 1;
            if *index < dim.size {
                self.dst = self.dst.wrapping_add_signed(dim.dst);
                self.src = self.src.wrapping_add_signed(dim.src);
                return true;
            }
            *index = 0;
            let back = 1 - dim.size as isize;
            self.dst = self.dst.wrapping_add_signed(dim.dst.wrapping_mul(back));
            self.src = self.src.wrapping_add_signed(dim.src.wrapping_mul(back));
        }
        false
    }
}

#[inline]
fn copy_row<const N: usize>(
    dst: &mut [[u8; N]],
    to: usize,
    dst_stride: isize,
    src: &[[u8; N]],
    from: usize,
    src_stride: isize,
    count: usize,
) {
    match (dst_stride, src_stride) {
        (1, 1) => copy_bytes(dst[to..to + count].as_flattened_mut(), src[from..from + count].as_flattened()),
        (1, 0) => dst[to..to + count].fill(src[from]),
        (1, -1) => {
            let row = &src[from + 1 - count..=from];
            dst[to..to + count].iter_mut().zip(row.iter().rev()).for_each(|(d, s)| *d = *s);
        }
        (1, 2..) => {
            let row = src[from..].iter().step_by(src_stride.unsigned_abs());
            dst[to..to + count].iter_mut().zip(row).for_each(|(d, s)| *d = *s);
        }
        (2.., 1..) => {
            let row = src[from..].iter().step_by(src_stride.unsigned_abs());
            dst[to..].iter_mut().step_by(dst_stride.unsigned_abs()).zip(row).take(count).for_each(|(d, s)| *d = *s);
        }
        _ => {
            let (mut to, mut from) = (to, from);
            for _ in 0..count {
                dst[to] = src[from];
                to = to.wrapping_add_signed(dst_stride);
                from = from.wrapping_add_signed(src_stride);
            }
        }
    }
}

/// Copies bytes, short runs without a call.
#[inline(always)]
pub(crate) fn copy_run(dst: &mut [u8], src: &[u8]) {
    match dst.len() {
        16..=32 => copy_ends::<16>(dst, src),
        8..16 => copy_ends::<8>(dst, src),
        4..8 => copy_ends::<4>(dst, src),
        _ => copy_bytes(dst, src),
    }
}

/// Copies the first and the last `M` bytes; these cover everything up to `2 * M` bytes.
#[inline(always)]
fn copy_ends<const M: usize>(dst: &mut [u8], src: &[u8]) {
    if let (Some(to), Some(from)) = (dst.first_chunk_mut::<M>(), src.first_chunk::<M>()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (dst.last_chunk_mut::<M>(), src.last_chunk::<M>()) {
        *to = *from;
    }
}

/// Rows that [`transpose`] reads side by side.
const STRIP: usize = 8;

/// Copies a matrix whose rows are contiguous in the source (`across.src == 1`) and whose columns are contiguous in the
/// destination (`down.dst == 1`). It takes a strip of rows at a time, so that runs of several elements are written.
#[inline(never)]
fn transpose<const N: usize>(dst: &mut [[u8; N]], to: usize, src: &[[u8; N]], from: usize, across: Dim, down: Dim) {
    if across.size < STRIP {
        for i in 0..across.size {
            let column = to.wrapping_add_signed(across.dst.wrapping_mul(i as isize));
            copy_row(dst, column, 1, src, from + i, down.src, down.size);
        }
        return;
    }
    let width = across.size;
    let row = |j: usize| &src[from.wrapping_add_signed(down.src.wrapping_mul(j as isize))..][..width];
    let height = down.size / STRIP * STRIP;
    for j in (0..height).step_by(STRIP) {
        // One by one, because the compiler keeps an array of slices in memory and checks each access.
        let (a, b, c, d) = (row(j), row(j + 1), row(j + 2), row(j + 3));
        let (e, f, g, h) = (row(j + 4), row(j + 5), row(j + 6), row(j + 7));
        let mut column = to + j;
        for i in 0..width {
            if let Some(run) = dst[column..].first_chunk_mut::<STRIP>() {
                *run = [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]];
            }
            column = column.wrapping_add_signed(across.dst);
        }
    }
    for j in height..down.size {
        let row = from.wrapping_add_signed(down.src.wrapping_mul(j as isize));
        copy_row(dst, to + j, across.dst, src, row, 1, width);
    }
}

/// Fails unless `out` holds the same element type as `dtype`.
pub(crate) fn same_dtype(dtype: ScalarType, out: &TensorMut<'_>, argument: usize) -> Result<()> {
    if out.dtype() == dtype {
        return Ok(());
    }
    Err(Error::from(Detail::Dtype { expected: dtype.name(), got: out.dtype() }).arg(argument))
}
