//! The choice among the heuristics, and the improvement of the best order by local search.

use super::arena::{Arena, Conflicts, Placement};
use super::greedy::greedy;
use super::place::{Fit, Placer, orders};
use super::sweep::{Direction, sweep};

/// Conflicts that may be looked at for each item, times the logarithm of the number of items.
const VISITS_PER_ITEM: usize = 8;
/// Visits that are always allowed: about a millisecond.
const MIN_VISITS: usize = 100_000;

/// The smallest placement that is found within the budget. Stops at once when the arena's bound is reached.
pub(super) fn best(arena: &Arena) -> Placement {
    let mut best = sweep(arena, Direction::Forwards);
    for candidate in [|arena: &Arena| Some(sweep(arena, Direction::Backwards)), greedy] {
        if best.peak <= arena.bound {
            return best;
        }
        if let Some(placement) = candidate(arena).filter(|placement| placement.peak < best.peak) {
            best = placement;
        }
    }
    if best.peak <= arena.bound {
        return best;
    }
    let count = arena.items.len();
    let budget = MIN_VISITS.max(VISITS_PER_ITEM * count * count.max(2).ilog2() as usize);
    // Placing looks at each pair from both sides.
    let Some(conflicts) = Conflicts::new(arena, budget / 2) else { return best };
    improve(arena, &conflicts, best, budget)
}

fn improve(arena: &Arena, conflicts: &Conflicts, mut best: Placement, budget: usize) -> Placement {
    let mut placer = Placer::new(arena, conflicts);
    // The order that the search starts from: of those that give the smallest placement, the first.
    let mut start: Option<(Vec<u32>, Placement)> = None;
    for order in orders(arena) {
        for fit in [Fit::Best, Fit::Lowest] {
            if best.peak <= arena.bound || placer.visits > budget {
                return best;
            }
            let limit = start.as_ref().map_or(u64::MAX, |(_, placement)| placement.peak.saturating_sub(1));
            if let Some(placement) = placer.place(&order, fit, limit) {
                if placement.peak < best.peak {
                    best = placement.clone();
                }
                start = Some((order.clone(), placement));
            }
        }
    }
    // A placement read from the bottom to the top is an order too, which gives it back or a smaller one.
    let by_offset = order_by_offset(&best);
    if let Some(placement) = placer.place(&by_offset, Fit::Lowest, best.peak) {
        best = placement.clone();
        start = Some((by_offset, placement));
    }
    if let Some((order, placement)) = start {
        let mut search = Search { arena, conflicts, placer, random: Random(SEED), order, placement, best };
        search.run(budget);
        best = search.best;
    }
    best
}

fn order_by_offset(placement: &Placement) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = placement.offsets.iter().copied().zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, node)| node).collect()
}

/// A walk over orders. Each step gives an item that ends at the peak, or one in its way, an earlier turn; it is kept
/// unless the peak rises. After many steps without gain, the walk starts again from the best placement, disturbed.
struct Search<'a> {
    arena: &'a Arena,
    conflicts: &'a Conflicts,
    placer: Placer<'a>,
    random: Random,
    order: Vec<u32>,
    placement: Placement,
    best: Placement,
}

const SEED: u64 = 0x2545_f491_4f6c_dd1d;
/// Steps without gain before a new start.
const PATIENCE: usize = 64;

impl Search<'_> {
    fn run(&mut self, budget: usize) {
        let mut idle = 0;
        while self.best.peak > self.arena.bound && self.placer.visits < budget {
            if idle >= PATIENCE {
                idle = 0;
                self.disturb();
            }
            let Some((from, to)) = self.choose() else { return };
            rotate(&mut self.order, from, to);
            match self.placer.place(&self.order, Fit::Lowest, self.placement.peak) {
                Some(placement) => {
                    idle = if placement.peak < self.placement.peak { 0 } else { idle + 1 };
                    self.placement = placement;
                    if self.placement.peak < self.best.peak {
                        self.best = self.placement.clone();
                    }
                }
                None => {
                    rotate(&mut self.order, to, from);
                    idle += 1;
                }
            }
        }
    }

    /// The position of an item to move, and an earlier one for it.
    fn choose(&mut self) -> Option<(usize, usize)> {
        let ends = self.arena.items.iter().zip(&self.placement.offsets).map(|(item, offset)| offset + item.size);
        let critical: Vec<u32> = ends.zip(0..).filter(|(end, _)| *end == self.placement.peak).map(|(_, n)| n).collect();
        let mut node = *critical.get(self.random.below(critical.len()))?;
        let neighbours = self.conflicts.of(node as usize);
        if self.random.below(3) == 0
            && let Some(&neighbour) = neighbours.get(self.random.below(neighbours.len()))
            && (neighbour as usize) < self.arena.items.len()
        {
            node = neighbour;
        }
        let from = self.order.iter().position(|other| *other == node)?;
        let to = if from == 0 { self.order.len() - 1 } else { self.random.below(from) };
        Some((from, to))
    }

    fn disturb(&mut self) {
        self.order = order_by_offset(&self.best);
        let count = self.order.len();
        for _ in 0..2 + self.random.below(4) {
            let (from, to) = (self.random.below(count), self.random.below(count));
            rotate(&mut self.order, from, to);
        }
        if let Some(placement) = self.placer.place(&self.order, Fit::Lowest, u64::MAX) {
            self.placement = placement;
            if self.placement.peak < self.best.peak {
                self.best = self.placement.clone();
            }
        }
    }
}

/// Moves the entry at `from` to `to`; those between shift by one.
fn rotate(order: &mut [u32], from: usize, to: usize) {
    if let Some(range) = order.get_mut(from.min(to)..=from.max(to)) {
        if from > to {
            range.rotate_right(1);
        } else {
            range.rotate_left(1);
        }
    }
}

/// Knuth's linear congruential generator (MMIX): the same numbers on every machine.
struct Random(u64);

impl Random {
    /// A number below `limit`; 0 if that is 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize).checked_rem(limit).unwrap_or(0)
    }
}
