//! Linear layers that an exporter has decomposed.

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Constant, ConstantData, Graph, Model, NodeId, ValueId};

use crate::passes::dce::EliminateDeadCode;

/// Raises `addmm` and `mm` with constant weights, to which `run_decompositions()` lowers linear layers, to `aten::linear`; and
/// `bmm` with the same weights for each matrix, to which it lowers those of a transposed input. The weights are a transposed
/// view of the same bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaiseLinear;

impl Pass for RaiseLinear {
    fn name(&self) -> &'static str {
        "raise-linear"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let changed = model.rewrite(|builder, node| {
            let Some((input, weight, bias)) = layer(builder, node) else { return Ok(Action::Keep) };
            let weight = builder.constant(weight);
            let bias = bias.map_or(Arg::None, Arg::Value);
            Ok(Action::Replace(vec![builder.one(aten::LINEAR, vec![input.into(), weight.into(), bias])?]))
        })?;
        if changed { EliminateDeadCode.run(model) } else { Ok(()) }
    }
}

/// Matches a linear layer of `f32`: returns its input, weights `[N, K]` and bias.
fn layer(builder: &Builder<'_>, node: NodeId) -> Option<(ValueId, Constant, Option<ValueId>)> {
    let node = builder.graph.nodes.get(node)?;
    let value = |name: &str| node.arg(name).and_then(Arg::as_value);
    let is_one = |name: &str| match node.arg(name) {
        None | Some(Arg::None) => true,
        Some(Arg::Int(size)) => size.is(1),
        Some(Arg::Float(factor)) => *factor == 1.0,
        _ => false,
    };
    let constant = |value: ValueId| builder.graph.constant_of(value).and_then(|id| builder.constants.get(id));
    let (input, weight, bias) = match node.op.name() {
        aten::ADDMM if is_one("alpha") && is_one("beta") => {
            (value("mat1")?, constant(value("mat2")?)?.permuted(&[1, 0])?, Some(value("self")?))
        }
        aten::MM => (value("self")?, constant(value("mat2")?)?.permuted(&[1, 0])?, None),
        aten::BMM => {
            let weight = value("mat2")?;
            let matrix = match constant(weight) {
                Some(weight) if has_one_matrix(weight) => weight.permuted(&[2, 1])?,
                Some(_) => return None,
                None => constant(repeated(builder.graph, weight)?)?.permuted(&[1, 0])?,
            };
            (value("self")?, matrix, None)
        }
        _ => return None,
    };
    let has_bias = bias.is_none_or(|bias| constant(bias).is_some_and(|bias| bias.ty.rank() == 1));
    // A product with constants on the left is no layer.
    let is_layer = weight.ty.dtype == ScalarType::Float && has_bias && constant(input).is_none();
    is_layer.then_some((input, weight, bias))
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
