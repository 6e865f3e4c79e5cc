//! ExecuTorch's operators for language models.
//!
//! Operators that write to key-value caches, `[batch, position, head, column]`, have no functional variant.
//! [`update_caches`] replaces them by one of ATen's operators, which every backend supports: `slice_scatter` writes at
//! one start position, and `index_put` at positions that a tensor holds. Attention over a cache, `custom_sdpa`, is
//! functional already and stays one node.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, llama};
use crate::{Arg, Builder, Expr, Graph, Schema, Type, ValueId};

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

/// The results of a call that writes to caches.
#[derive(Clone, Debug)]
pub struct CacheUpdate {
    /// The new contents of the caches, with the positions of their arguments.
    pub caches: Vec<(usize, ValueId)>,
    /// The result; `None` if the operator returns a placeholder without information.
    pub result: Option<ValueId>,
}

/// Positions of the arguments that an operator, or its out variant, reads and then writes; empty for an operator that
/// writes to no caches.
pub fn written_caches(schema: &Schema) -> &'static [usize] {
    match schema.base_name() {
        llama::UPDATE_CACHE | llama::UPDATE_CACHE_WITH_INDICES => &[1],
        llama::SDPA_WITH_KV_CACHE => &[3, 4],
        _ => &[],
    }
}

/// Adds functional operators that compute the same as a call that writes to caches. Returns `None` for other operators.
///
/// Positions are at least 0 and within the cache, as the operators demand. The symbol of a start position gets these
/// bounds if the call is in the body of the graph, and therefore made in every run.
pub fn update_caches(b: &mut Builder<'_>, operands: &Operands<'_>) -> Result<Option<CacheUpdate>, Error> {
    let (caches, result) = match operands.schema.base_name() {
        llama::UPDATE_CACHE => {
            let cache = write_at(b, operands.value(1)?, operands.value(0)?, &operands.expr(2)?)?;
            (vec![(1, cache)], None)
        }
        llama::UPDATE_CACHE_WITH_INDICES => {
            let cache = write_rows(b, operands.value(1)?, operands.value(0)?, operands.value(3)?)?;
            (vec![(1, cache)], None)
        }
        llama::SDPA_WITH_KV_CACHE => {
            let start = operands.expr(5)?;
            let keys = write_at(b, operands.value(3)?, operands.value(1)?, &start)?;
            let values = write_at(b, operands.value(4)?, operands.value(2)?, &start)?;
            // The mask, the dropout probability, causality and the scale.
            let rest = (7..11).map(|index| operands.arg(index).clone());
            let attended = [operands.value(0)?.into(), keys.into(), values.into(), start.into()];
            let out = b.one(llama::CUSTOM_SDPA, attended.into_iter().chain(rest).collect())?;
            (vec![(3, keys), (4, values)], Some(out))
        }
        _ => return Ok(None),
    };
    Ok(Some(CacheUpdate { caches, result }))
}

/// The cache with `value` written from position `start` on.
fn write_at(b: &mut Builder<'_>, cache: ValueId, value: ValueId, start: &Expr) -> Result<ValueId, Error> {
    let (positions, written) = (position_dim(b, cache)?, position_dim(b, value)?);
    if b.block() == b.graph.body
        && let Expr::Symbol(symbol) = start
        && let Some(cached) = positions.as_int()
    {
        let min_written = written.range(&b.graph.symbols).0.unwrap_or(0).max(0);
        let symbol = &mut b.graph.symbols[*symbol];
        let upper_bound = cached.saturating_sub(min_written).max(symbol.min);
        symbol.min = symbol.min.max(0).min(upper_bound);
        symbol.max = Some(symbol.max.map_or(upper_bound, |max| max.min(upper_bound)).max(symbol.min));
    }
    let end = start.add(written);
    b.one(aten::SLICE_SCATTER, vec![cache.into(), value.into(), 1.into(), start.clone().into(), end.into()])
}

/// The cache with `value` written at the positions in `indices`, `[batch, position]`.
fn write_rows(b: &mut Builder<'_>, cache: ValueId, value: ValueId, indices: ValueId) -> Result<ValueId, Error> {
    let shape = b.tensor(indices)?.shape;
    let [batches, positions] = shape.as_slice() else {
        return Err(Error::type_error("positions in a cache that are no matrix").got(shape.len()));
    };
    let rows = if batches.is(1) {
        let row = b.one(aten::VIEW_COPY, vec![indices.into(), Arg::List(vec![positions.clone().into()])])?;
        vec![Arg::None, row.into()]
    } else {
        let long = [("dtype", ScalarType::Long.into())];
        let batch = b.one_with(aten::ARANGE, vec![batches.clone().into()], &long)?;
        let batch = b.one(aten::UNSQUEEZE_COPY, vec![batch.into(), 1.into()])?;
        vec![batch.into(), indices.into()]
    };
    b.one(aten::INDEX_PUT, vec![cache.into(), Arg::List(rows), value.into()])
}

/// The size of the dimension of positions.
fn position_dim(b: &Builder<'_>, value: ValueId) -> Result<Expr, Error> {
    match b.tensor(value)?.shape.as_slice() {
        [_, positions, _, _] => Ok(positions.clone()),
        other => Err(Error::type_error("a cache of another rank").expected(4).got(other.len())),
    }
}

/// Attention over integers returns `f32`.
fn floating_query(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(ScalarType::Float, operands.tensor(0, graph)?.shape.clone())
}

/// A dummy result that only orders the store.
fn update(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.tensor(0, graph)?.dtype, vec![1i64.into()])
}

/// An output with the width of the values for each query, and the last state.
fn delta_rule(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (query, value, state) = (operands.tensor(0, graph)?, operands.tensor(2, graph)?, operands.tensor(5, graph)?);
    let mut shape = query.shape.clone();
    if let (Some(last), Some(width)) = (shape.last_mut(), value.shape.last()) {
        last.clone_from(width);
    }
    Ok(vec![tensor(value.dtype, shape), tensor(state.dtype, state.shape.clone())])
}
