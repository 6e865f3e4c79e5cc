//! ExecuTorch's operators for language models.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Graph, Type};

use super::inference::{one, same, tensor};
use super::{Definition, Operands, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel("llama::sdpa_with_kv_cache", same),
    kernel("llama::custom_sdpa", same),
    kernel("llama::custom_quantized_sdpa", floating_query),
    kernel("llama::update_cache", update),
    kernel("llama::update_cache_with_indices", update),
    kernel("llama::fast_hadamard_transform", same),
    kernel("llama::fallback", same),
    kernel("llama::gated_delta_rule", delta_rule),
    kernel("llama::channelwise_gated_delta_rule", delta_rule),
    kernel("llama::quantized_moe_ffn", same),
];

/// Attention over integers gives `f32`.
fn floating_query(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(ScalarType::Float, operands.tensor(0, graph)?.shape.clone())
}

/// A value of no use that orders the store.
fn update(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.tensor(0, graph)?.dtype, vec![1i64.into()])
}

/// An output as wide as the values for each query, and the last state.
fn delta_rule(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (query, value, state) = (operands.tensor(0, graph)?, operands.tensor(2, graph)?, operands.tensor(5, graph)?);
    let mut shape = query.shape.clone();
    if let (Some(last), Some(width)) = (shape.last_mut(), value.shape.last()) {
        last.clone_from(width);
    }
    Ok(vec![tensor(value.dtype, shape), tensor(state.dtype, state.shape.clone())])
}
