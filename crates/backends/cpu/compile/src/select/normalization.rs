//! Softmax, layer norms, RMS norms and attention.

use rushlight_cpu_payload::MAX_TOP_K;
use rushlight_format::ScalarType;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Call, Expr, ValueId};

/// Softmax or its logarithm over one dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softmax {
    pub input: ValueId,
    pub dim: usize,
    pub log: bool,
}

/// A layer norm over the last dimensions, or an RMS norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    pub input: ValueId,
    pub weight: Option<ValueId>,
    pub bias: Option<ValueId>,
    /// The number of dimensions that are normalized.
    pub dims: usize,
    pub eps: f32,
    /// False for an RMS norm, which does not subtract the mean.
    pub is_centered: bool,
}

/// Scaled dot-product attention of tensors of four dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub query: ValueId,
    pub key: ValueId,
    pub value: ValueId,
    pub mask: Option<ValueId>,
    pub scale: f32,
    /// The number of keys before the first query, if a query sees only the keys up to its own position.
    pub causal: Option<Expr>,
    /// Number of valid keys of a cache that is not full; `None` if all are valid.
    pub keys: Option<Expr>,
    /// True for tensors `[batch, position, head, depth]`, false for `[batch, head, position, depth]`.
    pub has_positions_first: bool,
}

/// The largest elements of the last dimension, the largest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopK {
    pub input: ValueId,
    /// Elements of a row.
    pub columns: i64,
}

pub(super) fn top_k(call: &Call<'_>) -> Option<TopK> {
    let input = call.optional("self")?;
    let ty = call.graph.tensor(input).ok().filter(|ty| ty.dtype == ScalarType::Float)?;
    let last = ty.rank().checked_sub(1)?;
    let is_last = wrap_dim(call.int("dim").unwrap_or(-1), ty.rank()) == Some(last);
    let columns = ty.shape.last()?.as_int()?;
    // Indices are integers of f32.
    let has_few = call.int("k").and_then(|k| u64::try_from(k).ok()).is_some_and(|k| k <= MAX_TOP_K);
    let is_exact = columns < 1 << 24 && has_few;
    (is_last && is_exact && call.flag("largest")).then_some(TopK { input, columns })
}

pub(super) fn softmax(call: &Call<'_>) -> Option<Softmax> {
    let input = call.optional("self")?;
    let rank = call.shape(input).ok()?.len();
    // PyTorch accepts dimension 0 of a tensor of rank 0, but the step does not.
    let dim = wrap_dim(call.int("dim")?, rank).filter(|dim| *dim < rank)?;
    Some(Softmax { input, dim, log: call.name() == aten::_LOG_SOFTMAX })
}

/// Returns a number, or `default` if the argument is absent. `None` if the number is known only at run time.
pub(super) fn known_or(call: &Call<'_>, name: &str, default: f64) -> Option<f64> {
    if call.arg(name).is_none() { Some(default) } else { call.number(name) }
}

pub(super) fn layer_norm(call: &Call<'_>) -> Option<Norm> {
    Some(Norm {
        input: call.optional("input")?,
        weight: call.optional("weight"),
        bias: call.optional("bias"),
        dims: call.exprs("normalized_shape").map_or(1, |shape| shape.len()),
        eps: known_or(call, "eps", 1e-5)? as f32,
        is_centered: true,
    })
}

pub(super) fn rms_norm(call: &Call<'_>) -> Option<Norm> {
    Some(Norm {
        input: call.optional("input")?,
        weight: call.optional("weight"),
        bias: None,
        dims: call.exprs("normalized_shape")?.len(),
        eps: known_or(call, "eps", f64::from(f32::EPSILON))? as f32,
        is_centered: false,
    })
}

pub(super) fn attention(call: &Call<'_>) -> Option<Attention> {
    let shape = |name: &str| call.value(name).and_then(|value| call.shape(value)).ok();
    let has_heads = |name: &&str| shape(name).is_some_and(|shape| shape.len() == 4);
    let mask = call.optional("attn_mask");
    let has_supported_mask = mask.is_none() || shape("attn_mask").is_some_and(|shape| shape.len() <= 4);
    let has_dropout = call.number("dropout_p").is_some_and(|rate| rate != 0.0);
    // The step does not broadcast the batch.
    let batch = |name: &str| shape(name).and_then(|shape| shape.first().cloned());
    let has_one_batch = batch("query") == batch("key") && batch("query") == batch("value");
    if !["query", "key", "value"].iter().all(has_heads) || !has_supported_mask || has_dropout || !has_one_batch {
        return None;
    }
    let scale = if call.arg("scale").is_some() {
        call.number("scale")?
    } else {
        1.0 / (shape("query")?.get(3)?.as_int()? as f64).sqrt()
    };
    Some(Attention {
        query: call.optional("query")?,
        key: call.optional("key")?,
        value: call.optional("value")?,
        mask,
        scale: scale as f32,
        causal: call.flag("is_causal").then_some(Expr::Int(0)),
        keys: None,
        has_positions_first: false,
    })
}

/// Selects attention over a cache, `llama::custom_sdpa`: over the keys up to the position of the last query, or over
/// all keys with a mask.
pub(super) fn cached_attention(call: &Call<'_>) -> Option<Attention> {
    let shape = |name: &str| call.value(name).and_then(|value| call.shape(value)).ok();
    let has_heads = |name: &&str| shape(name).is_some_and(|shape| shape.len() == 4);
    let mask = call.optional("attn_mask");
    let has_supported_mask = mask.is_none() || shape("attn_mask").is_some_and(|shape| shape.len() == 2);
    // The schema of the operator spells `drpout_p` like this.
    let has_dropout = call.number("drpout_p").is_some_and(|rate| rate != 0.0);
    let is_causal = call.flag("is_causal");
    if !["query", "key", "value"].iter().all(has_heads)
        || !has_supported_mask
        || has_dropout
        || (is_causal && mask.is_some())
    {
        return None;
    }
    let scale = if call.arg("scale").is_some() {
        call.number("scale")?
    } else {
        1.0 / (shape("query")?.get(3)?.as_int()? as f64).sqrt()
    };
    let start = call.expr("start_pos")?;
    let keys = if mask.is_some() { None } else { Some(start.add(shape("query")?.get(1)?.clone())) };
    Some(Attention {
        query: call.optional("query")?,
        key: call.optional("key")?,
        value: call.optional("value")?,
        mask,
        scale: scale as f32,
        causal: is_causal.then_some(start),
        keys,
        has_positions_first: true,
    })
}
