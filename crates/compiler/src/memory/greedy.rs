//! ExecuTorch's greedy allocation, so that no plan is larger than the one that its exporter would make.
//!
//! Items are placed by size, the largest first, into buckets as large as their first item. An item goes to the bottom
//! of the first bucket that is unused for all of its lifetime. If there is none, it goes to the first bucket with
//! enough room above the items that are in use during its lifetime. If there is none, it opens a new bucket. Buckets
//! are laid out one after the other.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::arena::{Arena, Item, Placement};

/// Average number of buckets that may be tried for each item, times the logarithm of the number of buckets. Only arenas
/// with thousands of items in use at a time exceed it; they are planned without this algorithm.
const PROBES_PER_ITEM: usize = 4;
/// Number of tries that is always allowed: enough for 1,000 items that all conflict.
const MIN_PROBES: usize = 1_000_000;

/// Places all items above the settled buffers. `None` if that takes too many steps.
pub(super) fn greedy(arena: &Arena) -> Option<Placement> {
    let count = arena.items.len();
    let mut probes = MIN_PROBES.max(PROBES_PER_ITEM * count * count.max(2).ilog2() as usize);
    let mut order: Vec<(&Item, usize)> = arena.items.iter().zip(0..).collect();
    order.sort_by_key(|(item, _)| (Reverse(item.size), item.first, item.last));
    let mut buckets: Vec<Bucket> = Vec::new();
    // The bucket of each item, and the offset in it.
    let mut places = vec![(0, 0); count];
    for (item, node) in order {
        probes = probes.checked_sub(2 * buckets.len())?;
        let unused = buckets.iter().position(|bucket| bucket.is_unused(item));
        let place = unused
            .map(|bucket| (bucket, 0))
            .or_else(|| buckets.iter().zip(0..).find_map(|(bucket, index)| Some((index, bucket.room_above(item)?))));
        let (index, offset) = place.unwrap_or_else(|| {
            buckets.push(Bucket { size: item.size, alignment: 1, heights: BTreeMap::new() });
            (buckets.len() - 1, 0)
        });
        if let Some(bucket) = buckets.get_mut(index) {
            bucket.put(item, offset);
        }
        if let Some(slot) = places.get_mut(node) {
            *slot = (index, offset);
        }
    }
    let mut peak = arena.top;
    let mut starts = Vec::with_capacity(buckets.len());
    for bucket in &buckets {
        let start = peak.next_multiple_of(bucket.alignment);
        starts.push(start);
        peak = start + bucket.size;
    }
    let offsets = places.iter().map(|(bucket, offset)| starts.get(*bucket).unwrap_or(&0) + offset).collect();
    Some(Placement { offsets, peak })
}

/// A bucket, as large as its first item.
struct Bucket {
    size: u64,
    /// The strictest alignment of its items.
    alignment: u64,
    /// By instruction: the bytes in use from the bottom, from that instruction on.
    heights: BTreeMap<usize, u64>,
}

impl Bucket {
    /// The heights while an item is in use.
    fn heights_during(&self, item: &Item) -> impl Iterator<Item = u64> {
        let at_first = self.heights.range(..=item.first).next_back();
        let after = item.last + 1;
        at_first.into_iter().chain(self.heights.range(item.first + 1..after)).map(|(_, height)| *height)
    }

    fn is_unused(&self, item: &Item) -> bool {
        self.heights_during(item).all(|height| height == 0)
    }

    /// Returns the offset above the items that are in use during the item's lifetime, if the item fits there.
    fn room_above(&self, item: &Item) -> Option<u64> {
        let mut highest = 0;
        for height in self.heights_during(item) {
            highest = height.max(highest);
            if highest + item.size > self.size {
                return None;
            }
        }
        let offset = highest.next_multiple_of(item.alignment);
        (offset + item.size <= self.size).then_some(offset)
    }

    fn put(&mut self, item: &Item, offset: u64) {
        self.alignment = self.alignment.max(item.alignment);
        let after = item.last + 1;
        let height_after = self.heights.range(..=after).next_back().map_or(0, |(_, height)| *height);
        let inside: Vec<usize> = self.heights.range(item.first..after).map(|(at, _)| *at).collect();
        for at in inside {
            self.heights.remove(&at);
        }
        self.heights.insert(after, height_after);
        self.heights.insert(item.first, offset + item.size);
    }
}
