//! Places items one by one in a given order, each into a gap that is free for its whole lifetime.

use std::cmp::Reverse;

use super::LiveBytes;
use super::arena::{Arena, Conflicts, Item, Placement};

/// The rule that selects the gap for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The smallest gap that is large enough; the lowest among equals.
    Best,
    /// The lowest gap that is large enough.
    Lowest,
}

/// Places items in order.
#[derive(Debug)]
pub(super) struct Placer<'a> {
    arena: &'a Arena,
    conflicts: &'a Conflicts,
    /// Offset of each node.
    offsets: Vec<u64>,
    sizes: Vec<u64>,
    /// Scratch: start and end of each placed item that conflicts.
    used: Vec<(u64, u64)>,
    /// Number of conflicts visited so far, a measure of the time spent.
    pub visits: usize,
}

const UNPLACED: u64 = u64::MAX;

impl<'a> Placer<'a> {
    pub fn new(arena: &'a Arena, conflicts: &'a Conflicts) -> Self {
        let sizes: Vec<u64> = arena.nodes().map(|item| item.size).collect();
        Self { arena, conflicts, offsets: vec![UNPLACED; sizes.len()], sizes, used: Vec::new(), visits: 0 }
    }

    /// Places all items, given by `order`, or `None` as soon as one ends above `limit`.
    pub fn place(&mut self, order: &[u32], fit: Fit, limit: u64) -> Option<Placement> {
        self.offsets.fill(UNPLACED);
        for ((_, offset), slot) in self.arena.obstacles.iter().zip(self.offsets.iter_mut().skip(self.arena.items.len()))
        {
            *slot = *offset;
        }
        let mut peak = self.arena.top;
        for &node in order {
            let Some(item) = self.arena.items.get(node as usize) else { continue };
            let offset = self.offset_for(node as usize, item, fit);
            let end = offset + item.size;
            if end > limit {
                return None;
            }
            peak = peak.max(end);
            if let Some(slot) = self.offsets.get_mut(node as usize) {
                *slot = offset;
            }
        }
        Some(Placement { offsets: self.offsets.iter().copied().take(self.arena.items.len()).collect(), peak })
    }

    fn offset_for(&mut self, node: usize, item: &Item, fit: Fit) -> u64 {
        let conflicts = self.conflicts.of(node);
        self.visits += conflicts.len() + 1;
        self.used.clear();
        for &other in conflicts {
            let other = other as usize;
            if let (Some(&offset), Some(&size)) = (self.offsets.get(other), self.sizes.get(other))
                && offset != UNPLACED
            {
                self.used.push((offset, offset + size));
            }
        }
        self.used.sort_unstable();
        let mut end_below = self.arena.base;
        let mut best: Option<(u64, u64)> = None;
        for &(start, end) in &self.used {
            let offset = end_below.next_multiple_of(item.alignment);
            if offset + item.size <= start {
                if fit == Fit::Lowest {
                    return offset;
                }
                let gap = start - end_below;
                if best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, offset));
                }
            }
            end_below = end_below.max(end);
        }
        best.map_or_else(|| end_below.next_multiple_of(item.alignment), |(_, offset)| offset)
    }
}

/// Returns orders that tend to give small plans, the best first.
pub(super) fn orders(arena: &Arena) -> Vec<Vec<u32>> {
    vec![
        // Greedy by size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020).
        sorted(arena, |item| (Reverse(item.size), Reverse(item.lifetime()), item.first)),
        sorted(arena, |item| (Reverse(u128::from(item.size) * u128::from(item.lifetime())), item.first)),
        by_breadth(arena),
        sorted(arena, |item| (Reverse(item.lifetime()), Reverse(item.size), item.first)),
        sorted(arena, |item| (item.first, Reverse(item.size))),
    ]
}

fn sorted<K: Ord>(arena: &Arena, key: impl Fn(&Item) -> K) -> Vec<u32> {
    let mut order: Vec<(K, u32)> = arena.items.iter().map(key).zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, node)| node).collect()
}

/// Greedy by breadth, from the same paper. Instructions go by the sum of bytes in use, the largest first; the items of
/// an instruction that are not ordered yet follow, the largest first.
fn by_breadth(arena: &Arena) -> Vec<u32> {
    let live = LiveBytes::of(arena.nodes().map(|item| (item.size, item.first, item.last)));
    // An item is ordered at the widest instruction of its lifetime: a range maximum over the steps.
    let widest = RangeMaximum::new(live.steps.iter().map(|(_, sum)| *sum).collect());
    let step_of = |instruction: usize| live.steps.partition_point(|(at, _)| *at <= instruction).saturating_sub(1);
    sorted(arena, |item| {
        let turn = widest.of(step_of(item.first), step_of(item.last));
        (Reverse(turn), Reverse(item.size), item.first)
    })
}

/// A table of powers of two that finds the largest entry of a range, with its position.
struct RangeMaximum {
    /// Level `k` holds, at `i`, the largest of the `2^k` entries from `i`.
    levels: Vec<Vec<(u64, Reverse<usize>)>>,
}

impl RangeMaximum {
    fn new(entries: Vec<u64>) -> Self {
        let mut levels = vec![entries.into_iter().zip(0..).map(|(sum, at)| (sum, Reverse(at))).collect::<Vec<_>>()];
        let mut width = 1;
        while let Some(below) = levels.last().filter(|below| below.len() > width) {
            let level = below.iter().zip(below.iter().skip(width)).map(|(a, b)| *a.max(b)).collect();
            levels.push(level);
            width *= 2;
        }
        Self { levels }
    }

    /// The largest entry from `first` to `last` and the first position of it.
    fn of(&self, first: usize, last: usize) -> (u64, Reverse<usize>) {
        let level = (last - first + 1).ilog2();
        let entry = |at: usize| self.levels.get(level as usize).and_then(|level| level.get(at)).copied();
        entry(first).max(entry((last + 1).saturating_sub(1 << level))).unwrap_or((0, Reverse(first)))
    }
}
