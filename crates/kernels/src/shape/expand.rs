//! Elements repeated along dimensions.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::index::Indices;
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out) -> Tensor(a!)`
pub const EXPAND_COPY_OUT: Op = Op::new("aten::expand_copy.out", 4, expand_copy);

/// `aten::repeat.out(Tensor self, SymInt[] repeats, *, Tensor(a!) out) -> Tensor(a!)`
pub const REPEAT_OUT: Op = Op::new("aten::repeat.out", 3, repeat);

/// `aten::repeat_interleave.Tensor_out(Tensor repeats, *, SymInt? output_size=None, Tensor(a!) out) -> Tensor(a!)`
pub const REPEAT_INTERLEAVE_TENSOR_OUT: Op = Op::new("aten::repeat_interleave.Tensor_out", 3, repeat_interleave);

/// Repetition.
pub const OPS: OpGroup = &[EXPAND_COPY_OUT, REPEAT_OUT, REPEAT_INTERLEAVE_TENSOR_OUT];

fn expand_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, target, mut out) = (cx.tensor(0)?, cx.ints(1)?, cx.out(3)?);
    same_dtype(input.dtype(), &out, 3)?;
    let Some(leading) = target.len().checked_sub(input.rank()) else {
        return Err(Error::from(Detail::Rank { expected: "one up to the number of sizes", got: input.rank() }).arg(0));
    };
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (i, size) in target.iter().enumerate() {
        let bad = |expected| Error::from(Detail::Value { what: "expanded size", expected, got: size }).arg(1);
        let old = i.checked_sub(leading).map(|dim| (input.size(dim), input.strides()[dim]));
        let (size, stride) = match (old, usize::try_from(size)) {
            (Some(same), Err(_)) if size == -1 => same,
            (Some((old, stride)), Ok(size)) if size == old => (size, stride),
            (Some((1, _)) | None, Ok(size)) => (size, 0),
            (Some(_), _) => return Err(bad("the size of the dimension, or -1")),
            (None, Err(_)) => return Err(bad("a size")),
        };
        sizes.push(size)?;
        strides.push(stride)?;
    }
    out.resize(&sizes).map_err(|e| e.arg(3))?;
    StridedCopy::of(&sizes, out.strides(), &strides).run(&mut out, input)
}

fn repeat(cx: &KernelContext<'_>) -> Result<()> {
    let (input, repeats, mut out) = (cx.tensor(0)?, cx.ints(1)?, cx.out(2)?);
    same_dtype(input.dtype(), &out, 2)?;
    let Some(leading) = repeats.len().checked_sub(input.rank()) else {
        let expected = "at least one number for each dimension";
        return Err(Error::from(Detail::Value { what: "repeats", expected, got: repeats.len() as i64 }).arg(1));
    };
    let dims = |i: usize| i.checked_sub(leading).map_or((1, 0), |dim| (input.size(dim), input.strides()[dim]));
    let (mut sizes, mut counts) = (Dims::EMPTY, Dims::EMPTY);
    for (i, count) in repeats.iter().enumerate() {
        let checked = usize::try_from(count).ok().and_then(|n| Some((n, n.checked_mul(dims(i).0)?)));
        let (count, size) = checked.ok_or_else(|| {
            let expected = "not negative, and not too many";
            Error::from(Detail::Value { what: "repeats", expected, got: count }).arg(1)
        })?;
        counts.push(count)?;
        sizes.push(size)?;
    }
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    let mut copy = StridedCopy::new();
    for (i, (&count, &stride)) in counts.iter().zip(out.strides()).enumerate() {
        let (size, from) = dims(i);
        copy.dim(count, stride.wrapping_mul(size), 0)?;
        copy.dim(size, stride, from)?;
    }
    copy.run(&mut out, input)
}

fn repeat_interleave(cx: &KernelContext<'_>) -> Result<()> {
    let (repeats, output_size, mut out) = (cx.tensor(0)?, cx.optional_int(1)?, cx.out(2)?);
    let counts = Indices::of(&repeats).map_err(|e| e.arg(0))?;
    same_dtype(repeats.dtype(), &out, 2)?;
    if repeats.rank() != 1 {
        return Err(Error::from(Detail::Rank { expected: "1", got: repeats.rank() }).arg(0));
    }
    let total = match counts {
        Indices::Long(counts) => total(counts),
        Indices::Int(counts) => total(counts),
    };
    let total = total.map_err(|e| e.arg(0))?;
    if let Some(got) = output_size.filter(|&size| usize::try_from(size) != Ok(total)) {
        let expected = "the sum of the repeats";
        return Err(Error::from(Detail::Value { what: "output size", expected, got }).arg(1));
    }
    out.resize(&[total]).map_err(|e| e.arg(2))?;
    match counts {
        Indices::Long(counts) => interleave(counts, out.as_mut_slice()?),
        Indices::Int(counts) => interleave(counts, out.as_mut_slice()?),
    }
    Ok(())
}

/// The sum of the counts.
fn total<T: Number>(counts: &[T]) -> Result<usize> {
    // No count is larger than all their bits together.
    let bits = counts.iter().fold(0, |bits, count| bits | count.to_i64());
    if usize::try_from(bits).is_ok_and(|bits| bits.checked_mul(counts.len()).is_some()) {
        return Ok(counts.iter().map(|count| count.to_i64() as usize).sum());
    }
    let mut total = 0usize;
    for count in counts {
        let count = count.to_i64();
        let grown = usize::try_from(count).ok().and_then(|n| total.checked_add(n));
        let expected = "numbers that are not negative, and not too many";
        total = grown.ok_or(Detail::Value { what: "repeats", expected, got: count })?;
    }
    Ok(total)
}

/// Writes each position of `counts` as often as the count there says.
fn interleave<T: Number>(counts: &[T], mut out: &mut [T]) {
    for (i, count) in counts.iter().enumerate() {
        let (value, count) = (T::from_i64(i as i64), count.to_i64() as usize);
        // Four at once, if that is enough: what that writes too much, the next runs overwrite.
        if count <= 4
            && let Some(run) = out.first_chunk_mut::<4>()
        {
            *run = [value; 4];
        } else {
            out[..count].fill(value);
        }
        out = &mut out[count..];
    }
}
