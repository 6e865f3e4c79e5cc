//! The lower bound of all plans: the maximum of the bytes in use at a time.

use std::collections::BTreeMap;

use super::Buffer;

/// The bytes of an arena that are in use at each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveBytes {
    /// The instruction from which each sum holds, up to the next entry, ascending; the last sum is 0.
    pub steps: Vec<(usize, u64)>,
}

impl LiveBytes {
    /// Of buffers given by their bytes, first and last instruction. Sums saturate.
    pub fn of(buffers: impl IntoIterator<Item = (u64, usize, usize)>) -> Self {
        let mut changes: Vec<(usize, bool, u64)> = Vec::new();
        for (bytes, first, last) in buffers.into_iter().filter(|buffer| buffer.0 > 0) {
            changes.push((first, true, bytes));
            changes.push((last.saturating_add(1), false, bytes));
        }
        changes.sort_unstable();
        let mut steps: Vec<(usize, u64)> = Vec::new();
        let mut live = 0u64;
        for (instruction, begins, bytes) in changes {
            live = if begins { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
            match steps.last_mut() {
                Some((at, sum)) if *at == instruction => *sum = live,
                _ => steps.push((instruction, live)),
            }
        }
        Self { steps }
    }

    /// The first instruction with the largest sum, and that sum.
    pub fn peak(&self) -> (usize, u64) {
        let mut peak = (0, 0);
        for &step in &self.steps {
            if step.1 > peak.1 {
                peak = step;
            }
        }
        peak
    }
}

/// Of each arena by memory id: the largest sum of the bytes that are in use at a time. No plan needs less.
pub fn lower_bound(buffers: &[Buffer]) -> BTreeMap<u32, u64> {
    let mut by_arena: BTreeMap<u32, Vec<(u64, usize, usize)>> = BTreeMap::new();
    for buffer in buffers {
        by_arena.entry(buffer.memory_id).or_default().push((buffer.bytes, buffer.first, buffer.last));
    }
    by_arena.into_iter().map(|(memory_id, members)| (memory_id, LiveBytes::of(members).peak().1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_change_with_first_and_last_uses() {
        let live = LiveBytes::of([(10, 0, 2), (5, 2, 2), (7, 3, 3), (0, 0, 9)]);
        assert_eq!(live.steps, [(0, 10), (2, 15), (3, 7), (4, 0)]);
        assert_eq!(live.peak(), (2, 15));
        assert_eq!(LiveBytes::of([]).peak(), (0, 0));
    }

    #[test]
    fn each_arena_has_its_bound() {
        let buffers = [Buffer::new(10, 0, 1), Buffer::new(20, 1, 2), Buffer::new(5, 1, 1).in_arena(2)];
        assert_eq!(lower_bound(&buffers), BTreeMap::from([(1, 30), (2, 5)]));
    }
}
