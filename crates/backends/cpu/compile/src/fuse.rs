//! Which nodes are computed together.

use std::collections::{HashMap, HashSet};

use rushlight_cpu_payload::{Activation, Affine, FakeQuantize};

use rushlight_graph::quantization;
use rushlight_graph::{Graph, Model, NodeId, ValueId};

use super::call::Call;
use super::integer::{IntegerProduct, bytes_of, integer_product};
use super::lower::{affine_of, elementwise};

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
    /// Products of bytes.
    pub integers: HashMap<NodeId, IntegerProduct>,
    /// For values that nothing else uses: the node that quantizes them.
    pub quantized: HashMap<ValueId, NodeId>,
}

/// The nodes after a product that are computed with it.
#[derive(Debug)]
pub(super) struct TailNodes {
    pub activation: Activation,
    pub residual: Option<ValueId>,
    /// Whether the residual is added after the activation.
    pub residual_last: bool,
    /// Of a product of bytes: what it is rounded to before the residual or the activation.
    pub inner: Option<FakeQuantize>,
    /// What the bytes of the result stand for, if it is not floats.
    pub to: Option<Affine>,
    /// What the whole gives.
    pub result: ValueId,
}

impl TailNodes {
    const fn of(result: ValueId) -> Self {
        Self { activation: Activation::None, residual: None, residual_last: false, inner: None, to: None, result }
    }
}

/// Whether an activation takes no exponentials: bytes are the same on every machine.
const fn is_exact(activation: Activation) -> bool {
    use Activation::{Clamp, HardSigmoid, HardSwish, LeakyRelu, None};
    matches!(activation, None | Clamp { .. } | LeakyRelu { .. } | HardSwish | HardSigmoid)
}

/// Whether a node is a product that can do more to its results.
fn is_product(name: &str) -> bool {
    matches!(name, "aten::convolution" | "aten::addmm" | "aten::mm")
}

impl Fusion {
    pub fn of(graph: &Graph, model: &Model) -> Self {
        let mut users: HashMap<ValueId, Vec<NodeId>> = HashMap::new();
        let nodes = &graph.blocks[graph.body].nodes;
        for node in nodes {
            graph.nodes[*node].args.iter().for_each(|arg| {
                arg.for_each_value(&mut |value| users.entry(value).or_default().push(*node));
            });
        }
        let returned: HashSet<ValueId> = graph.outputs.iter().filter_map(rushlight_graph::Arg::as_value).collect();
        let only_user = |value: ValueId| match users.get(&value).map(Vec::as_slice) {
            Some([user]) if !returned.contains(&value) => Some(*user),
            _ => None,
        };
        let mut fusion = Self::default();
        for node in nodes {
            if quantization::is_quantize(graph.nodes[*node].op.name())
                && let Some(input) = Call::new(graph, *node).optional("input")
                && only_user(input) == Some(*node)
            {
                fusion.quantized.insert(input, *node);
            }
        }
        for node in nodes {
            if !is_product(graph.nodes[*node].op.name()) {
                continue;
            }
            match integer_product(graph, model, *node) {
                Some(product) => {
                    fusion.integers.insert(*node, product);
                    if product == IntegerProduct::Static {
                        fusion.integer_tail(graph, *node, &only_user);
                    } else {
                        fusion.tail(graph, *node, false, &only_user);
                    }
                }
                None => fusion.tail(graph, *node, true, &only_user),
            }
        }
        fusion.groups(graph, nodes, &users, &returned);
        fusion
    }

    /// Follows what happens to a product's result, as long as nothing else uses it.
    fn tail(
        &mut self,
        graph: &Graph,
        product: NodeId,
        takes_residuals: bool,
        only_user: &impl Fn(ValueId) -> Option<NodeId>,
    ) {
        let Some(mut value) = graph.nodes[product].results.first().copied() else { return };
        let mut tail = TailNodes::of(value);
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
            } else if let (true, Some(other), None) = (takes_residuals, residual(&call, value), tail.residual) {
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
        self.end(product, &path, tail);
    }

    /// A product is computed with all nodes of a path, at the last of them.
    fn end(&mut self, product: NodeId, path: &[NodeId], tail: TailNodes) {
        let end = path.last().copied().unwrap_or(product);
        if end != product {
            self.absorbed.insert(product);
            self.absorbed.extend(path.iter().filter(|node| **node != end));
        }
        self.ends.insert(end, product);
        self.tails.insert(product, tail);
    }

    /// Follows what happens to a product of bytes: an activation, to bytes, and perhaps from there to a residual or another
    /// activation, and to bytes again.
    fn integer_tail(&mut self, graph: &Graph, product: NodeId, only_user: &impl Fn(ValueId) -> Option<NodeId>) {
        let Some(first) = graph.nodes[product].results.first().copied() else { return };
        let is_matrix = graph.nodes[product].op.name() != "aten::convolution";
        let mut value = first;
        let mut path: Vec<NodeId> = Vec::new();
        let mut best = (0, TailNodes::of(first));
        let mut tail = TailNodes::of(first);
        while let Some(user) = only_user(value) {
            if self.absorbed.contains(&user) || self.ends.contains_key(&user) {
                break;
            }
            let call = Call::new(graph, user);
            let Some(result) = graph.nodes[user].results.first().copied() else { break };
            if is_matrix && call.name() == "aten::view_copy" {
                // The same elements in the same order.
            } else if let Some(activation) = elementwise::activation(&call).filter(|it| is_exact(*it)) {
                if tail.activation != Activation::None || tail.to.is_some() {
                    break;
                }
                tail.activation = activation;
            } else if quantization::is_quantize(call.name()) {
                tail.to = affine_of(&call);
                tail.result = result;
                if tail.to.is_none() {
                    break;
                }
                let is_bounded = matches!(tail.activation, Activation::None | Activation::Clamp { .. });
                if let Some(FakeQuantize { activation: Activation::None, affine }) = tail.inner
                    && (Some(affine), tail.residual, is_bounded) == (tail.to, None, true)
                {
                    // The same bytes within bounds: rounding once does.
                    tail.inner = None;
                }
                best = (path.len() + 1, TailNodes { ..tail });
            } else if let (true, Some(affine)) = (quantization::is_dequantize(call.name()), tail.to) {
                if tail.inner.is_some() || affine_of(&call) != Some(affine) {
                    break;
                }
                tail.inner = Some(FakeQuantize { activation: tail.activation, affine });
                (tail.activation, tail.to) = (Activation::None, None);
            } else if let (Some(other), Some(_), None, Activation::None) =
                (residual(&call, value), tail.inner, tail.residual, tail.activation)
            {
                if bytes_of(graph, other).is_none() {
                    break;
                }
                tail.residual = Some(other);
            } else {
                break;
            }
            path.push(user);
            value = result;
        }
        let (len, tail) = best;
        path.truncate(len);
        if len > 0 {
            return self.end(product, &path, tail);
        }
        // Nothing makes bytes of it: floats, with the activation that follows.
        self.tail(graph, product, false, only_user);
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
