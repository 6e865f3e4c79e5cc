//! Writes into key-value caches, `[batch, position, head, column]`, of any element type.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Tensor, TensorMut};

/// `llama::update_cache.out(Tensor value, Tensor(a!) cache, SymInt start_pos, *, Tensor(b!) out) -> Tensor(b!)`
///
/// `out` is a placeholder; it is not written.
pub const UPDATE_CACHE_OUT: Op = Op::new("llama::update_cache.out", 4, update_cache).writing(&[1, 3]);

/// `llama::update_cache_with_indices.out(Tensor value, Tensor(a!) cache, SymInt start_pos, Tensor indices, *,
/// Tensor(b!) out) -> Tensor(b!)`
///
/// `indices` gives the position of each row, `[batch, position]`; `start_pos` has no effect, and `out` is a
/// placeholder.
pub const UPDATE_CACHE_WITH_INDICES_OUT: Op =
    Op::new("llama::update_cache_with_indices.out", 5, update_cache_with_indices).writing(&[1, 4]);

pub const OPS: &[Op] = &[UPDATE_CACHE_OUT, UPDATE_CACHE_WITH_INDICES_OUT];

fn update_cache(cx: &KernelContext<'_>) -> Result<()> {
    let mut cache = cx.out(1)?;
    write_rows(&cx.tensor(0)?, 0, &mut cache, 1, cx.int(2)?)
}

fn update_cache_with_indices(cx: &KernelContext<'_>) -> Result<()> {
    let (value, indices) = (cx.tensor(0)?, cx.tensor(3)?);
    let mut cache = cx.out(1)?;
    let rows = RowWrite::new(&value, 0, &cache, 1)?;
    if indices.sizes() != [rows.batches, rows.positions] || !indices.is_contiguous() {
        return Err(Error::invalid("there must be one index for each position of each batch").arg(3));
    }
    let indices = indices.as_slice::<i64>().map_err(|e| e.arg(3))?;
    for &index in indices {
        check_position(index, 1, rows.cached).map_err(|e| e.arg(3))?;
    }
    if rows.bytes == 0 {
        return Ok(());
    }
    let mut source = value.bytes().chunks_exact(rows.bytes);
    for (batch, positions) in indices.chunks(rows.positions.max(1)).enumerate() {
        for (&index, row) in positions.iter().zip(&mut source) {
            let start = (batch * rows.cached + index as usize) * rows.bytes;
            cache.bytes_mut()[start..start + rows.bytes].copy_from_slice(row);
        }
    }
    Ok(())
}

/// Writes the positions of `value`, argument `value_index`, into `cache`, argument `cache_index`, from `start` on.
pub(super) fn write_rows(
    value: &Tensor<'_>,
    value_index: usize,
    cache: &mut TensorMut<'_>,
    cache_index: usize,
    start: i64,
) -> Result<()> {
    let rows = RowWrite::new(value, value_index, cache, cache_index)?;
    check_position(start, rows.positions, rows.cached).map_err(|e| e.arg(cache_index))?;
    let (length, stride) = (rows.positions * rows.bytes, rows.cached * rows.bytes);
    if length == 0 {
        return Ok(());
    }
    let start = start as usize * rows.bytes;
    for (source, cache) in value.bytes().chunks_exact(length).zip(cache.bytes_mut().chunks_exact_mut(stride)) {
        cache[start..start + length].copy_from_slice(source);
    }
    Ok(())
}

/// The rows of a write.
struct RowWrite {
    batches: usize,
    positions: usize,
    /// Positions in the cache.
    cached: usize,
    /// Bytes of all heads at one position.
    bytes: usize,
}

impl RowWrite {
    fn new(value: &Tensor<'_>, value_index: usize, cache: &TensorMut<'_>, cache_index: usize) -> Result<Self> {
        let (&[batches, positions, heads, columns], &[cache_batches, cached, cache_heads, cache_columns]) =
            (value.sizes(), cache.sizes())
        else {
            let (index, got) =
                if value.rank() == 4 { (cache_index, cache.rank()) } else { (value_index, value.rank()) };
            return Err(Error::from(Detail::Rank { expected: "4", got }).arg(index));
        };
        for (dim, expected, got) in [(0, cache_batches, batches), (2, cache_heads, heads), (3, cache_columns, columns)]
        {
            if expected != got {
                return Err(Error::from(Detail::Size { dim, expected, got }).arg(value_index));
            }
        }
        if value.dtype() != cache.dtype() {
            let detail = Detail::Dtype { expected: cache.dtype().name(), got: value.dtype() };
            return Err(Error::from(detail).arg(value_index));
        }
        for (contiguous, index) in [(value.is_contiguous(), value_index), (cache.is_contiguous(), cache_index)] {
            if !contiguous {
                return Err(Error::invalid("the tensor must be contiguous").arg(index));
            }
        }
        let bytes = if value.numel() == 0 { 0 } else { heads * columns * value.dtype().size() };
        Ok(Self { batches, positions, cached, bytes })
    }
}

fn check_position(start: i64, length: usize, cached: usize) -> Result<()> {
    let end = usize::try_from(start).ok().and_then(|start| start.checked_add(length));
    match end {
        Some(end) if end <= cached => Ok(()),
        _ => Err(Detail::Index { index: start, size: cached }.into()),
    }
}
