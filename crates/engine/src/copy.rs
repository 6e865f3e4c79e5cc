//! Strided copies and fills.
#![allow(unsafe_code)]

use core::ops::Range;

use crate::Engine;
use crate::arch::{Kernel, Simd};
use crate::elementwise::{MAX_DIMS, min_len};
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;

/// A strided copy: for every index `i` below `sizes`,
/// `y[y_offset + sum(i * y_strides)] = x[x_offset + sum(i * x_strides)]`. Transposes, slices, concatenations and
/// expansions are of this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy<'a> {
    pub sizes: &'a [usize],
    pub x_offset: usize,
    pub x_strides: &'a [usize],
    pub y_offset: usize,
    pub y_strides: &'a [usize],
}

/// Element types that can be copied: f32, u8, and u16 (bf16 bit patterns).
pub trait CopyElement: sealed::Plain {}

impl CopyElement for f32 {}

impl CopyElement for u8 {}

impl CopyElement for u16 {}

mod sealed {
    /// Plain old data.
    pub trait Plain: Copy + Send + Sync {}

    impl Plain for f32 {}

    impl Plain for u8 {}

    impl Plain for u16 {}
}

/// Transposes an 8 x 8 block, as [`Simd::transpose8`] does.
///
/// # Safety
/// As for [`Simd::transpose8`], with elements of type `T`.
#[inline(always)]
unsafe fn transpose8<S: Simd, T: CopyElement>(s: S, from: *const T, from_stride: usize, to: *mut T, to_stride: usize) {
    if const { size_of::<T>() == size_of::<f32>() } {
        // SAFETY: the caller guarantees it, and floats are moved without a change.
        return unsafe { s.transpose8(from.cast(), from_stride, to.cast(), to_stride) };
    }
    let row = |i: usize| from.wrapping_add(i * from_stride).cast::<[T; 8]>();
    // SAFETY: the caller guarantees 8 elements in each row.
    let rows = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| unsafe { row(i).read_unaligned() });
    for column in 0..8 {
        let to = to.wrapping_add(column * to_stride).cast::<[T; 8]>();
        // SAFETY: likewise.
        unsafe { to.write_unaligned(rows.map(|row| row[column])) };
    }
}

/// Copies elements. If several elements of `x` map to one of `y`, the last index wins.
///
/// # Errors
/// If a slice is too short, the ranks differ, or there are more than [`MAX_DIMS`] dimensions.
pub fn copy<T: CopyElement>(engine: &Engine, copy: &Copy, x: &[T], y: &mut [T]) -> Result<(), Error> {
    let &Copy { sizes, x_offset, x_strides, y_offset, y_strides } = copy;
    if sizes.len() > MAX_DIMS {
        return Err(Error::Index { what: "dimension", index: sizes.len() as i64 - 1, size: MAX_DIMS });
    }
    at_least("strides", x_strides.len(), sizes.len())?;
    at_least("strides", y_strides.len(), sizes.len())?;
    let elements = size("sizes", sizes)?;
    if elements == 0 {
        return Ok(());
    }
    let end =
        |what, strides, offset: usize| min_len(what, sizes, strides)?.checked_add(offset).ok_or(Error::Size { what });
    at_least("x", x.len(), end("x strides", x_strides, x_offset)?)?;
    at_least("y", y.len(), end("y strides", y_strides, y_offset)?)?;
    let y = SharedOutput::new(y);
    let Some(plan) = CopyPlan::new(copy) else {
        copy_in_order(copy, elements, x, y);
        return Ok(());
    };
    let min_items = MIN_TASK_ELEMENTS.div_ceil(elements.div_ceil(plan.items()));
    engine.parallel_for(plan.items(), min_items, |items| {
        engine.dispatch.run(CopyItems { plan: &plan, items, x, y });
    });
    Ok(())
}

/// Copies elements in index order.
fn copy_in_order<T: CopyElement>(copy: &Copy, elements: usize, x: &[T], y: SharedOutput<'_, T>) {
    for i in 0..elements {
        let (mut rest, mut from, mut to) = (i, copy.x_offset, copy.y_offset);
        for (d, &size) in copy.sizes.iter().enumerate().rev() {
            from += rest % size * copy.x_strides[d];
            to += rest % size * copy.y_strides[d];
            rest /= size;
        }
        // SAFETY: `copy` has checked that every index is inside; nobody else writes.
        unsafe { *y.at(to) = x[from] };
    }
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 16 << 10;

/// Rows and columns of a transpose block; two blocks fit in L1.
const TRANSPOSE_BLOCK: usize = 32;

/// A dimension of size at least 2.
#[derive(Clone, core::marker::Copy, Default)]
struct CopyDim {
    size: usize,
    x: usize,
    y: usize,
}

/// The plan of a copy. An item is a run along the inner dimension, or a strip of a transpose.
struct CopyPlan {
    x_offset: usize,
    y_offset: usize,
    outer: [CopyDim; MAX_DIMS],
    rank: usize,
    /// The dimension with the smallest stride in `y`.
    inner: CopyDim,
    /// In a transpose, the dimension in which `x` is contiguous; it is split into strips.
    crossed: Option<CopyDim>,
}

impl CopyPlan {
    /// Makes the plan; `None` if elements of `y` may be written twice, so that the order of writes matters.
    fn new(copy: &Copy) -> Option<Self> {
        let mut dims = [CopyDim::default(); MAX_DIMS];
        let mut rank = 0;
        for (d, &size) in copy.sizes.iter().enumerate().filter(|(_, size)| **size > 1) {
            dims[rank] = CopyDim { size, x: copy.x_strides[d], y: copy.y_strides[d] };
            rank += 1;
        }
        // Sorted by stride in `y`, each dimension must step over the extent of those inside it.
        dims[..rank].sort_unstable_by_key(|dim| core::cmp::Reverse(dim.y));
        let mut inside = 0;
        for dim in dims[..rank].iter().rev() {
            if dim.y <= inside {
                return None;
            }
            inside += (dim.size - 1) * dim.y;
        }
        let mut merged = 0;
        for d in 1..rank {
            let (before, dim) = (dims[merged], dims[d]);
            if before.x == dim.x * dim.size && before.y == dim.y * dim.size {
                dims[merged] = CopyDim { size: before.size * dim.size, ..dim };
            } else {
                merged += 1;
                dims[merged] = dim;
            }
        }
        let mut rank = if rank == 0 { 0 } else { merged + 1 };
        let mut inner = CopyDim { size: 1, x: 1, y: 1 };
        if rank > 0 {
            rank -= 1;
            inner = dims[rank];
        }
        // Only `y` is contiguous along the inner dimension, `x` along another one: transpose in blocks.
        let crossing =
            (inner.y == 1 && inner.x > 1).then(|| dims[..rank].iter().position(|dim| dim.x == 1 && dim.size >= 8));
        let mut crossed = None;
        if let Some(d) = crossing.flatten() {
            crossed = Some(dims[d]);
            dims.copy_within(d + 1..rank, d);
            rank -= 1;
        }
        Some(Self { x_offset: copy.x_offset, y_offset: copy.y_offset, outer: dims, rank, inner, crossed })
    }

    /// Number of strips; their sizes differ by at most one row and none has fewer than 8 rows.
    fn strips(&self) -> usize {
        // With few columns, more rows make a block of the same size.
        let rows = if self.inner.size < 8 { 8 * TRANSPOSE_BLOCK } else { TRANSPOSE_BLOCK };
        self.crossed.map_or(1, |crossed| crossed.size.div_ceil(rows))
    }

    fn items(&self) -> usize {
        self.outer[..self.rank].iter().map(|dim| dim.size).product::<usize>() * self.strips()
    }
}

/// A range of a plan's items.
struct CopyItems<'a, T> {
    plan: &'a CopyPlan,
    items: Range<usize>,
    x: &'a [T],
    y: SharedOutput<'a, T>,
}

impl<T: CopyElement> Kernel for CopyItems<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let strips = plan.strips();
        let mut index = [0; MAX_DIMS];
        let (mut from, mut to) = (plan.x_offset, plan.y_offset);
        let mut rest = self.items.start / strips;
        for d in (0..plan.rank).rev() {
            let dim = plan.outer[d];
            index[d] = rest % dim.size;
            from += index[d] * dim.x;
            to += index[d] * dim.y;
            rest /= dim.size;
        }
        let mut strip = self.items.start % strips;
        for _ in self.items.clone() {
            match plan.crossed {
                Some(crossed) => {
                    let rows = strip * crossed.size / strips..(strip + 1) * crossed.size / strips;
                    self.strip(s, crossed, rows.len(), from + rows.start, to + rows.start * crossed.y);
                }
                None => self.run_of(plan.inner, from, to),
            }
            strip += 1;
            if strip < strips {
                continue;
            }
            strip = 0;
            for d in (0..plan.rank).rev() {
                let dim = plan.outer[d];
                index[d] += 1;
                (from, to) = (from + dim.x, to + dim.y);
                if index[d] < dim.size {
                    break;
                }
                (from, to) = (from - dim.size * dim.x, to - dim.size * dim.y);
                index[d] = 0;
            }
        }
    }
}

impl<T: CopyElement> CopyItems<'_, T> {
    /// Copies a run along one dimension.
    #[inline(always)]
    fn run_of(&self, dim: CopyDim, from: usize, to: usize) {
        if dim.y == 1 {
            // SAFETY: `copy` has checked that every index is inside; runs are disjoint.
            let y = unsafe { self.y.slice(to..to + dim.size) };
            match dim.x {
                0 => y.fill(self.x[from]),
                1 => y.copy_from_slice(&self.x[from..from + dim.size]),
                step => y.iter_mut().zip(self.x[from..].iter().step_by(step)).for_each(|(y, x)| *y = *x),
            }
            return;
        }
        for i in 0..dim.size {
            // SAFETY: likewise.
            unsafe { *self.y.at(to + i * dim.y) = self.x[from + i * dim.x] };
        }
    }

    /// Copies a strip of a transpose.
    #[inline(always)]
    fn strip<S: Simd>(&self, s: S, crossed: CopyDim, rows: usize, from: usize, to: usize) {
        let inner = self.plan.inner;
        if inner.size == 3 && crossed.y == 3 {
            // A planar RGB image: one pass, which the compiler turns into shuffles.
            let plane = |column: usize| &self.x[from + column * inner.x..][..rows];
            // SAFETY: `copy` has checked that every index is inside; strips are disjoint.
            let y = unsafe { self.y.slice(to..to + 3 * rows) };
            for (((y, &a), &b), &c) in y.chunks_exact_mut(3).zip(plane(0)).zip(plane(1)).zip(plane(2)) {
                y.copy_from_slice(&[a, b, c]);
            }
            return;
        }
        if inner.size < 8 || rows < 8 {
            for column in 0..inner.size {
                let x = &self.x[from + column * inner.x..][..rows];
                for (row, &x) in x.iter().enumerate() {
                    // SAFETY: `copy` has checked that every index is inside; strips are disjoint.
                    unsafe { *self.y.at(to + row * crossed.y + column) = x };
                }
            }
            return;
        }
        for block in (0..inner.size).step_by(TRANSPOSE_BLOCK) {
            for row in (0..rows).step_by(8) {
                for column in (block..inner.size.min(block + TRANSPOSE_BLOCK)).step_by(8) {
                    // The last blocks overlap the ones before and write the same values again.
                    let (row, column) = (row.min(rows - 8), column.min(inner.size - 8));
                    let from = self.x[from + column * inner.x + row..].as_ptr();
                    let to = self.y.at(to + row * crossed.y + column);
                    // SAFETY: likewise.
                    unsafe { transpose8(s, from, inner.x, to, crossed.y) };
                }
            }
        }
    }
}

/// Sets all elements of `y` to `value`.
///
/// # Errors
/// Never; the signature leaves room for them.
pub fn fill<T: CopyElement>(engine: &Engine, y: &mut [T], value: T) -> Result<(), Error> {
    let elements = y.len();
    let y = SharedOutput::new(y);
    engine.parallel_for(elements, MIN_TASK_ELEMENTS, |range| {
        // SAFETY: ranges are disjoint.
        unsafe { y.slice(range) }.fill(value);
    });
    Ok(())
}
