//! ExecuTorch's operators for language models.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::llama;
use crate::{Graph, Type};

use super::inference::{one, same, tensor};
use super::{Definition, Operands, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(llama::SDPA_WITH_KV_CACHE, same),
    kernel(llama::CUSTOM_SDPA, same),
    kernel(llama::CUSTOM_QUANTIZED_SDPA, floating_query),
    kernel(llama::UPDATE_CACHE, update),
    kernel(llama::UPDATE_CACHE_WITH_INDICES, update),
    kernel(llama::FAST_HADAMARD_TRANSFORM, same),
    kernel(llama::FALLBACK, same),
    kernel(llama::GATED_DELTA_RULE, delta_rule),
    kernel(llama::CHANNELWISE_GATED_DELTA_RULE, delta_rule),
    kernel(llama::QUANTIZED_MOE_FFN, same),
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
