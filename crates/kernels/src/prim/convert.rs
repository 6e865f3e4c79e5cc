//! Conversions between Python numbers.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Scalar};

/// `executorch_prim::sym_float.Scalar(Scalar a) -> Scalar`
pub const SYM_FLOAT_SCALAR: Op = Op::new("executorch_prim::sym_float.Scalar", 2, sym_float);

/// `executorch_prim::sym_int.Scalar(Scalar a) -> Scalar`: towards zero.
pub const SYM_INT_SCALAR: Op = Op::new("executorch_prim::sym_int.Scalar", 2, trunc);

/// `executorch_prim::ceil.Scalar(Scalar a) -> Scalar`: the next int upwards.
pub const CEIL_SCALAR: Op = Op::new("executorch_prim::ceil.Scalar", 2, ceil);

/// `executorch_prim::round.Scalar(Scalar a) -> Scalar`: the nearest int, halves to the even one.
pub const ROUND_SCALAR: Op = Op::new("executorch_prim::round.Scalar", 2, round);

/// `executorch_prim::trunc.Scalar(Scalar a) -> Scalar`: towards zero.
pub const TRUNC_SCALAR: Op = Op::new("executorch_prim::trunc.Scalar", 2, trunc);

pub const OPS: &[Op] = &[SYM_FLOAT_SCALAR, SYM_INT_SCALAR, CEIL_SCALAR, ROUND_SCALAR, TRUNC_SCALAR];

fn sym_float(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(1, Scalar::Double(cx.double(0)?))
}

fn ceil(cx: &KernelContext<'_>) -> Result<()> {
    to_int(cx, libm::ceil)
}

fn round(cx: &KernelContext<'_>) -> Result<()> {
    to_int(cx, libm::rint)
}

fn trunc(cx: &KernelContext<'_>) -> Result<()> {
    to_int(cx, libm::trunc)
}

/// Rounds a double; ints and bools are ints already. NaN, infinities and values beyond 64 bits have no int, as in
/// Python.
fn to_int(cx: &KernelContext<'_>, round: fn(f64) -> f64) -> Result<()> {
    let result = match cx.scalar(0)? {
        Scalar::Double(a) => {
            let rounded = round(a);
            if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
                let expected = "a finite number that fits into 64 bits";
                return Err(
                    Error::from(Detail::Number { what: "number to convert to an int", expected, got: a }).arg(0)
                );
            }
            rounded as i64
        }
        a => a.to_i64(),
    };
    cx.set(1, Scalar::Int(result))
}
