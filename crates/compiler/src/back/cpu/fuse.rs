//! Which nodes are computed together.

use std::collections::{HashMap, HashSet};

use crate::graph::{Graph, NodeId, ValueId};

use super::call::Call;
use super::lower::elementwise;

use rushlight_format::cpu::Activation;

/// What is computed with what.
#[derive(Debug, Default)]
pub(super) struct Fusion {
    /// For a product: what happens to its result before it is stored.
    pub tails: HashMap<NodeId, TailNodes>,
    /// For the last node of a tail: the product.
    pub ends: HashMap<NodeId, NodeId>,
    /// Elementwise nodes whose result only the group of another one uses, which computes it.
    pub inner: HashSet<NodeId>,
    /// Nodes that belong to a tail, and products that are computed at its end.
    pub absorbed: HashSet<NodeId>,
}

/// The nodes after a product that are computed with it.
#[derive(Debug)]
pub(super) struct TailNodes {
    pub activation: Activation,
    pub residual: Option<ValueId>,
    /// Whether the residual is added after the activation.
    pub residual_last: bool,
    /// What the whole gives.
    pub result: ValueId,
}

/// Whether a node is a product that can do more to its results.
fn is_product(name: &str) -> bool {
    matches!(name, "aten::convolution" | "aten::addmm" | "aten::mm")
}

impl Fusion {
    pub fn of(graph: &Graph) -> Self {
        let mut users: HashMap<ValueId, Vec<NodeId>> = HashMap::new();
        let nodes = &graph.blocks[graph.body].nodes;
        for node in nodes {
            graph.nodes[*node].args.iter().for_each(|arg| {
                arg.for_each_value(&mut |value| users.entry(value).or_default().push(*node));
            });
        }
        let returned: HashSet<ValueId> = graph.outputs.iter().filter_map(crate::graph::Arg::as_value).collect();
        let only_user = |value: ValueId| match users.get(&value).map(Vec::as_slice) {
            Some([user]) if !returned.contains(&value) => Some(*user),
            _ => None,
        };
        let mut fusion = Self::default();
        for node in nodes {
            if is_product(graph.nodes[*node].op.name()) {
                fusion.tail(graph, *node, &only_user);
            }
        }
        fusion.groups(graph, nodes, &users, &returned);
        fusion
    }

    /// Follows what happens to a product's result, as long as nothing else uses it.
    fn tail(&mut self, graph: &Graph, product: NodeId, only_user: &impl Fn(ValueId) -> Option<NodeId>) {
        let Some(mut value) = graph.nodes[product].results.first().copied() else { return };
        let mut tail = TailNodes { activation: Activation::None, residual: None, residual_last: false, result: value };
        let is_matrix = graph.nodes[product].op.name() != "aten::convolution";
        // The nodes after the product, and how many of them are the tail.
        let mut path: Vec<NodeId> = Vec::new();
        let mut len = 0;
        while let Some(user) = only_user(value) {
            if self.absorbed.contains(&user) || self.ends.contains_key(&user) {
                break;
            }
            let call = Call::new(graph, user);
            let is_reshape = is_matrix && call.name() == "aten::view_copy";
            if is_reshape {
                // The same elements in the same order.
            } else if let Some(activation) = elementwise::activation(&call) {
                if tail.activation != Activation::None || tail.residual_last {
                    break;
                }
                tail.activation = activation;
            } else if let (Some(other), None) = (residual(&call, value), tail.residual) {
                tail.residual = Some(other);
                tail.residual_last = tail.activation != Activation::None;
            } else {
                break;
            }
            let Some(result) = graph.nodes[user].results.first() else { break };
            path.push(user);
            value = *result;
            // Reshapes at the end cost nothing, and are left to themselves.
            if !is_reshape {
                tail.result = value;
                len = path.len();
            }
        }
        path.truncate(len);
        let end = path.last().copied().unwrap_or(product);
        if end != product {
            self.absorbed.insert(product);
            self.absorbed.extend(path.iter().filter(|node| **node != end));
        }
        self.ends.insert(end, product);
        self.tails.insert(product, tail);
    }

    /// Finds the elementwise nodes whose results are used by one group alone, from the last to the first.
    fn groups(
        &mut self,
        graph: &Graph,
        nodes: &[NodeId],
        users: &HashMap<ValueId, Vec<NodeId>>,
        returned: &HashSet<ValueId>,
    ) {
        // For each node of a group its last node, and for that one how many nodes there are.
        let mut root: HashMap<NodeId, NodeId> = HashMap::new();
        let mut count: HashMap<NodeId, usize> = HashMap::new();
        for node in nodes.iter().rev() {
            let call = Call::new(graph, *node);
            let part_of_tail = self.absorbed.contains(node) || self.ends.contains_key(node);
            if part_of_tail || !elementwise::takes(&call) {
                continue;
            }
            let Ok(result) = call.result() else { continue };
            let roots: Option<HashSet<NodeId>> = if returned.contains(&result) {
                None
            } else {
                users.get(&result).and_then(|users| users.iter().map(|user| root.get(user).copied()).collect())
            };
            let joined = roots.filter(|roots| roots.len() == 1).and_then(|roots| roots.into_iter().next());
            let joined = joined.filter(|last| {
                let same = match (graph.tensor(result), graph.nodes[*last].results.first().map(|r| graph.tensor(*r))) {
                    (Ok(a), Some(Ok(b))) => a.shape == b.shape,
                    _ => false,
                };
                same && count.get(last).copied().unwrap_or(0) < MOST_NODES
            });
            let last = joined.unwrap_or(*node);
            root.insert(*node, last);
            *count.entry(last).or_default() += 1;
            if last != *node {
                self.inner.insert(*node);
            }
        }
    }
}

/// Nodes of an elementwise group: more take more registers than there are.
const MOST_NODES: usize = 24;

/// The other summand, if a node adds a tensor of the same shape to `value`.
fn residual(call: &Call<'_>, value: ValueId) -> Option<ValueId> {
    if call.name() != "aten::add.Tensor" || call.number("alpha").is_some_and(|alpha| alpha != 1.0) {
        return None;
    }
    let (a, b) = (call.optional("self")?, call.optional("other")?);
    let other = if a == value { b } else { a };
    let same = call.shape(a).ok()? == call.shape(b).ok()?;
    (a != b && same && !call.is_constant(other)).then_some(other)
}
