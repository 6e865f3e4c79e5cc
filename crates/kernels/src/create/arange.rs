//! Evenly spaced numbers.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Scalar, TensorMut};

use crate::support::number::Number;

/// `aten::arange.out(Scalar end, *, Tensor(a!) out) -> Tensor(a!)`
pub const ARANGE_OUT: Op = Op::new("aten::arange.out", 2, arange);

/// `aten::arange.start_out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out) -> Tensor(a!)`
pub const ARANGE_START_OUT: Op = Op::new("aten::arange.start_out", 4, arange_start);

/// Ranges.
pub const OPS: OpGroup = &[ARANGE_OUT, ARANGE_START_OUT];

fn arange(cx: &KernelContext<'_>) -> Result<()> {
    range(&mut cx.out(1)?, Scalar::Int(0), cx.scalar(0)?, Scalar::Int(1), 1)
}

fn arange_start(cx: &KernelContext<'_>) -> Result<()> {
    range(&mut cx.out(3)?, cx.scalar(0)?, cx.scalar(1)?, cx.scalar(2)?, 3)
}

/// Writes `start + i * step` for every `i` that keeps it before `end`, computed in `f64` for floating outputs and
/// with start and step cut to integers for integer ones.
fn range(out: &mut TensorMut<'_>, start: Scalar, end: Scalar, step: Scalar, argument: usize) -> Result<()> {
    let count = count(start, end, step)?;
    out.resize(&[count]).map_err(|e| e.arg(argument))?;
    dispatch!(REALHBBF16, out.dtype(), T => {
        let out = out.as_mut_slice::<T>()?;
        if T::IS_FLOAT {
            let (start, step) = (start.to_f64(), step.to_f64());
            // 32-bit positions convert to doubles in vector code.
            let (out, rest) = out.split_at_mut(out.len().min(i32::MAX as usize));
            out.iter_mut().zip(0i32..).for_each(|(x, i)| *x = T::from_f64(start + step * f64::from(i)));
            let at = |i: usize| T::from_f64(start + step * (out.len() + i) as f64);
            rest.iter_mut().enumerate().for_each(|(i, x)| *x = at(i));
        } else {
            let (start, step) = (start.to_i64(), step.to_i64());
            let at = |i| start.wrapping_add(step.wrapping_mul(i as i64));
            out.iter_mut().enumerate().for_each(|(i, x)| *x = T::from_i64(at(i)));
        }
        Ok(())
    })
    .map_err(|e: Error| e.arg(argument))
}

/// `ceil((end - start) / step)`, exactly where all three are integers.
fn count(start: Scalar, end: Scalar, step: Scalar) -> Result<usize> {
    let bad = || Error::invalid("start, end and step of a range must be finite, and step must lead from start to end");
    if let (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) = (start, end, step) {
        let (span, step) = (i128::from(end) - i128::from(start), i128::from(step));
        if step == 0 {
            return Err(Error::from(Detail::Value { what: "step", expected: "not 0", got: 0 }));
        }
        let whole = span / step + i128::from(span % step != 0 && (span < 0) == (step < 0));
        return usize::try_from(whole).ok().filter(|_| span == 0 || (span < 0) == (step < 0)).ok_or_else(bad);
    }
    let count = libm::ceil((end.to_f64() - start.to_f64()) / step.to_f64());
    // The largest count that is exact; no memory holds more.
    if (0.0..=9_007_199_254_740_992.0).contains(&count) { Ok(count as usize) } else { Err(bad()) }
}
