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
        let most = if self.threads() == 1 { 1 } else { 4 * self.threads() };
        let chunk = items.div_ceil((items / least.max(1)).clamp(1, most));
        self.pool.run(items.div_ceil(chunk), |i| work(i * chunk..((i + 1) * chunk).min(items)));
    }
}

impl Engine {
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
