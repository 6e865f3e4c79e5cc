//! Counts of small integers.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType};

use crate::support::number::Number;

/// `bincount.out(Tensor self, Tensor? weights=None, SymInt minlength=0, *, Tensor(a!) out)`: the count of each integer in a vector,
/// or the sum of its weights: in `f64`, or in `f32` for weights of `f32`.
pub const BINCOUNT_OUT: Op = Op::new("aten::bincount.out", 4, bincount);

pub const OPS: OpGroup = &[BINCOUNT_OUT];

fn bincount(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weights, min_length, mut out) = (cx.tensor(0)?, cx.optional_tensor(1)?, cx.int(2)?, cx.out(3)?);
    if input.rank() != 1 {
        return Err(Error::from(Detail::Rank { expected: "1", got: input.rank() }).arg(0));
    }
    let Ok(min_length) = usize::try_from(min_length) else {
        return Err(Error::from(Detail::Value { what: "minlength", expected: "not negative", got: min_length }).arg(2));
    };
    let at = |index: usize| -> Result<i64> {
        dispatch!(INT, input.dtype(), T => Ok(input.as_slice::<T>()?.get(index).map_or(0, |x| x.to_i64())))
    };
    let mut max_count = 0;
    for index in 0..input.numel() {
        let value = at(index).map_err(|e: Error| e.arg(0))?;
        let expected = "not negative, and less than the output has room for";
        let fault = || Error::from(Detail::Value { what: "an element", expected, got: value }).arg(0);
        let count = usize::try_from(value).ok().and_then(|value| value.checked_add(1)).ok_or_else(fault)?;
        max_count = max_count.max(count);
    }
    out.resize(&[max_count.max(min_length)]).map_err(|e| e.arg(3))?;
    let Some(weights) = weights else {
        let counts = out.as_mut_slice::<i64>().map_err(|e| e.arg(3))?;
        counts.fill(0);
        for index in 0..input.numel() {
            if let Some(count) = counts.get_mut(at(index)? as usize) {
                *count += 1;
            }
        }
        return Ok(());
    };
    if weights.sizes() != input.sizes() {
        return Err(Error::from(Detail::Size { dim: 0, expected: input.size(0), got: weights.size(0) }).arg(1));
    }
    let weight = |index: usize| -> Result<f64> {
        dispatch!(REALHBBF16, weights.dtype(), T => Ok(weights.as_slice::<T>()?.get(index).map_or(0.0, |x| x.to_f64())))
    };
    if out.dtype() == ScalarType::Float {
        let sums = out.as_mut_slice::<f32>()?;
        sums.fill(0.0);
        for index in 0..input.numel() {
            if let Some(sum) = sums.get_mut(at(index)? as usize) {
                *sum += weight(index)? as f32;
            }
        }
        return Ok(());
    }
    let sums = out.as_mut_slice::<f64>().map_err(|e| e.arg(3))?;
    sums.fill(0.0);
    for index in 0..input.numel() {
        if let Some(sum) = sums.get_mut(at(index)? as usize) {
            *sum += weight(index)?;
        }
    }
    Ok(())
}
