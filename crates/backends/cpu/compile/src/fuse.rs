//! Selects the nodes that are computed together.

use rushlight_cpu_payload::{Activation, Affine, Binary, FakeQuantize};
use rustc_hash::{FxHashMap, FxHashSet};

use rushlight_graph::{Call, Graph, NodeId, ValueId};

use crate::select::{DataMovement, Elementwise, Int8, Operand, Selection, Selections};

/// The nodes of a part that share a step.
#[derive(Debug, Default)]
pub(crate) struct Fusion {
    /// By GEMM or convolution: what happens to its result before it is stored.
    pub epilogues: FxHashMap<NodeId, EpilogueNodes>,
    /// By the last node of an epilogue: its GEMM or convolution.
    pub ends: FxHashMap<NodeId, NodeId>,
    /// Elementwise nodes that are computed in the step of another one, which alone uses their result.
    pub inner: FxHashSet<NodeId>,
    /// Nodes of an epilogue before its end, and their GEMM or convolution.
    pub absorbed: FxHashSet<NodeId>,
    /// By value that nothing else uses: the node that quantizes it.
    pub quantized: FxHashMap<ValueId, NodeId>,
}

/// The nodes after a GEMM or a convolution that are computed in its epilogue.
#[derive(Debug)]
pub(crate) struct EpilogueNodes {
    pub activation: Activation,
    pub residual: Option<ValueId>,
    /// True if the residual is added after the activation.
    pub residual_last: bool,
    /// The fake quantization of an int8 result before the residual or the activation.
    pub inner: Option<FakeQuantize>,
    /// The quantization of the result, if it is quantized.
    pub to: Option<Affine>,
    /// The result of the last node.
    pub result: ValueId,
}

impl EpilogueNodes {
    const fn of(result: ValueId) -> Self {
        Self { activation: Activation::None, residual: None, residual_last: false, inner: None, to: None, result }
    }
}

/// True if an activation needs no exponentials, so that its bytes are the same on every machine.
const fn is_exact(activation: Activation) -> bool {
    use Activation::{Clamp, HardSigmoid, HardSwish, LeakyRelu, None};
    matches!(activation, None | Clamp { .. } | LeakyRelu { .. } | HardSwish | HardSigmoid)
}

/// The activation that a node computes, if it is one.
const fn activation(selection: &Selection) -> Option<Activation> {
    match selection {
        Selection::Elementwise(Elementwise::Activation { activation, .. }) => Some(*activation),
        _ => None,
    }
}

/// Maximum number of nodes of an elementwise step: more take more registers than there are.
const MAX_NODES: usize = 24;

impl Fusion {
    pub fn of(graph: &Graph, selections: &Selections) -> Self {
        let mut users: FxHashMap<ValueId, Vec<NodeId>> = FxHashMap::default();
        let nodes = &graph.blocks[graph.body].nodes;
        for node in nodes {
            Call::new(graph, *node)
                .operands()
                .into_iter()
                .for_each(|value| users.entry(value).or_default().push(*node));
        }
        let mut returned: FxHashSet<ValueId> =
            graph.outputs.iter().filter_map(rushlight_graph::Arg::as_value).collect();
        returned.extend(graph.updates.iter().map(|update| update.value));
        let mut fuser = Fuser { graph, selections, users, returned, fusion: Self::default() };
        for node in nodes {
            if let Some(Selection::Quantize { input, .. }) = selections.get(*node)
                && fuser.only_user(*input) == Some(*node)
            {
                fuser.fusion.quantized.insert(*input, *node);
            }
        }
        for node in nodes {
            let Some(selection @ (Selection::Convolution(_) | Selection::Gemm(_))) = selections.get(*node) else {
                continue;
            };
            match selection.int8() {
                None => fuser.epilogue(*node, selection, true),
                Some(Int8::Static) => fuser.int8_epilogue(*node, selection),
                Some(Int8::Dynamic | Int8::DynamicGroupwise { .. }) => fuser.epilogue(*node, selection, false),
            }
        }
        fuser.groups(nodes);
        fuser.fusion
    }
}

/// A [`Fusion`] being made.
struct Fuser<'a> {
    graph: &'a Graph,
    selections: &'a Selections,
    users: FxHashMap<ValueId, Vec<NodeId>>,
    returned: FxHashSet<ValueId>,
    fusion: Fusion,
}

impl<'a> Fuser<'a> {
    /// The node that uses a value, if it is the only one, and the value is no output.
    fn only_user(&self, value: ValueId) -> Option<NodeId> {
        match self.users.get(&value).map(Vec::as_slice) {
            Some([user]) if !self.returned.contains(&value) => Some(*user),
            _ => None,
        }
    }

    /// The only user of a value with its selection, unless it is part of another epilogue.
    fn next(&self, value: ValueId) -> Option<(NodeId, &'a Selection)> {
        let user = self.only_user(value)?;
        let is_fused = self.fusion.absorbed.contains(&user) || self.fusion.ends.contains_key(&user);
        Some((user, self.selections.get(user)?)).filter(|_| !is_fused)
    }

    /// Follows the result of a GEMM or a convolution, as long as nothing else uses it.
    fn epilogue(&mut self, gemm: NodeId, selection: &Selection, takes_residuals: bool) {
        let Some(mut value) = self.graph.nodes[gemm].results.first().copied() else { return };
        let mut epilogue = EpilogueNodes::of(value);
        let is_matrix = matches!(selection, Selection::Gemm(_));
        // The nodes after the GEMM, and how many of them are the epilogue.
        let mut path: Vec<NodeId> = Vec::new();
        let mut len = 0;
        while let Some((user, selection)) = self.next(value) {
            let is_reshape = is_matrix && matches!(selection, Selection::DataMovement(DataMovement::View { .. }));
            if is_reshape {
                // The same elements in the same order.
            } else if let Some(activation) = activation(selection) {
                if epilogue.activation != Activation::None || epilogue.residual_last {
                    break;
                }
                epilogue.activation = activation;
            } else if let (true, Some(other), None) =
                (takes_residuals, self.residual(selection, value), epilogue.residual)
            {
                epilogue.residual = Some(other);
                epilogue.residual_last = epilogue.activation != Activation::None;
            } else {
                break;
            }
            let Some(result) = self.graph.nodes[user].results.first() else { break };
            path.push(user);
            value = *result;
            // Reshapes at the end cost nothing, and are left to themselves.
            if !is_reshape {
                epilogue.result = value;
                len = path.len();
            }
        }
        path.truncate(len);
        self.end(gemm, &path, epilogue);
    }

    /// Lets a GEMM or a convolution be computed with all nodes of a path, at the last of them.
    fn end(&mut self, gemm: NodeId, path: &[NodeId], epilogue: EpilogueNodes) {
        let end = path.last().copied().unwrap_or(gemm);
        if end != gemm {
            self.fusion.absorbed.insert(gemm);
            self.fusion.absorbed.extend(path.iter().filter(|node| **node != end));
        }
        self.fusion.ends.insert(end, gemm);
        self.fusion.epilogues.insert(gemm, epilogue);
    }

    /// Follows the result of an int8 GEMM or convolution: an activation, quantization, and perhaps from there a residual or
    /// another activation, and quantization again.
    fn int8_epilogue(&mut self, gemm: NodeId, selection: &Selection) {
        let Some(first) = self.graph.nodes[gemm].results.first().copied() else { return };
        let is_matrix = matches!(selection, Selection::Gemm(_));
        let mut value = first;
        let mut path: Vec<NodeId> = Vec::new();
        let mut best = (0, EpilogueNodes::of(first));
        let mut epilogue = EpilogueNodes::of(first);
        while let Some((user, next)) = self.next(value) {
            let Some(result) = self.graph.nodes[user].results.first().copied() else { break };
            if is_matrix && matches!(next, Selection::DataMovement(DataMovement::View { .. })) {
                // The same elements in the same order.
            } else if let Some(activation) = activation(next).filter(|it| is_exact(*it)) {
                if epilogue.activation != Activation::None || epilogue.to.is_some() {
                    break;
                }
                epilogue.activation = activation;
            } else if let Selection::Quantize { affine, .. } = next {
                epilogue.to = Some(*affine);
                epilogue.result = result;
                let is_bounded = matches!(epilogue.activation, Activation::None | Activation::Clamp { .. });
                if let Some(FakeQuantize { activation: Activation::None, affine }) = epilogue.inner
                    && (Some(affine), epilogue.residual, is_bounded) == (epilogue.to, None, true)
                {
                    // The same bytes within bounds: rounding once does.
                    epilogue.inner = None;
                }
                best = (path.len() + 1, EpilogueNodes { ..epilogue });
            } else if let (Selection::Dequantize { affine: own, .. }, Some(affine)) = (next, epilogue.to) {
                if epilogue.inner.is_some() || *own != affine {
                    break;
                }
                epilogue.inner = Some(FakeQuantize { activation: epilogue.activation, affine });
                (epilogue.activation, epilogue.to) = (Activation::None, None);
            } else if let (Some(other), Some(_), None, Activation::None) =
                (self.residual(next, value), epilogue.inner, epilogue.residual, epilogue.activation)
            {
                if self.selections.quantized(other).is_none() {
                    break;
                }
                epilogue.residual = Some(other);
            } else {
                break;
            }
            path.push(user);
            value = result;
        }
        let (len, epilogue) = best;
        path.truncate(len);
        if len > 0 {
            return self.end(gemm, &path, epilogue);
        }
        // Nothing quantizes it: floats, with the activation that follows.
        self.epilogue(gemm, selection, false);
    }

    /// The other summand, if a node adds a tensor of the same shape to `value`.
    fn residual(&self, selection: &Selection, value: ValueId) -> Option<ValueId> {
        let Selection::Elementwise(Elementwise::Binary { function: Binary::Add, a, b: Operand::Value(b), alpha: 1.0 }) =
            selection
        else {
            return None;
        };
        let (a, b) = (*a, *b);
        let other = if a == value { b } else { a };
        let shape = |value: ValueId| self.graph.tensor(value).ok().map(|ty| &ty.shape);
        let is_constant = self.graph.constant_of(other).is_some();
        (a != b && shape(a)? == shape(b)? && !is_constant).then_some(other)
    }

    /// Finds the elementwise nodes whose results are used by one group alone, from the last to the first.
    fn groups(&mut self, nodes: &[NodeId]) {
        // For each node of a group its last node, and for that one how many nodes there are.
        let mut root: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        let mut count: FxHashMap<NodeId, usize> = FxHashMap::default();
        for node in nodes.iter().rev() {
            let is_in_epilogue = self.fusion.absorbed.contains(node) || self.fusion.ends.contains_key(node);
            if is_in_epilogue || !self.selections.get(*node).is_some_and(Selection::is_elementwise) {
                continue;
            }
            let Some(result) = self.graph.nodes[*node].results.first().copied() else { continue };
            let roots: Option<FxHashSet<NodeId>> = if self.returned.contains(&result) {
                None
            } else {
                self.users.get(&result).and_then(|users| users.iter().map(|user| root.get(user).copied()).collect())
            };
            let joined = roots.filter(|roots| roots.len() == 1).and_then(|roots| roots.into_iter().next());
            let joined = joined.filter(|last| {
                let shape = |value: ValueId| self.graph.tensor(value).ok().map(|ty| &ty.shape);
                let last_result = self.graph.nodes[*last].results.first().copied();
                let is_same = shape(result).is_some() && last_result.and_then(shape) == shape(result);
                is_same && count.get(last).copied().unwrap_or(0) < MAX_NODES
            });
            let last = joined.unwrap_or(*node);
            root.insert(*node, last);
            *count.entry(last).or_default() += 1;
            if last != *node {
                self.fusion.inner.insert(*node);
            }
        }
    }
}
