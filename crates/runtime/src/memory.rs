//! Memory of the caller's: bump allocation at load, temporary memory during execution.
//!
//! This module and the tensor accessors are the only places of the crate with `unsafe`.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use rushlight_format::pte::{Plan, TensorStorage, ValueSpec};

use crate::element::Element;
use crate::error::{Error, Result};
use crate::fault::{Checked, Fault, Report, Reported, Shortage};
use crate::program::Program;
use crate::tensor::TensorState;

/// Minimum alignment of planned arenas, constants and temporary memory, in bytes.
pub const ALIGNMENT: usize = 16;

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
    limit: usize,
    pub(crate) shortage: Shortage,
    #[cfg(feature = "alloc")]
    heap: Option<alloc::vec::Vec<Allocation>>,
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

/// Bytes that stay at one address, unchanged, while the value lives, even if it is moved.
///
/// # Safety
/// `bytes` returns the same slice at every call, and nothing writes to it while `self` lives.
#[cfg(feature = "alloc")]
pub unsafe trait StableBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
}

// SAFETY: the heap buffer of a boxed slice does not move with the box, and a shared box cannot change.
#[cfg(feature = "alloc")]
unsafe impl StableBytes for alloc::boxed::Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as for a boxed slice; a shared `HeapBlock` cannot change.
#[cfg(feature = "alloc")]
unsafe impl StableBytes for HeapBlock {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block was allocated with this length, zeroed, and `self` owns it.
        unsafe { slice::from_raw_parts(self.memory.start.as_ptr(), self.len) }
    }
}

/// Shared ownership of stable bytes.
#[cfg(feature = "alloc")]
#[derive(Clone)]
pub(crate) struct SharedBytes(alloc::sync::Arc<dyn StableBytes>);

#[cfg(feature = "alloc")]
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
#[cfg(feature = "alloc")]
#[derive(Debug)]
pub(crate) struct Allocation {
    start: NonNull<u8>,
    /// Start of the allocation, at most 64 bytes before `start`.
    base: NonNull<u8>,
    layout: core::alloc::Layout,
}

#[cfg(feature = "alloc")]
impl Allocation {
    const ALIGNMENT: usize = 64;

    /// Allocates `len` zeros; `None` if the allocator fails.
    fn zeroed(len: usize) -> Option<Self> {
        // SAFETY: the size is not zero.
        Self::with(len, |layout| unsafe { alloc::alloc::alloc_zeroed(layout) })
    }

    /// Allocates `len` bytes without initializing them; `None` if the allocator fails.
    fn uninitialised(len: usize) -> Option<Self> {
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

#[cfg(feature = "alloc")]
impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `with` with this layout.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Zeroed heap memory that can be lent for longer than a borrow.
#[cfg(feature = "alloc")]
pub struct HeapBlock {
    memory: Allocation,
    len: usize,
}

#[cfg(feature = "alloc")]
impl core::fmt::Debug for HeapBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("HeapBlock").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(feature = "alloc")]
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
    fn lend(&mut self) -> &'static mut [u8] {
        // SAFETY: the pointer and length are those of the allocation. `SharedArenas::heap`, the only caller, lends a block
        // once and keeps it as long as the arenas.
        unsafe { slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }
}

// SAFETY: it owns its memory as a `Box<[u8]>` would.
#[cfg(feature = "alloc")]
unsafe impl Send for Allocation {}
// SAFETY: shared access only reads.
#[cfg(feature = "alloc")]
unsafe impl Sync for Allocation {}

/// Memory of the caller's that a method may write to. Inputs are passed by shared references, which would make a
/// mutable reference read-only.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    bytes: NonNull<[u8]>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Lent<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes: NonNull::from(bytes), lent: PhantomData }
    }

    /// Start of the memory to write.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// The bytes as they are now. Nobody writes them before an execution begins, and the result is no longer in use
    /// then.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: made of a reference that is borrowed for 'a.
        unsafe { self.bytes.as_ref() }
    }
}

// SAFETY: as the mutable reference that it was made of.
unsafe impl Send for Lent<'_> {}
// SAFETY: as above: shared, it only reads; executions write, and borrow the method exclusively meanwhile.
unsafe impl Sync for Lent<'_> {}

const MAX_APART: usize = 8;

/// The memory that a method is loaded into.
///
/// One block holds everything. Planned buffers may be passed separately, to place them in other memory.
#[derive(Debug)]
pub struct Memory<'m> {
    pub(crate) bump: Bump<'m>,
    apart: [Option<(u32, &'m mut [u8])>; MAX_APART],
    shared: Option<SharedRef<'m>>,
}

impl<'m> Memory<'m> {
    /// Places everything in one block.
    pub fn new(block: &'m mut [u8]) -> Self {
        Self { bump: Bump::new(block), apart: [const { None }; MAX_APART], shared: None }
    }

    /// Uses `buffer` as the planned buffer `memory_id`, which counts from 1. Fails after eight of
    /// them.
    pub fn with_planned(mut self, memory_id: u32, buffer: &'m mut [u8]) -> Result<Self> {
        match self.apart.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some((memory_id, buffer));
                Ok(self)
            }
            None => Err(Fault::TooManyApart.into()),
        }
    }

    /// Uses planned buffers of other methods too, for memory that the methods share or use in turn.
    #[must_use]
    pub fn with_shared(mut self, arenas: &'m SharedArenas<'m>) -> Self {
        self.shared = Some(SharedRef::Borrowed(arenas));
        self
    }

    /// Fails if the method would take more than `bytes` in total, including the memory of its delegates. It is for
    /// untrusted files, which may ask for any amount.
    #[must_use]
    pub fn with_limit(mut self, bytes: usize) -> Self {
        self.bump.limit = bytes;
        self
    }

    /// Finds or allocates the planned buffers of a method.
    pub(crate) fn plan(&mut self, plan: &Plan<'_>, report: &mut Report) -> Checked<&'m [PlannedBuffer]> {
        let count = plan.num_buffers().saturating_sub(1);
        let mut buffers = self.bump.room(count)?;
        for memory_id in 1..=count as u32 {
            let size = plan.buffer_size(memory_id);
            // A size that does not fit `usize` becomes larger than any memory.
            let len = usize::try_from(size).unwrap_or(usize::MAX);
            let apart = self.apart.iter_mut().find(|slot| slot.as_ref().is_some_and(|(id, _)| *id == memory_id));
            let given = match (&self.shared, apart) {
                (Some(shared), _) => Some(shared.get().buffer(memory_id)),
                (None, Some(slot)) => slot.take().map(|(_, given)| (NonNull::from(&mut *given).cast(), given.len())),
                (None, None) => None,
            };
            buffers.push(match given {
                Some((_, available)) if available < len => {
                    return Err(report.fault(Fault::PlannedMemory, len, available));
                }
                Some((start, _)) => PlannedBuffer { start, len, in_block: 0 },
                None => {
                    let before = self.bump.used();
                    let start = NonNull::from(self.bump.raw(len, PLANNED_ALIGNMENT)?).cast();
                    PlannedBuffer { start, len, in_block: self.bump.used() - before }
                }
            });
        }
        Ok(buffers.finish())
    }

    pub(crate) fn shared(&self) -> Option<SharedRef<'m>> {
        self.shared.clone()
    }

    /// True if states in planned memory already have their values.
    pub(crate) fn has_states(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.get().has_states)
    }

    /// The heap memory of all pieces; none for the caller's memory.
    #[cfg(feature = "alloc")]
    pub(crate) fn into_allocations(self) -> alloc::vec::Vec<Allocation> {
        self.bump.heap.unwrap_or_default()
    }
}

/// Alignment of planned buffers, in bytes: a cache line on machines with much memory.
pub(crate) const PLANNED_ALIGNMENT: usize = if cfg!(target_pointer_width = "64") { 64 } else { ALIGNMENT };

#[cfg(feature = "alloc")]
impl Memory<'_> {
    /// Takes the memory from the heap. The method that is loaded into it frees it.
    pub fn heap() -> Self {
        Self { bump: Bump::heap(), apart: [const { None }; MAX_APART], shared: None }
    }

    /// Like [`with_shared`](Self::with_shared), with shared ownership of the arenas.
    #[must_use]
    pub fn with_shared_arenas(mut self, arenas: alloc::sync::Arc<SharedArenas<'static>>) -> Self {
        self.shared = Some(SharedRef::Owned(arenas));
        self
    }
}

/// One planned buffer of a method.
#[derive(Clone, Copy)]
pub(crate) struct PlannedBuffer {
    start: NonNull<u8>,
    pub(crate) len: usize,
    /// Bytes that it takes of the method's block, padding included; none for a separate buffer.
    pub(crate) in_block: usize,
}

/// Binds a tensor to its constant data.
pub(crate) fn bind_constant(tensor: &TensorState<'_>, data: &[u8], report: &mut Report) -> Checked<()> {
    if data.len() < tensor.bound {
        return Err(report.fault(Fault::ConstantData, tensor.bound, data.len()));
    }
    let start = aligned(tensor, NonNull::from(data).cast(), tensor.bound, Fault::UnalignedProgram, report)?;
    // SAFETY: aligned, long enough, and borrowed for as long as the method; never written, because the load-time check
    // refuses instructions that write a tensor whose access is `ReadOnly`.
    unsafe { tensor.bind(start, tensor.bound) };
    Ok(())
}

/// Binds a tensor to its range of a planned buffer, and copies its initial values if it has any.
pub(crate) fn bind_planned(
    tensor: &TensorState<'_>,
    buffer: &PlannedBuffer,
    offset: u64,
    initial: Option<&[u8]>,
    report: &mut Report,
) -> Checked<()> {
    let bound = tensor.bound;
    let offset = usize::try_from(offset).ok().filter(|o| o.checked_add(bound).is_some_and(|end| end <= buffer.len));
    let Some(offset) = offset else {
        return Err(report.plain(Fault::BeyondBuffer));
    };
    // SAFETY: `offset <= buffer.len`, and the buffer is one allocation of that length.
    let start = unsafe { buffer.start.add(offset) };
    let start = aligned(tensor, start, bound, Fault::UnalignedBuffer, report)?;
    if let Some(initial) = initial {
        if initial.len() < bound {
            return Err(report.fault(Fault::InitialData, bound, initial.len()));
        }
        // SAFETY: `bound` bytes from `start` are inside the planned buffer (checked above) and inside `initial`; the
        // planned buffer is borrowed exclusively, or its busy flag is held during load, so nothing else refers to it.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(initial).cast(), bound) };
    }
    // SAFETY: aligned; inside the planned buffer, which the method borrows or shares for its whole life.
    unsafe { tensor.bind(start, bound) };
    Ok(())
}

/// Binds a tensor to the caller's memory until it is unbound.
///
/// # Safety
/// `data` stays valid, and is not used otherwise, until the tensor is unbound or bound again. It is writable if an
/// instruction writes the tensor.
pub(crate) unsafe fn bind_borrowed(
    tensor: &TensorState<'_>,
    data: NonNull<u8>,
    len: usize,
    report: &mut Report,
) -> Checked<()> {
    let data = aligned(tensor, data, len, Fault::UnalignedData, report)?;
    // SAFETY: as above, and aligned.
    unsafe { tensor.bind(data, len) };
    Ok(())
}

/// Returns `start` if it is aligned for the tensor's elements; for an empty tensor, returns any aligned address.
fn aligned(
    tensor: &TensorState<'_>,
    start: NonNull<u8>,
    room: usize,
    fault: Fault,
    report: &mut Report,
) -> Checked<NonNull<u8>> {
    if room == 0 {
        return Ok(NonNull::<u128>::dangling().cast());
    }
    // Complex numbers have the alignment of their parts.
    let size = tensor.dtype.size();
    let needed = if tensor.dtype.is_complex() { size / 2 } else { size };
    if start.addr().get() & (needed - 1) != 0 {
        return Err(report.fault(fault, needed, 0));
    }
    Ok(start)
}

/// The largest memory id that can be shared.
const MAX_SHARED: usize = 16;

/// `N` bytes of static memory for a method: `static ARENA: Arena<4096> = Arena::new();`.
///
/// It is not available on cores without atomic exchange, such as the Cortex-M0.
#[cfg(target_has_atomic = "8")]
#[repr(align(16))]
pub struct Arena<const N: usize> {
    bytes: core::cell::UnsafeCell<[u8; N]>,
    taken: core::sync::atomic::AtomicBool,
}

#[cfg(target_has_atomic = "8")]
impl<const N: usize> Arena<N> {
    #[allow(clippy::new_without_default, reason = "meant for statics")]
    pub const fn new() -> Self {
        Self { bytes: core::cell::UnsafeCell::new([0; N]), taken: core::sync::atomic::AtomicBool::new(false) }
    }

    /// The bytes, at the first call; `None` afterwards.
    #[allow(clippy::mut_from_ref, reason = "given away once")]
    pub fn take(&'static self) -> Option<&'static mut [u8]> {
        if self.taken.swap(true, core::sync::atomic::Ordering::AcqRel) {
            return None;
        }
        // SAFETY: `taken` lets this happen once, so the reference is exclusive; the arena is static.
        Some(unsafe { &mut *self.bytes.get() })
    }
}

// SAFETY: the bytes are only reached through `take`, which gives them away once.
#[cfg(target_has_atomic = "8")]
unsafe impl<const N: usize> Sync for Arena<N> {}

#[cfg(target_has_atomic = "8")]
impl<const N: usize> core::fmt::Debug for Arena<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Arena").field("bytes", &N).finish_non_exhaustive()
    }
}

/// Planned buffers that several methods use, one at a time.
///
/// A method that was loaded with them holds them while it executes and while its outputs are borrowed. Another one then
/// fails with `InvalidState`. On cores without atomic exchange, every method fails.
///
/// Loading a method writes the initial values of its states, as in ExecuTorch. Methods with common states are therefore
/// all loaded before the first call. Alternatively, [`with_states_of`](Self::with_states_of) writes the values once.
pub struct SharedArenas<'m> {
    buffers: [(NonNull<u8>, usize); MAX_SHARED],
    busy: core::sync::atomic::AtomicBool,
    /// True if states have their initial values. Loading a method then leaves them unchanged.
    has_states: bool,
    #[cfg(feature = "alloc")]
    /// Keeps the buffers alive if they are on the heap.
    blocks: alloc::vec::Vec<HeapBlock>,
    block: PhantomData<&'m mut [u8]>,
}

impl<'m> SharedArenas<'m> {
    /// Makes arenas of the planned buffers with memory ids 1, 2 and so on.
    pub fn new(buffers: impl IntoIterator<Item = &'m mut [u8]>) -> Self {
        let mut arenas = [(NonNull::dangling(), 0); MAX_SHARED];
        for (arena, buffer) in arenas.iter_mut().zip(buffers) {
            *arena = (NonNull::from(&mut *buffer).cast(), buffer.len());
        }
        Self {
            buffers: arenas,
            busy: core::sync::atomic::AtomicBool::new(false),
            has_states: false,
            #[cfg(feature = "alloc")]
            blocks: alloc::vec::Vec::new(),
            block: PhantomData,
        }
    }

    /// Writes the initial values of the states of all methods of a program. Methods that are loaded with these arenas
    /// later then find the values that others left. It is for programs in which each state has its own place.
    ///
    /// # Errors
    /// `InvalidProgram` for a state that is larger than its initial value, or exceeds its buffer.
    pub fn with_states_of(mut self, program: &Program<'_>) -> Result<Self> {
        let program = program.inner();
        for spec in program.methods().flat_map(|plan| plan.values()) {
            if let ValueSpec::Tensor(spec) = spec
                && let TensorStorage::PlannedInit { memory_id, offset, index } = spec.storage
            {
                let initial = program.mutable_data(index).unwrap_or_default();
                let Some(initial) = initial.get(..spec.nbytes) else {
                    return Err(Error::fault(Fault::InitialData, spec.nbytes, initial.len()));
                };
                self.write(memory_id, offset, initial)?;
            }
        }
        self.has_states = true;
        Ok(self)
    }

    fn write(&mut self, memory_id: u32, offset: u64, data: &[u8]) -> Result<()> {
        let (start, len) = self.buffer(memory_id);
        let offset = usize::try_from(offset).ok().filter(|o| o.checked_add(data.len()).is_some_and(|end| end <= len));
        let offset = offset.ok_or_else(|| Error::from(Fault::BeyondBuffer))?;
        // SAFETY: `offset` and the bytes that are written from there are inside the buffer, as was just checked.
        let start = unsafe { start.add(offset) };
        // SAFETY: as above; no method has the arenas yet, so that nothing else refers to the buffer, which `data` is no
        // part of.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        Ok(())
    }

    fn buffer(&self, memory_id: u32) -> (NonNull<u8>, usize) {
        let index = (memory_id as usize).wrapping_sub(1);
        self.buffers.get(index).copied().unwrap_or((NonNull::dangling(), 0))
    }
}

#[cfg(feature = "alloc")]
impl SharedArenas<'static> {
    /// Allocates buffers on the heap with these sizes in bytes, for memory ids 1, 2 and so on.
    pub fn heap(sizes: &[usize]) -> Result<Self> {
        let mut blocks = alloc::vec::Vec::new();
        for &size in sizes.iter().take(MAX_SHARED) {
            blocks.push(HeapBlock::new(size)?);
        }
        let mut arenas = Self::new(blocks.iter_mut().map(HeapBlock::lend));
        arenas.blocks = blocks;
        Ok(arenas)
    }

    /// Bytes of all buffers.
    pub fn size(&self) -> usize {
        self.buffers.iter().fold(0, |total, (_, size)| total.saturating_add(*size))
    }
}

impl core::fmt::Debug for SharedArenas<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedArenas").finish_non_exhaustive()
    }
}

// SAFETY: the buffers are only accessed by the holder of `busy`, which is taken and released atomically.
unsafe impl Send for SharedArenas<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedArenas<'_> {}

/// A method's reference to its shared arenas.
#[derive(Clone, Debug)]
pub(crate) enum SharedRef<'m> {
    Borrowed(&'m SharedArenas<'m>),
    #[cfg(feature = "alloc")]
    Owned(alloc::sync::Arc<SharedArenas<'static>>),
}

impl SharedRef<'_> {
    fn get(&self) -> &SharedArenas<'_> {
        match self {
            Self::Borrowed(arenas) => arenas,
            #[cfg(feature = "alloc")]
            Self::Owned(arenas) => arenas,
        }
    }

    /// Takes the arenas for a method, unless another one holds them. The result releases them when it is dropped.
    pub(crate) fn hold(&self) -> Result<Hold<'_>> {
        let busy = &self.get().busy;
        #[cfg(target_has_atomic = "8")]
        let free = !busy.swap(true, core::sync::atomic::Ordering::Acquire);
        // Without atomic exchange it is not known if they are free.
        #[cfg(not(target_has_atomic = "8"))]
        let free = false;
        if free { Ok(Hold(busy)) } else { Err(Fault::SharedBusy.into()) }
    }
}

/// Exclusive use of shared arenas.
#[derive(Debug)]
pub(crate) struct Hold<'a>(&'a core::sync::atomic::AtomicBool);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.store(false, core::sync::atomic::Ordering::Release);
    }
}

/// Lets the parts of a method move between threads together. They refer to each other through cells and pointers.
pub(crate) struct Confined<T>(pub(crate) T);

// SAFETY: used for the loaded parts of one `Method` alone. Cells and pointers in them lead to each other, to memory that
// the method borrows exclusively or owns, to constants that nobody writes, and to shared arenas behind their busy flag;
// delegates are `Send`. All access goes through the method, exclusively to execute.
unsafe impl<T> Send for Confined<T> {}
