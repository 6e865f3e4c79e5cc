//! Raises RMS norms that exporters and the canonical form decompose.

use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Call, Error, Expr, Model, NodeId, Pass, ValueId};

use super::operands::{binary_operands, producer, scalar_operand, unscaled_add};
use crate::passes::rewrite::rewrite;

/// Finds `x * rsqrt(mean(x²) + eps)` over the last dimension of floats, and its product with a weight, and puts `aten::rms_norm`
/// in their place, which is one step. A norm that is also used without its weight is computed twice. Results differ by roundings.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaiseRmsNorms;

impl Pass for RaiseRmsNorms {
    fn name(&self) -> &'static str {
        "raise-rms-norms"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        rewrite(model, |builder, node| {
            let Some(RmsNorm { x, width, weight, eps }) = raised(builder, node) else { return Ok(Action::Keep) };
            let weight = weight.map_or(Arg::None, Arg::Value);
            let args = vec![x.into(), vec![width].into(), weight, f64::from(eps).into()];
            Ok(Action::Replace(vec![builder.one(aten::RMS_NORM, args)?]))
        })
    }
}

struct RmsNorm {
    x: ValueId,
    /// The size of the last dimension.
    width: Expr,
    weight: Option<ValueId>,
    eps: f32,
}

/// Matches an RMS norm whose last node is `node`.
fn raised(builder: &Builder<'_>, node: NodeId) -> Option<RmsNorm> {
    let call = Call::new(builder.graph, node);
    let norm = match call.name() {
        aten::MUL_TENSOR => {
            let (a, b) = (call.optional("self")?, call.optional("other")?);
            normalized(builder, a, inverse_root(builder, b))
                .or_else(|| normalized(builder, b, inverse_root(builder, a)))
                .or_else(|| weighted(builder, a, b))
                .or_else(|| weighted(builder, b, a))
        }
        aten::DIV_TENSOR => {
            let (x, divisor) = (call.optional("self")?, call.optional("other")?);
            normalized(builder, x, input_of(builder, divisor, aten::SQRT))
        }
        _ => None,
    }?;
    let ty = |value: ValueId| builder.graph.tensor(value).ok();
    let (x, result) = (ty(norm.x)?, ty(*call.node.results.first()?)?);
    (x.dtype == ScalarType::Float && result.dtype == x.dtype && result.shape == x.shape).then_some(norm)
}

/// Matches `x / sqrt(mean_square)`, where `mean_square` is the mean of the squares of `x` and an epsilon.
fn normalized(builder: &Builder<'_>, x: ValueId, mean_square: Option<ValueId>) -> Option<RmsNorm> {
    let call = unscaled_add(builder, mean_square?)?;
    let (mean, eps) = match scalar_operand(builder, &call, "other") {
        Some(eps) => (call.optional("self")?, eps),
        None => (call.optional("other")?, scalar_operand(builder, &call, "self")?),
    };
    // A mean in another type overflows and rounds elsewhere.
    if builder.graph.tensor(mean).ok()?.dtype != ScalarType::Float {
        return None;
    }
    let mean = producer(builder, mean).filter(|call| call.name() == aten::MEAN_DIM)?;
    let shape = &builder.graph.tensor(x).ok()?.shape;
    let last = shape.len().checked_sub(1)?;
    let is_over_last = matches!(mean.ints("dim")?[..], [dim] if dim == -1 || usize::try_from(dim) == Ok(last));
    if !is_over_last || !mean.flag("keepdim") || square_of(builder, mean.optional("self")?)? != x {
        return None;
    }
    Some(RmsNorm { x, width: shape.last()?.clone(), weight: None, eps })
}

/// Matches the product of a norm without a weight and a vector of its width.
fn weighted(builder: &Builder<'_>, norm: ValueId, weight: ValueId) -> Option<RmsNorm> {
    let call = producer(builder, norm).filter(|call| call.name() == aten::RMS_NORM && call.arg("weight").is_none())?;
    let [width] = <[Expr; 1]>::try_from(call.exprs("normalized_shape")?).ok()?;
    let ty = builder.graph.tensor(weight).ok()?;
    let is_vector = ty.dtype == ScalarType::Float && ty.shape == [width.clone()];
    let eps = call.number("eps")? as f32;
    is_vector.then_some(RmsNorm { x: call.optional("input")?, width, weight: Some(weight), eps })
}

/// Returns `x` if a value is `rsqrt(x)`.
fn inverse_root(builder: &Builder<'_>, value: ValueId) -> Option<ValueId> {
    let call = producer(builder, value)?;
    match call.name() {
        aten::RSQRT => call.optional("self"),
        aten::POW_TENSOR_SCALAR if call.number("exponent") == Some(-0.5) => call.optional("self"),
        aten::RECIPROCAL => input_of(builder, call.optional("self")?, aten::SQRT),
        _ => None,
    }
}

/// Returns `x` if a value is `x²`.
fn square_of(builder: &Builder<'_>, value: ValueId) -> Option<ValueId> {
    if let Some((a, b)) = binary_operands(builder, value, aten::MUL_TENSOR) {
        return (a == b).then_some(a);
    }
    let call = producer(builder, value).filter(|call| call.name() == aten::POW_TENSOR_SCALAR)?;
    (call.number("exponent") == Some(2.0)).then(|| call.optional("self"))?
}

/// Returns the input of the operator that gives a value, if it is `name`.
fn input_of(builder: &Builder<'_>, value: ValueId, name: &str) -> Option<ValueId> {
    producer(builder, value).filter(|call| call.name() == name)?.optional("self")
}
