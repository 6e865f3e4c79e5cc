//! Relatives of the error function: complementary, scaled, logarithmic and inverse.

use core::f64::consts::{FRAC_1_SQRT_2, PI};

use rushlight_runtime::OpGroup;

use super::function::function;

function!(ERFC_OUT, erfc_out, "erfc", libm::erfc);
function!(SPECIAL_ERFCX_OUT, erfcx_out, "special_erfcx", erfcx);
function!(SPECIAL_NDTRI_OUT, ndtri_out, "special_ndtri", ndtri);
function!(SPECIAL_LOG_NDTR_OUT, log_ndtr_out, "special_log_ndtr", log_ndtr);

pub const OPS: OpGroup = &[ERFC_OUT, SPECIAL_ERFCX_OUT, SPECIAL_NDTRI_OUT, SPECIAL_LOG_NDTR_OUT];

/// `exp(x²) erfc(x)`.
fn erfcx(x: f64) -> f64 {
    if x > 25.0 {
        // The asymptotic series, to far more than 53 bits here.
        let z = 0.5 / (x * x);
        let series = 1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z * (1.0 - 9.0 * z))));
        return series / (x * libm::sqrt(PI));
    }
    // The exponential amplifies the rounding error of x², so `rest` corrects for it.
    let square = x * x;
    let high = f64::from_bits(x.to_bits() & !0x07FF_FFFF);
    let low = x - high;
    let rest = (high * high - square) + (high + x) * low;
    let exponential = libm::exp(square);
    let value = exponential * libm::erfc(x);
    if exponential.is_finite() { value + value * rest } else { value }
}

/// The logarithm of the standard normal distribution's function.
fn log_ndtr(x: f64) -> f64 {
    let t = x * FRAC_1_SQRT_2;
    if x < -1.0 { libm::log(0.5 * erfcx(-t)) - t * t } else { libm::log1p(-0.5 * libm::erfc(t)) }
}

/// The inverse of the standard normal distribution's function: Hastings' approximation (Abramowitz and Stegun 26.2.23), refined by
/// Halley's method.
fn ndtri(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    // From the middle up, 1 - p is exact.
    let tail = if p > 0.5 { 1.0 - p } else { p };
    let t = libm::sqrt(-2.0 * libm::log(tail));
    let ratio =
        (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    let mut x = ratio - t;
    for _ in 0..3 {
        let density = libm::exp(-0.5 * x * x) / libm::sqrt(2.0 * PI);
        let step = (0.5 * libm::erfc(-x * FRAC_1_SQRT_2) - tail) / density;
        if !step.is_finite() {
            break;
        }
        x -= step / (1.0 + 0.5 * x * step);
    }
    if p > 0.5 { -x } else { x }
}
