//! Memory of the heap, and shared ownership of bytes that stay in place.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::slice;

use crate::error::{Error, Result};
use crate::fault::Fault;

use super::ALIGNMENT;

/// Bytes that stay at one address, unchanged, while the value lives, even if it is moved.
///
/// # Safety
/// `bytes` returns the same slice at every call, and nothing writes to it while `self` lives.
pub unsafe trait StableBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
}

// SAFETY: the heap buffer of a boxed slice does not move with the box, and a shared box cannot change.
unsafe impl StableBytes for alloc::boxed::Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as for a boxed slice; a shared `HeapBlock` cannot change.
unsafe impl StableBytes for HeapBlock {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block was allocated with this length, zeroed, and `self` owns it.
        unsafe { slice::from_raw_parts(self.memory.start.as_ptr(), self.len) }
    }
}

/// Shared ownership of stable bytes.
#[derive(Clone)]
pub(crate) struct SharedBytes(alloc::sync::Arc<dyn StableBytes>);

impl SharedBytes {
    pub(crate) fn new(bytes: alloc::sync::Arc<dyn StableBytes>) -> Self {
        Self(bytes)
    }

    /// Makes a reader of the bytes. The caller stores it beside this owner (or a clone), hands out references into it
    /// only for its own lifetime, and drops it no later than the last owner.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&'static [u8]) -> R) -> R {
        let bytes: *const [u8] = self.0.bytes();
        // SAFETY: `StableBytes` keeps the slice in place and unchanged while an owner lives, and the caller keeps one
        // as long as what `read` returns.
        read(unsafe { &*bytes })
    }
}

/// Heap memory that is aligned to 64 bytes.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(super) start: NonNull<u8>,
    /// Start of the allocation, at most 64 bytes before `start`.
    base: NonNull<u8>,
    layout: core::alloc::Layout,
}

impl Allocation {
    const ALIGNMENT: usize = 64;

    /// Allocates `len` zeros; `None` if the allocator fails.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        // SAFETY: the size is not zero.
        Self::with(len, |layout| unsafe { alloc::alloc::alloc_zeroed(layout) })
    }

    /// Allocates `len` bytes without initializing them; `None` if the allocator fails.
    pub(super) fn uninitialised(len: usize) -> Option<Self> {
        // SAFETY: the size is not zero.
        Self::with(len, |layout| unsafe { alloc::alloc::alloc(layout) })
    }

    /// Aligns the memory itself: allocators return memory of their own alignment much faster, and large zeroed memory
    /// of that alignment without writing any.
    fn with(len: usize, allocate: impl FnOnce(core::alloc::Layout) -> *mut u8) -> Option<Self> {
        let layout = core::alloc::Layout::from_size_align(len.checked_add(Self::ALIGNMENT)?, ALIGNMENT).ok()?;
        let base = NonNull::new(allocate(layout))?;
        let padding = base.addr().get().wrapping_neg() & (Self::ALIGNMENT - 1);
        // SAFETY: the padding is below the alignment, which the allocation has more than `len`.
        Some(Self { start: unsafe { base.add(padding) }, base, layout })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `with` with this layout.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Zeroed heap memory that can be lent for longer than a borrow.
pub struct HeapBlock {
    memory: Allocation,
    len: usize,
}

impl core::fmt::Debug for HeapBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HeapBlock").field("len", &self.len).finish_non_exhaustive()
    }
}

impl HeapBlock {
    /// Allocates `len` zeroed bytes, aligned to 64. Fails if the allocator fails.
    pub fn new(len: usize) -> Result<Self> {
        match Allocation::zeroed(len) {
            Some(memory) => Ok(Self { memory, len }),
            None => Err(Error::fault(Fault::HeapMemory, len, 0)),
        }
    }

    /// The bytes, to be filled before they are shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block was allocated with this length, zeroed, and `self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }

    /// Lends the bytes for as long as the caller keeps the block, which must be at least as long as any use of them.
    pub(super) fn lend(&mut self) -> &'static mut [u8] {
        // SAFETY: the pointer and length are those of the allocation. `SharedArenas::heap`, the only caller, lends a block
        // once and keeps it as long as the arenas.
        unsafe { slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }
}

// SAFETY: it owns its memory as a `Box<[u8]>` would.
unsafe impl Send for Allocation {}
// SAFETY: shared access only reads.
unsafe impl Sync for Allocation {}
