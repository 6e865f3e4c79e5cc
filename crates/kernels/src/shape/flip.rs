//! Dimensions walked backwards or rotated.

use rushlight_runtime::{Detail, Error, KernelContext, MAX_RANK, Op, OpGroup, Result};

use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::shape::{Dims, normalize_dim};

/// `aten::flip.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)`
pub const FLIP_OUT: Op = Op::new("aten::flip.out", 3, flip);

/// `aten::roll.out(Tensor self, SymInt[1] shifts, int[1] dims=[], *, Tensor(a!) out) -> Tensor(a!)`
pub const ROLL_OUT: Op = Op::new("aten::roll.out", 4, roll);

/// Flips and rotations.
pub const OPS: OpGroup = &[FLIP_OUT, ROLL_OUT];

fn flip(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(2)?);
    same_dtype(input.dtype(), &out, 2)?;
    let mut flipped = 0u32;
    for dim in cx.ints(1)?.iter() {
        let bit = 1 << normalize_dim(dim, input.rank()).map_err(|e| e.arg(1))?;
        if flipped & bit != 0 {
            return Err(Error::invalid("a dimension appears twice").arg(1));
        }
        flipped |= bit;
    }
    out.resize(input.sizes()).map_err(|e| e.arg(2))?;
    let mut copy = StridedCopy::new();
    for (dim, (&size, (&to, &from))) in input.sizes().iter().zip(out.strides().iter().zip(input.strides())).enumerate()
    {
        if flipped & 1 << dim != 0 {
            copy.signed_dim(size, to as isize, -(from as isize))?;
            copy.src_offset = copy.src_offset.wrapping_add(from.wrapping_mul(size.wrapping_sub(1)));
        } else {
            copy.dim(size, to, from)?;
        }
    }
    copy.run(&mut out, input)
}

fn roll(cx: &KernelContext<'_>) -> Result<()> {
    let (input, shifts, dims, mut out) = (cx.tensor(0)?, cx.ints(1)?, cx.ints(2)?, cx.out(3)?);
    same_dtype(input.dtype(), &out, 3)?;
    out.resize(input.sizes()).map_err(|e| e.arg(3))?;
    // Without dimensions, the elements are rolled as one row; so is a tensor of rank 0.
    let flat = dims.is_empty();
    let expected = if flat { 1 } else { dims.len() };
    if shifts.len() != expected {
        return Err(Error::from(Detail::Count { what: "shifts", expected, got: shifts.len() }).arg(1));
    }
    if input.numel() == 0 {
        return Ok(());
    }
    if flat {
        return roll_flat(cx, &mut out, shifts.get(0).unwrap_or(0));
    }
    let mut shift = [0usize; MAX_RANK];
    for (amount, dim) in shifts.iter().zip(dims.iter()) {
        let dim = normalize_dim(dim, input.rank()).map_err(|e| e.arg(2))?;
        let size = input.size(dim);
        shift[dim] = (shift[dim] + amount.rem_euclid(size as i64) as usize) % size;
    }
    // Each rolled dimension has two parts that stay together. There are at most as many combinations as elements,
    // because such a dimension has two positions or more.
    let mut second = [false; MAX_RANK];
    loop {
        let mut copy = StridedCopy::new();
        for (dim, (&size, (&to, &from))) in
            input.sizes().iter().zip(out.strides().iter().zip(input.strides())).enumerate()
        {
            if second[dim] {
                copy.dim(shift[dim], to, from)?;
                copy.src_offset += (size - shift[dim]) * from;
            } else {
                copy.dim(size - shift[dim], to, from)?;
                copy.dst_offset += shift[dim] * to;
            }
        }
        copy.run(&mut out, input)?;
        let Some(next) = (0..input.rank()).find(|&dim| shift[dim] != 0 && !second[dim]) else { return Ok(()) };
        second[..next].fill(false);
        second[next] = true;
    }
}

/// Rolls all elements by `amount` in logical order.
fn roll_flat(cx: &KernelContext<'_>, out: &mut rushlight_runtime::TensorMut<'_>, amount: i64) -> Result<()> {
    let input = cx.tensor(0)?;
    let width = input.dtype().size();
    let shift = amount.rem_euclid(input.numel() as i64) as usize;
    if input.is_contiguous() && out.is_contiguous() {
        let (head, tail) = out.bytes_mut().split_at_mut(shift * width);
        let (start, end) = input.bytes().split_at(tail.len());
        tail.copy_from_slice(start);
        head.copy_from_slice(end);
        return Ok(());
    }
    let strides = Dims::from_slice(out.strides())?;
    let at = |strides: &[usize], mut index: usize| {
        let mut offset = 0;
        for (&size, &stride) in input.sizes().iter().zip(strides).rev() {
            offset += index % size * stride;
            index /= size;
        }
        offset * width
    };
    for i in 0..input.numel() {
        let (from, to) = (at(input.strides(), i), at(&strides, (i + shift) % input.numel()));
        out.bytes_mut()[to..to + width].copy_from_slice(&input.bytes()[from..from + width]);
    }
    Ok(())
}
