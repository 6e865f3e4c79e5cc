//! Elements chosen by their truth.

use rushlight_runtime::{Bool8, Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor};

use crate::support::copy::same_dtype;
use crate::support::number::Number;
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
    let count = dispatch!(REALHBBF16, input.dtype(), T => {
        Ok::<_, Error>(input.as_slice::<T>()?.iter().filter(|&&x| x != T::ZERO).count())
    })?;
    out.resize(&[count, input.rank()]).map_err(|e| e.arg(1))?;
    if count == 0 || input.rank() == 0 {
        return Ok(());
    }
    let (row, column) = (out.strides()[0], out.strides()[1]);
    let out = out.as_mut_slice::<i64>()?;
    dispatch!(REALHBBF16, input.dtype(), T => {
        let data = input.as_slice::<T>()?;
        let (outer, step) = (input.rank() - 1, input.strides()[input.rank() - 1]);
        let mut rows = Walk::new(&input.sizes()[..outer], [&input.strides()[..outer]])?;
        let mut at = 0;
        loop {
            for i in 0..input.size(outer) {
                if data[rows.offsets[0] + i * step] != T::ZERO {
                    for (dim, &coordinate) in rows.index().iter().enumerate() {
                        out[at + dim * column] = coordinate as i64;
                    }
                    out[at + outer * column] = i as i64;
                    at += row;
                }
            }
            if !rows.next() {
                return Ok(());
            }
        }
    })
}

fn masked_select(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mask, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(2)?);
    let flags = mask_bytes(&mask)?;
    same_dtype(input.dtype(), &out, 2)?;
    let pair = Pair::new(&input, &mask)?;
    let each = flags.iter().filter(|&&flag| flag != 0).count();
    // Every element of the mask stands for as many elements of the result.
    let copies = if mask.numel() == 0 { 0 } else { pair.numel / mask.numel() };
    out.resize(&[each * copies]).map_err(|e| e.arg(2))?;
    dispatch_size!(input.dtype(), N => {
        let src = input.bytes().as_chunks::<N>().0;
        let dst = out.bytes_mut().as_chunks_mut::<N>().0;
        let mut to = 0;
        pair.walk([&pair.input, &pair.mask], |[from, flag]| {
            if flags[flag] != 0 {
                dst[to] = src[from];
                to += 1;
            }
            Ok(())
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
    let mut order = Walk::new(source.sizes(), [source.strides()])?;
    let mut left = source.numel();
    dispatch_size!(input.dtype(), N => {
        let (src, replacements) = (input.bytes().as_chunks::<N>().0, source.bytes().as_chunks::<N>().0);
        let dst = out.bytes_mut().as_chunks_mut::<N>().0;
        pair.walk([&pair.input, &pair.mask, &out_strides], |[from, flag, to]| {
            if flags[flag] == 0 {
                dst[to] = src[from];
                return Ok(());
            }
            if left == 0 {
                return Err(Error::invalid("the source has fewer elements than the mask has true ones").arg(2));
            }
            dst[to] = replacements[order.offsets[0]];
            order.next();
            left -= 1;
            Ok(())
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

    /// Calls `each` with the offsets by all strides, in logical order.
    fn walk<const K: usize>(&self, strides: [&Dims; K], mut each: impl FnMut([usize; K]) -> Result<()>) -> Result<()> {
        if self.numel == 0 {
            return Ok(());
        }
        let Some((&inner, outer)) = self.sizes.split_last() else { return each([0; K]) };
        let steps = strides.map(|dims| dims.last().copied().unwrap_or(0));
        let mut rows = Walk::new(outer, strides.map(|dims| &dims[..outer.len()]))?;
        loop {
            let mut offsets = rows.offsets;
            for _ in 0..inner {
                each(offsets)?;
                for (offset, step) in offsets.iter_mut().zip(steps) {
                    *offset += step;
                }
            }
            if !rows.next() {
                return Ok(());
            }
        }
    }
}
