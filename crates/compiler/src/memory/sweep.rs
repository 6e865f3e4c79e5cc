//! Places items like an allocator at run time: in the order of their first use, each into the smallest gap that is free
//! at that moment. Takes n log n steps for any number of items in use at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::arena::{Arena, Item, Placement};

/// The direction of time in which items are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forwards,
    Backwards,
}

/// Places all items above the settled buffers.
pub(super) fn sweep(arena: &Arena, direction: Direction) -> Placement {
    let end_of_time = arena.items.iter().map(|item| item.last).max().unwrap_or(0);
    let seen = |item: &Item| match direction {
        Direction::Forwards => *item,
        Direction::Backwards => Item { first: end_of_time - item.last, last: end_of_time - item.first, ..*item },
    };
    let mut items: Vec<(Item, usize)> = arena.items.iter().map(seen).zip(0..).collect();
    items.sort_unstable_by_key(|(item, node)| (item.first, Reverse(item.size), *node));

    let mut free = FreeList::new(arena.top);
    let mut offsets = vec![0; items.len()];
    // The last instruction, offset and size of each item in use.
    let mut live: BinaryHeap<Reverse<(usize, u64, u64)>> = BinaryHeap::new();
    for (item, node) in items {
        while let Some(&Reverse((last, offset, size))) = live.peek()
            && last < item.first
        {
            live.pop();
            free.release(offset, offset + size);
        }
        let offset = free.take(item.size, item.alignment);
        live.push(Reverse((item.last, offset, item.size)));
        if let Some(slot) = offsets.get_mut(node) {
            *slot = offset;
        }
    }
    Placement { offsets, peak: free.end }
}

/// The gaps of an arena that grows at its end.
struct FreeList {
    /// Start and end of each gap. Gaps are never adjacent.
    gaps: BTreeMap<u64, u64>,
    /// Length and start of each gap.
    by_length: BTreeSet<(u64, u64)>,
    /// The end of all memory that was ever in use.
    end: u64,
}

/// Number of gaps that are tried: a gap may be long enough and still fail for its alignment. A small number keeps the
/// cost of a request logarithmic.
const CANDIDATES: usize = 8;

impl FreeList {
    fn new(start: u64) -> Self {
        Self { gaps: BTreeMap::new(), by_length: BTreeSet::new(), end: start }
    }

    fn take(&mut self, size: u64, alignment: u64) -> u64 {
        let fitting = self.by_length.range((size, 0)..).take(CANDIDATES).find_map(|&(length, start)| {
            let offset = start.next_multiple_of(alignment);
            (offset + size <= start + length).then_some((start, start + length, offset))
        });
        let (start, end, offset) = fitting.unwrap_or_else(|| {
            // The arena grows. The item begins in the gap at its end, if there is one.
            let last = self.gaps.last_key_value().filter(|(_, end)| **end == self.end).map(|(start, _)| *start);
            let start = last.unwrap_or(self.end);
            let offset = start.next_multiple_of(alignment);
            let end = self.end.max(offset + size);
            self.end = end;
            (start, end, offset)
        });
        if let Some(old_end) = self.gaps.remove(&start) {
            self.by_length.remove(&(old_end - start, start));
        }
        self.insert(start, offset);
        self.insert(offset + size, end);
        offset
    }

    fn release(&mut self, mut start: u64, mut end: u64) {
        if let Some((&below, &below_end)) = self.gaps.range(..start).next_back()
            && below_end == start
        {
            self.remove(below, below_end);
            start = below;
        }
        if let Some(&above_end) = self.gaps.get(&end) {
            self.remove(end, above_end);
            end = above_end;
        }
        self.insert(start, end);
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.gaps.insert(start, end);
            self.by_length.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.gaps.remove(&start);
        self.by_length.remove(&(end - start, start));
    }
}
