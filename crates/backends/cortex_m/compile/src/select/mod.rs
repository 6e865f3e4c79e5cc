//! Selects the operator that computes a quantized pattern.
//!
//! A pattern begins at nodes that dequantize, and ends in a node that quantizes. Between them is one operator. An activation may
//! follow it if the operator can clamp its results. Only this module decides if an operator computes a pattern. Claims and lowering
//! read its [`Pattern`]s.

mod elementwise;
mod layer;
mod movement;
mod pooling;
mod weight;

use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, dim_order_ops};
use rushlight_graph::quantization::{is_per_tensor_dequantize, is_per_tensor_quantize};
use rushlight_graph::{Arena, Arg, Call, Constant, Def, Graph, Model, NodeId, TensorType, ValueId};
use rustc_hash::FxHashMap;

use crate::affine::Affine;
use crate::table::bounds;

pub(crate) use elementwise::{Add, Div, Extremum, Lookup, Mul, Requantize, SOFTMAX_SCALE, Softmax};
pub(crate) use layer::{Convolution, Linear, Matmul};
pub(crate) use movement::{Move, Pad, Transpose};
pub(crate) use pooling::{Average, Maximum};

const SCALES: &str = "the ratio of the scales does not fit a factor of 32 bits";

/// A pattern that one operator computes.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The nodes without a result outside: the operator, and the activation after it.
    pub inner: Vec<NodeId>,
    /// The nodes that dequantize operands.
    pub operands: Vec<NodeId>,
    pub step: Step,
}

/// The operator of a pattern, with everything that its lowering needs.
#[derive(Debug)]
pub(crate) enum Step {
    Convolution(Convolution),
    Linear(Linear),
    Matmul(Matmul),
    Add(Add),
    Mul(Mul),
    Div(Div),
    Extremum(Extremum),
    Lookup(Lookup),
    Requantize(Requantize),
    Softmax(Softmax),
    Pad(Pad),
    Transpose(Transpose),
    Move(Move),
    Average(Average),
    Maximum(Maximum),
}

/// An int8 operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// The node that dequantizes it.
    pub node: NodeId,
    /// The integers.
    pub value: ValueId,
    pub affine: Affine,
}

/// The result of a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub affine: Affine,
    /// Minimum and maximum of the integers, after a fused activation.
    pub bounds: (i32, i32),
}

impl Output {
    /// Fails unless the results have the range of int8.
    fn check_range(&self) -> Result<(), String> {
        if self.bounds == (-128, 127) { Ok(()) } else { Err("its results have a smaller range than int8".to_owned()) }
    }
}

/// The operator that was selected, with its operands.
pub(crate) struct Selected {
    pub operands: Vec<NodeId>,
    pub step: Step,
}

impl Selected {
    fn new(operands: impl IntoIterator<Item = NodeId>, step: Step) -> Self {
        Self { operands: operands.into_iter().collect(), step }
    }
}

/// A node that prevents a pattern, with the reason.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub node: NodeId,
    pub reason: String,
}

/// A graph whose patterns are selected.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub graph: &'a Graph,
    pub constants: &'a Arena<Constant>,
    users: FxHashMap<ValueId, Vec<Option<NodeId>>>,
}

impl<'a> Context<'a> {
    pub fn new(graph: &'a Graph, model: &'a Model) -> Self {
        Self { graph, constants: &model.constants, users: graph.users() }
    }

    /// The nodes that use a value; `None` stands for a result of the method.
    pub fn users(&self, value: ValueId) -> &[Option<NodeId>] {
        self.users.get(&value).map_or(&[], Vec::as_slice)
    }

    /// The node that computes a value.
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.graph.values[value].def {
            Def::Result(node, 0) => Some(node),
            _ => None,
        }
    }

    fn is_float(&self, value: ValueId) -> bool {
        self.graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float)
    }

    /// The quantization of a node that quantizes f32 to int8.
    pub fn quantize(&self, node: NodeId) -> Option<Affine> {
        let call = Call::new(self.graph, node);
        let is_float = call.optional("input").is_some_and(|value| self.is_float(value));
        let fits = is_per_tensor_quantize(call.name()) && is_float;
        Affine::of(call.node).filter(|_| fits)
    }

    /// The operand of a node that dequantizes int8, with static sizes.
    pub fn dequantize(&self, node: NodeId) -> Option<Operand> {
        let call = Call::new(self.graph, node);
        let value = call.optional("input").filter(|_| is_per_tensor_dequantize(call.name()))?;
        let is_int8 =
            self.graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Char && ty.static_sizes().is_some());
        let fits = is_int8 && call.node.result().is_some_and(|value| self.is_float(value));
        Affine::of(call.node).filter(|_| fits).map(|affine| Operand { node, value, affine })
    }

    /// The int8 operand at an argument.
    ///
    /// # Errors
    /// The reason if it is not int8.
    pub fn operand(&self, call: &Call<'_>, name: &str) -> Result<Operand, String> {
        let value = call.optional(name).ok_or_else(|| format!("`{name}` is no tensor"))?;
        let operand = self.producer(value).and_then(|node| self.dequantize(node));
        operand.ok_or_else(|| format!("`{name}` is not int8 with one scale and fixed sizes"))
    }

    /// The static sizes of a tensor.
    pub fn sizes(&self, value: ValueId) -> Result<Vec<i64>, String> {
        let sizes = self.graph.tensor(value).ok().and_then(TensorType::static_sizes);
        sizes.ok_or_else(|| "the sizes are known only at run time".to_owned())
    }

    /// True if a node only copies a tensor to another dim order.
    pub fn is_order_copy(&self, node: NodeId) -> bool {
        let call = Call::new(self.graph, node);
        let types = call.optional("self").zip(call.node.result());
        let types = types.and_then(|(from, to)| self.graph.tensor(from).ok().zip(self.graph.tensor(to).ok()));
        call.name() == dim_order_ops::_TO_DIM_ORDER_COPY
            && types
                .is_some_and(|(from, to)| from.dtype == to.dtype && from.rank() == 4 && from.static_sizes().is_some())
    }

    /// Selects the pattern that ends in a node that quantizes.
    ///
    /// # Errors
    /// The node that prevents the pattern.
    pub fn pattern(&self, root: NodeId) -> Result<Pattern, Refusal> {
        let refuse = |node: NodeId, reason: &str| Refusal { node, reason: reason.to_owned() };
        let affine = self.quantize(root).ok_or_else(|| refuse(root, "it does not quantize f32 to int8"))?;
        let input = Call::new(self.graph, root).optional("input");
        let node = input.and_then(|value| self.producer(value));
        let node = node.ok_or_else(|| refuse(root, "no node computes its input"))?;
        if let Some(operand) = self.dequantize(node) {
            let Selected { operands, step } =
                elementwise::requantize(operand, affine).map_err(|reason| Refusal { node: root, reason })?;
            return Ok(Pattern { inner: Vec::new(), operands, step });
        }
        let output = Output { affine, bounds: affine.range };
        let selected = |node: NodeId, output: Output| {
            self.check_alone(node).and_then(|()| self.select(node, output)).map_err(|reason| Refusal { node, reason })
        };
        let (inner, Selected { operands, step }) = match self.fused(node, affine) {
            Some((before, output)) => {
                self.check_alone(node).map_err(|reason| Refusal { node, reason })?;
                (vec![before, node], selected(before, output)?)
            }
            None => (vec![node], selected(node, output)?),
        };
        Ok(Pattern { inner, operands, step })
    }

    /// Fails unless a node has one user.
    fn check_alone(&self, node: NodeId) -> Result<(), String> {
        let result = self.graph.nodes[node].result();
        match result.map_or(&[][..], |result| self.users(result)) {
            [Some(_)] => Ok(()),
            _ => Err("its result has readers other than one node that quantizes it".to_owned()),
        }
    }

    /// The node before a fused activation, and the output of both.
    fn fused(&self, activation: NodeId, affine: Affine) -> Option<(NodeId, Output)> {
        let call = Call::new(self.graph, activation);
        let before = self.producer(call.optional("self")?)?;
        let name = self.graph.nodes[before].op.name();
        let is_layer = matches!(name, aten::CONVOLUTION | aten::LINEAR);
        let can_clamp = is_layer || matches!(name, aten::ADD_TENSOR | aten::SUB_TENSOR | aten::MAX_POOL2D);
        if call.name() == aten::HARDSIGMOID && is_layer {
            return Some((before, hardsigmoid(affine)?));
        }
        let (low, high) = bounds(&call).filter(|_| can_clamp)?;
        let (min, max) = affine.range;
        let bounds = (low.map_or(min, |low| affine.quantize(low)), high.map_or(max, |high| affine.quantize(high)));
        Some((before, Output { affine, bounds }))
    }

    fn select(&self, node: NodeId, output: Output) -> Result<Selected, String> {
        let call = Call::new(self.graph, node);
        match call.name() {
            aten::CONVOLUTION => layer::convolution(self, &call, output),
            aten::LINEAR => layer::linear(self, &call, output),
            aten::BMM | aten::MATMUL => layer::matmul(self, &call, output),
            aten::ADD_TENSOR | aten::SUB_TENSOR => elementwise::add(self, &call, output),
            aten::MUL_TENSOR => elementwise::mul(self, &call, output),
            aten::DIV_TENSOR => elementwise::div(self, &call, output),
            aten::MINIMUM | aten::MAXIMUM => elementwise::extremum(self, &call, output),
            aten::_SOFTMAX => elementwise::softmax(self, &call, output),
            aten::AVG_POOL2D | aten::ADAPTIVE_AVG_POOL2D | aten::MEAN_DIM => pooling::average(self, &call, output),
            aten::MAX_POOL2D => pooling::maximum(self, &call, output),
            aten::CONSTANT_PAD_ND => movement::pad(self, &call, output),
            aten::PERMUTE_COPY => movement::transpose(self, &call, output),
            name if crate::operators::MOVES.contains(&name) => movement::other(self, &call, output),
            _ => elementwise::table(self, &call, output),
        }
    }
}

/// The output of a layer with a fused hardsigmoid, `x / 6 + 1 / 2`, as ExecuTorch fuses it. `None` if the zero point is no int8.
fn hardsigmoid(affine: Affine) -> Option<Output> {
    let half = (1.0 / (2.0 * affine.scale)).round_ties_even();
    let zero_point = f64::from(affine.zero_point) + half;
    let fits = zero_point <= f64::from(affine.range.1);
    let fused = Affine { scale: affine.scale * 6.0, zero_point: zero_point as i32, ..affine };
    fits.then_some(Output { affine: fused, bounds: (affine.quantize(0.0), affine.quantize(1.0)) })
}

/// The sizes at an argument, for rows and columns.
fn pair(call: &Call<'_>, name: &str) -> Result<[i64; 2], String> {
    let sizes = call.sizes(name, 2).ok_or_else(|| format!("`{name}` is not known"))?;
    Ok([i64::from(sizes[0]), i64::from(sizes[1])])
}

/// Fails unless an optional argument is absent.
fn check_absent(call: &Call<'_>, name: &str) -> Result<(), String> {
    match call.arg(name) {
        None | Some(Arg::None) => Ok(()),
        Some(_) => Err(format!("`{name}` is not supported")),
    }
}
