//! Raises activations that exporters decomposed.

use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Call, Model, NodeId, ValueId};

use super::operands::{binary_operands, clamp_bounds, producer, scalar_operand, unscaled_add};
use crate::passes::rewrite::rewrite;

/// Finds hard-sigmoids, hard-swishes and SiLUs of floats in additions, clamps and multiplications, as exporters write them, and
/// puts the one operator in their place, which a GEMM computes in its epilogue. Results differ by roundings.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaiseActivations;

impl Pass for RaiseActivations {
    fn name(&self) -> &'static str {
        "raise-activations"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        rewrite(model, |builder, node| {
            let Some((name, x)) = raised(builder, node) else { return Ok(Action::Keep) };
            Ok(Action::Replace(vec![builder.one(name, vec![Arg::Value(x)])?]))
        })
    }
}

/// The activation whose last node is this one, and its input.
fn raised(builder: &Builder<'_>, node: NodeId) -> Option<(&'static str, ValueId)> {
    let call = Call::new(builder.graph, node);
    let found = match call.name() {
        aten::DIV_TENSOR | aten::DIV_SCALAR if scalar_operand(builder, &call, "other") == Some(6.0) => {
            sixth(builder, call.optional("self")?)
        }
        aten::MUL_TENSOR | aten::MUL_SCALAR if scalar_operand(builder, &call, "other") == Some(1.0 / 6.0) => {
            sixth(builder, call.optional("self")?)
        }
        aten::MUL_TENSOR => {
            let (a, b) = (call.optional("self")?, call.optional("other")?);
            gated(builder, a, b).or_else(|| gated(builder, b, a))
        }
        _ => None,
    }?;
    let alike = |value: ValueId| builder.graph.tensor(value).ok().map(|ty| (&ty.shape, ty.dtype));
    let (x, result) = (alike(found.1)?, alike(*call.node.results.first()?)?);
    (x == result && x.1 == ScalarType::Float).then_some(found)
}

/// A sixth of `clamp(x + 3, 0, 6)`, or of its product with `x`.
fn sixth(builder: &Builder<'_>, value: ValueId) -> Option<(&'static str, ValueId)> {
    if let Some(x) = gate(builder, value) {
        return Some((aten::HARDSIGMOID, x));
    }
    let (a, b) = binary_operands(builder, value, aten::MUL_TENSOR)?;
    let is_gate = |value: ValueId, of: ValueId| gate(builder, value) == Some(of);
    let x = if is_gate(b, a) { a } else { b };
    (is_gate(b, a) || is_gate(a, b)).then_some((aten::HARDSWISH, x))
}

/// The product of `x` with its own sigmoid, or hard-sigmoid.
fn gated(builder: &Builder<'_>, x: ValueId, gate: ValueId) -> Option<(&'static str, ValueId)> {
    let call = producer(builder, gate)?;
    let name = match call.name() {
        aten::SIGMOID => aten::SILU,
        aten::HARDSIGMOID => aten::HARDSWISH,
        _ => return None,
    };
    (call.optional("self")? == x).then_some((name, x))
}

/// `x`, if a value is `clamp(x + 3, 0, 6)`, bounded at once or by one bound after the other.
fn gate(builder: &Builder<'_>, value: ValueId) -> Option<ValueId> {
    let (mut at, mut bounds) = (value, (f32::NEG_INFINITY, f32::INFINITY));
    while let Some(call) = producer(builder, at) {
        let Some((min, max)) = clamp_bounds(&call) else { break };
        bounds = (bounds.0.max(min), bounds.1.min(max));
        at = call.optional("self")?;
    }
    let call = unscaled_add(builder, at)?;
    if bounds != (0.0, 6.0) || scalar_operand(builder, &call, "other") != Some(3.0) {
        return None;
    }
    call.optional("self")
}
