//! Real functions of one number. Integers and bool give `f32`; 16-bit floats compute in `f32`.

use rushlight_runtime::{KernelContext, Op, Result};

use crate::support::elementwise::{map, out_like, unary};
use crate::support::math;
use crate::support::promote;

macro_rules! function {
    ($OUT:ident, $kernel:ident, $name:literal, $f32:expr, $f64:expr) => {
        #[doc = concat!("`", $name, ".out(Tensor self, *, Tensor(a!) out)`.")]
        pub const $OUT: Op = Op::new(concat!("aten::", $name, ".out"), 2, $kernel);

        fn $kernel(cx: &KernelContext<'_>) -> Result<()> {
            float_function(cx, &$f32, &map($f64))
        }
    };
}

/// Replaces each element by its exponential, to 2 units in the last place, with arithmetic of IEEE 754 only: the same bits on every
/// machine.
pub fn exp(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = math::exp(*value));
}

function!(ACOS_OUT, acos_out, "acos", map(math::acos), libm::acos);
function!(ACOSH_OUT, acosh_out, "acosh", map(math::acosh), acosh);
function!(ASIN_OUT, asin_out, "asin", map(math::asin), libm::asin);
function!(ASINH_OUT, asinh_out, "asinh", map(math::asinh), libm::asinh);
function!(ATAN_OUT, atan_out, "atan", map(math::atan), libm::atan);
function!(ATANH_OUT, atanh_out, "atanh", map(math::atanh), libm::atanh);
function!(COS_OUT, cos_out, "cos", math::cos, libm::cos);
function!(COSH_OUT, cosh_out, "cosh", map(math::cosh), libm::cosh);
function!(ERF_OUT, erf_out, "erf", map(math::erf), libm::erf);
function!(EXP_OUT, exp_out, "exp", map(math::exp), math::exp64);
function!(EXPM1_OUT, expm1_out, "expm1", map(math::expm1), libm::expm1);
function!(LOG_OUT, log_out, "log", map(math::log), libm::log);
function!(LOG10_OUT, log10_out, "log10", map(math::log10), libm::log10);
function!(LOG1P_OUT, log1p_out, "log1p", map(math::log1p), libm::log1p);
function!(LOG2_OUT, log2_out, "log2", map(math::log2), libm::log2);
function!(RECIPROCAL_OUT, reciprocal_out, "reciprocal", map(|x: f32| 1.0 / x), |x: f64| 1.0 / x);
function!(RSQRT_OUT, rsqrt_out, "rsqrt", math::rsqrt, |x: f64| 1.0 / libm::sqrt(x));
function!(SIGMOID_OUT, sigmoid_out, "sigmoid", map(math::sigmoid), |x: f64| 1.0 / (1.0 + math::exp64(-x)));
function!(SIN_OUT, sin_out, "sin", math::sin, libm::sin);
function!(SINH_OUT, sinh_out, "sinh", map(math::sinh), libm::sinh);
function!(SQRT_OUT, sqrt_out, "sqrt", math::sqrt, libm::sqrt);
function!(TAN_OUT, tan_out, "tan", math::tan, libm::tan);
function!(TANH_OUT, tanh_out, "tanh", map(math::tanh), libm::tanh);

pub const OPS: &[Op] = &[
    ACOS_OUT,
    ACOSH_OUT,
    ASIN_OUT,
    ASINH_OUT,
    ATAN_OUT,
    ATANH_OUT,
    COS_OUT,
    COSH_OUT,
    ERF_OUT,
    EXP_OUT,
    EXPM1_OUT,
    LOG_OUT,
    LOG10_OUT,
    LOG1P_OUT,
    LOG2_OUT,
    RECIPROCAL_OUT,
    RSQRT_OUT,
    SIGMOID_OUT,
    SIN_OUT,
    SINH_OUT,
    SQRT_OUT,
    TAN_OUT,
    TANH_OUT,
];

fn float_function(
    cx: &KernelContext<'_>,
    f32_kernel: &dyn Fn(&[f32], &mut [f32]),
    f64_kernel: &dyn Fn(&[f64], &mut [f64]),
) -> Result<()> {
    let a = cx.tensor(0)?;
    let common = promote::to_float(a.dtype());
    let mut out = out_like(cx, 1, &a, common)?;
    if common == rushlight_runtime::ScalarType::Double {
        return unary(&a, &mut out, (common, common), f64_kernel);
    }
    unary(&a, &mut out, (common, common), f32_kernel)
}

/// `libm` has no NaN for arguments below 1.
fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}
