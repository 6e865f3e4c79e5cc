//! Static memory for a method, and planned buffers that several methods use in turn.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;

use rushlight_format::pte::{TensorStorage, ValueSpec};

use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::program::Program;

#[cfg(feature = "alloc")]
use super::heap::HeapBlock;

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
    pub(super) has_states: bool,
    /// Keeps the buffers alive if they are on the heap.
    #[cfg(feature = "alloc")]
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
        // SAFETY: as above; no method has the arenas yet, so that nothing else refers to the buffer. `data` is not part
        // of it.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
        Ok(())
    }

    pub(super) fn buffer(&self, memory_id: u32) -> (NonNull<u8>, usize) {
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
    pub(super) fn get(&self) -> &SharedArenas<'_> {
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
