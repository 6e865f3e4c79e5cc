//! What the operands of a node are, for passes that find patterns.

use rushlight_graph::{Builder, Def, ValueId};

use crate::call::Call;
use crate::constants;
use crate::storage::is_stored_as_float;

/// The call whose first result a value is.
pub(super) fn call_of<'b>(builder: &'b Builder<'_>, value: ValueId) -> Option<Call<'b>> {
    match builder.graph.values[value].def {
        Def::Result(node, 0) => Some(Call::new(builder.graph, node)),
        _ => None,
    }
}

/// The operands `self` and `other` of the operator that gives a value, if it is that one.
pub(super) fn operands(builder: &Builder<'_>, value: ValueId, name: &str) -> Option<(ValueId, ValueId)> {
    let call = call_of(builder, value).filter(|call| call.name() == name)?;
    Some((call.optional("self")?, call.optional("other")?))
}

/// The float nearest to an argument that is a number, or a constant without dimensions.
pub(super) fn number(builder: &Builder<'_>, call: &Call<'_>, name: &str) -> Option<f32> {
    if let Some(number) = call.number(name) {
        return Some(number as f32);
    }
    let constant = &builder.constants[builder.graph.constant_of(call.optional(name)?)?];
    if constant.ty.rank() != 0 || !is_stored_as_float(constant.ty.dtype) {
        return None;
    }
    constants::floats(constant).ok()?.first().copied()
}
