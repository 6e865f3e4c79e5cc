//! Annotates layers and the operators between them by the roles of operators.

use rushlight_graph::{Arg, Def, Graph, Node, NodeId, OriginId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::annotations::{Annotation, Annotations, MethodLayers};
use super::layer::{is_float, is_gemm};
use super::spec::ActivationSpec;

/// The role of an operator in quantized computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A convolution or a linear layer. No other operator has this role.
    Gemm,
    /// An elementwise operator of two tensors, of which neither is constant.
    Binary,
    /// An operator whose first operand is quantized.
    Unary,
    /// Moves, picks or averages elements, so that its result has the scale of its input.
    SameScale,
    /// Joins tensors, which have the scale of the result.
    Concat,
    /// Computes in floats.
    Float,
}

/// Quantizes layers, and the operators that compute with their results, as long as the backend has integer kernels for them.
/// Recurrent operators stay in floats, with their states and layers, and so does the inside of loops and branches.
#[derive(Clone, Copy, Debug)]
pub struct OperatorChains {
    pub activation: ActivationSpec,
    /// The role of an operator, by its name. Layers are not asked.
    pub role: fn(&str) -> Role,
    /// True if an operator of this role computes the next operator in its epilogue. No quantization is put in between.
    pub fuses: fn(Role, &str) -> bool,
    /// True if all results of quantized operators are quantized, not only those that such an operator reads.
    pub quantizes_results: bool,
}

impl OperatorChains {
    /// Annotates a method.
    pub fn annotate(&self, method: &MethodLayers<'_>, annotations: &mut Annotations) {
        let MethodLayers { graph, .. } = *method;
        let integers = self.integers(method);
        let uses = uses(graph);
        // A result that only the epilogue of its node reads stays in registers.
        let is_inner = |id: NodeId, result: ValueId| match uses.get(&result).map_or(&[][..], Vec::as_slice) {
            [Some(only)] => (self.fuses)(self.role(&graph.nodes[id]), graph.nodes[*only].op.name()),
            _ => false,
        };
        for id in graph.blocks[graph.body].nodes.iter().filter(|id| integers.contains(id)) {
            let node = &graph.nodes[*id];
            let role = self.role(node);
            let is_quantized = |operand: &ValueId| match graph.values[*operand].def {
                Def::Constant(_) | Def::State(_) => false,
                Def::Result(node, _) => !(integers.contains(&node) && is_inner(node, *operand)),
                Def::Param(_) => true,
            };
            let inputs = self.operands(graph, node).into_iter().filter(is_quantized);
            let result = node.results.first().filter(|result| is_float(graph, **result) && !is_inner(*id, **result));
            let annotation = Annotation {
                output: result.filter(|_| self.quantizes_results).map(|_| self.activation),
                shares_scale: matches!(role, Role::SameScale | Role::Concat),
                ..Annotation::inputs(inputs.map(|operand| (operand, self.activation)))
            };
            annotations.set(*id, annotation);
        }
    }

    /// The nodes that compute with quantized inputs.
    fn integers(&self, method: &MethodLayers<'_>) -> FxHashSet<NodeId> {
        let MethodLayers { graph, layers, .. } = *method;
        let recurrent = layers.iter().filter(|layer| layer.is_recurrent);
        let recurrent: FxHashSet<OriginId> = recurrent.map(|layer| graph.nodes[layer.node].origin).collect();
        let gemms: FxHashSet<NodeId> = layers.iter().map(|layer| layer.node).collect();
        let mut integers: FxHashSet<NodeId> = FxHashSet::default();
        // The results of these nodes; one is quantized if such a node reads it.
        let mut given: FxHashSet<ValueId> = FxHashSet::default();
        for id in &graph.blocks[graph.body].nodes {
            let node = &graph.nodes[*id];
            if recurrent.contains(&node.origin) {
                continue;
            }
            let operands = self.operands(graph, node);
            let is_integer = match self.role(node) {
                Role::Gemm => gemms.contains(id),
                Role::Float => false,
                Role::Binary => {
                    let are_tensors =
                        operands.len() == 2 && !operands.iter().any(|it| graph.constant_of(*it).is_some());
                    are_tensors && operands.iter().any(|operand| given.contains(operand))
                }
                Role::Concat => operands.iter().any(|operand| given.contains(operand)),
                Role::Unary | Role::SameScale => operands.first().is_some_and(|operand| given.contains(operand)),
            };
            if is_integer {
                integers.insert(*id);
                given.extend(node.results.first().filter(|result| is_float(graph, **result)));
            }
        }
        integers
    }

    fn role(&self, node: &Node) -> Role {
        let name = node.op.name();
        if is_gemm(name) { Role::Gemm } else { (self.role)(name) }
    }

    /// The tensors of floats that a node computes with, but the weights of layers.
    fn operands(&self, graph: &Graph, node: &Node) -> Vec<ValueId> {
        let role = self.role(node);
        if role == Role::Gemm {
            let input = node.arg("input").and_then(Arg::as_value);
            return input.filter(|input| is_float(graph, *input)).into_iter().collect();
        }
        let mut operands = values(node);
        // A tensor with itself.
        if role == Role::Binary
            && let [only] = operands[..]
        {
            operands.push(only);
        }
        operands.retain(|value| is_float(graph, *value));
        operands
    }
}

/// The tensors of floats among the arguments of a node, each once.
pub fn float_operands(graph: &Graph, node: &Node) -> Vec<ValueId> {
    let mut operands = values(node);
    operands.retain(|value| is_float(graph, *value));
    operands
}

/// The values among the arguments of a node, each once.
fn values(node: &Node) -> Vec<ValueId> {
    let mut values = Vec::new();
    node.args.iter().for_each(|arg| {
        arg.for_each_value(&mut |value| {
            if !values.contains(&value) {
                values.push(value);
            }
        });
    });
    values
}

/// The nodes of the body that use each value; a method's own results are used by none.
fn uses(graph: &Graph) -> FxHashMap<ValueId, Vec<Option<NodeId>>> {
    let mut uses: FxHashMap<ValueId, Vec<Option<NodeId>>> = FxHashMap::default();
    for id in &graph.blocks[graph.body].nodes {
        graph.for_each_use_by(*id, &mut |value| {
            let users = uses.entry(value).or_default();
            if users.last() != Some(&Some(*id)) {
                users.push(Some(*id));
            }
        });
    }
    let mut leave = |value: ValueId| uses.entry(value).or_default().push(None);
    graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut leave));
    graph.updates.iter().for_each(|update| leave(update.value));
    uses
}
