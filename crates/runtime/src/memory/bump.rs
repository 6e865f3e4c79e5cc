//! The bump allocator that methods are loaded with.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use crate::error::{Error, Result};
use crate::fault::{Checked, Fault, Reported, Shortage};

#[cfg(feature = "alloc")]
use super::heap::Allocation;

/// A bump allocator over one block or over the heap. Its pieces all live for `'m`.
pub struct Bump<'m> {
    start: NonNull<u8>,
    capacity: usize,
    used: usize,
    /// Bytes of the blocks before the current one.
    retired: usize,
    /// Maximum bytes in use at once, scratch memory included.
    peak: usize,
    /// Bytes that may still be handed out in the current phase of loading, even if the memory holds more.
    budget: usize,
    /// Bytes that the method may still take in total, including memory that is allocated elsewhere for it.
    pub(super) limit: usize,
    pub(crate) shortage: Shortage,
    #[cfg(feature = "alloc")]
    pub(super) heap: Option<alloc::vec::Vec<Allocation>>,
    block: PhantomData<&'m mut [u8]>,
}

impl<'m> Bump<'m> {
    pub fn new(block: &'m mut [u8]) -> Self {
        Self {
            capacity: block.len(),
            start: NonNull::from(block).cast(),
            used: 0,
            retired: 0,
            peak: 0,
            budget: usize::MAX,
            limit: usize::MAX,
            shortage: Shortage { needed: 0, available: 0 },
            #[cfg(feature = "alloc")]
            heap: None,
            block: PhantomData,
        }
    }

    /// Bytes handed out so far, padding included.
    pub fn used(&self) -> usize {
        self.retired + self.used
    }

    /// Maximum in use at once, in bytes, including [`scratch`](Self::scratch).
    pub fn peak(&self) -> usize {
        self.peak.max(self.used())
    }

    /// Limits the bytes that are handed out from now on, within the limit of the method.
    pub(crate) fn set_budget(&mut self, bytes: usize) {
        self.budget = bytes;
    }

    /// Counts memory that is allocated elsewhere for the method against the method's limit. Delegates must call it
    /// before they allocate on the heap.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        match self.limit.checked_sub(bytes) {
            Some(rest) => {
                self.limit = rest;
                Ok(())
            }
            None => Err(Error::fault(Fault::LimitedMemory, bytes, self.limit)),
        }
    }

    /// Bytes that the method may still take in total.
    #[cfg(feature = "alloc")]
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Lends the free memory to `work`, and takes it back afterwards.
    pub fn scratch<R>(&mut self, work: impl FnOnce(&mut Bump<'_>) -> R) -> R {
        let mut scratch = Bump {
            // SAFETY: `used <= capacity`, so the result is inside the block or one past its end.
            start: unsafe { self.start.add(self.used) },
            capacity: self.capacity - self.used,
            used: 0,
            retired: 0,
            peak: 0,
            budget: self.budget,
            limit: self.limit,
            shortage: Shortage { needed: 0, available: 0 },
            #[cfg(feature = "alloc")]
            heap: self.heap.as_ref().map(|_| alloc::vec::Vec::new()),
            block: PhantomData,
        };
        let result = work(&mut scratch);
        self.peak = self.peak().max(self.used() + scratch.peak());
        self.shortage = scratch.shortage;
        result
    }

    /// Returns a slice of `len` elements made by `init`. The elements are never dropped.
    pub fn slice<T>(&mut self, len: usize, mut init: impl FnMut(usize) -> T) -> Result<&'m mut [T]> {
        self.try_slice(len, |i| Ok(init(i)))
    }

    /// Returns a slice of `len` elements made by `init`, which may fail. The elements are never dropped.
    pub fn try_slice<T>(&mut self, len: usize, mut init: impl FnMut(usize) -> Result<T>) -> Result<&'m mut [T]> {
        let mut room = self.room(len).map_err(|Reported| Error::from(self.shortage))?;
        for i in 0..len {
            room.push(init(i)?);
        }
        Ok(room.finish())
    }

    /// Stores one value. It is never dropped.
    pub fn value<T>(&mut self, value: T) -> Result<&'m mut T> {
        self.one(value).map_err(|Reported| Error::from(self.shortage))
    }

    /// Returns `len` bytes aligned to `align`, a power of two. Bytes of a block keep its contents; bytes of the heap
    /// are zeros.
    pub fn bytes(&mut self, len: usize, align: usize) -> Result<&'m mut [u8]> {
        self.raw(len, align).map_err(|Reported| Error::from(self.shortage))
    }

    /// Reserves memory for `len` elements that are pushed one by one.
    pub(crate) fn room<T>(&mut self, len: usize) -> Checked<Room<'m, T>> {
        let start = self.reserve(len, size_of::<T>(), align_of::<T>())?.cast();
        Ok(Room { start, len: 0, capacity: len, elements: PhantomData })
    }

    /// [`value`](Self::value) with a fault instead of an error.
    pub(crate) fn one<T>(&mut self, value: T) -> Checked<&'m mut T> {
        let mut start = self.reserve(1, size_of::<T>(), align_of::<T>())?.cast::<T>();
        // SAFETY: `reserve` returned room for one `T`, aligned, which nobody else has.
        unsafe { start.write(value) };
        // SAFETY: just initialized, exclusive, and valid for 'm as the block is.
        Ok(unsafe { start.as_mut() })
    }

    /// [`bytes`](Self::bytes) with a fault instead of an error.
    pub(crate) fn raw(&mut self, len: usize, align: usize) -> Checked<&'m mut [u8]> {
        let start = self.reserve(len, 1, align)?;
        #[cfg(feature = "alloc")]
        if self.heap.is_some() && len > 0 && len <= HEAP_CHUNK {
            // SAFETY: `reserve` returned `len` bytes, which nobody else has. Larger pieces are zeros already.
            unsafe { start.write_bytes(0, len) };
        }
        // SAFETY: `reserve` returned `len` bytes of the block, which are initialized and which nobody else has.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// `len` zeros.
    pub(crate) fn zeros<T: Zero>(&mut self, len: usize) -> Checked<&'m mut [T]> {
        let start = self.reserve(len, size_of::<T>(), align_of::<T>())?.cast::<T>();
        // With masked vectors, a write of zero bytes to an invalid address takes longer than a long write to a valid
        // one.
        if len > 0 || cfg!(target_os = "none") {
            // SAFETY: `reserve` returned room for `len` elements, aligned, which nobody else has.
            unsafe { start.write_bytes(0, len) };
        }
        // SAFETY: zero is a value of `T`; the elements are exclusive, and valid for 'm as the block is.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Reserves memory for `len` elements of `size` bytes, aligned to `align`. It is handed out only once.
    #[inline(never)]
    fn reserve(&mut self, len: usize, size: usize, align: usize) -> Checked<NonNull<u8>> {
        let budget = self.budget.min(self.limit);
        let Some(bytes) = len.checked_mul(size).filter(|&bytes| bytes <= isize::MAX as usize - align) else {
            return Err(self.lacks(usize::MAX, budget.min(self.capacity)));
        };
        if bytes == 0 {
            return Ok(NonNull::without_provenance(
                core::num::NonZeroUsize::new(align).unwrap_or(core::num::NonZeroUsize::MIN),
            ));
        }
        if bytes > budget {
            return Err(self.lacks(bytes, budget));
        }
        self.budget -= bytes;
        self.limit -= bytes;
        #[cfg(feature = "alloc")]
        if bytes > HEAP_CHUNK
            && let Some(heap) = &mut self.heap
        {
            // Large pieces, such as planned buffers, get their own blocks.
            let Some(block) = Allocation::zeroed(bytes) else { return Err(self.lacks(bytes, 0)) };
            let start = block.start;
            heap.push(block);
            self.retired += bytes;
            return Ok(start);
        }
        let padding = |bump: &Self| (bump.start.addr().get() + bump.used).wrapping_neg() & (align - 1);
        #[cfg(feature = "alloc")]
        if self.used + padding(self) + bytes > self.capacity {
            self.grow(bytes + align)?;
        }
        let begin = self.used + padding(self);
        let end = begin + bytes;
        if end > self.capacity {
            return Err(self.lacks(self.retired + end, self.capacity));
        }
        self.used = end;
        // SAFETY: `begin <= end <= capacity`, so the result is inside the block or one past its end.
        Ok(unsafe { self.start.add(begin) })
    }

    #[cold]
    fn lacks(&mut self, needed: usize, available: usize) -> Reported {
        self.shortage = Shortage { needed, available };
        Reported
    }

    /// Makes sure that `bytes` more can be handed out, if the memory comes from the heap.
    #[cfg(feature = "alloc")]
    fn grow(&mut self, bytes: usize) -> Checked<()> {
        let Some(heap) = &mut self.heap else { return Ok(()) };
        let capacity = bytes.max(FIRST_CHUNK << heap.len().min(3));
        let Some(block) = Allocation::uninitialised(capacity) else { return Err(self.lacks(bytes, 0)) };
        self.retired += self.used;
        (self.start, self.capacity, self.used) = (block.start, capacity, 0);
        heap.push(block);
        Ok(())
    }
}

/// Memory in a [`Bump`] for elements that are pushed one by one. They are never dropped.
pub(crate) struct Room<'m, T> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    elements: PhantomData<&'m mut [T]>,
}

impl<'m, T> Room<'m, T> {
    /// Adds an element, unless the memory is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.len < self.capacity {
            // SAFETY: the room holds `capacity` elements, so element `len` is inside it.
            let slot = unsafe { self.start.add(self.len) };
            // SAFETY: as above, and aligned.
            unsafe { slot.write(value) };
            self.len += 1;
        }
    }

    /// The elements that were added.
    #[inline]
    pub(crate) fn finish(self) -> &'m mut [T] {
        // SAFETY: the `len` elements at `start` are initialized; they belong to the block that is borrowed for 'm, and
        // `reserve` never hands out the same bytes twice.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// A type for which memory full of zeros is a valid value.
///
/// # Safety
/// All bytes of a value may be zero.
pub(crate) unsafe trait Zero {}

// SAFETY: a number.
unsafe impl Zero for u32 {}
// SAFETY: `false` is zero.
unsafe impl Zero for bool {}
// SAFETY: a cell is laid out as the number in it.
unsafe impl Zero for Cell<usize> {}
// SAFETY: as its element.
unsafe impl<T: Zero, const N: usize> Zero for [T; N] {}

/// Maximum bytes of a chunk that a growing [`Bump`] allocates; larger requests get an allocation of their own.
#[cfg(feature = "alloc")]
const HEAP_CHUNK: usize = 8192;

/// Bytes of its first chunk; each further one is twice as large. Allocators keep blocks of up to 1 KiB at hand.
#[cfg(feature = "alloc")]
const FIRST_CHUNK: usize = 960;

#[cfg(feature = "alloc")]
impl Bump<'_> {
    /// Makes a bump allocator over the heap. Its memory is valid until its blocks are dropped.
    pub(crate) fn heap() -> Self {
        Self { heap: Some(alloc::vec::Vec::new()), ..Self::new(&mut []) }
    }
}

impl core::fmt::Debug for Bump<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bump").field("used", &self.used()).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
