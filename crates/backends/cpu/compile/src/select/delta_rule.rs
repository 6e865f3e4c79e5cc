//! The gated delta rule.

use rushlight_format::ScalarType;
use rushlight_graph::{Call, Expr, ValueId};

/// The gated delta rule of f32, whose operands have the positions behind the heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaRule {
    pub query: ValueId,
    pub key: ValueId,
    pub value: ValueId,
    /// Of three dimensions, or four with a factor for each row of a state.
    pub decay: ValueId,
    pub beta: ValueId,
    pub state: ValueId,
}

pub(super) fn select(call: &Call<'_>) -> Option<DeltaRule> {
    let of = |name: &str| call.optional(name);
    let rule = DeltaRule {
        query: of("query")?,
        key: of("key")?,
        value: of("value")?,
        decay: of("decay")?,
        beta: of("beta")?,
        state: of("initial_state")?,
    };
    let shape = |value: ValueId| {
        call.graph.tensor(value).ok().filter(|ty| ty.dtype == ScalarType::Float).map(|ty| ty.shape.as_slice())
    };
    let [batch, heads, tokens, rows] = shape(rule.query)? else { return None };
    let ([_, groups, _, _], [_, _, _, columns]) = (shape(rule.key)?, shape(rule.value)?) else { return None };
    let is_of =
        |value: ValueId, sizes: &[&Expr]| shape(value).is_some_and(|shape| shape.iter().eq(sizes.iter().copied()));
    let are_heads = heads
        .as_int()
        .zip(groups.as_int())
        .is_some_and(|(heads, groups)| groups > 0 && heads >= groups && heads % groups == 0);
    let is_decay = is_of(rule.decay, &[batch, groups, tokens]) || is_of(rule.decay, &[batch, groups, tokens, rows]);
    let fits = are_heads
        && is_decay
        && is_of(rule.key, &[batch, groups, tokens, rows])
        && is_of(rule.value, &[batch, groups, tokens, columns])
        && is_of(rule.beta, &[batch, groups, tokens])
        && is_of(rule.state, &[batch, groups, rows, columns]);
    fits.then_some(rule)
}
