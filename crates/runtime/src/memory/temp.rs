//! Temporary memory of operators.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use crate::element::Element;
use crate::error::{Error, Result};
use crate::fault::Fault;

use super::ALIGNMENT;

/// Temporary memory of the running operator, taken back when the operator returns.
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

    /// Replaces the block.
    pub(crate) fn set_block(&self, block: &'m mut [u8]) {
        self.capacity.set(block.len());
        self.start.set(NonNull::from(block).cast());
    }

    /// Returns zeroed elements.
    #[allow(clippy::mut_from_ref, reason = "each call returns other bytes, like an arena")]
    pub(crate) fn take<T: Element + Default>(&self, len: usize) -> Result<&mut [T]> {
        let begin = self.used.get();
        let address = self.start.get().addr().get() + begin;
        let padding = address.wrapping_neg() & (ALIGNMENT - 1);
        let bytes = len.checked_mul(size_of::<T>());
        let end = bytes.and_then(|bytes| bytes.checked_add(begin + padding));
        let Some(end) = end.filter(|&end| end <= self.capacity.get()) else {
            return Err(Error::fault(Fault::TempMemory, end.unwrap_or(usize::MAX), self.capacity.get()));
        };
        self.used.set(end);
        // SAFETY: `begin + padding <= end <= capacity`, so the result is inside the block or one past its end.
        let start = unsafe { self.start.get().add(begin + padding) };
        // SAFETY: the bytes are inside the block, which is exclusively borrowed for 'm, aligned for every `Element`,
        // initialized, and not handed out again before `reset`.
        let elements = unsafe { slice::from_raw_parts_mut(start.as_ptr().cast::<T>(), len) };
        elements.fill(T::default());
        Ok(elements)
    }

    /// Takes all pieces back. Only the kernel context calls it, when it is dropped: every piece borrows the context.
    pub(crate) fn reset(&self) {
        self.used.set(0);
    }
}
