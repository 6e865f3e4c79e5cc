//! An independent verifier of memory plans: a sweep over time with the buffers in use ordered by offset.

use std::collections::BTreeMap;
use std::fmt;

use super::{Buffer, MemoryPlan};

/// A fault of a plan. Buffers are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The number of offsets differs from the number of buffers.
    Count { expected: usize, got: usize },
    /// Two buffers share bytes of an arena while both are in use.
    Overlap { memory_id: u32, buffers: [usize; 2], instruction: usize },
    /// An offset is not a multiple of the buffer's alignment.
    Misaligned { buffer: usize, offset: u64, alignment: u64 },
    /// A buffer ends after its arena. An arena that the plan lacks has a size of 0.
    Outside { buffer: usize, end: u64, arena: u64 },
    /// A buffer is not at its settled offset.
    Moved { buffer: usize, expected: u64, got: u64 },
}

/// Verifies a plan: every buffer is aligned, inside of its arena, and at its settled offset if it has one. No two
/// buffers share a byte at the same time. Takes n log n steps.
pub fn check(buffers: &[Buffer], plan: &MemoryPlan) -> Result<(), Conflict> {
    if buffers.len() != plan.offsets.len() {
        return Err(Conflict::Count { expected: buffers.len(), got: plan.offsets.len() });
    }
    let placed = || buffers.iter().zip(plan.offsets.iter().copied()).enumerate();
    for (index, (buffer, offset)) in placed() {
        check_alone(index, buffer, offset, plan)?;
    }
    // (instruction, true if the buffer begins there, buffer): at each instruction, buffers end before others begin.
    let mut events: Vec<(usize, bool, usize)> = Vec::with_capacity(2 * buffers.len());
    for (index, (buffer, _)) in placed().filter(|(_, (buffer, _))| buffer.bytes > 0) {
        events.push((buffer.first, true, index));
        events.push((buffer.last.saturating_add(1), false, index));
    }
    events.sort_unstable();
    // By arena and offset: the end and the index of the buffer.
    let mut used: BTreeMap<(u32, u64), (u64, usize)> = BTreeMap::new();
    for (instruction, begins, index) in events {
        let (Some(buffer), Some(&offset)) = (buffers.get(index), plan.offsets.get(index)) else { continue };
        let memory_id = buffer.memory_id;
        if !begins {
            used.remove(&(memory_id, offset));
            continue;
        }
        let end = offset + buffer.bytes;
        // Buffers in use are disjoint, so only the last one that starts before this end can overlap.
        if let Some((_, &(other_end, other))) = used.range((memory_id, 0)..(memory_id, end)).next_back()
            && other_end > offset
        {
            let buffers = [other.min(index), other.max(index)];
            return Err(Conflict::Overlap { memory_id, buffers, instruction });
        }
        used.insert((memory_id, offset), (end, index));
    }
    Ok(())
}

fn check_alone(index: usize, buffer: &Buffer, offset: u64, plan: &MemoryPlan) -> Result<(), Conflict> {
    if let Some(expected) = buffer.fixed.filter(|&fixed| fixed != offset) {
        return Err(Conflict::Moved { buffer: index, expected, got: offset });
    }
    if buffer.bytes == 0 {
        return Ok(());
    }
    if offset.checked_rem(buffer.alignment) != Some(0) {
        return Err(Conflict::Misaligned { buffer: index, offset, alignment: buffer.alignment });
    }
    let arena = plan.arenas.get(&buffer.memory_id).copied().unwrap_or(0);
    match offset.checked_add(buffer.bytes) {
        Some(end) if end <= arena => Ok(()),
        end => Err(Conflict::Outside { buffer: index, end: end.unwrap_or(u64::MAX), arena }),
    }
}

impl Conflict {
    /// Returns the conflict with each buffer replaced by its entry in `names`.
    #[must_use]
    pub fn renumbered(self, names: &[usize]) -> Self {
        let name = |index: usize| names.get(index).copied().unwrap_or(index);
        match self {
            Self::Count { .. } => self,
            Self::Overlap { memory_id, buffers, instruction } => {
                Self::Overlap { memory_id, buffers: buffers.map(name), instruction }
            }
            Self::Misaligned { buffer, offset, alignment } => {
                Self::Misaligned { buffer: name(buffer), offset, alignment }
            }
            Self::Outside { buffer, end, arena } => Self::Outside { buffer: name(buffer), end, arena },
            Self::Moved { buffer, expected, got } => Self::Moved { buffer: name(buffer), expected, got },
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { expected, got } => write!(f, "the plan has {got} offsets for {expected} buffers"),
            Self::Overlap { memory_id, buffers: [a, b], instruction } => {
                write!(f, "buffers {a} and {b} share memory of arena {memory_id} at instruction {instruction}")
            }
            Self::Misaligned { buffer, offset, alignment } => {
                write!(f, "buffer {buffer} is at {offset}, which is not a multiple of {alignment}")
            }
            Self::Outside { buffer, end, arena } => {
                write!(f, "buffer {buffer} ends at {end}, but its arena has {arena} bytes")
            }
            Self::Moved { buffer, expected, got } => {
                write!(f, "buffer {buffer} belongs at {expected}, but the plan has it at {got}")
            }
        }
    }
}

impl std::error::Error for Conflict {}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(offsets: &[u64], bytes: u64) -> MemoryPlan {
        MemoryPlan { offsets: offsets.to_vec(), arenas: BTreeMap::from([(1, bytes)]) }
    }

    #[test]
    fn overlap_names_both_buffers() {
        let buffers = [Buffer::new(32, 0, 2), Buffer::new(100, 5, 9), Buffer::new(16, 2, 3)];
        assert_eq!(check(&buffers, &planned(&[0, 0, 32], 100)), Ok(()));
        let overlap = Conflict::Overlap { memory_id: 1, buffers: [0, 2], instruction: 2 };
        assert_eq!(check(&buffers, &planned(&[0, 0, 16], 100)), Err(overlap));
        // The same bytes may be used in another arena or at another time.
        let apart = [buffers[0], buffers[1], buffers[2].in_arena(2)];
        let mut plan = planned(&[0, 0, 16], 100);
        plan.arenas.insert(2, 32);
        assert_eq!(check(&apart, &plan), Ok(()));
        let later = [buffers[0], buffers[1], Buffer::new(16, 3, 3)];
        assert_eq!(check(&later, &planned(&[0, 0, 16], 100)), Ok(()));
    }

    #[test]
    fn a_large_buffer_below_is_found() {
        let buffers = [Buffer::new(1000, 0, 9), Buffer::new(16, 4, 4)];
        let overlap = Conflict::Overlap { memory_id: 1, buffers: [0, 1], instruction: 4 };
        assert_eq!(check(&buffers, &planned(&[0, 512], 1000)), Err(overlap));
    }

    #[test]
    fn single_buffers_are_checked() {
        let buffers = [Buffer::new(32, 0, 2)];
        let misaligned = Conflict::Misaligned { buffer: 0, offset: 8, alignment: 16 };
        assert_eq!(check(&buffers, &planned(&[8], 100)), Err(misaligned));
        assert_eq!(check(&buffers, &planned(&[16], 47)), Err(Conflict::Outside { buffer: 0, end: 48, arena: 47 }));
        let outside = Conflict::Outside { buffer: 0, end: u64::MAX, arena: 100 };
        assert_eq!(check(&buffers, &planned(&[u64::MAX - 15], 100)), Err(outside));
        let elsewhere = MemoryPlan { offsets: vec![0], arenas: BTreeMap::from([(2, 100)]) };
        assert_eq!(check(&buffers, &elsewhere), Err(Conflict::Outside { buffer: 0, end: 32, arena: 0 }));
        let moved = Conflict::Moved { buffer: 0, expected: 16, got: 0 };
        assert_eq!(check(&[buffers[0].at(16)], &planned(&[0], 100)), Err(moved));
        assert_eq!(check(&buffers, &planned(&[], 100)), Err(Conflict::Count { expected: 1, got: 0 }));
    }
}
