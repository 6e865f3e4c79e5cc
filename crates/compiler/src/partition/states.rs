//! States that belong to a backend.
//!
//! If only one backend reads and writes a state, in one part of each method, it becomes a state of these parts. It is
//! then not an input and an output of the parts, and the backend keeps it between calls in its own format. All other
//! states stay in the program's memory.

use rushlight_graph::{Def, Graph, Model, NodeId, StateId, Target, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::claims::{ClaimedNodes, copied_whole, needless};
use super::levels::{for_each_input, levels};
use super::tags::Claimant;
use super::{Backend, Decided};

/// A part of a method, by its level and claimant; `None` for nodes outside of parts.
type Part = Option<(u32, Claimant)>;

/// Finds the states that belong to backends. `decided` has the claims of each method, in the order of the methods.
pub(super) fn owned(
    model: &Model,
    decided: &[Decided],
    backends: &[Box<dyn Backend>],
    copies_suffice: bool,
) -> FxHashSet<StateId> {
    let mut owners: FxHashMap<StateId, Option<usize>> = FxHashMap::default();
    if model.states.is_empty() {
        return FxHashSet::default();
    }
    for (graph, decided) in model.methods.values().zip(decided) {
        for (state, owner) in users(graph, &decided.claimed, copies_suffice) {
            owners.entry(state).and_modify(|known| *known = (*known).filter(|_| *known == owner)).or_insert(owner);
        }
    }
    let is_owned = |(state, owner): (StateId, Option<usize>)| {
        let backend = owner.and_then(|index| backends.get(index))?;
        backend.owns_state(&model.states[state]).then_some(state)
    };
    owners.into_iter().filter_map(is_owned).collect()
}

/// Returns for each state of a method the backend whose single part is its only user; `None` if there are other users.
fn users(graph: &Graph, claimed: &ClaimedNodes, copies_suffice: bool) -> FxHashMap<StateId, Option<usize>> {
    let nodes = &graph.blocks[graph.body].nodes;
    let claimants: Vec<Option<Claimant>> = nodes.iter().map(|node| claimed.by(*node)).collect();
    let levels = levels(graph, nodes, &claimants, claimed, &needless(graph, claimed, copies_suffice));
    let mut parts: FxHashMap<NodeId, Part> = FxHashMap::default();
    for ((node, level), claimant) in nodes.iter().zip(&levels).zip(&claimants) {
        parts.insert(*node, claimant.map(|claimant| (*level, claimant)));
    }
    let mut users_of: FxHashMap<StateId, FxHashSet<Part>> = FxHashMap::default();
    let mut add_user = |value: ValueId, part: Part| {
        if let Def::State(state) = graph.values[value].def {
            users_of.entry(state).or_default().insert(part);
        }
    };
    let copied = copied_whole(graph, claimed);
    for node in nodes.iter().filter(|node| !copied.contains_key(node)) {
        let part = parts.get(node).copied().flatten();
        // For a node that the part copies, its inputs count as used by the part.
        let seen = &mut FxHashSet::default();
        for_each_input(graph, *node, claimed.by(*node), claimed, seen, &mut |value| add_user(value, part));
    }
    graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut |value| add_user(value, None)));
    graph.updates.iter().for_each(|update| add_user(update.value, None));
    // The node that computes the new value of a state uses the state, too.
    for update in &graph.updates {
        if let Target::State(state) = update.target {
            let part = match graph.values[update.value].def {
                Def::Result(node, _) => parts.get(&node).copied().flatten(),
                _ => None,
            };
            users_of.entry(state).or_default().insert(part);
        }
    }
    let only_backend = |(state, parts): (StateId, FxHashSet<Part>)| {
        let mut parts = parts.into_iter();
        let owner = parts.next().flatten().map(|(_, claimant)| claimant.backend);
        (state, owner.filter(|_| parts.next().is_none()))
    };
    users_of.into_iter().map(only_backend).collect()
}
