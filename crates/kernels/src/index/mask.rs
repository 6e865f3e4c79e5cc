//! Elements chosen by their truth.

use rushlight_runtime::{Bool8, Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor};

use crate::support::copy::same_dtype;
use crate::support::shape::{Dims, Walk, broadcast, broadcast_strides};

/// `aten::nonzero.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`
pub const NONZERO_OUT: Op = Op::new("aten::nonzero.out", 2, nonzero);

/// `aten::masked_select.out(Tensor self, Tensor mask, *, Tensor(a!) out) -> Tensor(a!)`
pub const MASKED_SELECT_OUT: Op = Op::new("aten::masked_select.out", 3, masked_select);

/// `aten::masked_scatter.out(Tensor self, Tensor mask, Tensor source, *, Tensor(a!) out) -> Tensor(a!)`
pub const MASKED_SCATTER_OUT: Op = Op::new("aten::masked_scatter.out", 4, masked_scatter);

/// Masks. The size of the results depends on the data: it is counted before anything is written.
pub const OPS: OpGroup = &[NONZERO_OUT, MASKED_SELECT_OUT, MASKED_SCATTER_OUT];

fn nonzero(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(1)?);
    same_dtype(ScalarType::Long, &out, 1)?;
    let bits = value_bits(input.dtype()).map_err(|e| e.arg(0))?;
    let count = dispatch_size!(input.dtype(), N => {
        input.bytes().as_chunks::<N>().0.iter().filter(|&&element| is_nonzero(element, bits)).count()
    });
    out.resize(&[count, input.rank()]).map_err(|e| e.arg(1))?;
    if count == 0 || input.rank() == 0 {
        return Ok(());
    }
    let (row, column) = (out.strides()[0], out.strides()[1]);
    let out = out.as_mut_slice::<i64>()?;
    dispatch_size!(input.dtype(), N => {
        let data = input.bytes().as_chunks::<N>().0;
        let last = input.rank() - 1;
        let step = input.strides()[last];
        let mut rows = Walk::new(&input.sizes()[..last], [&input.strides()[..last]])?;
        let mut at = 0;
        loop {
            for start in (0..input.size(last)).step_by(TILE) {
                let tile = start..(start + TILE).min(input.size(last));
                let base = rows.offsets[0];
                if step == 1 && data[base + tile.start..base + tile.end].as_flattened().iter().fold(0, |a, b| a | b) == 0
                {
                    continue;
                }
                let (found, count) = positions(tile, |i| is_nonzero(data[base + i * step], bits));
                for &i in &found[..count] {
                    for (dim, &coordinate) in rows.index().iter().enumerate() {
                        out[at + dim * column] = coordinate as i64;
                    }
                    out[at + last * column] = i as i64;
                    at += row;
                }
            }
            if !rows.next() {
                return Ok(());
            }
        }
    })
}

/// The bits of an element that are zero for zeros only: all but the sign of floats.
fn value_bits(dtype: ScalarType) -> Result<u64> {
    Ok(match dtype {
        ScalarType::Half | ScalarType::BFloat16 => 0x7FFF,
        ScalarType::Float => 0x7FFF_FFFF,
        ScalarType::Double => u64::MAX >> 1,
        integer => dispatch!(REALHBBF16, integer, T => Ok::<_, Error>(u64::MAX))?,
    })
}

#[inline(always)]
fn is_nonzero<const N: usize>(element: [u8; N], bits: u64) -> bool {
    let word = match (element.first_chunk(), element.first_chunk(), element.first_chunk()) {
        (_, _, Some(&eight)) => u64::from_le_bytes(eight),
        (_, Some(&four), _) => u32::from_le_bytes(four).into(),
        (Some(&two), _, _) => u16::from_le_bytes(two).into(),
        _ => element.first().copied().unwrap_or(0).into(),
    };
    word & bits != 0
}

const TILE: usize = 64;

/// The positions of a range, at most [`TILE`] long, that are set, and how many. Has no branch to be mispredicted.
#[inline(always)]
fn positions(range: core::ops::Range<usize>, is_set: impl Fn(usize) -> bool) -> ([usize; TILE], usize) {
    let (mut found, mut count) = ([0; TILE], 0);
    for i in range {
        found[count % TILE] = i;
        count += usize::from(is_set(i));
    }
    (found, count)
}

fn masked_select(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mask, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(2)?);
    let flags = mask_bytes(&mask)?;
    same_dtype(input.dtype(), &out, 2)?;
    let pair = Pair::new(&input, &mask)?;
    let each = flags.iter().filter(|&&flag| flag != 0).count();
    out.resize(&[each * pair.copies(&mask)]).map_err(|e| e.arg(2))?;
    dispatch_size!(input.dtype(), N => {
        let src = input.bytes().as_chunks::<N>().0;
        let dst = out.bytes_mut().as_chunks_mut::<N>().0;
        let mut to = 0;
        pair.rows([&pair.input, &pair.mask], |[from, flag], [step, flag_step], len| {
            for i in 0..len {
                // Written in any case, and passed by if the mask says so: no branch to be mispredicted.
                if let Some(slot) = dst.get_mut(to) {
                    *slot = src[from + i * step];
                }
                to += usize::from(flags[flag + i * flag_step] != 0);
            }
        })
    })
}

fn masked_scatter(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mask, source, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?, cx.out(3)?);
    let flags = mask_bytes(&mask)?;
    same_dtype(input.dtype(), &out, 3)?;
    if source.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: source.dtype() }).arg(2));
    }
    let pair = Pair::new(&input, &mask)?;
    out.resize(&pair.sizes).map_err(|e| e.arg(3))?;
    let out_strides = Dims::from_slice(out.strides())?;
    let needed = flags.iter().filter(|&&flag| flag != 0).count() * pair.copies(&mask);
    if needed > source.numel() {
        let (what, got) = ("elements of the source", source.numel());
        return Err(Error::from(Detail::Count { what, expected: needed, got }).arg(2));
    }
    let strides = [&pair.input, &pair.mask, &out_strides];
    dispatch_size!(input.dtype(), N => {
        let (src, replacements) = (input.bytes().as_chunks::<N>().0, source.bytes().as_chunks::<N>().0);
        let dst = out.bytes_mut().as_chunks_mut::<N>().0;
        if !source.is_contiguous() {
            let mut order = Walk::new(source.sizes(), [source.strides()])?;
            return pair.rows(strides, |[from, flag, to], [step, flag_step, out_step], len| {
                for i in 0..len {
                    dst[to + i * out_step] = src[from + i * step];
                    if flags[flag + i * flag_step] != 0 {
                        dst[to + i * out_step] = replacements[order.offsets[0]];
                        order.next();
                    }
                }
            });
        }
        let mut next = 0;
        pair.rows(strides, |[from, flag, to], [step, flag_step, out_step], len| {
            for i in 0..len {
                // Both are read, so that choosing takes no branch.
                let (kept, is_set) = (src[from + i * step], flags[flag + i * flag_step] != 0);
                let replacement = replacements.get(next).copied().unwrap_or(kept);
                dst[to + i * out_step] = if is_set { replacement } else { kept };
                next += usize::from(is_set);
            }
        })
    })
}

fn mask_bytes<'a>(mask: &Tensor<'a>) -> Result<&'a [u8]> {
    mask.as_slice::<Bool8>().map_err(|e| e.arg(1))?;
    Ok(mask.bytes())
}

/// A tensor and a mask, broadcast to one shape.
struct Pair {
    sizes: Dims,
    numel: usize,
    input: Dims,
    mask: Dims,
}

impl Pair {
    fn new(input: &Tensor<'_>, mask: &Tensor<'_>) -> Result<Self> {
        let sizes = broadcast(input.sizes(), mask.sizes()).map_err(|e| e.arg(1))?;
        let numel = crate::support::shape::numel(&sizes)?;
        Ok(Self {
            numel,
            input: broadcast_strides(input.sizes(), input.strides(), &sizes)?,
            mask: broadcast_strides(mask.sizes(), mask.strides(), &sizes)?,
            sizes,
        })
    }

    /// Number of elements of the result for each element of the mask.
    fn copies(&self, mask: &Tensor<'_>) -> usize {
        if mask.numel() == 0 { 0 } else { self.numel / mask.numel() }
    }

    /// Calls `each` for every row of the shape in logical order, with its offsets and steps by all strides and its
    /// length.
    fn rows<const K: usize>(
        &self,
        strides: [&Dims; K],
        mut each: impl FnMut([usize; K], [usize; K], usize),
    ) -> Result<()> {
        if self.numel == 0 {
            return Ok(());
        }
        let Some((&inner, outer)) = self.sizes.split_last() else {
            each([0; K], [0; K], 1);
            return Ok(());
        };
        let steps = strides.map(|dims| dims.last().copied().unwrap_or(0));
        let mut rows = Walk::new(outer, strides.map(|dims| &dims[..outer.len()]))?;
        loop {
            each(rows.offsets, steps, inner);
            if !rows.next() {
                return Ok(());
            }
        }
    }
}
