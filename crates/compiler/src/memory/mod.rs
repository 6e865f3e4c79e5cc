//! The memory plan: where in an arena each tensor of a method lives, so that tensors in use at the same time never
//! share a byte and the arenas are small.
//!
//! [`plan`] knows nothing of graphs: it takes sizes and lifetimes. [`check`] verifies a plan in another way than the one
//! that made it, [`lower_bound`] says how good one can be, and [`recover`] finds sizes and lifetimes in a finished
//! program.
//!
//! Finding the smallest arena is NP-hard (dynamic storage allocation). Several quick heuristics are tried, the
//! allocation of ExecuTorch's greedy algorithm among them, then the best order of placing is improved at random; all of
//! it stops where the largest sum of live bytes is reached. The work is bounded by about n log n steps.
#![deny(clippy::indexing_slicing)]

mod arena;
mod bound;
mod check;
mod greedy;
mod place;
mod recover;
mod search;
mod sweep;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use arena::Arena;

pub use bound::{LiveBytes, lower_bound};
pub use check::{Conflict, check};
pub use recover::{Recovered, recover};

/// The alignment of planned tensors, in bytes, unless something asks for more: what ExecuTorch's exporter uses.
pub const DEFAULT_ALIGNMENT: u64 = 16;

/// Bytes to find a place for: the storage of a tensor, or of several that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// 0 needs no memory and conflicts with nothing.
    pub bytes: u64,
    /// The offset is a multiple of this power of two.
    pub alignment: u64,
    /// The first instruction that uses it.
    pub first: usize,
    /// The last instruction that uses it, at least `first` and below `usize::MAX`. A buffer is in use during both.
    pub last: usize,
    /// The arena that it goes into.
    pub memory_id: u32,
    /// Its offset if that is settled already, as for state that several methods share.
    pub fixed: Option<u64>,
}

impl Buffer {
    /// A buffer in arena 1 with the default alignment, in use from instruction `first` to `last`.
    pub fn new(bytes: u64, first: usize, last: usize) -> Self {
        Self { bytes, alignment: DEFAULT_ALIGNMENT, first, last, memory_id: 1, fixed: None }
    }

    /// The buffer in another arena.
    #[must_use]
    pub fn in_arena(self, memory_id: u32) -> Self {
        Self { memory_id, ..self }
    }

    /// The buffer at a settled offset.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        Self { fixed: Some(offset), ..self }
    }
}

/// A memory plan: the place of each buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Of each buffer in the order given: its first byte in the arena.
    pub offsets: Vec<u64>,
    /// Bytes of each arena by memory id.
    pub arenas: BTreeMap<u32, u64>,
}

impl MemoryPlan {
    /// Bytes of all arenas.
    pub fn total(&self) -> u64 {
        self.arenas.values().sum()
    }
}

/// Why there is no plan: the buffers contradict themselves. Buffers are named by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The last use comes before the first, or is `usize::MAX`.
    Lifetime { buffer: usize, first: usize, last: usize },
    /// The alignment is not a power of two.
    Alignment { buffer: usize, alignment: u64 },
    /// The buffers of this arena are larger than 2^62 bytes together.
    TooLarge { memory_id: u32 },
    /// Settled offsets do not fit each other or their alignment.
    Fixed(Conflict),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lifetime { buffer, first, last } => {
                write!(f, "buffer {buffer} is in use from instruction {first} to {last}, which is no range")
            }
            Self::Alignment { buffer, alignment } => {
                write!(f, "the alignment of buffer {buffer} is {alignment}, which is not a power of two")
            }
            Self::TooLarge { memory_id } => write!(f, "the buffers of arena {memory_id} exceed 2^62 bytes"),
            Self::Fixed(conflict) => write!(f, "the settled offsets are impossible: {conflict}"),
        }
    }
}

impl std::error::Error for PlanError {}

/// Plans every arena. The same buffers give the same plan, and never a larger one than ExecuTorch's greedy algorithm
/// would make of them, unless an arena has thousands of buffers and too many of them in use at a time to try it.
pub fn plan(buffers: &[Buffer]) -> Result<MemoryPlan, PlanError> {
    validate(buffers)?;
    let mut by_arena: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, buffer) in buffers.iter().enumerate() {
        by_arena.entry(buffer.memory_id).or_default().push(index);
    }
    let mut plan = MemoryPlan { offsets: vec![0; buffers.len()], arenas: BTreeMap::new() };
    for (memory_id, members) in by_arena {
        let arena = Arena::new(buffers, &members);
        for (index, offset) in arena.offsets(&search::best(&arena)) {
            if let Some(slot) = plan.offsets.get_mut(index) {
                *slot = offset;
            }
        }
        let ends = members.iter().filter_map(|&index| {
            let buffer = buffers.get(index).filter(|buffer| buffer.bytes > 0)?;
            Some(plan.offsets.get(index)? + buffer.bytes)
        });
        let bytes = ends.max().unwrap_or(0);
        plan.arenas.insert(memory_id, bytes);
    }
    Ok(plan)
}

/// Checks what [`plan`] relies on: sane lifetimes, alignments and sums, and settled offsets that fit each other.
fn validate(buffers: &[Buffer]) -> Result<(), PlanError> {
    const MAX_ARENA: u64 = 1 << 62;
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (index, buffer) in buffers.iter().enumerate() {
        let Buffer { bytes, alignment, first, last, memory_id, fixed } = *buffer;
        if first > last || last == usize::MAX {
            return Err(PlanError::Lifetime { buffer: index, first, last });
        }
        if !alignment.is_power_of_two() {
            return Err(PlanError::Alignment { buffer: index, alignment });
        }
        // Every offset that is tried is below the sum of all sizes and alignments above the settled offsets.
        let needed = bytes.saturating_add(alignment).saturating_add(fixed.unwrap_or(0));
        let sum = sums.entry(memory_id).or_default();
        *sum = sum.saturating_add(needed);
        if *sum > MAX_ARENA {
            return Err(PlanError::TooLarge { memory_id });
        }
    }
    let (fixed, indices): (Vec<Buffer>, Vec<usize>) =
        buffers.iter().zip(0..).filter(|(buffer, _)| buffer.fixed.is_some()).map(|(b, i)| (*b, i)).unzip();
    let settled = MemoryPlan {
        offsets: fixed.iter().map(|buffer| buffer.fixed.unwrap_or(0)).collect(),
        arenas: fixed.iter().map(|buffer| (buffer.memory_id, MAX_ARENA)).collect(),
    };
    check(&fixed, &settled).map_err(|conflict| PlanError::Fixed(conflict.renumbered(&indices)))
}
