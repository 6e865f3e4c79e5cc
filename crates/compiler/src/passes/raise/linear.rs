//! Linear layers that an exporter has decomposed.

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Constant, ConstantData, ConstantId, Graph, Model, NodeId, ValueId};
use rustc_hash::FxHashMap;

use crate::passes::dce::EliminateDeadCode;

/// Raises `addmm` and `mm` with constant weights, to which `run_decompositions()` lowers linear layers, to `aten::linear`; and
/// `bmm` with the same weights for each matrix, to which it lowers those of a transposed input. The weights are a transposed
/// view of the same bytes, one for all layers that share them. An `addmm` of a computed matrix, such as a step of an LSTM, becomes a
/// linear layer and an addition.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaiseLinear;

impl Pass for RaiseLinear {
    fn name(&self) -> &'static str {
        "raise-linear"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let mut turned: FxHashMap<ConstantId, ConstantId> = FxHashMap::default();
        let changed = model.rewrite(|builder, node| {
            let Some(Gemm { input, source, weight, summand }) = gemm(builder, node) else { return Ok(Action::Keep) };
            let weight = *turned.entry(source).or_insert_with(|| builder.constants.push(weight));
            let weight = builder.graph.constant(weight, builder.constants);
            let (bias, matrix) = match summand {
                Some(summand) if !is_bias(builder, summand) => (None, Some(summand)),
                bias => (bias, None),
            };
            let bias = bias.map_or(Arg::None, Arg::Value);
            let mut result = builder.one(aten::LINEAR, vec![input.into(), weight.into(), bias])?;
            if let Some(matrix) = matrix {
                result = builder.one(aten::ADD_TENSOR, vec![result.into(), matrix.into()])?;
            }
            Ok(Action::Replace(vec![result]))
        })?;
        if changed { EliminateDeadCode.run(model) } else { Ok(()) }
    }
}

/// A GEMM of `f32` with constant weights.
struct Gemm {
    input: ValueId,
    /// The weights as the node has them.
    source: ConstantId,
    /// The weights as `[N, K]`.
    weight: Constant,
    /// The bias of `addmm`, or a matrix that it adds.
    summand: Option<ValueId>,
}

fn gemm(builder: &Builder<'_>, node: NodeId) -> Option<Gemm> {
    let node = builder.graph.nodes.get(node)?;
    let value = |name: &str| node.arg(name).and_then(Arg::as_value);
    let is_one = |name: &str| match node.arg(name) {
        None | Some(Arg::None) => true,
        Some(Arg::Int(size)) => size.is(1),
        Some(Arg::Float(factor)) => *factor == 1.0,
        _ => false,
    };
    let constant = |value: ValueId| {
        let id = builder.graph.constant_of(value)?;
        Some((id, builder.constants.get(id)?))
    };
    let permuted = |(id, constant): (ConstantId, &Constant), dims: &[usize]| Some((id, constant.permuted(dims)?));
    let (input, (source, weight), summand) = match node.op.name() {
        aten::ADDMM if is_one("alpha") && is_one("beta") => {
            (value("mat1")?, permuted(constant(value("mat2")?)?, &[1, 0])?, Some(value("self")?))
        }
        aten::MM => (value("self")?, permuted(constant(value("mat2")?)?, &[1, 0])?, None),
        aten::BMM => {
            let weight = value("mat2")?;
            let matrix = match constant(weight) {
                Some((id, weight)) if has_one_matrix(weight) => permuted((id, weight), &[2, 1])?,
                Some(_) => return None,
                None => permuted(constant(repeated(builder.graph, weight)?)?, &[1, 0])?,
            };
            (value("self")?, matrix, None)
        }
        _ => return None,
    };
    let is_summed = |value: ValueId| is_bias(builder, value) || is_matrix_of_floats(builder.graph, value);
    // A product with constants on the left is no layer.
    let is_layer = weight.ty.dtype == ScalarType::Float && summand.is_none_or(is_summed) && constant(input).is_none();
    is_layer.then_some(Gemm { input, source, weight, summand })
}

/// True for a constant vector.
fn is_bias(builder: &Builder<'_>, value: ValueId) -> bool {
    let constant = builder.graph.constant_of(value).and_then(|id| builder.constants.get(id));
    constant.is_some_and(|constant| constant.ty.rank() == 1)
}

/// True for a computed matrix of `f32`.
fn is_matrix_of_floats(graph: &Graph, value: ValueId) -> bool {
    let is_matrix = graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float && ty.rank() == 2);
    is_matrix && graph.constant_of(value).is_none()
}

/// The matrix that a batch of matrices repeats, as often as a size of an input says.
fn repeated(graph: &Graph, mut batch: ValueId) -> Option<ValueId> {
    let shape = |value: ValueId| Some(graph.tensor(value).ok()?.shape.as_slice());
    loop {
        let node = graph.producer(batch)?;
        let before = node.arg("self")?.as_value()?;
        match node.op.name() {
            aten::EXPAND_COPY if shape(batch)?.split_first()?.1 == shape(before)? => return Some(before),
            aten::VIEW_COPY if shape(batch)? == shape(before)? => batch = before,
            _ => return None,
        }
    }
}

/// True if all matrices of a batch are the first.
fn has_one_matrix(constant: &Constant) -> bool {
    match &constant.data {
        ConstantData::Zeros => true,
        ConstantData::Strided { strides, .. } if strides.first() == Some(&0) => true,
        _ => constant.ty.shape.first().is_some_and(|count| count.is(1)),
    }
}
