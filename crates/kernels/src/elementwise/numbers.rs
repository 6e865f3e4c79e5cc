//! Functions of integers and of the representation of floats: `gcd`, `nextafter`, `frexp`.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::promote::ResultType;

/// `gcd.out(Tensor self, Tensor other, *, Tensor(a!) out)`: the greatest common divisor, which is not negative.
pub const GCD_OUT: Op = Op::new("aten::gcd.out", 3, gcd_out);
/// `nextafter.out(Tensor self, Tensor other, *, Tensor(a!) out)`: the next number towards another one.
pub const NEXTAFTER_OUT: Op = Op::new("aten::nextafter.out", 3, nextafter);
/// `frexp.Tensor_out(Tensor self, *, Tensor(a!) mantissa, Tensor(b!) exponent)`: a number as a fraction from 1/2 to 1 and a power of 2.
pub const FREXP_TENSOR_OUT: Op = Op::new("aten::frexp.Tensor_out", 3, frexp).outs(2);

pub const OPS: OpGroup = &[GCD_OUT, NEXTAFTER_OUT, FREXP_TENSOR_OUT];

fn gcd_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = ResultType::default().tensor(&a)?.tensor(&b)?.get()?;
    if !matches!(common, ScalarType::Byte | ScalarType::Char | ScalarType::Short | ScalarType::Int | ScalarType::Long) {
        return Err(Error::from(Detail::Dtype { expected: "an integer type", got: common }).arg(0));
    }
    let mut out = out_broadcast(cx, 2, &a, &b, common)?;
    binary::<i64, i64, i64>(&a, &b, &mut out, (common, common, common), &zip(gcd))
}

/// Euclid's algorithm.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

fn nextafter(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = ResultType::default().tensor(&a)?.tensor(&b)?.get()?;
    let mut out = out_broadcast(cx, 2, &a, &b, common)?;
    let types = (common, common, common);
    match common {
        ScalarType::Float => binary::<f32, f32, f32>(&a, &b, &mut out, types, &zip(libm::nextafterf)),
        ScalarType::Double => binary::<f64, f64, f64>(&a, &b, &mut out, types, &zip(libm::nextafter)),
        got => Err(Error::from(Detail::Dtype { expected: "f32 or f64", got }).arg(0)),
    }
}

fn frexp(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    if !dtype.is_floating() {
        return Err(Error::from(Detail::Dtype { expected: "a floating type", got: dtype }).arg(0));
    }
    let mut mantissa = out_like(cx, 1, &a, dtype)?;
    let mut exponent = out_like(cx, 2, &a, ScalarType::Int)?;
    unary::<f64, f64>(&a, &mut mantissa, (dtype, dtype), &map(|x: f64| parts(x).0))?;
    unary::<f64, i32>(&a, &mut exponent, (dtype, ScalarType::Int), &map(|x: f64| parts(x).1))
}

/// Splits a number into mantissa and exponent. Infinities and NaN have the exponent 0.
fn parts(x: f64) -> (f64, i32) {
    if x.is_finite() { libm::frexp(x) } else { (x, 0) }
}
