//! Copies between strided views, and fills.
#![allow(unsafe_code)]

use core::ops::Range;

use crate::Engine;
use crate::arch::{Job, Simd};
use crate::elementwise::{MAX_DIMS, reach};
use crate::error::{Error, at_least, size};
use crate::split::Output;

/// Which elements to copy: for every index `i` below `sizes`, `y[y_offset + sum of i * y_strides]` becomes
/// `x[x_offset + sum of i * x_strides]`. Transposes, slices, concatenations and expansions are of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy<'a> {
    pub sizes: &'a [usize],
    pub x_offset: usize,
    pub x_strides: &'a [usize],
    pub y_offset: usize,
    pub y_strides: &'a [usize],
}

/// What can be copied: floats, bytes and the bits of bf16.
pub trait Movable: sealed::Plain {}

impl Movable for f32 {}

impl Movable for u8 {}

impl Movable for u16 {}

mod sealed {
    /// Numbers without padding.
    pub trait Plain: Copy + Send + Sync {}

    impl Plain for f32 {}

    impl Plain for u8 {}

    impl Plain for u16 {}
}

/// Writes 8 columns of 8 rows as rows, as [`Simd::transpose8`] does.
///
/// # Safety
/// As there, with elements of type `T`.
#[inline(always)]
unsafe fn transpose8<S: Simd, T: Movable>(s: S, from: *const T, from_stride: usize, to: *mut T, to_stride: usize) {
    if const { size_of::<T>() == size_of::<f32>() } {
        // SAFETY: the caller vouches for it, and floats are moved as they are.
        return unsafe { s.transpose8(from.cast(), from_stride, to.cast(), to_stride) };
    }
    let row = |i: usize| from.wrapping_add(i * from_stride).cast::<[T; 8]>();
    // SAFETY: the caller vouches for 8 elements in each row.
    let rows = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| unsafe { row(i).read_unaligned() });
    for column in 0..8 {
        let to = to.wrapping_add(column * to_stride).cast::<[T; 8]>();
        // SAFETY: likewise.
        unsafe { to.write_unaligned(rows.map(|row| row[column])) };
    }
}

/// Copies. Where several elements of `x` go to one of `y`, the last index wins.
///
/// # Errors
/// When a slice is too short, the numbers of dimensions differ, or there are more than [`MAX_DIMS`].
pub fn copy<T: Movable>(engine: &Engine, copy: &Copy, x: &[T], y: &mut [T]) -> Result<(), Error> {
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
        |what, strides, offset: usize| reach(what, sizes, strides)?.checked_add(offset).ok_or(Error::Size { what });
    at_least("x", x.len(), end("x strides", x_strides, x_offset)?)?;
    at_least("y", y.len(), end("y strides", y_strides, y_offset)?)?;
    let y = Output::new(y);
    let Some(plan) = Plan::new(copy) else {
        one_by_one(copy, elements, x, y);
        return Ok(());
    };
    let least = LEAST.div_ceil(elements.div_ceil(plan.items()));
    engine.for_ranges(plan.items(), least, |items| {
        engine.level.run(Items { plan: &plan, items, x, y });
    });
    Ok(())
}

/// Copies elements in the order of indices.
fn one_by_one<T: Movable>(copy: &Copy, elements: usize, x: &[T], y: Output<'_, T>) {
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

/// Elements for which a task is worth handing over.
const LEAST: usize = 16 << 10;

/// Rows and columns of a block of a transpose, which the first-level cache holds twice.
const BLOCK: usize = 32;

/// A dimension of size at least 2.
#[derive(Clone, core::marker::Copy, Default)]
struct Dim {
    size: usize,
    x: usize,
    y: usize,
}

/// How elements are copied: in each item, a run along the inner dimension, or a strip of a transpose.
struct Plan {
    x_offset: usize,
    y_offset: usize,
    outer: [Dim; MAX_DIMS],
    rank: usize,
    /// The dimension with the least stride in `y`.
    inner: Dim,
    /// Of a transpose, the dimension in which `x` is contiguous: its rows, cut into strips. The inner one has its columns.
    across: Option<Dim>,
}

impl Plan {
    /// `None` if elements of `y` may be written twice, so that order counts.
    fn new(copy: &Copy) -> Option<Self> {
        let mut dims = [Dim::default(); MAX_DIMS];
        let mut rank = 0;
        for (d, &size) in copy.sizes.iter().enumerate().filter(|(_, size)| **size > 1) {
            dims[rank] = Dim { size, x: copy.x_strides[d], y: copy.y_strides[d] };
            rank += 1;
        }
        // In the order of `y`, where each dimension must go beyond all that is inside of it.
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
                dims[merged] = Dim { size: before.size * dim.size, ..dim };
            } else {
                merged += 1;
                dims[merged] = dim;
            }
        }
        let mut rank = if rank == 0 { 0 } else { merged + 1 };
        let mut inner = Dim { size: 1, x: 1, y: 1 };
        if rank > 0 {
            rank -= 1;
            inner = dims[rank];
        }
        // A run along which only `y` is contiguous, while `x` is along another dimension: both, in blocks.
        let crossing =
            (inner.y == 1 && inner.x > 1).then(|| dims[..rank].iter().position(|dim| dim.x == 1 && dim.size >= 8));
        let mut across = None;
        if let Some(d) = crossing.flatten() {
            across = Some(dims[d]);
            dims.copy_within(d + 1..rank, d);
            rank -= 1;
        }
        Some(Self { x_offset: copy.x_offset, y_offset: copy.y_offset, outer: dims, rank, inner, across })
    }

    /// How many strips there are, which differ by one row at most: none has fewer than 8.
    fn strips(&self) -> usize {
        // With few columns, more rows make as large a block.
        let rows = if self.inner.size < 8 { 8 * BLOCK } else { BLOCK };
        self.across.map_or(1, |across| across.size.div_ceil(rows))
    }

    fn items(&self) -> usize {
        self.outer[..self.rank].iter().map(|dim| dim.size).product::<usize>() * self.strips()
    }
}

/// Some of a plan's items.
struct Items<'a, T> {
    plan: &'a Plan,
    items: Range<usize>,
    x: &'a [T],
    y: Output<'a, T>,
}

impl<T: Movable> Job for Items<'_, T> {
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
            match plan.across {
                Some(across) => {
                    let rows = strip * across.size / strips..(strip + 1) * across.size / strips;
                    self.strip(s, across, rows.len(), from + rows.start, to + rows.start * across.y);
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

impl<T: Movable> Items<'_, T> {
    /// The elements along one dimension.
    #[inline(always)]
    fn run_of(&self, dim: Dim, from: usize, to: usize) {
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

    /// Rows of a transpose.
    #[inline(always)]
    fn strip<S: Simd>(&self, s: S, across: Dim, rows: usize, from: usize, to: usize) {
        let inner = self.plan.inner;
        if inner.size == 3 && across.y == 3 {
            // A picture that comes plane by plane: in one pass, which compilers turn into shuffles.
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
                    unsafe { *self.y.at(to + row * across.y + column) = x };
                }
            }
            return;
        }
        for block in (0..inner.size).step_by(BLOCK) {
            for row in (0..rows).step_by(8) {
                for column in (block..inner.size.min(block + BLOCK)).step_by(8) {
                    // The last ones overlap those before, and write the same again.
                    let (row, column) = (row.min(rows - 8), column.min(inner.size - 8));
                    let from = self.x[from + column * inner.x + row..].as_ptr();
                    let to = self.y.at(to + row * across.y + column);
                    // SAFETY: likewise.
                    unsafe { transpose8(s, from, inner.x, to, across.y) };
                }
            }
        }
    }
}

/// Sets every element of `y`.
///
/// # Errors
/// None yet.
pub fn fill<T: Movable>(engine: &Engine, y: &mut [T], value: T) -> Result<(), Error> {
    let elements = y.len();
    let y = Output::new(y);
    engine.for_ranges(elements, LEAST, |range| {
        // SAFETY: ranges are disjoint.
        unsafe { y.slice(range) }.fill(value);
    });
    Ok(())
}
