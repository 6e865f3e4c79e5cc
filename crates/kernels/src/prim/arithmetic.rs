//! Arithmetic on Python numbers: two ints give an int, any double gives a double, bools count as ints.
//!
//! Integers wrap at 64 bits. Division and modulo round as Python does, towards minus infinity; the old `.int`
//! overloads round towards zero, as ExecuTorch does.

use rushlight_runtime::{Detail, KernelContext, Op, Result, Scalar};

/// `executorch_prim::add.Scalar(Scalar a, Scalar b) -> Scalar`
pub const ADD_SCALAR: Op = Op::new("executorch_prim::add.Scalar", 3, add);

/// `executorch_prim::sub.Scalar(Scalar a, Scalar b) -> Scalar`
pub const SUB_SCALAR: Op = Op::new("executorch_prim::sub.Scalar", 3, sub);

/// `executorch_prim::mul.Scalar(Scalar a, Scalar b) -> Scalar`
pub const MUL_SCALAR: Op = Op::new("executorch_prim::mul.Scalar", 3, mul);

/// `executorch_prim::floordiv.Scalar(Scalar a, Scalar b) -> Scalar`: fails for an int divided by zero; a double
/// divided by zero is an infinity with the sign of `a`.
pub const FLOORDIV_SCALAR: Op = Op::new("executorch_prim::floordiv.Scalar", 3, floordiv);

/// `executorch_prim::floordiv.int(int a, int b) -> int`: towards zero.
pub const FLOORDIV_INT: Op = Op::new("executorch_prim::floordiv.int", 3, floordiv_int);

/// `executorch_prim::truediv.Scalar(Scalar a, Scalar b) -> Scalar`: always a double, IEEE 754 for zero divisors.
pub const TRUEDIV_SCALAR: Op = Op::new("executorch_prim::truediv.Scalar", 3, truediv);

/// `executorch_prim::mod.Scalar(Scalar a, Scalar b) -> Scalar`: has the sign of `b`.
pub const MOD_SCALAR: Op = Op::new("executorch_prim::mod.Scalar", 3, modulo);

/// `executorch_prim::mod.int(int a, int b) -> int`: has the sign of `a`.
pub const MOD_INT: Op = Op::new("executorch_prim::mod.int", 3, modulo_int);

/// `executorch_prim::neg.Scalar(Scalar a) -> Scalar`
pub const NEG_SCALAR: Op = Op::new("executorch_prim::neg.Scalar", 2, neg);

/// `executorch_prim::sym_max.Scalar(SymInt a, SymInt b) -> SymInt`
pub const SYM_MAX_SCALAR: Op = Op::new("executorch_prim::sym_max.Scalar", 3, sym_max);

/// `executorch_prim::sym_min.Scalar(SymInt a, SymInt b) -> SymInt`
pub const SYM_MIN_SCALAR: Op = Op::new("executorch_prim::sym_min.Scalar", 3, sym_min);

/// The name of `add.Scalar` in programs of ExecuTorch 0.2.
pub const ADD_INT: Op = Op::new("executorch_prim::add.int", 3, add);

/// The name of `sub.Scalar` in programs of ExecuTorch 0.2.
pub const SUB_INT: Op = Op::new("executorch_prim::sub.int", 3, sub);

/// The name of `mul.Scalar` in programs of ExecuTorch 0.2.
pub const MUL_INT: Op = Op::new("executorch_prim::mul.int", 3, mul);

pub const OPS: &[Op] = &[
    ADD_SCALAR,
    ADD_INT,
    SUB_SCALAR,
    SUB_INT,
    MUL_SCALAR,
    MUL_INT,
    FLOORDIV_SCALAR,
    FLOORDIV_INT,
    TRUEDIV_SCALAR,
    MOD_SCALAR,
    MOD_INT,
    NEG_SCALAR,
    SYM_MAX_SCALAR,
    SYM_MIN_SCALAR,
];

fn add(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, |a, b| Ok(a.wrapping_add(b)), |a, b| a + b)
}

fn sub(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, |a, b| Ok(a.wrapping_sub(b)), |a, b| a - b)
}

fn mul(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, |a, b| Ok(a.wrapping_mul(b)), |a, b| a * b)
}

fn floordiv(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, floor_divide_ints, floor_divide_doubles)
}

fn floordiv_int(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(2, Scalar::Int(cx.int(0)?.wrapping_div(nonzero(cx.int(1)?)?)))
}

fn truediv(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(2, Scalar::Double(cx.double(0)? / cx.double(1)?))
}

fn modulo(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, modulo_ints, modulo_doubles)
}

fn modulo_int(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(2, Scalar::Int(cx.int(0)?.wrapping_rem(nonzero(cx.int(1)?)?)))
}

fn neg(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(
        1,
        match cx.scalar(0)? {
            Scalar::Double(a) => Scalar::Double(-a),
            a => Scalar::Int(a.to_i64().wrapping_neg()),
        },
    )
}

fn sym_max(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, |a, b| Ok(a.max(b)), |a, b| if b > a { b } else { a })
}

fn sym_min(cx: &KernelContext<'_>) -> Result<()> {
    binary(cx, |a, b| Ok(a.min(b)), |a, b| if b < a { b } else { a })
}

fn binary(
    cx: &KernelContext<'_>,
    ints: impl Fn(i64, i64) -> Result<i64>,
    doubles: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let (a, b) = (cx.scalar(0)?, cx.scalar(1)?);
    let result = if a.is_floating() || b.is_floating() {
        Scalar::Double(doubles(a.to_f64(), b.to_f64()))
    } else {
        Scalar::Int(ints(a.to_i64(), b.to_i64())?)
    };
    cx.set(2, result)
}

fn nonzero(divisor: i64) -> Result<i64> {
    if divisor == 0 {
        let detail = Detail::Value { what: "divisor", expected: "a value other than zero", got: 0 };
        return Err(rushlight_runtime::Error::from(detail).arg(1));
    }
    Ok(divisor)
}

fn floor_divide_ints(a: i64, b: i64) -> Result<i64> {
    let quotient = a.wrapping_div(nonzero(b)?);
    let inexact = a.wrapping_rem(b) != 0;
    Ok(if inexact && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn modulo_ints(a: i64, b: i64) -> Result<i64> {
    let remainder = a.wrapping_rem(nonzero(b)?);
    Ok(if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder })
}

/// Python's `//`: `(a - a % b) / b`, so that `a == (a // b) * b + a % b` holds as well as rounding lets it.
fn floor_divide_doubles(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return f64::INFINITY.copysign(a);
    }
    let remainder = libm::fmod(a, b);
    let quotient = (a - remainder) / b;
    if remainder != 0.0 && remainder.is_sign_negative() != b.is_sign_negative() { quotient - 1.0 } else { quotient }
}

fn modulo_doubles(a: f64, b: f64) -> f64 {
    let remainder = libm::fmod(a, b);
    if remainder != 0.0 && remainder.is_sign_negative() != b.is_sign_negative() { remainder + b } else { remainder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down() {
        for (a, b, quotient, remainder) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0), (0, -5, 0, 0)]
        {
            assert_eq!((floor_divide_ints(a, b).ok(), modulo_ints(a, b).ok()), (Some(quotient), Some(remainder)));
            let (x, y) = (a as f64, b as f64);
            assert_eq!((floor_divide_doubles(x, y), modulo_doubles(x, y)), (quotient as f64, remainder as f64));
        }
    }

    #[test]
    fn division_by_zero_and_overflow() {
        assert!(floor_divide_ints(1, 0).is_err());
        assert!(modulo_ints(1, 0).is_err());
        assert_eq!(floor_divide_ints(i64::MIN, -1), Ok(i64::MIN));
        assert_eq!(modulo_ints(i64::MIN, -1), Ok(0));
        assert_eq!(floor_divide_doubles(-1.0, 0.0), f64::NEG_INFINITY);
        assert_eq!(floor_divide_doubles(1.0, 0.0), f64::INFINITY);
    }
}
