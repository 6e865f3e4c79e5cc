//! Levels: nodes of one level can run together.
//!
//! The level of a node is the highest level of the nodes that it uses, plus one for those of another claimant. The
//! nodes that one claimant has on one level can run as one part: a path that leaves a claimant comes back on a higher
//! level.

use rushlight_graph::{Def, Graph, NodeId, SymbolId, Type, ValueId};

use rustc_hash::{FxHashMap, FxHashSet};

use super::claims::ClaimedNodes;
use super::tags::Claimant;

/// Returns the level of each node of a block. `claimants` has the claimant of each node, and `needless` the nodes whose
/// originals are removed, because only copies are used.
///
/// A node depends on its arguments, and on the first result whose type defines a symbol in them. If its part copies an
/// argument's node, it depends on that node's inputs instead.
pub(super) fn levels(
    graph: &Graph,
    nodes: &[NodeId],
    claimants: &[Option<Claimant>],
    claimed: &ClaimedNodes,
    needless: &FxHashSet<NodeId>,
) -> Vec<u32> {
    let mut made_by: FxHashMap<ValueId, (u32, Option<Claimant>)> = FxHashMap::default();
    let mut sizes_by: FxHashMap<SymbolId, (u32, Option<Claimant>)> = FxHashMap::default();
    let mut numbers_by: FxHashMap<SymbolId, NodeId> = FxHashMap::default();
    let mut given = FxHashSet::default();
    for param in &graph.blocks[graph.body].params {
        for_each_symbol(graph.ty(*param), &mut |symbol| {
            given.insert(symbol);
        });
    }
    let mut levels = Vec::with_capacity(nodes.len());
    for (node, claimant) in nodes.iter().zip(claimants) {
        let mut level = 0;
        let mut follow = |maker: Option<&(u32, Option<Claimant>)>| {
            if let Some((other, other_claimant)) = maker {
                level = level.max(other + u32::from(other_claimant != claimant));
            }
        };
        let seen = &mut FxHashSet::default();
        for_each_input(graph, *node, *claimant, claimed, seen, &mut |value| follow(made_by.get(&value)));
        graph.for_each_symbol_by(*node, &mut |symbol| match (numbers_by.get(&symbol), *claimant) {
            // The part reads the number again, from the tensor that it comes from.
            (Some(maker), Some(by)) if claimed.is_copied(*maker, by.backend) => {
                for_each_input(graph, *maker, Some(by), claimed, seen, &mut |value| follow(made_by.get(&value)));
            }
            _ => follow(sizes_by.get(&symbol)),
        });
        levels.push(level);
        for result in &graph.nodes[*node].results {
            made_by.insert(*result, (level, *claimant));
            numbers_by.extend(graph.ty(*result).symbol().map(|symbol| (symbol, *node)));
            for_each_symbol(graph.ty(*result), &mut |symbol| {
                if !given.contains(&symbol) {
                    sizes_by.entry(symbol).or_insert((level, *claimant));
                }
            });
        }
    }
    sink(graph, nodes, claimed, needless, &mut levels);
    levels
}

/// Moves inner nodes of patterns to the level of the nodes that use them, or that use a copy of a node which does. A node
/// stays below users that are not in its part, and below nodes that are copied and stay as well.
fn sink(graph: &Graph, nodes: &[NodeId], claimed: &ClaimedNodes, needless: &FxHashSet<NodeId>, levels: &mut [u32]) {
    if !nodes.iter().any(|node| claimed.is_inner(*node)) {
        return;
    }
    let place: FxHashMap<NodeId, usize> = nodes.iter().enumerate().map(|(index, node)| (*node, index)).collect();
    let users = graph.users();
    for (index, node) in nodes.iter().enumerate().rev().filter(|(_, node)| claimed.is_inner(**node)) {
        let claimant = claimed.by(*node);
        let below = |user: NodeId| {
            let level = levels.get(*place.get(&user)?).copied()?;
            Some(level.saturating_sub(u32::from(claimed.by(user) != claimant)))
        };
        let (mut highest, mut seen, mut open) = (Vec::new(), FxHashSet::default(), vec![*node]);
        while let Some(maker) = open.pop() {
            for user in graph.nodes[maker].results.iter().filter_map(|result| users.get(result)).flatten() {
                // Results of the method are used after all nodes.
                let reader = user.and_then(|user| claimed.by(user));
                let reads = if maker == *node {
                    user.is_none_or(|user| reader.is_some() || !needless.contains(&user))
                } else {
                    reader.is_some_and(|by| claimed.is_copied(maker, by.backend))
                };
                if reads {
                    highest.push(user.and_then(below));
                }
                open.extend(user.filter(|user| claimed.has_copies(*user) && seen.insert(*user)));
            }
        }
        if let Some(Some(level)) = highest.into_iter().min() {
            levels[index] = levels[index].max(level);
        }
    }
}

/// Sorts nodes so that each comes after those that it uses. Keeps the order otherwise.
pub(super) fn sorted(graph: &Graph, nodes: &[NodeId]) -> Vec<NodeId> {
    let mut sizes_by: FxHashMap<SymbolId, NodeId> = FxHashMap::default();
    for node in nodes {
        for result in &graph.nodes[*node].results {
            for_each_symbol(graph.ty(*result), &mut |symbol| {
                sizes_by.entry(symbol).or_insert(*node);
            });
        }
    }
    let of_block: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let (mut seen, mut sorted) = (FxHashSet::default(), Vec::with_capacity(nodes.len()));
    for node in nodes {
        // A node is left once all nodes that it uses are sorted.
        let mut open = vec![(*node, false)];
        while let Some((node, is_left)) = open.pop() {
            if is_left {
                sorted.push(node);
                continue;
            }
            if !of_block.contains(&node) || !seen.insert(node) {
                continue;
            }
            open.push((node, true));
            graph.for_each_use_by(node, &mut |value| {
                if let Def::Result(maker, _) = graph.values[value].def {
                    open.push((maker, false));
                }
            });
            graph.for_each_symbol_by(node, &mut |symbol| {
                open.extend(sizes_by.get(&symbol).map(|maker| (*maker, false)));
            });
        }
    }
    sorted
}

/// Visits a node's inputs; for nodes that its part copies, theirs.
pub(super) fn for_each_input(
    graph: &Graph,
    node: NodeId,
    claimant: Option<Claimant>,
    claimed: &ClaimedNodes,
    seen: &mut FxHashSet<NodeId>,
    visit: &mut dyn FnMut(ValueId),
) {
    if !seen.insert(node) {
        return;
    }
    let mut inputs = Vec::new();
    graph.for_each_use_by(node, &mut |value| inputs.push(value));
    for value in inputs {
        match (graph.values[value].def, claimant) {
            (Def::Result(maker, _), Some(by)) if claimed.is_copied(maker, by.backend) => {
                for_each_input(graph, maker, claimant, claimed, seen, visit);
            }
            _ => visit(value),
        }
    }
}

pub(super) fn for_each_symbol(ty: &Type, visit: &mut impl FnMut(SymbolId)) {
    match ty {
        Type::Tensor(tensor) => tensor.shape.iter().for_each(|size| size.for_each_symbol(visit)),
        Type::Int(value) => value.for_each_symbol(visit),
        _ => {}
    }
}
