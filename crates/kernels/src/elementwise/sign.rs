//! Signs, magnitudes and conjugates.

use rushlight_runtime::{Complex, Detail, Error, KernelContext, Op, Result, ScalarType};

use crate::support::convert::convert;
use crate::support::elementwise::{map, out_like, unary};
use crate::support::number::{Arithmetic, Number};
use crate::support::promote::real_of;

/// `abs.out(Tensor self, *, Tensor(a!) out)`: complex numbers give the real type of their parts.
pub const ABS_OUT: Op = Op::new("aten::abs.out", 2, abs_out);
/// `neg.out(Tensor self, *, Tensor(a!) out)`.
pub const NEG_OUT: Op = Op::new("aten::neg.out", 2, neg_out);
/// `sign.out(Tensor self, *, Tensor(a!) out)`: 0 for NaN.
pub const SIGN_OUT: Op = Op::new("aten::sign.out", 2, sign_out);
/// `_conj_physical.out(Tensor self, *, Tensor(a!) out)`.
pub const CONJ_PHYSICAL_OUT: Op = Op::new("aten::_conj_physical.out", 2, conj_physical_out);

pub const OPS: &[Op] = &[ABS_OUT, NEG_OUT, SIGN_OUT, CONJ_PHYSICAL_OUT];

fn abs_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let (dtype, real) = (a.dtype(), real_of(a.dtype()));
    reject_bool(dtype)?;
    let mut out = out_like(cx, 1, &a, real)?;
    match dtype {
        ScalarType::ComplexDouble => {
            unary(&a, &mut out, (dtype, real), &map(|x: Complex<f64>| libm::hypot(x.re, x.im)))
        }
        _ if dtype.is_complex() => unary(&a, &mut out, (dtype, real), &map(|x: Complex<f32>| libm::hypotf(x.re, x.im))),
        _ => compute!(REAL, dtype, C => unary(&a, &mut out, (dtype, dtype), &map(C::magnitude))),
    }
}

fn neg_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    reject_bool(dtype)?;
    let mut out = out_like(cx, 1, &a, dtype)?;
    if dtype.is_complex() {
        return compute!(COMPLEX, dtype, C => {
            unary(&a, &mut out, (dtype, dtype), &map(move |x: C| Complex { re: -x.re, im: -x.im }))
        });
    }
    compute!(REAL, dtype, C => unary(&a, &mut out, (dtype, dtype), &map(C::opposite)))
}

fn sign_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    let mut out = out_like(cx, 1, &a, dtype)?;
    compute!(REAL, dtype, C => {
        let sign = |x: C| {
            let above = if x > C::ZERO { C::ONE } else { C::ZERO };
            if x < C::ZERO { C::ZERO.sub(C::ONE) } else { above }
        };
        unary(&a, &mut out, (dtype, dtype), &map(sign))
    })
}

fn conj_physical_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    let mut out = out_like(cx, 1, &a, dtype)?;
    if !dtype.is_complex() {
        return convert(&a, &mut out);
    }
    if dtype == ScalarType::ComplexFloat && out.dtype() == dtype && a.has_layout_of(&out) {
        conjugate(out.bytes_mut(), a.bytes());
        return Ok(());
    }
    compute!(COMPLEX, dtype, C => {
        unary(&a, &mut out, (dtype, dtype), &map(move |x: C| Complex { re: x.re, im: -x.im }))
    })
}

/// Pairs of `f32`, of which the second changes its sign: as one number each, which is much faster than apart.
fn conjugate(out: &mut [u8], from: &[u8]) {
    let second = if cfg!(target_endian = "little") { 1 << 63 } else { 1 << 31 };
    for (out, from) in out.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
        *out = (u64::from_ne_bytes(*from) ^ second).to_ne_bytes();
    }
}

fn reject_bool(dtype: ScalarType) -> Result<()> {
    if dtype == ScalarType::Bool {
        let detail = Detail::Dtype { expected: "an integer, floating or complex type", got: dtype };
        return Err(Error::from(detail).arg(0));
    }
    Ok(())
}

trait Signed {
    fn magnitude(self) -> Self;
    fn opposite(self) -> Self;
}

macro_rules! signed {
    ($t:ty, $abs:ident, $neg:path) => {
        impl Signed for $t {
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.$abs()
            }
            #[inline(always)]
            fn opposite(self) -> Self {
                $neg(self)
            }
        }
    };
}

signed!(i32, wrapping_abs, i32::wrapping_neg);
signed!(i64, wrapping_abs, i64::wrapping_neg);
signed!(f32, abs, core::ops::Neg::neg);
signed!(f64, abs, core::ops::Neg::neg);
