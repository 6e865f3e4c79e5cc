//! Matches operands of nodes, for passes that raise patterns to one operator.

use rushlight_graph::operators::aten;
use rushlight_graph::{Builder, Def, ValueId};

use crate::call::Call;
use crate::constants;
use crate::storage::is_stored_as_float;

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
    if constant.ty.rank() != 0 || !is_stored_as_float(constant.ty.dtype) {
        return None;
    }
    constants::floats(constant).ok()?.first().copied()
}
