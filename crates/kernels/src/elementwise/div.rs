//! Quotients, exact and rounded.

use core::cell::Cell;

use rushlight_runtime::{Complex, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::math;
use crate::support::promote;
use crate::support::quotient::divide_by;
use crate::support::tile::{ComputeType, scalar_as, unsupported};

/// `div.out(Tensor self, Tensor other, *, Tensor(a!) out)`: integers divide to floats.
pub const DIV_OUT: Op = Op::new("aten::div.out", 3, div_out);
/// `div.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.
pub const DIV_SCALAR_OUT: Op = Op::new("aten::div.Scalar_out", 3, div_scalar_out);
/// `div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out)`: mode `trunc` or `floor`.
pub const DIV_OUT_MODE: Op = Op::new("aten::div.out_mode", 4, div_out_mode);
/// `div.Scalar_mode_out(Tensor self, Scalar other, *, str? rounding_mode, Tensor(a!) out)`.
pub const DIV_SCALAR_MODE_OUT: Op = Op::new("aten::div.Scalar_mode_out", 4, div_scalar_mode_out);
/// `floor_divide.out(Tensor self, Tensor other, *, Tensor(a!) out)`.
pub const FLOOR_DIVIDE_OUT: Op = Op::new("aten::floor_divide.out", 3, floor_divide_out);

pub const OPS: &[Op] = &[DIV_OUT, DIV_SCALAR_OUT, DIV_OUT_MODE, DIV_SCALAR_MODE_OUT, FLOOR_DIVIDE_OUT];

fn div_out(cx: &KernelContext<'_>) -> Result<()> {
    divide(cx, 2)
}

fn div_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_scalar(cx, 2)
}

fn div_out_mode(cx: &KernelContext<'_>) -> Result<()> {
    match rounding(cx)? {
        None => divide(cx, 3),
        Some(whole) => divide_whole(cx, whole, 3),
    }
}

fn div_scalar_mode_out(cx: &KernelContext<'_>) -> Result<()> {
    match rounding(cx)? {
        None => divide_scalar(cx, 3),
        Some(whole) => divide_whole_scalar(cx, whole, 3),
    }
}

fn floor_divide_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_whole(cx, &Whole::FLOOR, 2)
}

fn rounding(cx: &KernelContext<'_>) -> Result<Option<&'static Whole>> {
    match cx.optional_string(2)? {
        None => Ok(None),
        Some("trunc") => Ok(Some(&Whole::TRUNC)),
        Some("floor") => Ok(Some(&Whole::FLOOR)),
        Some(_) => Err(Error::invalid("rounding_mode must be None, \"trunc\" or \"floor\"").arg(2)),
    }
}

fn divide(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::to_float(promote::tensors(&a, &b)?);
    let mut out = out_broadcast(cx, index, &a, &b, common)?;
    if common.is_complex() {
        return divide_complex(&a, &b, &mut out, common);
    }
    compute!(FLOAT, common, C => binary(&a, &b, &mut out, (common, common, common), &zip(move |x: C, y: C| x / y)))
}

fn divide_scalar(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
    let common = promote::to_float(promote::tensor_scalar(&a, b)?);
    let mut out = out_like(cx, index, &a, common)?;
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            let b = scalar_as::<C>(b, common).re;
            unary(&a, &mut out, (common, common), &map(move |x: C| Complex { re: x.re / b, im: x.im / b }))
        });
    }
    let types = (common, common);
    match ComputeType::of(common)? {
        ComputeType::F32 => unary(&a, &mut out, types, &divide_by(scalar_as(b, common))),
        _ => compute!(FLOAT, common, C => {
            let b = scalar_as::<C>(b, common);
            unary(&a, &mut out, types, &map(move |x: C| x / b))
        }),
    }
}

fn divide_complex(a: &Tensor<'_>, b: &Tensor<'_>, out: &mut TensorMut<'_>, common: ScalarType) -> Result<()> {
    compute!(COMPLEX, common, C => {
        // Scaled by the larger part of the divisor, against overflow.
        let divide = |x: C, y: C| {
            let scale = if y.re.abs() >= y.im.abs() { y.re.abs() } else { y.im.abs() };
            let (re, im) = (y.re / scale, y.im / scale);
            let norm = (re * re + im * im) * scale;
            Complex { re: (x.re * re + x.im * im) / norm, im: (x.im * re - x.re * im) / norm }
        };
        binary(a, b, out, (common, common, common), &zip(divide))
    })
}

/// An integer division in each compute type: its quotient or its remainder. The integer functions return true if there
/// was a zero divisor.
pub(super) struct Whole {
    i32: fn(&[i32], &[i32], &mut [i32]) -> bool,
    i64: fn(&[i64], &[i64], &mut [i64]) -> bool,
    /// By one number.
    i32_by: fn(&[i32], i32, &mut [i32]) -> bool,
    i64_by: fn(&[i64], i64, &mut [i64]) -> bool,
    f32: fn(&[f32], &[f32], &mut [f32]),
    f64: fn(f64, f64) -> f64,
}

impl Whole {
    /// Rounded towards zero.
    const TRUNC: Self = Self {
        i32: |a, b, out| each(a, b, out, |a, b| trunc_i32(a, b, inverse(b))),
        i64: |a, b, out| each_i64(a, b, out, trunc_i32, i64::wrapping_div),
        i32_by: |a, b, out| by_i32(a, b, out, trunc_i32),
        i64_by: |a, b, out| by_i64(a, b, out, trunc_i32, i64::wrapping_div),
        f32: math::trunc_div,
        f64: |a, b| libm::trunc(a / b),
    };
    /// Rounded down, from the exact remainder and not from the rounded quotient.
    const FLOOR: Self = Self {
        i32: |a, b, out| each(a, b, out, |a, b| floor_i32(a, b, inverse(b))),
        i64: |a, b, out| each_i64(a, b, out, floor_i32, floor_i64),
        i32_by: |a, b, out| by_i32(a, b, out, floor_i32),
        i64_by: |a, b, out| by_i64(a, b, out, floor_i32, floor_i64),
        f32: math::floor_div,
        f64: floor_f64,
    };
    /// C's `fmod` and `%`: the sign is that of the dividend.
    pub(super) const FMOD: Self = Self {
        i32: |a, b, out| each(a, b, out, |a, b| fmod_i32(a, b, inverse(b))),
        i64: |a, b, out| each_i64(a, b, out, fmod_i32, i64::wrapping_rem),
        i32_by: |a, b, out| by_i32(a, b, out, fmod_i32),
        i64_by: |a, b, out| by_i64(a, b, out, fmod_i32, i64::wrapping_rem),
        f32: math::fmod,
        f64: libm::fmod,
    };
    /// Python's `%`: the sign is that of the divisor.
    pub(super) const REMAINDER: Self = Self {
        i32: |a, b, out| each(a, b, out, |a, b| remainder_i32(a, b, inverse(b))),
        i64: |a, b, out| each_i64(a, b, out, remainder_i32, remainder_i64),
        i32_by: |a, b, out| by_i32(a, b, out, remainder_i32),
        i64_by: |a, b, out| by_i64(a, b, out, remainder_i32, remainder_i64),
        f32: math::remainder,
        f64: remainder_f64,
    };
}

/// Divides elements by elements, with 1 in place of 0; true if one divisor was 0.
#[inline(always)]
fn each<T: Copy + From<bool> + PartialEq>(a: &[T], b: &[T], out: &mut [T], divide: impl Fn(T, T) -> T) -> bool {
    let mut by_zero = false;
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        let is_zero = b == T::from(false);
        by_zero |= is_zero;
        *out = divide(a, if is_zero { T::from(true) } else { b });
    }
    by_zero
}

/// Elements of which one is beyond `i32` at a time are looked for together.
const CHUNK: usize = 64;

/// True if no bit differs from the sign above the lower 31 bits, which hold -2^30..2^30.
#[inline(always)]
fn is_narrow(v: &[i64]) -> bool {
    v.iter().fold(0, |high, v| high | (v.wrapping_add(1 << 30) as u64 >> 31)) == 0
}

/// As [`each`], with `narrow` for chunks of numbers that it can take.
#[inline(always)]
fn each_i64(
    a: &[i64],
    b: &[i64],
    out: &mut [i64],
    narrow: impl Fn(i32, i32, f64) -> i32,
    wide: impl Fn(i64, i64) -> i64,
) -> bool {
    let mut by_zero = false;
    for ((out, a), b) in out.chunks_mut(CHUNK).zip(a.chunks(CHUNK)).zip(b.chunks(CHUNK)) {
        if is_narrow(a) && is_narrow(b) {
            for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                by_zero |= b == 0;
                let b = if b == 0 { 1 } else { b as i32 };
                *out = i64::from(narrow(a as i32, b, inverse(b)));
            }
        } else {
            by_zero |= each(a, b, out, &wide);
        }
    }
    by_zero
}

/// Divides elements by one number; true if that is 0, and then by 1.
#[inline(always)]
fn by_i32(a: &[i32], b: i32, out: &mut [i32], divide: impl Fn(i32, i32, f64) -> i32) -> bool {
    let divisor = if b == 0 { 1 } else { b };
    let inverse = inverse(divisor);
    for (out, &a) in out.iter_mut().zip(a) {
        *out = divide(a, divisor, inverse);
    }
    b == 0 && !a.is_empty()
}

/// As [`by_i32`], with `narrow` for chunks of numbers that it can take.
#[inline(always)]
fn by_i64(
    a: &[i64],
    b: i64,
    out: &mut [i64],
    narrow: impl Fn(i32, i32, f64) -> i32,
    wide: impl Fn(i64, i64) -> i64,
) -> bool {
    let divisor = if b == 0 { 1 } else { b };
    let inverse = inverse(divisor as i32);
    for (out, a) in out.chunks_mut(CHUNK).zip(a.chunks(CHUNK)) {
        if is_narrow(a) && is_narrow(&[divisor]) {
            for (out, &a) in out.iter_mut().zip(a) {
                *out = i64::from(narrow(a as i32, divisor as i32, inverse));
            }
        } else {
            for (out, &a) in out.iter_mut().zip(a) {
                *out = wide(a, divisor);
            }
        }
    }
    b == 0 && !a.is_empty()
}

pub(super) fn divide_whole(cx: &KernelContext<'_>, whole: &Whole, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::tensors(&a, &b)?;
    let mut out = out_broadcast(cx, index, &a, &b, common)?;
    let types = (common, common, common);
    let by_zero = Cell::new(false);
    match ComputeType::of(common)? {
        ComputeType::F32 => binary(&a, &b, &mut out, types, &whole.f32)?,
        ComputeType::F64 => binary(&a, &b, &mut out, types, &zip(whole.f64))?,
        ComputeType::I64 => binary(&a, &b, &mut out, types, &noting(whole.i64, &by_zero))?,
        ComputeType::I32 => binary(&a, &b, &mut out, types, &noting(whole.i32, &by_zero))?,
        _ => return Err(unsupported("bool, an integer or floating type", common)),
    }
    check(&by_zero)
}

pub(super) fn divide_whole_scalar(cx: &KernelContext<'_>, whole: &Whole, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
    let common = promote::tensor_scalar(&a, b)?;
    let mut out = out_like(cx, index, &a, common)?;
    let types = (common, common);
    let by_zero = Cell::new(false);
    match ComputeType::of(common)? {
        ComputeType::F32 => unary(&a, &mut out, types, &math::with_second(whole.f32, scalar_as(b, common)))?,
        ComputeType::F64 => {
            let b = scalar_as(b, common);
            unary(&a, &mut out, types, &map(move |a| (whole.f64)(a, b)))?;
        }
        ComputeType::I64 => {
            let b = scalar_as(b, common);
            unary(&a, &mut out, types, &|a: &[i64], out: &mut [i64]| by_zero.set((whole.i64_by)(a, b, out)))?;
        }
        ComputeType::I32 => {
            let b = scalar_as(b, common);
            unary(&a, &mut out, types, &|a: &[i32], out: &mut [i32]| by_zero.set((whole.i32_by)(a, b, out)))?;
        }
        _ => return Err(unsupported("bool, an integer or floating type", common)),
    }
    check(&by_zero)
}

/// The function as a kernel, which sets the flag where a divisor is zero.
fn noting<T>(
    divide: fn(&[T], &[T], &mut [T]) -> bool,
    by_zero: &Cell<bool>,
) -> impl Fn(&[T], &[T], &mut [T]) + use<'_, T> {
    move |a, b, out| by_zero.set(divide(a, b, out) | by_zero.get())
}

fn check(by_zero: &Cell<bool>) -> Result<()> {
    if by_zero.get() {
        return Err(Error::invalid("integer division by zero").arg(1));
    }
    Ok(())
}

/// The reciprocal that the 32-bit divisions take.
#[inline(always)]
fn inverse(b: i32) -> f64 {
    1.0 / f64::from(b)
}

/// The low bits of the integer next to `x`, which is at most 2^32 away from 0: adding 1.5 * 2^52 leaves no fraction.
#[inline(always)]
fn nearest(x: f64) -> i32 {
    (x + 6_755_399_441_055_744.0).to_bits() as i32
}

/// The quotient by way of `f64`, which has vector instructions. Quotients are at least 1 / |b| apart: a quarter of that
/// outwards keeps whole ones from being missed, and is far more than the rounding errors of 32-bit numbers.
#[inline(always)]
fn trunc_i32(a: i32, _: i32, inverse: f64) -> i32 {
    let a = f64::from(a);
    let x = (a + 0.25_f64.copysign(a)) * inverse;
    nearest(x - 0.5_f64.copysign(x))
}

/// As [`trunc_i32`], rounded down and therefore moved up.
#[inline(always)]
fn floor_i32(a: i32, _: i32, inverse: f64) -> i32 {
    nearest((f64::from(a) + 0.25_f64.copysign(inverse)) * inverse - 0.5)
}

#[inline(always)]
fn fmod_i32(a: i32, b: i32, inverse: f64) -> i32 {
    a.wrapping_sub(trunc_i32(a, b, inverse).wrapping_mul(b))
}

#[inline(always)]
fn remainder_i32(a: i32, b: i32, inverse: f64) -> i32 {
    a.wrapping_sub(floor_i32(a, b, inverse).wrapping_mul(b))
}

#[inline(always)]
fn floor_i64(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    let inexact = quotient.wrapping_mul(b) != a;
    quotient.wrapping_sub(i64::from(inexact && (a < 0) != (b < 0)))
}

#[inline(always)]
fn remainder_i64(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    rest.wrapping_add(if rest != 0 && (rest < 0) != (b < 0) { b } else { 0 })
}

fn floor_f64(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = libm::fmod(a, b);
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0.0_f64.copysign(a / b);
    }
    let whole = libm::floor(quotient);
    if quotient - whole > 0.5 { whole + 1.0 } else { whole }
}

fn remainder_f64(a: f64, b: f64) -> f64 {
    let rest = libm::fmod(a, b);
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_of_32_bits_are_exact() {
        let edges = [
            i32::MIN,
            i32::MIN + 1,
            -65_537,
            -65_536,
            -7,
            -3,
            -2,
            -1,
            0,
            1,
            2,
            3,
            5,
            46_341,
            65_535,
            i32::MAX - 1,
            i32::MAX,
        ];
        let numbers = || edges.into_iter().chain((0..200).map(|i: i32| i.wrapping_mul(0x9e37_79b1_u32 as i32)));
        for b in numbers().filter(|&b| b != 0) {
            let multiples = (-3..=3).flat_map(|k: i32| (-1..=1).map(move |d| b.wrapping_mul(k).wrapping_add(d)));
            for a in numbers().chain(multiples) {
                let inverse = inverse(b);
                assert_eq!(trunc_i32(a, b, inverse), a.wrapping_div(b), "{a} / {b}");
                assert_eq!(fmod_i32(a, b, inverse), a.wrapping_rem(b), "{a} fmod {b}");
                let (wide_a, wide_b) = (i64::from(a), i64::from(b));
                assert_eq!(floor_i32(a, b, inverse), floor_i64(wide_a, wide_b) as i32, "{a} // {b}");
                assert_eq!(remainder_i32(a, b, inverse), remainder_i64(wide_a, wide_b) as i32, "{a} % {b}");
            }
        }
    }
}
