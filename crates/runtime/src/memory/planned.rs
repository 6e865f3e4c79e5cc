//! The memory that a method is loaded into, and its planned buffers.

use core::ptr::NonNull;

use rushlight_format::pte::Plan;

use crate::error::Result;
use crate::fault::{Checked, Fault, Report};

use super::ALIGNMENT;
use super::bump::Bump;
#[cfg(feature = "alloc")]
use super::heap::Allocation;
use super::shared::{SharedArenas, SharedRef};

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
    pub(super) start: NonNull<u8>,
    pub(crate) len: usize,
    /// Bytes that it takes of the method's block, padding included; none for a separate buffer.
    pub(crate) in_block: usize,
}
