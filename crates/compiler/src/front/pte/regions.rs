//! The nesting of the jumps of a method.

use std::collections::HashMap;

use rushlight_format::pte::{InstructionModel, PlanModel};

/// A part of a method that a jump skips or repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub start: usize,
    /// One past the last instruction.
    pub end: usize,
    pub is_loop: bool,
}

/// The regions of a method.
#[derive(Debug, Default)]
pub(super) struct Regions {
    regions: Vec<Region>,
    /// The innermost region of each instruction.
    inner: Vec<Option<u32>>,
    /// The loops that begin at an instruction, outermost first.
    loops: HashMap<usize, Vec<Region>>,
}

impl Regions {
    /// Finds the regions. `spend` is told of the work, and says when it is too much.
    pub fn find<E>(plan: &PlanModel<'_>, mut spend: impl FnMut(usize) -> Result<(), E>) -> Result<Self, E> {
        let mut regions = Vec::new();
        for (at, instruction) in plan.instructions.iter().enumerate() {
            let InstructionModel::JumpFalse { destination, .. } = instruction else { continue };
            let destination = (*destination as usize).min(plan.instructions.len());
            regions.push(if destination <= at {
                Region { start: destination, end: at + 1, is_loop: true }
            } else {
                Region { start: at + 1, end: destination, is_loop: false }
            });
        }
        regions.sort_by_key(|region| std::cmp::Reverse(region.end - region.start));
        let mut inner = vec![None; plan.instructions.len()];
        for (index, region) in regions.iter().enumerate() {
            spend(region.end - region.start)?;
            if let Some(covered) = inner.get_mut(region.start..region.end) {
                covered.fill(Some(index as u32));
            }
        }
        let mut loops: HashMap<usize, Vec<Region>> = HashMap::new();
        for region in regions.iter().filter(|region| region.is_loop) {
            loops.entry(region.start).or_default().push(*region);
        }
        Ok(Self { regions, inner, loops })
    }

    /// True if every region around instruction `at` also has `other` inside.
    pub fn runs_with(&self, at: usize, other: usize) -> bool {
        let region = self.inner.get(at).copied().flatten().and_then(|index| self.regions.get(index as usize));
        region.is_none_or(|region| (region.start..region.end).contains(&other))
    }

    /// The loops around an instruction.
    pub fn loops_around(&self, at: usize) -> impl Iterator<Item = Region> + '_ {
        let loops = self.loops.values().flatten().copied();
        loops.filter(move |region| (region.start..region.end).contains(&at))
    }

    /// The outermost loop that begins at `start` and ends before `end`.
    pub fn loop_at(&self, start: usize, end: usize) -> Option<Region> {
        self.loops.get(&start)?.iter().find(|region| region.end <= end).copied()
    }
}
