//! Memory that callers give: bump allocation at load, temporary memory during execution.
//!
//! Together with the tensor accessors this is the only place of the crate with `unsafe`.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use crate::element::Element;
use crate::error::{Detail, Error, Result};

/// Alignment that planned arenas, constants and temporary memory have at least, in bytes.
pub const ALIGNMENT: usize = 16;

/// Hands out pieces of one block of memory, which all live as long as the block.
#[derive(Debug)]
pub struct Bump<'m> {
    start: NonNull<u8>,
    capacity: usize,
    used: usize,
    block: PhantomData<&'m mut [u8]>,
}

impl<'m> Bump<'m> {
    pub fn new(block: &'m mut [u8]) -> Self {
        Self { start: NonNull::from(&mut *block).cast(), capacity: block.len(), used: 0, block: PhantomData }
    }

    /// Bytes handed out so far, padding included.
    pub fn used(&self) -> usize {
        self.used
    }

    /// A slice of `len` elements made by `init`. The elements are never dropped.
    pub fn slice<T: Copy>(&mut self, len: usize, mut init: impl FnMut(usize) -> T) -> Result<&'m mut [T]> {
        let start = self.reserve(len, size_of::<T>(), align_of::<T>())?.cast::<T>();
        for i in 0..len {
            // SAFETY: `reserve` returned room for `len` elements, so element `i` is inside it and aligned.
            unsafe { start.add(i).write(init(i)) };
        }
        // SAFETY: the `len` elements at `start` were just initialised; they belong to the block that is borrowed for
        // 'm, and `reserve` never hands out the same bytes twice.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// One value. It is never dropped.
    pub fn value<T>(&mut self, value: T) -> Result<&'m mut T> {
        let mut start = self.reserve(1, size_of::<T>(), align_of::<T>())?.cast::<T>();
        // SAFETY: `reserve` returned room for one `T`, aligned, which nobody else has.
        unsafe { start.write(value) };
        // SAFETY: just initialised, exclusive, and valid for 'm as the block is.
        Ok(unsafe { start.as_mut() })
    }

    fn reserve(&mut self, len: usize, size: usize, align: usize) -> Result<NonNull<u8>> {
        if len == 0 || size == 0 {
            return Ok(NonNull::without_provenance(
                core::num::NonZeroUsize::new(align).unwrap_or(core::num::NonZeroUsize::MIN),
            ));
        }
        let address = self.start.addr().get() + self.used;
        let padding = address.wrapping_neg() & (align - 1);
        let begin = self.used + padding;
        let end = len.checked_mul(size).and_then(|bytes| bytes.checked_add(begin));
        let Some(end) = end.filter(|&end| end <= self.capacity) else {
            let needed = end.unwrap_or(usize::MAX);
            return Err(Detail::Memory { what: "method memory", needed, available: self.capacity }.into());
        };
        self.used = end;
        // SAFETY: `begin <= end <= capacity`, so the result is inside the block or one past its end.
        Ok(unsafe { self.start.add(begin) })
    }
}

/// Temporary memory of the running operator, taken back when it returns.
pub(crate) struct Temp<'m> {
    start: Cell<NonNull<u8>>,
    capacity: Cell<usize>,
    used: Cell<usize>,
    block: PhantomData<&'m mut [u8]>,
}

impl<'m> Temp<'m> {
    pub(crate) fn new(block: &'m mut [u8]) -> Self {
        let capacity = Cell::new(block.len());
        Self { start: Cell::new(NonNull::from(block).cast()), capacity, used: Cell::new(0), block: PhantomData }
    }

    /// Zeroed elements.
    #[allow(clippy::mut_from_ref, reason = "each call returns other bytes, like an arena")]
    pub(crate) fn take<T: Element + Default>(&self, len: usize) -> Result<&mut [T]> {
        let begin = self.used.get();
        let address = self.start.get().addr().get() + begin;
        let padding = address.wrapping_neg() & (ALIGNMENT - 1);
        let bytes = len.checked_mul(size_of::<T>());
        let end = bytes.and_then(|bytes| bytes.checked_add(begin + padding));
        let Some(end) = end.filter(|&end| end <= self.capacity.get()) else {
            let (what, needed) = ("temporary memory of the operator", end.unwrap_or(usize::MAX));
            return Err(Error::from(Detail::Memory { what, needed, available: self.capacity.get() }));
        };
        self.used.set(end);
        // SAFETY: `begin + padding <= end <= capacity`, so the result is inside the block or one past its end.
        let start = unsafe { self.start.get().add(begin + padding) };
        // SAFETY: the bytes are inside the block, which is exclusively borrowed for 'm, aligned for every `Element`,
        // initialised, and not handed out again before `reset`.
        let elements = unsafe { slice::from_raw_parts_mut(start.as_ptr().cast::<T>(), len) };
        elements.fill(T::default());
        Ok(elements)
    }

    /// Takes everything back. Only the kernel context calls it, when it is dropped: every piece borrows the context.
    pub(crate) fn reset(&self) {
        self.used.set(0);
    }
}
