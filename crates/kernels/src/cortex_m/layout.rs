//! Padding and transposes of int8 tensors with up to four dimensions.

use rushlight_engine_mcu::{pad as pad_dense, transpose as transpose_dense};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::params::{check_contiguous, check_order, int_in, int8, int8_mut, mismatch};
use crate::support::shape::{Dims, normalize_dim};

/// `cortex_m::transpose.out(Tensor input, int[] perm, *, Tensor(a!) out) -> Tensor(a!)`
pub const TRANSPOSE_OUT: Op = Op::new("cortex_m::transpose.out", 3, transpose);

/// `cortex_m::pad.out(Tensor input, int[] pre_pad, int[] post_pad, int pad_value, *, Tensor(a!) out) -> Tensor(a!)`
///
/// The lists have four entries, for the last four dimensions in the order of memory.
pub const PAD_OUT: Op = Op::new("cortex_m::pad.out", 5, pad);

pub const OPS: &[Op] = &[TRANSPOSE_OUT, PAD_OUT];

fn check_rank(rank: usize) -> Result<()> {
    match rank {
        1..=4 => Ok(()),
        got => Err(Error::from(Detail::Rank { expected: "1 to 4", got }).arg(0)),
    }
}

fn transpose(cx: &KernelContext<'_>) -> Result<()> {
    let (x, perm) = (cx.tensor(0)?, cx.ints(1)?);
    let rank = x.rank();
    check_rank(rank)?;
    check_contiguous(&x, 0)?;
    if perm.len() != rank {
        return Err(Error::from(Detail::Count { what: "dimensions", expected: rank, got: perm.len() }).arg(1));
    }
    let (mut sizes, mut order) = ([1; 4], [0, 1, 2, 3]);
    let mut permuted = Dims::EMPTY;
    sizes[..rank].copy_from_slice(x.sizes());
    for (to, dim) in order.iter_mut().zip(perm.iter()) {
        *to = normalize_dim(dim, rank).map_err(|e| e.arg(1))?;
        permuted.push(sizes[*to])?;
    }
    let mut out = cx.out(2)?;
    out.resize(&permuted).map_err(|e| e.arg(2))?;
    check_contiguous(&out.as_tensor(), 2)?;
    transpose_dense(sizes, order, int8(&x, 0)?, int8_mut(&mut out, 2)?).map_err(mismatch)
}

fn pad(cx: &KernelContext<'_>) -> Result<()> {
    let x = cx.tensor(0)?;
    let rank = x.rank();
    check_rank(rank)?;
    let value = int_in(cx, 3, (-128, 127), "pad_value", "an int8")? as i8;
    let first = 4 - rank;
    let (mut sizes, before, after) = ([1; 4], amounts(cx, 1, first)?, amounts(cx, 2, first)?);
    let mut padded = Dims::from_slice(x.sizes())?;
    for (position, &dim) in x.dim_order().iter().enumerate() {
        let (d, position) = (usize::from(dim), first + position);
        sizes[position] = x.size(d);
        padded[d] = before[position]
            .checked_add(sizes[position])
            .and_then(|n| n.checked_add(after[position]))
            .ok_or(Detail::UnsupportedSize { what: "padding" })?;
    }
    let mut out = cx.out(4)?;
    out.resize(&padded).map_err(|e| e.arg(4))?;
    check_order(&out.as_tensor(), x.dim_order(), 4)?;
    pad_dense(sizes, before, after, value, int8(&x, 0)?, int8_mut(&mut out, 4)?).map_err(mismatch)
}

/// Four amounts of padding, of which the first `unused` are zero.
fn amounts(cx: &KernelContext<'_>, index: usize, unused: usize) -> Result<[usize; 4]> {
    let list = cx.ints(index)?;
    if list.len() != 4 {
        return Err(Error::from(Detail::Count { what: "amounts", expected: 4, got: list.len() }).arg(index));
    }
    let mut result = [0; 4];
    for (i, (to, got)) in result.iter_mut().zip(list.iter()).enumerate() {
        match i32::try_from(got) {
            Ok(amount @ 0..) if i >= unused || amount == 0 => *to = amount as usize,
            _ => {
                let expected = "no negative amount, and zero for dimensions that the input lacks";
                return Err(Error::from(Detail::Value { what: "padding", expected, got }).arg(index));
            }
        }
    }
    Ok(result)
}
