//! Memory of tasks that is too large for the stack: the threads of some callers have 64 KB of it, or less.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::mem;

/// A type of which any bytes are a value.
///
/// # Safety
/// Any bytes are, and it is aligned to at most 64 of them.
pub(crate) unsafe trait AnyBytes {}

/// Memory of a task, with the contents that an earlier task left. The thread keeps it for its next task, so that a task has one at a
/// time: a second one is allocated.
pub(crate) struct TaskMemory<T> {
    lines: Vec<Line>,
    of: PhantomData<T>,
}

/// One line of a [`TaskMemory`]: 64 bytes, with the largest alignment of its contents.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl<T: AnyBytes> TaskMemory<T> {
    /// Takes the thread's memory, or allocates if it has too little.
    #[inline(never)]
    pub(crate) fn take() -> Self {
        let mut lines = thread::take();
        let count = size_of::<T>().div_ceil(size_of::<Line>());
        if lines.len() < count {
            lines = alloc::vec![Line([0; 64]); count];
        }
        Self { lines, of: PhantomData }
    }

    pub(crate) fn get(&mut self) -> &mut T {
        const { assert!(align_of::<T>() <= align_of::<Line>()) };
        assert!(size_of_val(&*self.lines) >= size_of::<T>());
        // SAFETY: the lines have the size and alignment of `T`, as the assertions check, and any bytes are a `T` (`AnyBytes`). The result
        // borrows `self`, and so the lines.
        unsafe { &mut *self.lines.as_mut_ptr().cast::<T>() }
    }
}

impl<T> Drop for TaskMemory<T> {
    fn drop(&mut self) {
        thread::keep(mem::take(&mut self.lines));
    }
}

/// The memory of each thread.
#[cfg(feature = "std")]
mod thread {
    use std::cell::Cell;
    use std::thread_local;
    use std::vec::Vec;

    use super::Line;

    thread_local! {
        static MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    }

    /// The memory that the thread kept; none after its end began.
    pub(super) fn take() -> Vec<Line> {
        MEMORY.try_with(Cell::take).unwrap_or_default()
    }

    pub(super) fn keep(lines: Vec<Line>) {
        // Where the thread ends, it is freed.
        MEMORY.try_with(|memory| memory.set(lines)).unwrap_or_default();
    }
}

/// Nothing is kept without threads.
#[cfg(not(feature = "std"))]
mod thread {
    use alloc::vec::Vec;

    use super::Line;

    pub(super) fn take() -> Vec<Line> {
        Vec::new()
    }

    pub(super) fn keep(_: Vec<Line>) {}
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    struct Numbers([u32; 1000]);

    // SAFETY: numbers.
    unsafe impl AnyBytes for Numbers {}

    struct More([u32; 5000]);

    // SAFETY: numbers.
    unsafe impl AnyBytes for More {}

    #[test]
    fn a_thread_keeps_its_memory() {
        let mut memory = TaskMemory::<Numbers>::take();
        memory.get().0[999] = 7;
        let first = memory.lines.as_ptr();
        // Another task meanwhile has its own.
        let other = TaskMemory::<Numbers>::take();
        assert_ne!(other.lines.as_ptr(), first);
        drop(other);
        drop(memory);
        let mut again = TaskMemory::<Numbers>::take();
        assert_eq!((again.lines.as_ptr(), again.get().0[999]), (first, 7));
    }

    #[test]
    fn memory_grows_to_the_largest_task() {
        drop(TaskMemory::<Numbers>::take());
        let mut memory = TaskMemory::<More>::take();
        memory.get().0[4999] = 7;
        let first = memory.lines.as_ptr();
        drop(memory);
        assert_eq!(TaskMemory::<Numbers>::take().lines.as_ptr(), first);
        assert_eq!(TaskMemory::<More>::take().get().0[4999], 7);
    }
}
