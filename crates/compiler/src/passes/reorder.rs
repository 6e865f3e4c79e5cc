//! Orders nodes to reduce the peak of memory use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::memory::DEFAULT_ALIGNMENT;
use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Def, Graph, Input, Model, NodeId, Op, Type, ValueId};

use rushlight_graph::Pass;

/// Runs nodes in an order with fewer bytes in use at a time, if one is easy to find. Otherwise they stay in the order
/// of the source.
///
/// Finding the best order is NP-hard (register sufficiency). Three orders are improved: the order of the source, a
/// greedy order, and an order that begins with the nodes whose operands need the largest tensors. The greedy order
/// always takes the node that leaves the fewest bytes in use. Nodes move across the peak of memory use as long as that
/// helps.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReorderNodes;

impl Pass for ReorderNodes {
    fn name(&self) -> &'static str {
        "order-of-nodes"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for graph in model.methods.values_mut() {
            let schedule = Schedule::of(graph);
            if let Some(order) = schedule.better() {
                graph.blocks[graph.body].nodes = schedule.nodes(&order);
            }
        }
        Ok(())
    }
}

/// Peak of the bytes in use in the order that [`ReorderNodes`] finds.
pub(super) fn bytes_in_use(graph: &Graph) -> u64 {
    let schedule = Schedule::of(graph);
    let order = schedule.better().unwrap_or_else(|| (0..schedule.steps.len()).collect());
    schedule.uses(&order).score.0
}

/// Limit of the work of trying orders, in nodes: a few milliseconds at most.
const BUDGET: usize = 1 << 18;

/// Memory blocks and steps of a method's body, by index.
#[derive(Default)]
struct Schedule {
    /// Bytes of each block that the method computes or is given.
    bytes: Vec<u64>,
    steps: Vec<Step>,
    /// Blocks that are in use from the beginning.
    given: Vec<usize>,
    /// For each block: true if it is in use until the end.
    kept: Vec<bool>,
    /// Views of values that no step computes.
    views: Vec<NodeId>,
}

/// A node, and the views of its results, which cost nothing.
struct Step {
    node: NodeId,
    views: Vec<NodeId>,
    /// Blocks that it reads, each once.
    reads: Vec<usize>,
    makes: Vec<usize>,
    /// Steps that must come before, and after.
    before: Vec<usize>,
    after: Vec<usize>,
}

/// Cost of an order, compared lexicographically: the peak of the bytes in use, the number of steps at that peak, and
/// the sum of the bytes in use over all steps.
type Score = (u64, usize, u64);

/// Lifetimes of blocks in an order.
#[derive(Default)]
struct Uses {
    /// By block: the first step, and the last one, which may be past the end.
    first: Vec<usize>,
    last: Vec<usize>,
    /// By step: the bytes of the blocks whose last use it is.
    ended: Vec<u64>,
    score: Score,
    /// The first step at the peak.
    peak: usize,
}

impl Schedule {
    fn of(graph: &Graph) -> Self {
        let mut this = Self::default();
        // The block of each value, and the step that computes it.
        let mut pieces: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut makers: FxHashMap<ValueId, usize> = FxHashMap::default();
        for input in &graph.inputs {
            if let Input::Value(value) = input {
                let piece = this.piece(graph, *value);
                pieces.insert(*value, piece);
                this.given.push(piece);
            }
        }
        let mut last_with_effects = None;
        for id in &graph.blocks[graph.body].nodes {
            if let Some(base) = base_of_view(graph, *id) {
                let maker = makers.get(&base).copied();
                let piece = pieces.get(&base).copied();
                for result in &graph.nodes[*id].results {
                    pieces.extend(piece.map(|piece| (*result, piece)));
                    makers.extend(maker.map(|maker| (*result, maker)));
                }
                match maker {
                    Some(maker) => this.steps[maker].views.push(*id),
                    None => this.views.push(*id),
                }
                continue;
            }
            let at = this.steps.len();
            let (mut reads, mut before) = (FxHashSet::default(), FxHashSet::default());
            for_each_read(graph, *id, &mut |value| {
                reads.extend(pieces.get(&value));
                before.extend(makers.get(&value));
            });
            if has_effects(graph, *id) {
                before.extend(last_with_effects.replace(at));
            }
            let mut makes = Vec::new();
            for result in &graph.nodes[*id].results {
                let piece = this.piece(graph, *result);
                pieces.insert(*result, piece);
                makers.insert(*result, at);
                makes.push(piece);
            }
            let (mut reads, mut before): (Vec<_>, Vec<_>) = (reads.into_iter().collect(), before.into_iter().collect());
            reads.sort_unstable();
            before.sort_unstable();
            for earlier in &before {
                this.steps[*earlier].after.push(at);
            }
            this.steps.push(Step { node: *id, views: Vec::new(), reads, makes, before, after: Vec::new() });
        }
        let mut keep = |value: ValueId| {
            if let Some(piece) = pieces.get(&value) {
                this.kept[*piece] = true;
            }
        };
        graph.outputs.iter().for_each(|output| output.for_each_value(&mut keep));
        graph.updates.iter().for_each(|update| keep(update.value));
        this
    }

    fn piece(&mut self, graph: &Graph, value: ValueId) -> usize {
        let bytes = match graph.ty(value) {
            Type::Tensor(ty) => ty.max_bytes(&graph.symbols).unwrap_or(0),
            Type::Int(_) | Type::Float | Type::Bool => 0,
        };
        self.bytes.push(bytes.checked_next_multiple_of(DEFAULT_ALIGNMENT).unwrap_or(bytes));
        self.kept.push(false);
        self.bytes.len() - 1
    }

    /// Returns the nodes of an order.
    fn nodes(&self, order: &[usize]) -> Vec<NodeId> {
        let mut nodes = self.views.clone();
        for step in order {
            nodes.push(self.steps[*step].node);
            nodes.extend(&self.steps[*step].views);
        }
        nodes
    }

    /// Returns an order that needs less memory than that of the source.
    fn better(&self) -> Option<Vec<usize>> {
        let source: Vec<usize> = (0..self.steps.len()).collect();
        let peak_bytes = self.uses(&source).score.0;
        let floor = self.floor();
        let mut best = None;
        for order in [source, self.greedy(), self.largest_first()] {
            let (order, uses) = self.improved(order, floor);
            let less_than = best.as_ref().map_or(peak_bytes, |(bytes, _)| *bytes);
            if uses.score.0 < less_than {
                best = Some((uses.score.0, order));
            }
            if best.as_ref().map_or(peak_bytes, |(bytes, _)| *bytes) <= floor {
                break;
            }
        }
        best.map(|(_, order)| order)
    }

    /// Returns a lower bound for all orders: the bytes at the beginning, at the end, and at the largest step.
    fn floor(&self) -> u64 {
        let sum = |pieces: &mut dyn Iterator<Item = usize>| {
            pieces.fold(0u64, |sum, piece| sum.saturating_add(self.bytes[piece]))
        };
        let given = sum(&mut self.given.iter().copied());
        let kept = sum(&mut (0..self.bytes.len()).filter(|piece| self.kept[*piece]));
        let steps = self.steps.iter().map(|step| sum(&mut step.reads.iter().chain(&step.makes).copied()));
        steps.max().unwrap_or(0).max(given).max(kept)
    }

    fn uses(&self, order: &[usize]) -> Uses {
        let mut uses = Uses::default();
        self.find_uses(order, &mut uses);
        uses
    }

    /// Computes `uses` again for another order. Its allocations are reused.
    fn find_uses(&self, order: &[usize], uses: &mut Uses) {
        let end = order.len();
        let Uses { first, last, ended, .. } = uses;
        for places in [&mut *first, &mut *last] {
            places.clear();
            places.resize(self.bytes.len(), 0);
        }
        for (at, step) in order.iter().enumerate() {
            let step = &self.steps[*step];
            step.reads.iter().for_each(|piece| last[*piece] = at);
            for piece in &step.makes {
                (first[*piece], last[*piece]) = (at, at);
            }
        }
        // A block that nothing reads is in use at its own step only; an unread input, at the first step.
        ended.clear();
        ended.resize(end + 1, 0u64);
        for (piece, bytes) in self.bytes.iter().enumerate() {
            if self.kept[piece] {
                last[piece] = end;
            }
            ended[last[piece]] = ended[last[piece]].saturating_add(*bytes);
        }
        let mut live = self.given.iter().fold(0u64, |sum, piece| sum.saturating_add(self.bytes[*piece]));
        let (mut peak, mut max_live, mut count, mut total) = (0, live, 0, 0u64);
        for (at, step) in order.iter().enumerate() {
            let made = self.steps[*step].makes.iter().map(|piece| self.bytes[*piece]);
            live = made.fold(live, u64::saturating_add);
            if live > max_live {
                (peak, max_live, count) = (at, live, 0);
            }
            count += usize::from(live == max_live);
            total = total.saturating_add(live);
            live = live.saturating_sub(ended[at]);
        }
        (uses.score, uses.peak) = ((max_live, count, total), peak);
    }

    /// Takes the step that leaves the fewest bytes in use next; the first in the source among equals.
    fn greedy(&self) -> Vec<usize> {
        let mut left: Vec<usize> = self.kept.iter().map(|kept| usize::from(*kept)).collect();
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.bytes.len()];
        for (at, step) in self.steps.iter().enumerate() {
            for piece in &step.reads {
                left[*piece] += 1;
                readers[*piece].push(at);
            }
        }
        let change = |step: &Step, left: &[usize]| {
            let made = step.makes.iter().filter(|piece| left[**piece] > 0).map(|piece| self.bytes[*piece] as i128);
            let freed = step.reads.iter().filter(|piece| left[**piece] == 1).map(|piece| self.bytes[*piece] as i128);
            made.sum::<i128>() - freed.sum::<i128>()
        };
        let mut waits: Vec<usize> = self.steps.iter().map(|step| step.before.len()).collect();
        let mut done = vec![false; self.steps.len()];
        let mut ready = BinaryHeap::new();
        for (at, step) in self.steps.iter().enumerate().filter(|(_, step)| step.before.is_empty()) {
            ready.push(Reverse((change(step, &left), at)));
        }
        let mut order = Vec::with_capacity(self.steps.len());
        while let Some(Reverse((_, at))) = ready.pop() {
            // A step is pushed again when its change decreases.
            if std::mem::replace(&mut done[at], true) {
                continue;
            }
            order.push(at);
            let step = &self.steps[at];
            for piece in &step.reads {
                left[*piece] -= 1;
                if left[*piece] == 1
                    && let Some(reader) = readers[*piece].iter().copied().find(|reader| !done[*reader])
                    && waits[reader] == 0
                {
                    ready.push(Reverse((change(&self.steps[reader], &left), reader)));
                }
            }
            for after in &step.after {
                waits[*after] -= 1;
                if waits[*after] == 0 {
                    ready.push(Reverse((change(&self.steps[*after], &left), *after)));
                }
            }
        }
        order
    }

    /// Orders the steps by result: all steps of one result, then those of the next. Results whose largest step is the
    /// largest come first.
    fn largest_first(&self) -> Vec<usize> {
        let bytes = |pieces: &[usize]| pieces.iter().fold(0u64, |sum, piece| sum.saturating_add(self.bytes[*piece]));
        let mut largest: Vec<u64> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let before = step.before.iter().map(|step| largest[*step]).max().unwrap_or(0);
            largest.push(bytes(&step.reads).saturating_add(bytes(&step.makes)).max(before));
        }
        let mut ends: Vec<usize> = (0..self.steps.len()).filter(|step| self.steps[*step].after.is_empty()).collect();
        ends.sort_by_key(|step| Reverse(largest[*step]));
        let mut order = Vec::with_capacity(self.steps.len());
        let mut done = vec![false; self.steps.len()];
        // Steps to take. Each is there a second time, after the steps that must come before it.
        let mut stack: Vec<(usize, bool)> = ends.iter().rev().map(|step| (*step, false)).collect();
        while let Some((at, is_ready)) = stack.pop() {
            if done[at] {
                continue;
            }
            if is_ready {
                done[at] = true;
                order.push(at);
                continue;
            }
            stack.push((at, true));
            let mut before: Vec<usize> = self.steps[at].before.iter().copied().filter(|step| !done[*step]).collect();
            before.sort_by_key(|step| largest[*step]);
            stack.extend(before.into_iter().map(|step| (step, false)));
        }
        order
    }

    /// Moves steps across the peak of memory use, as long as that improves the order.
    fn improved(&self, mut order: Vec<usize>, floor: u64) -> (Vec<usize>, Uses) {
        let (mut uses, mut then) = (self.uses(&order), Uses::default());
        let mut budget = BUDGET;
        'better: while uses.score.0 > floor {
            for (from, to) in self.moves(&order, &uses) {
                let Some(rest) = budget.checked_sub(order.len()) else { break 'better };
                budget = rest;
                move_step(&mut order, from, to);
                self.find_uses(&order, &mut then);
                if then.score < uses.score {
                    std::mem::swap(&mut uses, &mut then);
                    continue 'better;
                }
                move_step(&mut order, to, from);
            }
            break;
        }
        (order, uses)
    }

    /// Returns moves that may leave less in use at the peak. Steps whose results are needed only after the peak move
    /// after it. Steps that are the last to read a value move before it.
    fn moves(&self, order: &[usize], uses: &Uses) -> Vec<(usize, usize)> {
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, step)| place[*step] = at);
        let latest = |at: usize| {
            let after = self.steps[order[at]].after.iter().map(|step| place[*step]).min();
            after.unwrap_or(order.len()) - 1
        };
        let earliest = |at: usize| self.steps[order[at]].before.iter().map(|step| place[*step] + 1).max().unwrap_or(0);
        let peak = uses.peak;
        let mut moves = Vec::new();
        for at in 0..peak {
            let makes_for_later =
                self.steps[order[at]].makes.iter().any(|piece| uses.first[*piece] < peak && uses.last[*piece] > peak);
            let to = latest(at);
            if makes_for_later && to >= peak {
                moves.push((at, to));
            }
        }
        for at in peak + 1..order.len() {
            let ends = |piece: &usize| uses.last[*piece] == at && uses.first[*piece] < peak;
            let to = earliest(at);
            if self.steps[order[at]].reads.iter().any(ends) && to <= peak {
                moves.push((at, to));
                moves.push((at, peak));
            }
        }
        let (to_front, to_back) = (earliest(peak), latest(peak));
        moves.extend([(peak, to_front), (peak, to_back)].into_iter().filter(|(from, to)| from != to));
        moves
    }
}

/// Moves a step to another place; those in between close the gap.
fn move_step(order: &mut [usize], from: usize, to: usize) {
    if from < to {
        order[from..=to].rotate_left(1);
    } else {
        order[to..=from].rotate_right(1);
    }
}

/// Returns the input of a node that the emitter writes as a view.
fn base_of_view(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let node = &graph.nodes[id];
    let (Some(Arg::Value(base)), Some(result)) = (node.args.first(), node.result()) else { return None };
    let (from, to) = (graph.tensor(*base).ok()?, graph.tensor(result).ok()?);
    let is_view = node.op.name() == aten::VIEW_COPY && from.is_contiguous() && to.is_contiguous();
    // A view with a computed size stays after the step that computes the size.
    let sizes_are_known = node.args.iter().skip(1).all(|arg| {
        let mut known = true;
        arg.for_each_value(&mut |_| known = false);
        known
    });
    let is_constant = matches!(graph.values[*base].def, Def::Constant(_));
    (is_view && sizes_are_known && !is_constant && from.dtype == to.dtype).then_some(*base)
}

/// Visits the values that a node reads, and outer values that its blocks read.
fn for_each_read(graph: &Graph, id: NodeId, visit: &mut impl FnMut(ValueId)) {
    let node = &graph.nodes[id];
    node.args.iter().for_each(|arg| arg.for_each_value(visit));
    for block in node.blocks().flat_map(|block| graph.blocks_within(block)) {
        let block = &graph.blocks[block];
        for inner in &block.nodes {
            graph.nodes[*inner].args.iter().for_each(|arg| arg.for_each_value(visit));
        }
        block.results.iter().for_each(|arg| arg.for_each_value(visit));
    }
}

/// True if a node may have side effects, so that it stays after other such nodes.
fn has_effects(graph: &Graph, id: NodeId) -> bool {
    let node = &graph.nodes[id];
    match &node.op {
        Op::Call(schema) => {
            let foreign = !schema.name.starts_with("aten::") && !schema.name.starts_with("executorch_prim::");
            schema.flags.random || schema.flags.in_place || node.results.is_empty() || foreign
        }
        Op::Cond | Op::While | Op::Scan | Op::Delegate(_) => true,
    }
}
