//! Matches operands of nodes, for passes that raise patterns to one operator.

use half::{bf16, f16};
use rushlight_format::ScalarType;
use rushlight_graph::operators::aten;
use rushlight_graph::{Builder, Call, Def, ValueId};

/// Returns the call whose first result a value is.
pub(super) fn producer<'b>(builder: &'b Builder<'_>, value: ValueId) -> Option<Call<'b>> {
    match builder.graph.values[value].def {
        Def::Result(node, 0) => Some(Call::new(builder.graph, node)),
        _ => None,
    }
}

/// Returns the operands `self` and `other` of the operator that gives a value, if it is `name`.
pub(super) fn binary_operands(builder: &Builder<'_>, value: ValueId, name: &str) -> Option<(ValueId, ValueId)> {
    let call = producer(builder, value).filter(|call| call.name() == name)?;
    Some((call.optional("self")?, call.optional("other")?))
}

/// Returns the addition that gives a value, if it is one with an `alpha` of 1.
pub(super) fn unscaled_add<'b>(builder: &'b Builder<'_>, value: ValueId) -> Option<Call<'b>> {
    let call = producer(builder, value)?;
    let has_unit_alpha = call.arg("alpha").is_none() || call.number("alpha") == Some(1.0);
    (matches!(call.name(), aten::ADD_TENSOR | aten::ADD_SCALAR) && has_unit_alpha).then_some(call)
}

/// Returns the float nearest to an argument that is a number, or a constant without dimensions.
pub(super) fn scalar_operand(builder: &Builder<'_>, call: &Call<'_>, name: &str) -> Option<f32> {
    if let Some(number) = call.number(name) {
        return Some(number as f32);
    }
    let constant = &builder.constants[builder.graph.constant_of(call.optional(name)?)?];
    if constant.ty.rank() != 0 {
        return None;
    }
    let bytes = constant.read().ok()?;
    Some(match (constant.ty.dtype, &bytes[..]) {
        (ScalarType::Float, bytes) => f32::from_le_bytes(bytes.try_into().ok()?),
        (ScalarType::Half, bytes) => f16::from_le_bytes(bytes.try_into().ok()?).to_f32(),
        (ScalarType::BFloat16, bytes) => bf16::from_le_bytes(bytes.try_into().ok()?).to_f32(),
        (ScalarType::Bool, bytes) => f32::from(u8::from(bytes != [0])),
        _ => return None,
    })
}

/// Returns the bounds of a node that clamps its input: a ReLU, a hard tanh, or a clamp to known numbers.
pub fn clamp_bounds(call: &Call<'_>) -> Option<(f32, f32)> {
    let bound = |name: &str, default: f32| match call.arg(name) {
        None => Some(default),
        Some(_) => call.number(name).map(|number| number as f32),
    };
    match call.name() {
        aten::RELU => Some((0.0, f32::INFINITY)),
        aten::HARDTANH => Some((bound("min_val", -1.0)?, bound("max_val", 1.0)?)),
        aten::CLAMP => {
            let (min, max) = (bound("min", f32::NEG_INFINITY)?, bound("max", f32::INFINITY)?);
            (min <= max).then_some((min, max))
        }
        _ => None,
    }
}
