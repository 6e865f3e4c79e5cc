//! Larger and smaller of two values, and values kept between bounds. NaN wins wherever it appears.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Scalar, ScalarType, Tensor, TensorMut};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, ternary, unary, zip, zip3};
use crate::support::number::Arithmetic;
use crate::support::promote::{self, ResultType, check_cast};
use crate::support::shape::broadcast;
use crate::support::tile::scalar_as;

/// `maximum.out(Tensor self, Tensor other, *, Tensor(a!) out)`.
pub const MAXIMUM_OUT: Op = Op::new("aten::maximum.out", 3, maximum_out);
/// `minimum.out(Tensor self, Tensor other, *, Tensor(a!) out)`.
pub const MINIMUM_OUT: Op = Op::new("aten::minimum.out", 3, minimum_out);
/// `clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out)`.
pub const CLAMP_OUT: Op = Op::new("aten::clamp.out", 4, clamp_out);
/// `clamp.Tensor_out(Tensor self, Tensor? min=None, Tensor? max=None, *, Tensor(a!) out)`.
pub const CLAMP_TENSOR_OUT: Op = Op::new("aten::clamp.Tensor_out", 4, clamp_tensor_out);
/// `hardtanh.out(Tensor self, Scalar min_val=-1, Scalar max_val=1, *, Tensor(a!) out)`.
pub const HARDTANH_OUT: Op = Op::new("aten::hardtanh.out", 4, hardtanh_out);

pub const OPS: &[Op] = &[MAXIMUM_OUT, MINIMUM_OUT, CLAMP_OUT, CLAMP_TENSOR_OUT, HARDTANH_OUT];

#[inline(always)]
fn larger<C: Arithmetic>(a: C, b: C) -> C {
    if a > b || a.is_nan() { a } else { b }
}

#[inline(always)]
fn smaller<C: Arithmetic>(a: C, b: C) -> C {
    if a < b || a.is_nan() { a } else { b }
}

/// The bound that is broken, if one is; NaN stays.
#[inline(always)]
fn between<C: Arithmetic>(x: C, low: C, high: C) -> C {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

fn maximum_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::tensors(&a, &b)?;
    let mut out = out_broadcast(cx, 2, &a, &b, common)?;
    compute!(REAL, common, C => binary(&a, &b, &mut out, (common, common, common), &zip(larger::<C>)))
}

fn minimum_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::tensors(&a, &b)?;
    let mut out = out_broadcast(cx, 2, &a, &b, common)?;
    compute!(REAL, common, C => binary(&a, &b, &mut out, (common, common, common), &zip(smaller::<C>)))
}

fn clamp_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, low, high) = (cx.tensor(0)?, cx.optional_scalar(1)?, cx.optional_scalar(2)?);
    let mut common = a.dtype();
    for bound in [low, high].into_iter().flatten() {
        common = promote::with_scalar(common, bound)?;
    }
    let mut out = out_like(cx, 3, &a, common)?;
    clamp(&a, low, high, common, &mut out)
}

fn hardtanh_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, low, high) = (cx.tensor(0)?, cx.scalar(1)?, cx.scalar(2)?);
    if a.dtype() == ScalarType::Bool {
        return Err(Error::from(Detail::Dtype { expected: "an integer or floating type", got: a.dtype() }).arg(0));
    }
    let mut out = out_like(cx, 3, &a, a.dtype())?;
    clamp(&a, Some(low), Some(high), a.dtype(), &mut out)
}

fn clamp(
    a: &Tensor<'_>,
    low: Option<Scalar>,
    high: Option<Scalar>,
    common: ScalarType,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let (low, high) = (low.map(|v| saturate(v, common)), high.map(|v| saturate(v, common)));
    let nan = [low, high].into_iter().flatten().find(|bound| bound.to_f64().is_nan());
    compute!(REAL, common, C => {
        let (low, high) = (low.map(|v| scalar_as::<C>(v, common)), high.map(|v| scalar_as::<C>(v, common)));
        let types = (common, common);
        match (low, high) {
            _ if let Some(nan) = nan => {
                let nan = scalar_as::<C>(nan, common);
                unary(a, out, types, &map(|_: C| nan))
            }
            (Some(low), Some(high)) => unary(a, out, types, &map(move |x: C| between(x, low, high))),
            (Some(low), None) => unary(a, out, types, &map(move |x: C| if x < low { low } else { x })),
            (None, Some(high)) => unary(a, out, types, &map(move |x: C| if x > high { high } else { x })),
            (None, None) => Err(Error::invalid("at least one of min and max must not be None").arg(1)),
        }
    })
}

/// Bounds beyond the range of an integer type are its ends.
fn saturate(bound: Scalar, dtype: ScalarType) -> Scalar {
    let (low, high) = match dtype {
        ScalarType::Byte => (0, 255),
        ScalarType::Char => (-128, 127),
        ScalarType::Short => (-32_768, 32_767),
        ScalarType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
        ScalarType::Long => (i64::MIN, i64::MAX),
        _ => return bound,
    };
    Scalar::Int(bound.to_i64().clamp(low, high))
}

fn clamp_tensor_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let (low, high) = (cx.optional_tensor(1)?, cx.optional_tensor(2)?);
    let mut result = ResultType::default().tensor(&a)?;
    for bound in [&low, &high].into_iter().flatten() {
        result = result.tensor(bound)?;
    }
    let common = result.get()?;
    let types = (common, common, common);
    match (low, high) {
        (Some(low), Some(high)) => {
            let mut out = cx.out(3)?;
            check_cast(common, out.dtype()).map_err(|e| e.arg(3))?;
            let sizes = broadcast(&broadcast(a.sizes(), low.sizes())?, high.sizes())?;
            out.resize(&sizes).map_err(|e| e.arg(3))?;
            compute!(REAL, common, C => {
                let clamp = |x: C, low: C, high: C| smaller(larger(x, low), high);
                ternary(&a, &low, &high, &mut out, (common, common), &zip3(clamp))
            })
        }
        (Some(low), None) => {
            let mut out = out_broadcast(cx, 3, &a, &low, common)?;
            compute!(REAL, common, C => binary(&a, &low, &mut out, types, &zip(larger::<C>)))
        }
        (None, Some(high)) => {
            let mut out = out_broadcast(cx, 3, &a, &high, common)?;
            compute!(REAL, common, C => binary(&a, &high, &mut out, types, &zip(smaller::<C>)))
        }
        (None, None) => Err(Error::invalid("at least one of min and max must not be None").arg(1)),
    }
}
