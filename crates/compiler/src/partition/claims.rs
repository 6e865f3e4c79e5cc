//! The canonical form that backends are shown, and their claims on its nodes.

use rushlight_graph::{Def, Graph, Model, NodeId, Op};
use rushlight_runtime::OptionValue;
use rustc_hash::{FxHashMap, FxHashSet};

use super::tags::{Claimant, Tag, Tags};
use crate::passes::composites::Composites;

/// The canonical form of a method: a functional, simplified graph of operators that kernels have, and of composite
/// operators that stay whole ([`CANONICAL_COMPOSITES`](crate::passes::CANONICAL_COMPOSITES)). Every backend is shown the same
/// graph.
///
/// Backends claim more than once if composites are left: these are decomposed, and all nodes are offered again.
#[derive(Clone, Copy, Debug)]
pub struct Canonical<'a> {
    /// The model, whose constants and states the graph uses.
    pub model: &'a Model,
    pub method: &'a str,
    pub graph: &'a Graph,
    /// True if no backend of lower priority is asked after this one. The composites that it refuses are then decomposed.
    pub is_last: bool,
    pub(super) claimed: &'a ClaimedNodes,
    pub(super) composites: &'a Composites,
}

impl<'a> Canonical<'a> {
    /// All calls of operators, also those in blocks of control flow. Control flow itself and the program's own
    /// delegates are not shown.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<'a> {
        let graph = self.graph;
        let nodes = graph.live_blocks().into_iter().flat_map(|block| &graph.blocks[block].nodes).copied();
        nodes.filter(|node| matches!(graph.nodes[*node].op, Op::Call(_)))
    }

    /// True if a node is computed from constants alone, and is deterministic.
    pub fn is_constant(&self, node: NodeId) -> bool {
        is_constant(self.graph, node)
    }

    /// True for a composite that is decomposed if no backend claims it, so that its parts are offered.
    pub fn is_composite(&self, node: NodeId) -> bool {
        self.composites.keeps(self.method, self.graph, node)
    }

    /// True if a backend of higher priority has claimed a node.
    pub fn is_claimed(&self, node: NodeId) -> bool {
        self.claimed.is_claimed(node)
    }
}

/// The decision of a backend on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The backend computes it.
    Take,
    /// The backend computes the node as a step of its users, and the node joins their part. The backend must take all
    /// users, under the node's tag.
    Inner,
    /// Each part of the backend that uses the node gets a copy of it, and the original stays for other users. Examples
    /// are dequantized weights, and inner nodes of a pattern that other nodes use as well.
    Copy,
    /// The backend computes the operators that a [composite](Canonical::is_composite) decomposes to. It is shown these before
    /// backends of lower priority are shown the composite.
    Decompose,
    /// The backend does not compute it. The reason is for the report.
    Refuse(String),
}

/// The claims of one backend on the nodes of a method. A node without a claim is refused.
#[derive(Debug, Default)]
pub struct Claims {
    of_nodes: FxHashMap<NodeId, Claim>,
    pub(super) tags: Tags,
}

impl Claims {
    /// Sets the claim on a node.
    pub fn set(&mut self, node: NodeId, claim: Claim) {
        self.of_nodes.insert(node, claim);
    }

    /// Sets the tag of a node. Nodes with different tags are never in one part, and neither are nodes with and without
    /// a tag. A backend thus gets several parts where the order of computation would allow one. Nodes that are claimed
    /// with [`Claim::Copy`] need no tag.
    pub fn set_tag(&mut self, node: NodeId, tag: &str) {
        self.tags.set(node, tag);
    }

    /// Sets one of the backend's [options](super::Backend::options) for the parts of a tag; the empty tag is that of
    /// nodes without a tag. The options come to the backend as [`Part::options`](super::Part::options). They are
    /// checked after [`claim`](super::Backend::claim).
    pub fn set_option(&mut self, tag: &str, name: &str, value: OptionValue<'_>) {
        self.tags.set_option(tag, name, value);
    }

    pub(super) fn remove(&mut self, node: NodeId) -> Option<Claim> {
        self.of_nodes.remove(&node)
    }
}

/// The nodes of a method that backends have claimed. A backend is an index in the list.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimedNodes {
    by: FxHashMap<NodeId, Claimant>,
    /// The tags of each backend.
    tags: Vec<Tags>,
    inner: FxHashSet<NodeId>,
    copies: FxHashSet<(NodeId, usize)>,
    /// The nodes of `copies`.
    copied: FxHashSet<NodeId>,
}

impl ClaimedNodes {
    pub fn take(&mut self, node: NodeId, claimant: Claimant) {
        self.by.insert(node, claimant);
    }

    /// Claims a node together with its users.
    pub fn take_inner(&mut self, node: NodeId, claimant: Claimant) {
        self.take(node, claimant);
        self.inner.insert(node);
    }

    /// Adds the tags of the next backend.
    pub fn add_tags(&mut self, tags: Tags) {
        self.tags.push(tags);
    }

    pub fn tag(&self, claimant: Claimant) -> Option<&Tag> {
        self.tags.get(claimant.backend)?.get(claimant.tag)
    }

    /// True if a node was claimed together with its users.
    pub fn is_inner(&self, node: NodeId) -> bool {
        self.inner.contains(&node)
    }

    pub fn copy(&mut self, node: NodeId, backend: usize) {
        self.copies.insert((node, backend));
        self.copied.insert(node);
    }

    pub fn is_claimed(&self, node: NodeId) -> bool {
        self.by.contains_key(&node)
    }

    /// True if a part computes a node, or a copy of it.
    pub fn is_used(&self, node: NodeId) -> bool {
        self.is_claimed(node) || self.has_copies(node)
    }

    /// Returns the claimant of a node.
    pub fn by(&self, node: NodeId) -> Option<Claimant> {
        self.by.get(&node).copied()
    }

    /// True if parts copy a node that uses a result of a claimed node.
    pub fn copies_use_claims(&self, graph: &Graph) -> bool {
        self.copies.iter().any(|(node, _)| {
            let mut uses = false;
            graph.for_each_use_by(*node, &mut |value| {
                uses |= matches!(graph.values[value].def, Def::Result(maker, _) if self.is_claimed(maker));
            });
            uses
        })
    }

    /// True if parts of any backend copy a node.
    pub fn has_copies(&self, node: NodeId) -> bool {
        self.copied.contains(&node)
    }

    /// True if the parts of a backend copy a node.
    pub fn is_copied(&self, node: NodeId, backend: usize) -> bool {
        self.copies.contains(&(node, backend))
    }

    /// The nodes that the parts of a backend copy.
    pub fn copies_of(&self, backend: usize) -> FxHashSet<NodeId> {
        self.copies.iter().filter(|(_, by)| *by == backend).map(|(node, _)| *node).collect()
    }
}

/// True if a node is computed from constants alone, and is deterministic.
fn is_constant(graph: &Graph, node: NodeId) -> bool {
    /// Weights are dequantized, reshaped and transposed, which takes few nodes.
    const MAX_NODES: usize = 16;

    let mut nodes = vec![node];
    let mut seen = 0;
    while let Some(node) = nodes.get(seen).copied() {
        seen += 1;
        let node = &graph.nodes[node];
        let Op::Call(schema) = &node.op else { return false };
        let mut all = !schema.flags.random && seen <= MAX_NODES;
        for arg in &node.args {
            arg.for_each_value(&mut |value| match graph.values[value].def {
                Def::Constant(_) => {}
                Def::Result(maker, _) if nodes.contains(&maker) => {}
                Def::Result(maker, _) => nodes.push(maker),
                _ => all = false,
            });
        }
        if !all {
            return false;
        }
    }
    true
}

/// Finds the nodes that are used only through copies, with the backend that copies them.
pub(super) fn copied_whole(graph: &Graph, claimed: &ClaimedNodes) -> FxHashMap<NodeId, usize> {
    copied_alone(graph, claimed, |_| true)
}

/// Finds the nodes of [`copied_whole`] whose originals can be removed: their results are tensors, not numbers that may
/// be sizes elsewhere. Finds none unless the copies suffice.
pub(super) fn needless(graph: &Graph, claimed: &ClaimedNodes, copies_suffice: bool) -> FxHashSet<NodeId> {
    if !copies_suffice {
        return FxHashSet::default();
    }
    let gives_tensors = |node| graph.nodes[node].results.iter().all(|result| graph.tensor(*result).is_ok());
    copied_alone(graph, claimed, gives_tensors).into_keys().collect()
}

/// Finds the nodes of a kind whose copies alone are used: in parts, or by other such nodes.
fn copied_alone(
    graph: &Graph,
    claimed: &ClaimedNodes,
    is_of_kind: impl Fn(NodeId) -> bool,
) -> FxHashMap<NodeId, usize> {
    let mut whole: FxHashMap<NodeId, usize> = FxHashMap::default();
    if claimed.copies.is_empty() {
        return whole;
    }
    let users = graph.users();
    let order = graph.live_blocks().into_iter().flat_map(|block| graph.blocks[block].nodes.iter().copied());
    let place: FxHashMap<NodeId, usize> = order.enumerate().map(|(index, node)| (node, index)).collect();
    let mut copies: Vec<(NodeId, usize)> = claimed.copies.iter().copied().collect();
    // Users come after the nodes that they use, so they are first in this order.
    copies.sort_unstable_by_key(|(node, backend)| std::cmp::Reverse((place.get(node).copied(), *backend)));
    for (node, backend) in copies {
        let is_in_parts = |user: &Option<NodeId>| {
            user.is_some_and(|user| {
                claimed.by(user).is_some_and(|by| by.backend == backend) || whole.get(&user) == Some(&backend)
            })
        };
        let results = &graph.nodes[node].results;
        let is_alone = results.iter().filter_map(|result| users.get(result)).flatten().all(is_in_parts);
        if is_alone && is_of_kind(node) {
            whole.insert(node, backend);
        }
    }
    whole
}
