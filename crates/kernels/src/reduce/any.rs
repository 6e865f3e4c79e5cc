//! True if any element differs from zero. NaN does.

use rushlight_runtime::{Bool8, Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, Writer};
use crate::support::reduce::{COLUMNS, DimSet, Nest, RUN_TILE, resize_reduced};

/// `any.all_out(Tensor self, *, Tensor(a!) out)`
pub const ANY_ALL_OUT: Op = Op::new("aten::any.all_out", 2, any_all_out);

/// `any.dims_out(Tensor self, int[]? dim=None, bool keepdim=False, *, Tensor(a!) out)`
///
/// An empty list of dimensions reduces none; no list reduces all.
pub const ANY_DIMS_OUT: Op = Op::new("aten::any.dims_out", 4, any_dims_out);

/// `any.out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out)`
pub const ANY_OUT: Op = Op::new("aten::any.out", 4, any_out);

pub const OPS: &[Op] = &[ANY_ALL_OUT, ANY_DIMS_OUT, ANY_OUT];

fn any_all_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    any(&input, DimSet::all(input.rank()), false, cx.out(1)?, 1)
}

fn any_dims_out(cx: &KernelContext<'_>) -> Result<()> {
    let (input, list) = (cx.tensor(0)?, cx.optional_ints(1)?);
    let dims = match list {
        Some(list) if list.is_empty() => DimSet::NONE,
        _ => DimSet::from_list(list, input.rank()).map_err(|e| e.arg(1))?,
    };
    any(&input, dims, cx.bool(2)?, cx.out(3)?, 3)
}

fn any_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let dims = DimSet::one(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    any(&input, dims, cx.bool(2)?, cx.out(3)?, 3)
}

/// `index` is the position of `out`.
fn any(input: &Tensor<'_>, dims: DimSet, keepdim: bool, mut out: TensorMut<'_>, index: usize) -> Result<()> {
    if !matches!(out.dtype(), ScalarType::Bool | ScalarType::Byte) {
        return Err(Error::from(Detail::Dtype { expected: "bool or u8", got: out.dtype() }).arg(index));
    }
    resize_reduced(&mut out, input, dims, keepdim, index)?;
    let from = Reader::<Bool8>::new(*input).map_err(|e| e.arg(0))?;
    if dims == DimSet::all(input.rank())
        && let (Some(elements), Ok([found])) = (from.in_place(), out.as_mut_slice::<Bool8>())
    {
        let (tiles, rest) = elements.as_chunks::<{ 4 * RUN_TILE }>();
        *found = (tiles.iter().any(|tile| is_any_set(tile)) || is_any_set(rest)).into();
        return Ok(());
    }
    let strides = dims.reduced_strides(input.rank(), out.strides(), keepdim)?;
    let nest = Nest::new(input.sizes(), [input.strides(), &strides], dims)?;
    let mut to = Writer::<Bool8>::new(out)?;
    nest.groups(|group| {
        let mut found = [Bool8(0); COLUMNS];
        let mut buffer = [Bool8(0); RUN_TILE];
        let is_run = group.is_run();
        group.rows(|row| {
            if !is_run {
                for (found, &x) in found.iter_mut().zip(from.tile(row.offsets[0], row.len, &mut buffer)) {
                    found.0 |= x.0;
                }
                return Ok(());
            }
            for start in (0..row.len).step_by(RUN_TILE) {
                if found[0].get() {
                    break;
                }
                let tile = from.tile(row.offsets[0] + start, RUN_TILE.min(row.len - start), &mut buffer);
                found[0] = is_any_set(tile).into();
            }
            Ok(())
        })?;
        for found in &mut found[..group.columns] {
            *found = found.get().into();
        }
        to.scatter(group.offsets[1], group.strides()[1], &found[..group.columns])
    })
}

/// Inlined where the length is known, which makes vector code of it.
#[inline(always)]
fn is_any_set(tile: &[Bool8]) -> bool {
    tile.iter().fold(0, |found, x| found | x.0) != 0
}
