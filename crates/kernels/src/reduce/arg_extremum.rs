//! Positions of maxima and minima. The first NaN counts as the extremum. Otherwise the first of equal extrema does.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, TILE, Writer, dispatch_accumulator};
use crate::support::reduce::{
    Bounded, COLUMNS, DimSet, Fold, Group, Max, Min, Nest, RUN_TILE, fold_block, resize_reduced,
};
use crate::support::shape::{Dims, Walk};

/// `argmax.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out)`
///
/// Without `dim`: the position among all elements in logical order.
pub const ARGMAX_OUT: Op = Op::new("aten::argmax.out", 4, argmax);

/// `argmin.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out)`
pub const ARGMIN_OUT: Op = Op::new("aten::argmin.out", 4, argmin);

/// `max.dim_max(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) max, Tensor(b!) max_values)`
///
/// The second output has the positions, despite its name.
pub const MAX_DIM_MAX: Op = Op::new("aten::max.dim_max", 5, max_dim_max).outs(2);

/// `min.dim_min(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) min, Tensor(b!) min_indices)`
pub const MIN_DIM_MIN: Op = Op::new("aten::min.dim_min", 5, min_dim_min).outs(2);

pub const OPS: &[Op] = &[ARGMAX_OUT, ARGMIN_OUT, MAX_DIM_MAX, MIN_DIM_MIN];

// Compiled once, in this crate: see `extremum`.
fn argmax(cx: &KernelContext<'_>) -> Result<()> {
    arg_extremum::<Max>(cx)
}

fn argmin(cx: &KernelContext<'_>) -> Result<()> {
    arg_extremum::<Min>(cx)
}

fn max_dim_max(cx: &KernelContext<'_>) -> Result<()> {
    extremum_with_position::<Max>(cx)
}

fn min_dim_min(cx: &KernelContext<'_>) -> Result<()> {
    extremum_with_position::<Min>(cx)
}

fn arg_extremum<F>(cx: &KernelContext<'_>) -> Result<()>
where
    F: Order<f32> + Order<f64> + Order<i64>,
{
    let (input, dim, keepdim) = (cx.tensor(0)?, cx.optional_int(1)?, cx.bool(2)?);
    let dims = match dim {
        Some(dim) => DimSet::one(dim, input.rank()).map_err(|e| e.arg(1))?,
        None => DimSet::all(input.rank()),
    };
    if input.dtype() == ScalarType::Bool {
        return Err(Error::from(Detail::Dtype { expected: "an integer or floating type", got: input.dtype() }).arg(0));
    }
    let positions = positions(cx, 3, &input, dims, keepdim)?;
    dispatch_accumulator!(input.dtype(), C => {
        if dim.is_none() && !input.is_contiguous() {
            return in_logical_order::<C, F>(&input, positions);
        }
        search::<C, F>(&input, dims, keepdim, None, positions)
    })
}

fn extremum_with_position<F>(cx: &KernelContext<'_>) -> Result<()>
where
    F: Order<f32> + Order<f64> + Order<i64>,
{
    let (input, keepdim) = (cx.tensor(0)?, cx.bool(2)?);
    let dims = DimSet::one(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let mut values = cx.out(3)?;
    if values.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: values.dtype() }).arg(3));
    }
    resize_reduced(&mut values, &input, dims, keepdim, 3)?;
    let positions = positions(cx, 4, &input, dims, keepdim)?;
    dispatch_accumulator!(input.dtype(), C => search::<C, F>(&input, dims, keepdim, Some(values), positions))
}

/// The output of positions at `index`, resized.
fn positions<'c>(
    cx: &'c KernelContext<'_>,
    index: usize,
    input: &Tensor<'_>,
    dims: DimSet,
    keepdim: bool,
) -> Result<TensorMut<'c>> {
    let mut out = cx.out(index)?;
    if out.dtype() != ScalarType::Long {
        return Err(Error::from(Detail::Dtype { expected: "i64", got: out.dtype() }).arg(index));
    }
    resize_reduced(&mut out, input, dims, keepdim, index)?;
    if out.numel() > 0 && dims.count(input.sizes()) == 0 {
        return Err(Error::invalid("an empty dimension has no extremum").arg(0));
    }
    Ok(out)
}

/// Finds the extrema over `dims`. Writes their positions, and their values if `values` is given.
fn search<C: Bounded, F: Order<C>>(
    input: &Tensor<'_>,
    dims: DimSet,
    keepdim: bool,
    values: Option<TensorMut<'_>>,
    mut positions: TensorMut<'_>,
) -> Result<()> {
    let from = Reader::<C>::new(*input).map_err(|e| e.arg(0))?;
    let rank = input.rank();
    let position_strides = dims.reduced_strides(rank, positions.strides(), keepdim)?;
    let value_strides = match &values {
        Some(values) => dims.reduced_strides(rank, values.strides(), keepdim)?,
        None => Dims::filled(rank, 0)?,
    };
    let nest = Nest::new(input.sizes(), [input.strides(), &position_strides, &value_strides], dims)?;
    let mut values = values.map(Writer::<C>::new).transpose()?;
    let positions = positions.as_mut_slice::<i64>()?;
    nest.groups(|group| {
        let mut best = [F::START[0]; COLUMNS];
        let mut at = [0i64; COLUMNS];
        if group.is_run() {
            search_run::<C, F>(group, &from, &mut best[0], &mut at[0])?;
        } else {
            search_columns::<C, F>(group, &from, &mut best, &mut at)?;
        }
        let to = positions[group.offsets[1]..].iter_mut().step_by(group.strides()[1].max(1));
        for (to, &at) in to.zip(&at[..group.columns]) {
            *to = at;
        }
        if let Some(values) = &mut values {
            values.scatter(group.offsets[2], group.strides()[2], &best[..group.columns])?;
        }
        Ok(())
    })
}

fn search_run<C: Bounded, F: Order<C>>(
    group: &mut Group<'_, 3>,
    from: &Reader<'_, C>,
    best: &mut C,
    at: &mut i64,
) -> Result<()> {
    let mut buffer = [C::ZERO; RUN_TILE];
    group.rows(|row| {
        for start in (0..row.len).step_by(RUN_TILE) {
            let tile = from.tile(row.offsets[0] + start, RUN_TILE.min(row.len - start), &mut buffer);
            search_tile::<C, F>(tile, start, best, at);
        }
        Ok(())
    })
}

/// Updates `best` and its position `at` with the elements of `tile`, whose first has the position `start`.
#[inline]
fn search_tile<C: Bounded, F: Order<C>>(tile: &[C], start: usize, best: &mut C, at: &mut i64) {
    let [extremum] = fold_block::<C, F, 1>(tile, C::ZERO);
    if F::beats(extremum, *best) {
        (*best, *at) = (extremum, (start + find(tile, extremum)) as i64);
    }
}

/// The position of the first element that is `extremum` or NaN.
fn find<C: Bounded>(tile: &[C], extremum: C) -> usize {
    const CHUNK: usize = 16;
    let matches = |x: &C| (*x == extremum) | x.is_nan();
    // Vector code skips the chunks before it.
    let has_match = |chunk: &[C; CHUNK]| chunk.iter().fold(0u32, |any, x| any | u32::from(matches(x))) != 0;
    let start = tile.as_chunks().0.iter().position(has_match).unwrap_or(tile.len() / CHUNK) * CHUNK;
    start + tile[start..].iter().position(matches).unwrap_or(0)
}

fn search_columns<C: Bounded, F: Order<C>>(
    group: &mut Group<'_, 3>,
    from: &Reader<'_, C>,
    best: &mut [C; COLUMNS],
    positions: &mut [i64; COLUMNS],
) -> Result<()> {
    let mut buffer = [C::ZERO; TILE];
    // Positions of 32 bits have the width of f32 and i32, so that the loops are vectorized.
    let (mut at, mut position) = ([0u32; COLUMNS], 0u32);
    group.rows(|row| {
        let tile = from.tile(row.offsets[0], row.len, &mut buffer);
        match <&[C; COLUMNS]>::try_from(tile) {
            Ok(tile) => update_columns::<C, F>(tile, position, best, &mut at),
            Err(_) => update_columns::<C, F>(tile, position, best, &mut at),
        }
        position = position.checked_add(1).ok_or_else(|| Error::invalid("the dimension is too long").arg(1))?;
        Ok(())
    })?;
    *positions = at.map(i64::from);
    Ok(())
}

/// Updates the extremum and its position in each column. Two loops with one selection each, because LLVM vectorizes these.
#[inline(always)]
fn update_columns<C: Bounded, F: Order<C>>(row: &[C], position: u32, best: &mut [C; COLUMNS], at: &mut [u32; COLUMNS]) {
    for ((&x, &mut best), at) in row.iter().zip(&mut *best).zip(at) {
        *at = if F::beats(x, best) { position } else { *at };
    }
    for (&x, best) in row.iter().zip(best) {
        *best = if F::beats(x, *best) { x } else { *best };
    }
}

/// Searches all elements of a tensor in logical order, which is not its memory order.
fn in_logical_order<C: Bounded, F: Order<C>>(input: &Tensor<'_>, mut position: TensorMut<'_>) -> Result<()> {
    let from = Reader::<C>::new(*input).map_err(|e| e.arg(0))?;
    let (Some((&len, sizes)), Some((&stride, strides))) = (input.sizes().split_last(), input.strides().split_last())
    else {
        return Ok(());
    };
    let mut walk = Walk::new(sizes, [strides])?;
    let (mut best, mut at, mut passed) = (F::START[0], 0i64, 0);
    let mut buffer = [C::ZERO; TILE];
    loop {
        for start in (0..len).step_by(TILE) {
            let tile = &mut buffer[..TILE.min(len - start)];
            from.gather(walk.offsets[0] + start * stride, stride, tile);
            search_tile::<C, F>(tile, passed + start, &mut best, &mut at);
        }
        passed += len;
        if !walk.next() {
            break;
        }
    }
    position.as_mut_slice::<i64>()?.fill(at);
    Ok(())
}

/// Selects the extremum of two values.
trait Order<C: Copy>: Fold<C, 1> {
    /// True if `x` replaces the extremum `best` of the elements before it: also if it is NaN and `best` is not.
    fn beats(x: C, best: C) -> bool;
}

impl<C: Bounded> Order<C> for Max {
    #[inline(always)]
    fn beats(x: C, best: C) -> bool {
        ((x > best) | x.is_nan()) & !best.is_nan()
    }
}

impl<C: Bounded> Order<C> for Min {
    #[inline(always)]
    fn beats(x: C, best: C) -> bool {
        ((x < best) | x.is_nan()) & !best.is_nan()
    }
}
