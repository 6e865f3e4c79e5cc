//! Attention over a key-value cache.
//!
//! Grouped heads, causal or with a 2-D f32 mask that is added to the scores. Operands are `[batch, position, head,
//! column]`, f32, f16 or bf16; sums are f32. The dropout probability has no effect.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor};

use super::attention::{Attention, AttentionElement, AttentionShape, HeadRows, RowQuantization};
use super::cache::write_rows;

/// `llama::custom_sdpa.out(Tensor query, Tensor key, Tensor value, SymInt start_pos, Tensor? attn_mask=None,
/// float drpout_p=0.0, bool is_causal=False, float? scale=None, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `key` and `value` are whole caches, whose first `start_pos + query.size(1)` positions count; all of them with a
/// mask.
pub const CUSTOM_SDPA_OUT: Op = Op::new("llama::custom_sdpa.out", 9, custom_sdpa);

/// `llama::custom_quantized_sdpa.out(Tensor query, Tensor key, Tensor value, SymInt start_pos,
/// Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None, Tensor? q_zero_points=None,
/// Tensor? q_scales=None, Tensor? k_zero_points=None, Tensor? k_scales=None, Tensor? v_zero_points=None,
/// Tensor? v_scales=None, bool is_seq_at_dim_2=False, *, Tensor(a!) out) -> Tensor(a!)`
///
/// For int8 operands with an f32 scale and an int8 zero point for each row; float operands as in `custom_sdpa`.
/// With `is_seq_at_dim_2` operands are `[batch, head, position, column]`.
pub const CUSTOM_QUANTIZED_SDPA_OUT: Op = Op::new("llama::custom_quantized_sdpa.out", 16, custom_quantized_sdpa);

/// `llama::sdpa_with_kv_cache.out(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache,
/// Tensor(b!) value_cache, SymInt start_pos, SymInt seq_len, Tensor? attn_mask=None, float drpout_p=0.0,
/// bool is_causal=False, float? scale=None, *, Tensor(c!) out) -> Tensor(c!)`
///
/// Writes `key` and `value` into the caches at `start_pos`, then attends to the caches.
pub const SDPA_WITH_KV_CACHE_OUT: Op =
    Op::new("llama::sdpa_with_kv_cache.out", 12, sdpa_with_kv_cache).writing(&[3, 4, 11]);

pub const OPS: &[Op] = &[CUSTOM_SDPA_OUT, CUSTOM_QUANTIZED_SDPA_OUT, SDPA_WITH_KV_CACHE_OUT];

/// Positions of the arguments that the operators order differently.
struct Positions {
    key: usize,
    value: usize,
    start_pos: usize,
    /// Followed by the dropout probability, `is_causal` and `scale`.
    mask: usize,
    out: usize,
}

fn custom_sdpa(cx: &KernelContext<'_>) -> Result<()> {
    let positions = Positions { key: 1, value: 2, start_pos: 3, mask: 4, out: 8 };
    attend(cx, &positions, &cx.tensor(1)?, &cx.tensor(2)?, false)
}

fn custom_quantized_sdpa(cx: &KernelContext<'_>) -> Result<()> {
    let positions = Positions { key: 1, value: 2, start_pos: 3, mask: 4, out: 15 };
    attend(cx, &positions, &cx.tensor(1)?, &cx.tensor(2)?, cx.bool(14)?)
}

fn sdpa_with_kv_cache(cx: &KernelContext<'_>) -> Result<()> {
    let (key, value) = (cx.tensor(1)?, cx.tensor(2)?);
    let (mut key_cache, mut value_cache) = (cx.out(3)?, cx.out(4)?);
    let (start, length) = (cx.int(5)?, cx.int(6)?);
    for (cache, index) in [(&key_cache, 3), (&value_cache, 4)] {
        let end = start.saturating_add(length);
        if start < 0 || length < 0 || usize::try_from(end).map_or(true, |end| end > cache.size(1)) {
            let detail = Detail::Index { index: end, size: cache.size(1) };
            return Err(Error::from(detail).arg(index));
        }
    }
    write_rows(&key, 1, &mut key_cache, 3, start)?;
    write_rows(&value, 2, &mut value_cache, 4, start)?;
    let positions = Positions { key: 3, value: 4, start_pos: 5, mask: 7, out: 11 };
    attend(cx, &positions, &key_cache.as_tensor(), &value_cache.as_tensor(), false)
}

fn attend(
    cx: &KernelContext<'_>,
    positions: &Positions,
    key: &Tensor<'_>,
    value: &Tensor<'_>,
    position_is_dim_2: bool,
) -> Result<()> {
    let query = cx.tensor(0)?;
    let operands = [(&query, 0), (key, positions.key), (value, positions.value)];
    for (tensor, index) in operands {
        check_operand(tensor, query.dtype()).map_err(|e| e.arg(index))?;
    }
    // Batch, head, position.
    let dims = if position_is_dim_2 { [0, 1, 2] } else { [0, 2, 1] };
    let mask = cx.optional_tensor(positions.mask)?;
    let shape = shape(cx, positions, operands.map(|(tensor, _)| tensor), mask.as_ref(), dims)?;
    let mut out = cx.out(positions.out)?;
    out.resize(query.sizes()).map_err(|e| e.arg(positions.out))?;
    let strides = row_strides(&out.as_tensor(), dims).map_err(|e| e.arg(positions.out))?;
    dispatch_types!("f32, f16, bf16 or i8", query.dtype(), T => {
        let [query, key, value] = operands;
        let attention = Attention::<T> {
            query: rows(cx, query, 8, dims)?,
            key: rows(cx, key, 10, dims)?,
            value: rows(cx, value, 12, dims)?,
            shape,
        };
        let out = out.as_mut_slice::<<T as AttentionElement>::Output>().map_err(|e| e.arg(positions.out))?;
        // Sizes beside one of zero have no bound.
        if !out.is_empty() {
            attention.attend(out, strides);
        }
        Ok(())
    }, [Float = f32, Half = f16, BFloat16 = bf16, Char = i8])
}

/// `dims` are the batch, head and position dimensions.
fn shape<'a>(
    cx: &KernelContext<'_>,
    positions: &Positions,
    [query, key, value]: [&Tensor<'_>; 3],
    mask: Option<&Tensor<'a>>,
    dims: [usize; 3],
) -> Result<AttentionShape<'a>> {
    let [batches, heads, queries] = dims.map(|dim| query.size(dim));
    let [_, kv_heads, cached] = dims.map(|dim| key.size(dim));
    let columns = query.size(3);
    let expect = |tensor: &Tensor<'_>, index: usize, dim: usize, expected: usize| {
        let got = tensor.size(dim);
        if got == expected { Ok(()) } else { Err(Error::from(Detail::Size { dim, expected, got }).arg(index)) }
    };
    for (tensor, index) in [(key, positions.key), (value, positions.value)] {
        expect(tensor, index, 0, batches)?;
        expect(tensor, index, dims[1], kv_heads)?;
        expect(tensor, index, dims[2], cached)?;
        expect(tensor, index, 3, columns)?;
    }
    if heads.checked_rem(kv_heads) != Some(0) && heads > 0 {
        let (what, expected) = ("query heads", "a multiple of the key heads");
        return Err(Error::from(Detail::Value { what, expected, got: heads as i64 }).arg(0));
    }
    let start = cx.int(positions.start_pos)?;
    let Ok(start) = usize::try_from(start) else {
        let detail = Detail::Value { what: "start_pos", expected: "at least 0", got: start };
        return Err(Error::from(detail).arg(positions.start_pos));
    };
    let causal = cx.bool(positions.mask + 2)?;
    let keys = match mask {
        Some(_) if causal => {
            return Err(Error::invalid("a mask and is_causal exclude each other").arg(positions.mask));
        }
        Some(_) => cached,
        None => {
            let end = start.saturating_add(queries);
            if end > cached {
                let detail = Detail::Index { index: i64::try_from(end).unwrap_or(i64::MAX), size: cached };
                return Err(Error::from(detail).arg(positions.start_pos));
            }
            end
        }
    };
    let mask = match mask {
        Some(mask) => {
            let Some(values) = mask.as_slice::<f32>().ok().filter(|_| mask.is_contiguous()) else {
                return Err(Error::invalid("the mask must be a contiguous f32 tensor").arg(positions.mask));
            };
            if mask.rank() != 2 {
                return Err(Error::from(Detail::Rank { expected: "2", got: mask.rank() }).arg(positions.mask));
            }
            expect(mask, positions.mask, 0, queries)?;
            expect(mask, positions.mask, 1, keys)?;
            Some(values)
        }
        None => None,
    };
    let scale = match cx.optional_double(positions.mask + 3)? {
        Some(scale) => scale as f32,
        None => (1.0 / libm::sqrt(columns as f64)) as f32,
    };
    let causal_start = causal.then_some(start);
    Ok(AttentionShape { batches, heads, kv_heads, queries, keys, columns, scale, mask, causal_start })
}

fn check_operand(tensor: &Tensor<'_>, dtype: ScalarType) -> Result<()> {
    if tensor.rank() != 4 {
        return Err(Detail::Rank { expected: "4", got: tensor.rank() }.into());
    }
    if tensor.dtype() != dtype {
        return Err(Detail::Dtype { expected: dtype.name(), got: tensor.dtype() }.into());
    }
    Ok(())
}

/// The strides of these dimensions. Fails unless the last dimension is dense.
fn row_strides(tensor: &Tensor<'_>, dims: [usize; 3]) -> Result<[usize; 3]> {
    let strides = tensor.strides();
    if tensor.size(3) > 1 && strides.last().is_some_and(|&stride| stride != 1) {
        return Err(Error::invalid("the last dimension must be the innermost one in memory"));
    }
    Ok(dims.map(|dim| strides.get(dim).copied().unwrap_or(0)))
}

/// An operand and its argument. int8 operands have their zero points and scales in two arguments from `zero_points` on.
fn rows<'a, T: AttentionElement>(
    cx: &'a KernelContext<'_>,
    (tensor, index): (&Tensor<'a>, usize),
    zero_points: usize,
    dims: [usize; 3],
) -> Result<HeadRows<'a, T>> {
    let quantization = match tensor.dtype() {
        ScalarType::Char => Some(row_quantization(cx, tensor, zero_points, dims)?),
        _ => None,
    };
    let strides = row_strides(tensor, dims).map_err(|e| e.arg(index))?;
    Ok(HeadRows { data: tensor.as_slice()?, strides, quantization })
}

/// The zero points in argument `index` and the scales after them.
fn row_quantization<'a>(
    cx: &'a KernelContext<'_>,
    tensor: &Tensor<'_>,
    index: usize,
    dims: [usize; 3],
) -> Result<RowQuantization<'a>> {
    let parameter = |index: usize| {
        let parameter = cx.tensor(index)?;
        let sizes = tensor.sizes().split_last().map(|(_, rows)| rows);
        match parameter.sizes().split_last() {
            Some((1, rows)) if Some(rows) == sizes => Ok(parameter),
            _ => Err(Error::invalid("there must be one value for each row of the operand").arg(index)),
        }
    };
    let (zero_points, scales) = (parameter(index)?, parameter(index + 1)?);
    Ok(RowQuantization {
        zero_point_strides: row_strides(&zero_points, dims)?,
        zero_points: zero_points.as_slice().map_err(|e| e.arg(index))?,
        scale_strides: row_strides(&scales, dims)?,
        scales: scales.as_slice().map_err(|e| e.arg(index + 1))?,
    })
}
