//! The most frequent element.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType};

use super::key::Keys;
use crate::support::shape::{Dims, Walk, normalize_dim};

/// `mode.values(Tensor self, int dim=-1, bool keepdim=False, *, Tensor(a!) values, Tensor(b!) indices)`
///
/// Among equally frequent elements, the minimum; the index is that of its last occurrence.
pub const MODE_VALUES: Op = Op::new("aten::mode.values", 5, mode).outs(2).temp(|cx| {
    let input = cx.tensor(0)?;
    let dim = normalize_dim(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    Ok(input.sizes().get(dim).copied().unwrap_or(1).saturating_mul(16).saturating_add(64))
});

pub const OPS: OpGroup = &[MODE_VALUES];

fn mode(cx: &KernelContext<'_>) -> Result<()> {
    let (input, keepdim) = (cx.tensor(0)?, cx.bool(2)?);
    let dim = normalize_dim(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let keys = Keys::new(&input).map_err(|e| e.arg(0))?;
    let (mut values, mut indices) = (cx.out(3)?, cx.out(4)?);
    for (argument, expected, got) in [(3, input.dtype(), values.dtype()), (4, ScalarType::Long, indices.dtype())] {
        if got != expected {
            return Err(Error::from(Detail::ElementType { expected, got }).arg(argument));
        }
    }
    let (mut sizes, mut outer, mut steps) = (Dims::EMPTY, Dims::EMPTY, Dims::EMPTY);
    for (at, (&size, &stride)) in input.sizes().iter().zip(input.strides()).enumerate() {
        if at != dim {
            outer.push(size)?;
            steps.push(stride)?;
        }
        if at != dim || keepdim {
            sizes.push(if at == dim { 1 } else { size })?;
        }
    }
    values.resize(&sizes).map_err(|e| e.arg(3))?;
    indices.resize(&sizes).map_err(|e| e.arg(4))?;
    if values.numel() == 0 {
        return Ok(());
    }
    let (len, step) = (input.sizes().get(dim).copied().unwrap_or(1), input.strides().get(dim).copied().unwrap_or(0));
    if len == 0 {
        return Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0));
    }
    let lead = |strides: &[usize]| -> Result<Dims> {
        let mut own = Dims::EMPTY;
        let kept = strides.iter().enumerate().filter(|(at, _)| !keepdim || *at != dim);
        kept.take(outer.len()).try_for_each(|(_, &stride)| own.push(stride))?;
        Ok(own)
    };
    let strides = [lead(values.strides())?, lead(indices.strides())?];
    let line = cx.temp::<u64>(2 * len)?.as_chunks_mut::<2>().0;
    let width = input.dtype().size();
    let mut walk = Walk::new(&outer, [&steps, &strides[0], &strides[1]])?;
    loop {
        let [from, to, to_index] = walk.offsets;
        for (at, slot) in line.iter_mut().enumerate() {
            *slot = [keys.at(from + at * step), at as u64];
        }
        line.sort_unstable();
        let (mut best, mut longest, mut run) = (0, 0, 0);
        for at in 0..line.len() {
            run = if at > 0 && line[at][0] == line[at - 1][0] && !Keys::is_nan(line[at][0]) { run + 1 } else { 1 };
            if run > longest {
                (best, longest) = (at, run);
            }
        }
        let place = line[best][1] as usize;
        let source = (from + place * step) * width;
        values.bytes_mut()[to * width..][..width].copy_from_slice(&input.bytes()[source..][..width]);
        indices.as_mut_slice::<i64>()?[to_index] = place as i64;
        if !walk.next() {
            return Ok(());
        }
    }
}
