//! Parallel loops over ranges, and shared access to their output.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::Range;

use crate::Engine;

impl Engine {
    /// Calls `work` on disjoint ranges that cover `0..items`, on all threads. With more than one thread, each range but
    /// the last has at least `min_items` items.
    pub(crate) fn parallel_for(&self, items: usize, min_items: usize, work: impl Fn(Range<usize>) + Sync) {
        if items == 0 {
            return;
        }
        let task_count = self.task_count(items / min_items.max(1));
        self.pool.run(task_count, |i| work(chunk_range(i, task_count, items)));
    }

    /// Returns the number of tasks to split work into, given the number of minimum-sized tasks in it: a few per thread
    /// for load balancing, and a multiple of the thread count so that all threads finish together.
    pub(crate) fn task_count(&self, max_tasks: usize) -> usize {
        let threads = self.threads();
        // Each task has setup costs (finding rows, reading weights again), so there are no more than these. Two threads
        // rarely run on cores of different speeds.
        let each = if threads == 2 { 2 } else { 4 };
        let task_count = max_tasks.clamp(1, each * threads);
        if threads == 1 {
            1
        } else if task_count > threads {
            task_count / threads * threads
        } else {
            task_count
        }
    }

    /// Calls `work` on blocks of rows of `x` and `y`, each row having `columns` elements, on all threads. With more
    /// than one thread, a block has at least `min_items` elements. `columns` must not be 0.
    pub(crate) fn parallel_rows<X: Sync, Y: Send>(
        &self,
        columns: usize,
        min_items: usize,
        x: &[X],
        y: &mut [Y],
        work: impl Fn(&[X], &mut [Y]) + Sync,
    ) {
        let all = SharedOutput::new(y);
        self.parallel_for(x.len() / columns, min_items.div_ceil(columns), |rows| {
            let elements = rows.start * columns..rows.end * columns;
            // SAFETY: ranges of rows are disjoint.
            work(&x[elements.clone()], unsafe { all.slice(elements) });
        });
    }
}

/// Returns the `index`-th of `task_count` chunks of `0..items`, whose sizes differ by at most one.
pub(crate) fn chunk_range(index: usize, task_count: usize, items: usize) -> Range<usize> {
    // `task_count` is small, so the product stays far below 2^64.
    let start = |index: usize| (index as u64 * items as u64 / task_count as u64) as usize;
    start(index)..start(index + 1)
}

/// An output slice whose disjoint parts are written by several threads.
#[derive(Clone, Copy)]
pub(crate) struct SharedOutput<'a, T = f32> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: whoever makes slices or writes through pointers guarantees that no two threads access the same element.
unsafe impl<T: Send> Send for SharedOutput<'_, T> {}
// SAFETY: likewise.
unsafe impl<T: Send> Sync for SharedOutput<'_, T> {}

impl<'a, T> SharedOutput<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Returns a pointer to an element.
    pub(crate) fn at(self, offset: usize) -> *mut T {
        self.start.wrapping_add(offset)
    }

    /// Returns a part of the slice.
    ///
    /// # Safety
    /// Nobody else accesses this part while the borrow lasts.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part of the output");
        // SAFETY: the range is inside the slice that this was made from; the caller guarantees exclusive access.
        unsafe { core::slice::from_raw_parts_mut(self.start.wrapping_add(range.start), range.len()) }
    }
}
