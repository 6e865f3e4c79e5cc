//! The buffers of one arena as the heuristics use them. Sizes are in units of the smallest alignment, and buffers with
//! a settled place are taken out.

use super::{Buffer, LiveBytes};

/// A buffer to place. Sizes, alignments and offsets are in units of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub size: u64,
    pub alignment: u64,
    pub first: usize,
    pub last: usize,
}

impl Item {
    /// Number of instructions during which the buffer is in use.
    pub fn lifetime(&self) -> u64 {
        (self.last - self.first) as u64 + 1
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The buffers of one arena.
#[derive(Debug)]
pub(super) struct Arena {
    /// Bytes of a unit.
    unit: u64,
    pub items: Vec<Item>,
    /// The caller's index of each item.
    indices: Vec<usize>,
    /// Buffers that need no search, by the caller's index, with their offset in bytes.
    settled: Vec<(usize, u64)>,
    /// Items that are placed above `base`, with their offsets.
    pub obstacles: Vec<(Item, u64)>,
    /// The end of the buffers at the bottom that are in use throughout. No item may be placed below.
    pub base: u64,
    /// The end of all settled buffers.
    pub top: u64,
    /// Lower bound of every placement.
    pub bound: u64,
}

/// An offset for each item, and the end of the last one.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    pub offsets: Vec<u64>,
    pub peak: u64,
}

impl Arena {
    /// Builds the arena from these `members` of `buffers`, which have been validated.
    pub fn new(buffers: &[Buffer], members: &[usize]) -> Self {
        let members: Vec<(usize, &Buffer)> = members.iter().filter_map(|&i| Some((i, buffers.get(i)?))).collect();
        let unit = members.iter().map(|(_, buffer)| buffer.alignment).min().unwrap_or(1);
        let mut arena = Self {
            unit,
            items: Vec::new(),
            indices: Vec::new(),
            settled: Vec::new(),
            obstacles: Vec::new(),
            base: 0,
            top: 0,
            bound: 0,
        };
        for &(index, buffer) in &members {
            let item = Item {
                size: buffer.bytes.div_ceil(unit),
                alignment: buffer.alignment / unit,
                first: buffer.first,
                last: buffer.last,
            };
            match buffer.fixed {
                Some(offset) => arena.settled.push((index, offset)),
                None if item.size == 0 => arena.settled.push((index, 0)),
                None => {
                    arena.items.push(item);
                    arena.indices.push(index);
                }
            }
            if let Some(offset) = buffer.fixed.filter(|_| item.size > 0) {
                arena.obstacles.push((item, offset / unit));
            }
        }
        arena.settle_permanent();
        let live = arena.nodes().map(|item| (item.size, item.first, item.last));
        arena.bound = arena.top.max(arena.base + LiveBytes::of(live).peak().1);
        arena
    }

    /// Stacks the buffers that are in use throughout at the bottom. They conflict with all others, so this costs no
    /// memory, and it shortens every list of conflicts.
    fn settle_permanent(&mut self) {
        let first = self.nodes().map(|item| item.first).min().unwrap_or(0);
        let last = self.nodes().map(|item| item.last).max().unwrap_or(0);
        let is_permanent = |item: &Item| item.first == first && item.last == last;
        self.obstacles.sort_unstable_by_key(|(_, offset)| *offset);
        self.top = self.obstacles.iter().map(|(item, offset)| offset + item.size).max().unwrap_or(0);
        let mut end = 0;
        for (item, offset) in &self.obstacles {
            if !is_permanent(item) || *offset > end {
                return;
            }
            end = offset + item.size;
        }
        self.obstacles.clear();
        self.base = end;
        let mut permanent: Vec<(Item, usize)> = Vec::new();
        let (mut items, mut indices) = (Vec::new(), Vec::new());
        for (item, index) in self.items.drain(..).zip(self.indices.drain(..)) {
            if is_permanent(&item) {
                permanent.push((item, index));
            } else {
                items.push(item);
                indices.push(index);
            }
        }
        permanent.sort_by_key(|(item, _)| std::cmp::Reverse((item.alignment, item.size)));
        for (item, index) in permanent {
            let offset = self.base.next_multiple_of(item.alignment);
            self.settled.push((index, offset * self.unit));
            self.base = offset + item.size;
        }
        self.top = self.top.max(self.base);
        (self.items, self.indices) = (items, indices);
    }

    /// The items, then the obstacles.
    pub fn nodes(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().chain(self.obstacles.iter().map(|(item, _)| item))
    }

    /// The caller's index and the offset in bytes of every buffer.
    pub fn offsets<'a>(&'a self, placement: &'a Placement) -> impl Iterator<Item = (usize, u64)> + 'a {
        let placed = self.indices.iter().zip(&placement.offsets).map(|(index, offset)| (*index, offset * self.unit));
        self.settled.iter().copied().chain(placed)
    }
}

/// For each node of an arena, the nodes in use at the same time.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// Start of each node's list in `nodes`, then the end of the last one.
    starts: Vec<usize>,
    nodes: Vec<u32>,
}

impl Conflicts {
    /// Finds the pairs by a sweep over time, in time proportional to their count. `None` if there are more pairs than `limit`.
    pub fn new(arena: &Arena, limit: usize) -> Option<Self> {
        let items: Vec<Item> = arena.nodes().copied().collect();
        let mut order: Vec<(Item, u32)> = items.iter().copied().zip(0..).collect();
        order.sort_unstable_by_key(|(item, node)| (item.first, *node));
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        let mut live: Vec<(Item, u32)> = Vec::new();
        for (item, node) in order {
            live.retain(|(other, _)| other.overlaps(&item));
            pairs.extend(live.iter().map(|(_, other)| (node, *other)));
            if pairs.len() > limit {
                return None;
            }
            live.push((item, node));
        }
        let mut starts = vec![0usize; items.len() + 1];
        for node in pairs.iter().flat_map(|&(a, b)| [a, b]) {
            if let Some(count) = starts.get_mut(node as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut nodes = vec![0u32; sum];
        for (node, other) in pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]) {
            let Some(next) = next.get_mut(node as usize) else { continue };
            if let Some(slot) = nodes.get_mut(*next) {
                *slot = other;
            }
            *next += 1;
        }
        Some(Self { starts, nodes })
    }

    /// The nodes in use at the same time as `node`, without `node`.
    pub fn of(&self, node: usize) -> &[u32] {
        let (Some(&start), Some(&end)) = (self.starts.get(node), self.starts.get(node + 1)) else { return &[] };
        self.nodes.get(start..end).unwrap_or_default()
    }
}
