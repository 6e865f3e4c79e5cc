//! Quantized KV caches: int8 with a scale and a zero point for each row, as ExecuTorch keeps them.
//!
//! Attention over quantized operands becomes one over what they stand for. A row that is dequantized with scales of f32 and zero
//! points of int8, which is how caches hold them, is a legal node: attention reads such rows where they are.

use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, llama, quantized_decomposed};
use rushlight_graph::{Arg, Builder, Call, Def, Error, NodeId, ValueId};

/// Returns the legal form of a node that reads quantized rows; `None` if it is legal, or another node.
///
/// # Errors
/// `InvalidProgram` for a call without its arguments.
pub fn legalize(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    match builder.graph.nodes[node].op.name() {
        llama::CUSTOM_QUANTIZED_SDPA => attention(builder, node),
        quantized_decomposed::DEQUANTIZE_PER_TOKEN => dequantized(builder, node),
        _ => Ok(None),
    }
}

/// `llama::custom_sdpa` of the dequantized operands.
fn attention(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    if call.flag("is_seq_at_dim_2") {
        return Ok(None);
    }
    let arg = |name: &str| call.arg(name).cloned().unwrap_or(Arg::None);
    let rest = ["start_pos", "attn_mask", "drpout_p", "is_causal", "scale"].map(arg);
    let mut operands = Vec::new();
    for (name, scales, zero_points) in [
        ("query", "q_scales", "q_zero_points"),
        ("key", "k_scales", "k_zero_points"),
        ("value", "v_scales", "v_zero_points"),
    ] {
        let (Some(scales), Some(zero_points)) = (call.optional(scales), call.optional(zero_points)) else {
            return Ok(None);
        };
        operands.push((call.value(name)?, scales, zero_points));
    }
    let mut args = Vec::new();
    for (rows, scales, zero_points) in operands {
        let Some((scales, zero_points)) = parameters(builder, scales, zero_points) else { return Ok(None) };
        args.push(dequantize(builder, rows, scales, zero_points)?.into());
    }
    args.extend(rest);
    builder.one(llama::CUSTOM_SDPA, args).map(Some)
}

/// Rows that are dequantized with the scales and zero points of a cache as it holds them.
fn dequantized(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (rows, scales, zero_points) = (call.value("input")?, call.value("scales")?, call.value("zero_points")?);
    let of = |value: ValueId| builder.graph.tensor(value).map(|ty| ty.dtype);
    if of(rows)? != ScalarType::Char || of(call.result()?)? != ScalarType::Float {
        return Ok(None);
    }
    match parameters(builder, scales, zero_points) {
        Some(legal) if legal != (scales, zero_points) => dequantize(builder, rows, legal.0, legal.1).map(Some),
        _ => Ok(None),
    }
}

fn dequantize(
    builder: &mut Builder<'_>,
    rows: ValueId,
    scales: ValueId,
    zero_points: ValueId,
) -> Result<ValueId, Error> {
    let (min, max) = (i64::from(i8::MIN), i64::from(i8::MAX));
    let types = [ScalarType::Char.into(), ScalarType::Float.into()];
    let args = [rows.into(), scales.into(), zero_points.into(), min.into(), max.into()];
    builder.one(quantized_decomposed::DEQUANTIZE_PER_TOKEN, args.into_iter().chain(types).collect())
}

/// Scales and zero points before they were converted: as one node chose them, or scales of f32 and zero points of int8.
fn parameters(builder: &Builder<'_>, scales: ValueId, zero_points: ValueId) -> Option<(ValueId, ValueId)> {
    let before = |value: ValueId| {
        let Def::Result(node, 0) = builder.graph.values[value].def else { return value };
        let call = Call::new(builder.graph, node);
        call.optional("self").filter(|_| call.name() == aten::_TO_COPY).unwrap_or(value)
    };
    let chosen = (before(scales), before(zero_points));
    let defs = (builder.graph.values[chosen.0].def, builder.graph.values[chosen.1].def);
    if let (Def::Result(scales, 0), Def::Result(zero_points, 1)) = defs
        && scales == zero_points
    {
        return Some(chosen);
    }
    let of_type = |value: ValueId, dtype: ScalarType| {
        let is_it = |value: &ValueId| builder.graph.tensor(*value).is_ok_and(|ty| ty.dtype == dtype);
        [value, before(value)].into_iter().find(is_it)
    };
    Some((of_type(scales, ScalarType::Float)?, of_type(zero_points, ScalarType::Char)?))
}
