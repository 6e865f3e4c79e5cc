//! Raises activations that exporters decomposed.

use rushlight_cpu_payload::Activation;
use rushlight_format::ScalarType;

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Model, NodeId, ValueId};

use crate::call::Call;
use crate::operands::{binary_operands, producer, scalar_operand, unscaled_add};
use crate::rewrite::rewrite;
use crate::select::activation;

/// Finds hard-sigmoids, hard-swishes and SiLUs of floats in additions, clamps and multiplications, as exporters write them, and
/// puts the one operator in their place, which a GEMM computes in its epilogue. Results differ by roundings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RaiseActivations;

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

/// The activation that a node ends, and what it is of.
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
        let Some(Activation::Clamp { min, max }) = activation(&call) else { break };
        bounds = (bounds.0.max(min), bounds.1.min(max));
        at = call.optional("self")?;
    }
    let call = unscaled_add(builder, at)?;
    if bounds != (0.0, 6.0) || scalar_operand(builder, &call, "other") != Some(3.0) {
        return None;
    }
    call.optional("self")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_graph::testing::{Method, float};

    /// A method that gives what `build` makes of its input, after the pass.
    fn names_after(build: impl FnOnce(&mut Method, ValueId) -> ValueId) -> Vec<String> {
        let mut method = Method::new();
        let x = method.graph().input("x", float(&[2, 3]));
        let y = build(&mut method, x);
        method.graph().outputs = vec![y.into()];
        method.after(&RaiseActivations)
    }

    fn one(method: &mut Method, name: &str, args: Vec<Arg>) -> ValueId {
        method.calls(name, args)[0]
    }

    fn gate(method: &mut Method, x: ValueId, shift: f64) -> ValueId {
        let shifted = one(method, aten::ADD_SCALAR, vec![x.into(), shift.into()]);
        one(method, aten::HARDTANH, vec![shifted.into(), 0.0.into(), 6.0.into()])
    }

    #[test]
    fn a_product_with_its_gate_is_a_hard_swish() {
        let spelled = names_after(|method, x| {
            let gate = gate(method, x, 3.0);
            let product = one(method, aten::MUL_TENSOR, vec![x.into(), gate.into()]);
            one(method, aten::DIV_SCALAR, vec![product.into(), 6.0.into()])
        });
        assert_eq!(spelled, [aten::HARDSWISH]);
        let of_sigmoid = names_after(|method, x| {
            let gate = gate(method, x, 3.0);
            let gate = one(method, aten::MUL_SCALAR, vec![gate.into(), (1.0 / 6.0).into()]);
            one(method, aten::MUL_TENSOR, vec![gate.into(), x.into()])
        });
        assert_eq!(of_sigmoid, [aten::HARDSWISH]);
    }

    #[test]
    fn bounds_may_come_one_by_one() {
        let names = names_after(|method, x| {
            let shifted = one(method, aten::ADD_SCALAR, vec![x.into(), 3.0.into()]);
            let low = one(method, aten::CLAMP, vec![shifted.into(), 0.0.into()]);
            let both = one(method, aten::CLAMP, vec![low.into(), Arg::None, 6.0.into()]);
            one(method, aten::DIV_SCALAR, vec![both.into(), 6.0.into()])
        });
        assert_eq!(names, [aten::HARDSIGMOID]);
    }

    #[test]
    fn a_product_with_its_sigmoid_is_silu() {
        let names = names_after(|method, x| {
            let gate = one(method, aten::SIGMOID, vec![x.into()]);
            one(method, aten::MUL_TENSOR, vec![x.into(), gate.into()])
        });
        assert_eq!(names, [aten::SILU]);
    }

    #[test]
    fn what_is_nearly_one_stays() {
        let names = names_after(|method, x| {
            let gate = gate(method, x, 2.0);
            one(method, aten::DIV_SCALAR, vec![gate.into(), 6.0.into()])
        });
        assert_eq!(names, [aten::ADD_SCALAR, aten::HARDTANH, aten::DIV_SCALAR]);
        let of_others = names_after(|method, x| {
            let other = one(method, aten::NEG, vec![x.into()]);
            let gate = one(method, aten::SIGMOID, vec![other.into()]);
            one(method, aten::MUL_TENSOR, vec![x.into(), gate.into()])
        });
        assert_eq!(of_others, [aten::NEG, aten::SIGMOID, aten::MUL_TENSOR]);
    }
}
