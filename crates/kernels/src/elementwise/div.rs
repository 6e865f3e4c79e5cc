//! Quotients, exact and rounded.

use core::cell::Cell;

use rushlight_runtime::{Complex, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::math;
use crate::support::number::Number;
use crate::support::promote;
use crate::support::tile::{Compute, scalar_as};

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
        Some(mode) => divide_rounded(cx, mode, 3),
    }
}

fn div_scalar_mode_out(cx: &KernelContext<'_>) -> Result<()> {
    let Some(mode) = rounding(cx)? else {
        return divide_scalar(cx, 3);
    };
    let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
    let common = promote::tensor_scalar(&a, b)?;
    let mut out = out_like(cx, 3, &a, common)?;
    compute!(REAL, common, C => {
        let b = scalar_as::<C>(b, common);
        checked(|by_zero| match mode {
            Rounding::Trunc => unary(&a, &mut out, (common, common), &map(|x: C| x.trunc_div(b, by_zero))),
            Rounding::Floor => unary(&a, &mut out, (common, common), &map(|x: C| x.floor_div(b, by_zero))),
        })
    })
}

fn floor_divide_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_rounded(cx, Rounding::Floor, 2)
}

fn divide(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::to_float(promote::tensors(&a, &b)?);
    let mut out = out_broadcast(cx, index, &a, &b, common)?;
    if common.is_complex() {
        return divide_complex(&a, &b, &mut out, common);
    }
    compute!(FLOAT, common, C => binary(&a, &b, &mut out, (common, common, common), &zip(|x: C, y: C| x / y)))
}

fn divide_scalar(cx: &KernelContext<'_>, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
    let common = promote::to_float(promote::tensor_scalar(&a, b)?);
    let mut out = out_like(cx, index, &a, common)?;
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            let b = scalar_as::<C>(b, common).re;
            unary(&a, &mut out, (common, common), &map(|x: C| Complex { re: x.re / b, im: x.im / b }))
        });
    }
    compute!(FLOAT, common, C => {
        let b = scalar_as::<C>(b, common);
        unary(&a, &mut out, (common, common), &map(|x: C| x / b))
    })
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

#[derive(Clone, Copy)]
enum Rounding {
    Trunc,
    Floor,
}

fn rounding(cx: &KernelContext<'_>) -> Result<Option<Rounding>> {
    match cx.optional_string(2)? {
        None => Ok(None),
        Some("trunc") => Ok(Some(Rounding::Trunc)),
        Some("floor") => Ok(Some(Rounding::Floor)),
        Some(_) => Err(Error::invalid("rounding_mode must be None, \"trunc\" or \"floor\"").arg(2)),
    }
}

fn divide_rounded(cx: &KernelContext<'_>, mode: Rounding, index: usize) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::tensors(&a, &b)?;
    let mut out = out_broadcast(cx, index, &a, &b, common)?;
    let types = (common, common, common);
    compute!(REAL, common, C => checked(|by_zero| match mode {
        Rounding::Trunc => binary(&a, &b, &mut out, types, &zip(|x: C, y: C| x.trunc_div(y, by_zero))),
        Rounding::Floor => binary(&a, &b, &mut out, types, &zip(|x: C, y: C| x.floor_div(y, by_zero))),
    }))
}

/// Runs `body` with a flag that integer divisions by zero set, and fails if one did.
pub(super) fn checked(body: impl FnOnce(&Cell<bool>) -> Result<()>) -> Result<()> {
    let by_zero = Cell::new(false);
    body(&by_zero)?;
    if by_zero.get() {
        return Err(Error::invalid("integer division by zero").arg(1));
    }
    Ok(())
}

/// Division with a whole quotient, and what it leaves.
pub(super) trait Divide: Compute + Number {
    fn trunc_div(self, by: Self, by_zero: &Cell<bool>) -> Self;
    fn floor_div(self, by: Self, by_zero: &Cell<bool>) -> Self;
    /// C's `fmod` and `%`: the sign is that of the dividend.
    fn fmod(self, by: Self, by_zero: &Cell<bool>) -> Self;
    /// Python's `%`: the sign is that of the divisor.
    fn remainder(self, by: Self, by_zero: &Cell<bool>) -> Self;
}

macro_rules! integer {
    ($t:ty) => {
        impl Divide for $t {
            #[inline(always)]
            fn trunc_div(self, by: Self, by_zero: &Cell<bool>) -> Self {
                if by == 0 {
                    by_zero.set(true);
                    return 0;
                }
                self.wrapping_div(by)
            }
            #[inline(always)]
            fn floor_div(self, by: Self, by_zero: &Cell<bool>) -> Self {
                if by == 0 {
                    by_zero.set(true);
                    return 0;
                }
                let quotient = self.wrapping_div(by);
                let inexact = quotient.wrapping_mul(by) != self;
                if inexact && (self < 0) != (by < 0) { quotient - 1 } else { quotient }
            }
            #[inline(always)]
            fn fmod(self, by: Self, by_zero: &Cell<bool>) -> Self {
                if by == 0 {
                    by_zero.set(true);
                    return 0;
                }
                self.wrapping_rem(by)
            }
            #[inline(always)]
            fn remainder(self, by: Self, by_zero: &Cell<bool>) -> Self {
                let rest = self.fmod(by, by_zero);
                if rest != 0 && (rest < 0) != (by < 0) { rest + by } else { rest }
            }
        }
    };
}

integer!(i32);
integer!(i64);

macro_rules! float {
    ($t:ty, $fmod:path, $trunc:path, $floor:path) => {
        impl Divide for $t {
            #[inline(always)]
            fn trunc_div(self, by: Self, _: &Cell<bool>) -> Self {
                $trunc(self / by)
            }
            /// As Python and PyTorch round: from the exact remainder, not from the rounded quotient.
            #[inline(always)]
            fn floor_div(self, by: Self, _: &Cell<bool>) -> Self {
                if by == 0.0 {
                    return self / by;
                }
                let rest = $fmod(self, by);
                let mut quotient = (self - rest) / by;
                if rest != 0.0 && (by < 0.0) != (rest < 0.0) {
                    quotient -= 1.0;
                }
                if quotient == 0.0 {
                    return (0.0 as $t).copysign(self / by);
                }
                let floor = $floor(quotient);
                if quotient - floor > 0.5 { floor + 1.0 } else { floor }
            }
            #[inline(always)]
            fn fmod(self, by: Self, _: &Cell<bool>) -> Self {
                $fmod(self, by)
            }
            #[inline(always)]
            fn remainder(self, by: Self, _: &Cell<bool>) -> Self {
                let rest = $fmod(self, by);
                if rest != 0.0 && (by < 0.0) != (rest < 0.0) { rest + by } else { rest }
            }
        }
    };
}

float!(f32, math::fmod, math::trunc, math::floor);
float!(f64, libm::fmod, libm::trunc, libm::floor);
