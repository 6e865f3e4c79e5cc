//! Work in ranges for all threads, and the output that they share.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::Range;

use crate::Engine;

impl Engine {
    /// Runs `work` on ranges that together are `0..items`, on all threads. With more than one thread, ranges have at
    /// least `least` items, except the last.
    pub(crate) fn for_ranges(&self, items: usize, least: usize, work: impl Fn(Range<usize>) + Sync) {
        if items == 0 {
            return;
        }
        let pieces = self.pieces(items / least.max(1));
        self.pool.run(pieces, |i| work(piece(i, pieces, items)));
    }

    /// Into how many pieces work is cut that is worth that of `worth` tasks: several for each thread, of which others take
    /// some if it is slow, and as many for each, so that all end together.
    pub(crate) fn pieces(&self, worth: usize) -> usize {
        let threads = self.threads();
        // Each piece begins with work of its own (finding rows, reading weights anew): with four, a tenth of small models'
        // time goes into it. Two threads hardly ever are on cores of different kinds.
        let each = if threads == 2 { 2 } else { 4 };
        let pieces = worth.clamp(1, each * threads);
        if threads == 1 {
            1
        } else if pieces > threads {
            pieces / threads * threads
        } else {
            pieces
        }
    }

    /// Runs `work` on the rows of `x` and of `y`, which have as many of `columns` each, some rows at a time and on all threads.
    /// With more than one thread, there are `least` elements or more at a time. There are columns.
    pub(crate) fn for_rows<X: Sync, Y: Send>(
        &self,
        columns: usize,
        least: usize,
        x: &[X],
        y: &mut [Y],
        work: impl Fn(&[X], &mut [Y]) + Sync,
    ) {
        let all = Output::new(y);
        self.for_ranges(x.len() / columns, least.div_ceil(columns), |rows| {
            let elements = rows.start * columns..rows.end * columns;
            // SAFETY: ranges of rows are disjoint.
            work(&x[elements.clone()], unsafe { all.slice(elements) });
        });
    }
}

/// The `index`-th of the `pieces` of `0..items`, which differ by one at most.
pub(crate) fn piece(index: usize, pieces: usize, items: usize) -> Range<usize> {
    // There are few pieces: the product is far below 2^64.
    let start = |index: usize| (index as u64 * items as u64 / pieces as u64) as usize;
    start(index)..start(index + 1)
}

/// A slice whose disjoint parts are written by several threads.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a, T = f32> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: whoever makes slices or writes through pointers vouches that threads do not touch each other's.
unsafe impl<T: Send> Send for Output<'_, T> {}
// SAFETY: likewise.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a, T> Output<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    pub(crate) fn at(self, offset: usize) -> *mut T {
        self.start.wrapping_add(offset)
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// Nobody else reads or writes it while the borrow lasts.
    ///
    /// # Panics
    /// When the range is not inside.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part of the output");
        // SAFETY: the range is inside the slice that this was made from; the caller vouches for exclusiveness.
        unsafe { core::slice::from_raw_parts_mut(self.start.wrapping_add(range.start), range.len()) }
    }
}
