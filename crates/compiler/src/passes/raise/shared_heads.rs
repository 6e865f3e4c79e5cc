//! Grouped-query attention: heads of queries that share heads of keys and values.

use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Call, Def, Error, Expr, Model, NodeId, Pass, ValueId};

use crate::passes::rewrite::rewrite;

/// Drops the repetition of the heads of keys and values before an attention, which reads each of them as often as it needs.
/// Exporters write it as an expansion between reshapes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShareHeads;

impl Pass for ShareHeads {
    fn name(&self) -> &'static str {
        "share-heads"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        rewrite(model, |builder, node| {
            let Some((key, value)) = shared(builder, node) else { return Ok(Action::Keep) };
            let call = Call::new(builder.graph, node);
            let (query, scale) = (call.value("query")?, call.arg("scale").cloned());
            let arg = |name: &str| call.arg(name).cloned().unwrap_or(Arg::None);
            let args =
                vec![query.into(), key.into(), value.into(), arg("attn_mask"), arg("dropout_p"), arg("is_causal")];
            let named = [("scale", scale.unwrap_or(Arg::None)), ("enable_gqa", true.into())];
            let attention = builder.one_with(aten::SCALED_DOT_PRODUCT_ATTENTION, args, &named)?;
            Ok(Action::Replace(vec![attention]))
        })
    }
}

/// The keys and values of an attention before their heads are repeated, if both are, and as often.
fn shared(builder: &Builder<'_>, node: NodeId) -> Option<(ValueId, ValueId)> {
    let call = Call::new(builder.graph, node);
    if call.name() != aten::SCALED_DOT_PRODUCT_ATTENTION || call.flag("enable_gqa") {
        return None;
    }
    let key = before_repetition(builder, call.optional("key")?)?;
    let value = before_repetition(builder, call.optional("value")?)?;
    let heads = |value: ValueId| builder.graph.tensor(value).ok()?.shape.get(1)?.as_int();
    (heads(key)? == heads(value)?).then_some((key, value))
}

/// `[batch, heads, rows, depth]`, if a value is this with each head repeated: a reshape of an expansion of
/// `[batch, heads, 1, rows, depth]`.
fn before_repetition(builder: &Builder<'_>, value: ValueId) -> Option<ValueId> {
    let shape = |value: ValueId| builder.graph.tensor(value).ok().map(|ty| ty.shape.as_slice());
    let expanded = before(builder, value, &[aten::VIEW_COPY])?;
    let [batch, heads, times, rows, depth] = shape(expanded)? else { return None };
    let merged = [batch.clone(), heads.mul(times.clone()), rows.clone(), depth.clone()];
    let one = before(builder, expanded, &[aten::EXPAND_COPY])?;
    let single = [batch.clone(), heads.clone(), Expr::Int(1), rows.clone(), depth.clone()];
    let source = before(builder, one, &[aten::VIEW_COPY, aten::UNSQUEEZE_COPY])?;
    let fits = shape(value)? == merged && shape(one)? == single;
    (fits && shape(source)? == [batch.clone(), heads.clone(), rows.clone(), depth.clone()]).then_some(source)
}

/// The input of the operator that gives a value, if it is one of these; copies are passed by.
fn before(builder: &Builder<'_>, value: ValueId, names: &[&str]) -> Option<ValueId> {
    let mut at = value;
    loop {
        let Def::Result(node, 0) = builder.graph.values[at].def else { return None };
        let call = Call::new(builder.graph, node);
        let input = call.optional("self")?;
        if names.contains(&call.name()) {
            return Some(input);
        }
        if !matches!(call.name(), aten::CLONE | aten::ALIAS_COPY) {
            return None;
        }
        at = input;
    }
}
