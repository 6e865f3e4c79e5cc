//! Attention: matmuls, a softmax and masks.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::joins::{interleave, lower_triangle};
use super::matmul::{linear_of, matmul};
use super::reduction::maximum_or;
use super::slices::{select, slice};
use super::views::{permute, transpose_last, unsqueeze};
use super::{Definition, Lowered, Operands, broadcast, by_lowering, composite, promote, result};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::SCALED_DOT_PRODUCT_ATTENTION, attended, attention),
    composite(aten::_SCALED_DOT_PRODUCT_ATTENTION_MATH, by_lowering, attention_math),
    composite(aten::_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU, by_lowering, flash_attention),
    composite(aten::_SAFE_SOFTMAX, softmax_type, safe_softmax),
    composite(aten::_NATIVE_MULTI_HEAD_ATTENTION, by_lowering, multi_head),
    composite(aten::_TRANSFORMER_ENCODER_LAYER_FWD, super::inference::same, encoder_layer),
];

/// Attributes of attention.
struct AttentionParameters {
    mask: Option<ValueId>,
    causal: bool,
    scale: Option<Arg>,
    /// Heads of keys and values may be fewer than those of queries.
    grouped: bool,
}

/// Results and intermediate results of attention.
struct Attended {
    output: ValueId,
    /// The scores: queries times keys, scaled and masked.
    scores: ValueId,
    probabilities: ValueId,
}

fn attended(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (query, key, value) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?, operands.tensor(2, graph)?);
    let at_least_2 = || operands.wrong(0, "a tensor of at least 2 dimensions");
    let [lead @ .., rows, _] = query.shape.as_slice() else { return Err(at_least_2()) };
    let width = value.shape.last().ok_or_else(at_least_2)?;
    // With grouped heads, keys and values may have fewer of them.
    let is_grouped = operands.schema.position("enable_gqa").is_some_and(|at| operands.bool(at).unwrap_or(false));
    let other = |shape: &[Expr]| {
        let mut lead = shape.get(..shape.len().saturating_sub(2)).unwrap_or_default().to_vec();
        if let (true, Some(heads), Some(own)) = (is_grouped, lead.last_mut(), lead_heads(query)) {
            heads.clone_from(own);
        }
        lead
    };
    let mask = operands.schema.position("attn_mask").filter(|at| operands.has(*at));
    let mask = mask.map(|at| operands.tensor(at, graph)).transpose()?;
    let mask_lead = mask.map(|mask| mask.shape.get(..mask.rank().saturating_sub(2)).unwrap_or_default().to_vec());
    let (key, value) = (other(&key.shape), other(&value.shape));
    let mut shape = broadcast([lead, &key, &value, mask_lead.as_deref().unwrap_or_default()])?;
    shape.extend([rows.clone(), width.clone()]);
    Ok(result(query.dtype, shape))
}

/// The number of heads of a query, if it has that dimension.
fn lead_heads(query: &TensorType) -> Option<&Expr> {
    query.shape.get(query.rank().checked_sub(3)?)
}

fn parameters(operands: &Operands<'_>) -> Result<AttentionParameters, Error> {
    let at = |name: &str| operands.schema.position(name).unwrap_or(usize::MAX);
    let scale = at("scale");
    if operands.float_or(at("dropout_p"), 0.0)? != 0.0 {
        return Err(Error::unsupported("attention with dropout").help("call `model.eval()` before exporting"));
    }
    Ok(AttentionParameters {
        mask: operands.optional(at("attn_mask"))?,
        causal: operands.bool(at("is_causal"))?,
        scale: if operands.has(scale) { Some(operands.number(scale)?) } else { None },
        grouped: operands.has(at("enable_gqa")) && operands.bool(at("enable_gqa"))?,
    })
}

fn attend(b: &mut Builder<'_>, operands: &Operands<'_>, parameters: &AttentionParameters) -> Result<Attended, Error> {
    let (query, mut key, mut value) = (operands.value(0)?, operands.value(1)?, operands.value(2)?);
    let q = b.tensor(query)?;
    let rank = q.rank();
    let width = q.shape.last().cloned().unwrap_or(Expr::Int(1));
    if parameters.grouped && rank >= 3 {
        for side in [&mut key, &mut value] {
            *side = repeat_heads(b, *side, &q.shape, rank - 3)?;
        }
    }
    let scale = match (parameters.scale.clone(), width.as_int()) {
        (Some(scale), _) => scale,
        (None, Some(width)) => Arg::Float(1.0 / (width as f64).sqrt()),
        (None, None) => return Err(operands.unknown_sizes(0, "widths", b.graph)),
    };
    let query = b.one(aten::MUL_SCALAR, vec![query.into(), scale])?;
    let key = transpose_last(b, key)?;
    let mut scores = matmul(b, query, key)?;
    let mut alive = None;
    if parameters.causal {
        let shape = b.tensor(scores)?.shape;
        let matrix = shape.get(shape.len().saturating_sub(2)..).unwrap_or_default().to_vec();
        let seen = lower_triangle(b, matrix, Expr::Int(0))?;
        scores = hide(b, scores, seen)?;
    }
    if let Some(mask) = parameters.mask {
        let is_bool = b.tensor(mask)?.dtype == ScalarType::Bool;
        alive = rows_with_any(b, mask)?;
        scores =
            if is_bool { hide(b, scores, mask)? } else { b.one(aten::ADD_TENSOR, vec![scores.into(), mask.into()])? };
    }
    let probabilities = b.one(aten::_SOFTMAX, vec![scores.into(), (-1).into(), false.into()])?;
    let mut output = matmul(b, probabilities, value)?;
    if let Some(alive) = alive {
        // A query that sees no key attends to nothing: zeros, where the softmax gives NaN.
        let dead = b.one(aten::LOGICAL_NOT, vec![alive.into()])?;
        output = b.one(aten::MASKED_FILL_SCALAR, vec![output.into(), dead.into(), 0.into()])?;
    }
    Ok(Attended { output, scores, probabilities })
}

/// Repeats the heads of keys or values to the number of query heads.
fn repeat_heads(b: &mut Builder<'_>, value: ValueId, query: &[Expr], dim: usize) -> Result<ValueId, Error> {
    let shape = b.tensor(value)?.shape;
    match (query.get(dim), shape.get(dim)) {
        (Some(wanted), Some(heads)) if wanted != heads => {
            let times = wanted.floor_div(heads.clone());
            interleave(b, value, dim, times)
        }
        _ => Ok(value),
    }
}

/// Negative infinity where `seen` is false.
fn hide(b: &mut Builder<'_>, scores: ValueId, seen: ValueId) -> Result<ValueId, Error> {
    let hidden = b.one(aten::LOGICAL_NOT, vec![seen.into()])?;
    b.one(aten::MASKED_FILL_SCALAR, vec![scores.into(), hidden.into(), f64::NEG_INFINITY.into()])
}

/// For each row of a mask whether it lets anything through; `None` where that is known to be so.
fn rows_with_any(b: &mut Builder<'_>, mask: ValueId) -> Result<Option<ValueId>, Error> {
    let ty = b.tensor(mask)?;
    if ty.rank() == 0 {
        return Ok(None);
    }
    if ty.dtype == ScalarType::Bool {
        return b.one(aten::ANY_DIM, vec![mask.into(), (-1).into(), true.into()]).map(Some);
    }
    let row_max = maximum_or(b, mask, &[ty.rank() - 1], f64::NEG_INFINITY)?;
    b.one(aten::NE_SCALAR, vec![row_max.into(), f64::NEG_INFINITY.into()]).map(Some)
}

fn attention(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let attended = attend(b, operands, &parameters(operands)?)?;
    Ok(Some(vec![attended.output]))
}

fn attention_math(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let attended = attend(b, operands, &parameters(operands)?)?;
    Ok(Some(vec![attended.output, attended.probabilities]))
}

/// Gives the logarithms of the sums too, one for each query and head.
fn flash_attention(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let attended = attend(b, operands, &parameters(operands)?)?;
    let sums = b.one(aten::LOGSUMEXP, vec![attended.scores.into(), [-1].into()])?;
    // PyTorch gives 0 for a query that sees no key.
    let dead = b.one(aten::EQ_SCALAR, vec![sums.into(), f64::NEG_INFINITY.into()])?;
    let sums = b.one(aten::MASKED_FILL_SCALAR, vec![sums.into(), dead.into(), 0.into()])?;
    Ok(Some(vec![attended.output, sums]))
}

fn softmax_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let tensor = operands.tensor(0, graph)?;
    Ok(result(operands.dtype(2)?.unwrap_or(promote(&[operands.arg(0)], graph)?), tensor.shape.clone()))
}

/// A softmax that gives zeros for a row of negative infinities.
fn safe_softmax(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut value = operands.value(0)?;
    if let Some(dtype) = operands.dtype(2)? {
        value = b.cast(value, dtype)?;
    }
    let dim = operands.dim(1, b.tensor(value)?.rank())?;
    let row_max = maximum_or(b, value, &[dim], f64::NEG_INFINITY)?;
    let dead = b.one(aten::EQ_SCALAR, vec![row_max.into(), f64::NEG_INFINITY.into()])?;
    let softmax = b.one(aten::_SOFTMAX, vec![value.into(), (dim as i64).into(), false.into()])?;
    b.call(aten::MASKED_FILL_SCALAR, vec![softmax.into(), dead.into(), 0.into()]).map(Some)
}

/// The fused attention of `torch.nn.MultiheadAttention`: batches first, one weight for queries, keys and values.
///
/// Masks are true, or added, where nothing is seen: `[L, L]` for type 0, `[N, L]` for type 1.
fn multi_head(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let block = MultiHead {
        inputs: [operands.value(0)?, operands.value(1)?, operands.value(2)?],
        width: operands.int(3)?,
        heads: operands.int(4)?,
        weights: [operands.value(5)?, operands.value(6)?, operands.value(7)?, operands.value(8)?],
        mask: operands.optional(9)?,
        mask_type: if operands.has(12) { operands.int(12)? } else { 0 },
    };
    let (output, probabilities) = block.build(b)?;
    let weights = if operands.bool(11)? {
        b.one_with(aten::MEAN_DIM, vec![probabilities.into(), [1].into()], &[])?
    } else {
        probabilities
    };
    Ok(Some(vec![output, weights]))
}

struct MultiHead {
    /// Queries, keys and values.
    inputs: [ValueId; 3],
    width: i64,
    heads: i64,
    /// Weight and bias of queries, keys and values, then of the output.
    weights: [ValueId; 4],
    mask: Option<ValueId>,
    mask_type: i64,
}

impl MultiHead {
    fn build(&self, b: &mut Builder<'_>) -> Result<(ValueId, ValueId), Error> {
        let [input, ..] = self.inputs;
        let shape = b.tensor(input)?.shape;
        let [batch, length, _] = shape.as_slice() else {
            return Err(Error::type_error("attention of a tensor that has not 3 dimensions"));
        };
        let Some(head) = self.width.checked_div(self.heads).filter(|head| *head > 0) else {
            return Err(Error::type_error("attention without heads"));
        };
        let [_, _, out_weight, out_bias] = self.weights;
        let [query, key, value] = self.projected(b, head)?;
        let scale = 1.0 / (head as f64).sqrt();
        let query = b.one(aten::MUL_SCALAR, vec![query.into(), scale.into()])?;
        let key = transpose_last(b, key)?;
        let mut scores = matmul(b, query, key)?;
        if let Some(mask) = self.mask {
            scores = self.masked(b, scores, mask)?;
        }
        let probabilities = b.one(aten::_SOFTMAX, vec![scores.into(), (-1).into(), false.into()])?;
        let mixed = matmul(b, probabilities, value)?;
        let mixed = permute(b, mixed, &[0, 2, 1, 3])?;
        let mixed = b.view(mixed, vec![batch.clone(), length.clone(), self.width.into()])?;
        Ok((linear_of(b, mixed, out_weight, Some(out_bias))?, probabilities))
    }

    /// Queries, keys and values as `[batch, head, length, width]`. Of one tensor, they are one GEMM.
    fn projected(&self, b: &mut Builder<'_>, head: i64) -> Result<[ValueId; 3], Error> {
        let [weight, bias, ..] = self.weights;
        let [input, key, value] = self.inputs;
        let heads = |b: &mut Builder<'_>, value: ValueId, parts: i64| {
            let shape = b.tensor(value)?.shape;
            let lead = shape.get(..2).unwrap_or_default();
            let sizes = [lead, &[parts.into(), self.heads.into(), head.into()]].concat();
            let apart = b.view(value, sizes)?;
            permute(b, apart, &[2, 0, 3, 1, 4])
        };
        if input == key && input == value {
            let all = linear_of(b, input, weight, Some(bias))?;
            let all = heads(b, all, 3)?;
            return Ok([select(b, all, 0, 0)?, select(b, all, 0, 1)?, select(b, all, 0, 2)?]);
        }
        let mut project = |part: i64, input: ValueId| {
            let first = Expr::Int(part).mul(self.width);
            let weight = slice(b, weight, 0, first.clone(), self.width)?;
            let bias = slice(b, bias, 0, first, self.width)?;
            let one = linear_of(b, input, weight, Some(bias))?;
            let one = heads(b, one, 1)?;
            select(b, one, 0, 0)
        };
        Ok([project(0, input)?, project(1, key)?, project(2, value)?])
    }

    fn masked(&self, b: &mut Builder<'_>, scores: ValueId, mask: ValueId) -> Result<ValueId, Error> {
        let ty = b.tensor(mask)?;
        let mask = match (self.mask_type, ty.rank()) {
            (1, 2) => {
                let rows = unsqueeze(b, mask, 1)?;
                unsqueeze(b, rows, 1)?
            }
            (0 | 2, 2 | 4) => mask,
            _ => return Err(Error::unsupported(format!("attention with a mask of type {}", self.mask_type))),
        };
        if ty.dtype == ScalarType::Bool {
            b.one(aten::MASKED_FILL_SCALAR, vec![scores.into(), mask.into(), f64::NEG_INFINITY.into()])
        } else {
            b.one(aten::ADD_TENSOR, vec![scores.into(), mask.into()])
        }
    }
}

/// The fused layer of `torch.nn.TransformerEncoder`.
fn encoder_layer(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let input = operands.value(0)?;
    let (use_gelu, norm_first) = (operands.bool(7)?, operands.bool(8)?);
    let width = operands.arg(1).clone();
    let norm = |b: &mut Builder<'_>, value: ValueId, weight: usize| {
        let args = vec![
            value.into(),
            Arg::List(vec![width.clone()]),
            operands.value(weight)?.into(),
            operands.value(weight + 1)?.into(),
            operands.arg(9).clone(),
        ];
        b.one(aten::LAYER_NORM, args)
    };
    let attend = |b: &mut Builder<'_>, value: ValueId| {
        let block = MultiHead {
            inputs: [value; 3],
            width: operands.int(1)?,
            heads: operands.int(2)?,
            weights: [operands.value(3)?, operands.value(4)?, operands.value(5)?, operands.value(6)?],
            mask: operands.optional(18)?,
            mask_type: if operands.has(19) { operands.int(19)? } else { 0 },
        };
        block.build(b).map(|(output, _)| output)
    };
    let feed_forward = |b: &mut Builder<'_>, value: ValueId| {
        let hidden = linear_of(b, value, operands.value(14)?, Some(operands.value(15)?))?;
        let hidden = b.one(if use_gelu { aten::GELU } else { aten::RELU }, vec![hidden.into()])?;
        linear_of(b, hidden, operands.value(16)?, Some(operands.value(17)?))
    };
    let sum =
        |b: &mut Builder<'_>, left: ValueId, right: ValueId| b.one(aten::ADD_TENSOR, vec![left.into(), right.into()]);
    let output = if norm_first {
        let normed = norm(b, input, 10)?;
        let mixed = attend(b, normed)?;
        let first = sum(b, input, mixed)?;
        let normed = norm(b, first, 12)?;
        let hidden = feed_forward(b, normed)?;
        sum(b, first, hidden)?
    } else {
        let mixed = attend(b, input)?;
        let first = sum(b, input, mixed)?;
        let first = norm(b, first, 10)?;
        let hidden = feed_forward(b, first)?;
        let second = sum(b, first, hidden)?;
        norm(b, second, 12)?
    };
    Ok(Some(vec![output]))
}
