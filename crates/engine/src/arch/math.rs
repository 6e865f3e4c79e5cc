//! Transcendental functions on vectors. Coefficients are minimax fits; errors are against the exact value, in units in
//! the last place (ULP) of the result, as the tests measure them over the whole range.
//!
//! All functions propagate NaN.

use super::{Arithmetic, LANES, Simd};

/// Evaluates a polynomial by Horner's rule: `c[0] + x * (c[1] + x * …)`.
#[inline(always)]
fn polynomial<S: Arithmetic, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut sum = s.splat(c[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.fma(sum, x, s.splat(c[i]));
    }
    sum
}

/// Rounds to the nearest integer, ties to even, for |x| below 2^22.
#[inline(always)]
fn round<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let shift = s.splat(12_582_912.0); // 1.5 * 2^23: the sum has no bits left for fractions.
    s.sub(s.add(x, shift), shift)
}

/// Range of `exp`: ln of the smallest normal number and of the largest finite number.
const EXP_MIN: f32 = -87.336_54;
const EXP_MAX: f32 = 88.722_83;

/// ln 2 in two parts (Cody and Waite): the first has trailing zeros, so that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Range reduction: returns `(n, r)` with `x = n ln 2 + r`, `n` integral and `|r| <= ln 2 / 2`.
#[inline(always)]
fn reduce<S: Arithmetic>(s: S, x: S::V) -> (S::V, S::V) {
    let n = round(s, s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN_2_HIGH), x);
    (n, s.fma(n, s.splat(-LN_2_LOW), r))
}

/// Exponential function. Error: 2 ULP. Flushes subnormal results to 0.
#[inline(always)]
pub(crate) fn exp<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let (n, r) = reduce(s, s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x)));
    let p = polynomial(s, r, [EXP_0, EXP_1, EXP_2, EXP_3, EXP_4]);
    let scaled = s.ldexp(s.add(s.fma(s.mul(r, r), p, r), s.splat(1.0)), n);
    let scaled = s.select_less(x, s.splat(EXP_MIN), s.splat(0.0), scaled);
    s.select_less(s.splat(EXP_MAX), x, s.splat(f32::INFINITY), scaled)
}

/// Logistic function, `1 / (1 + exp(-x))`. Error: 4 ULP; 0 where the exact result is below 2^-126.
#[inline(always)]
pub(crate) fn sigmoid<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// Hyperbolic tangent. Error: 2 ULP.
#[inline(always)]
pub(crate) fn tanh<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let magnitude = s.abs(x);
    let square = s.mul(x, x);
    let p = polynomial(s, square, [TANH_0, TANH_1, TANH_2, TANH_3, TANH_4]);
    let small = s.fma(s.mul(p, square), x, x);
    let one = s.splat(1.0);
    // Clamped: the result is 1 from 10 on, and the exponential would overflow later.
    let doubled = s.min(s.splat(20.0), s.add(magnitude, magnitude));
    let large = s.sub(one, s.div(s.splat(2.0), s.add(one, exp(s, doubled))));
    s.select_less(magnitude, s.splat(0.625), small, s.copysign(large, x))
}

/// Error function. Error: 2 ULP.
#[inline(always)]
pub(crate) fn erf<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let magnitude = s.abs(x);
    let p = polynomial(s, s.mul(x, x), [ERF_0, ERF_1, ERF_2, ERF_3, ERF_4, ERF_5]);
    let small = s.fma(p, x, x);
    // ln(1 - erf(t)) = t P(t) up to 4; from there on the result rounds to 1.
    let t = s.min(s.splat(4.0), magnitude);
    let q = polynomial(s, t, [ERFC_0, ERFC_1, ERFC_2, ERFC_3, ERFC_4, ERFC_5, ERFC_6]);
    let large = s.sub(s.splat(1.0), exp(s, s.mul(q, t)));
    s.select_less(magnitude, s.splat(0.93), small, s.copysign(large, x))
}

/// GELU, `x` times the normal CDF of `x`. Error: 2^-23 (2 |y| + 1). NaN for -inf, as in PyTorch.
#[inline(always)]
pub(crate) fn gelu<S: Arithmetic>(s: S, x: S::V) -> S::V {
    gelu_by(s, x, GELU, EXP2)
}

/// [`gelu`] for results that are rounded to bf16. Error: 2^-12 |y| + 2^-23.
#[inline(always)]
pub(crate) fn gelu_for_bf16<S: Arithmetic>(s: S, x: S::V) -> S::V {
    gelu_by(s, x, GELU_FOR_BF16, EXP2_FOR_BF16)
}

/// GELU by the upper tail of the normal distribution: `2^(t P(t) - 1)` of it lies beyond t = |x|, and a negligible part
/// beyond 8.
#[inline(always)]
fn gelu_by<S: Arithmetic, const P: usize, const E: usize>(s: S, x: S::V, p: [f32; P], exp2: [f32; E]) -> S::V {
    let (zero, one, limit) = (s.splat(0.0), s.splat(1.0), s.splat(8.0));
    let t = s.min(limit, s.abs(x));
    let exponent = s.fma(t, polynomial(s, t, p), s.splat(-1.0));
    let beyond = s.select_less(t, limit, power_of_two(s, exponent, exp2), zero);
    s.mul(x, s.select_less(x, zero, beyond, s.sub(one, beyond)))
}

/// `2^x` for `x` in [-200, 0].
#[inline(always)]
fn power_of_two<S: Arithmetic, const E: usize>(s: S, x: S::V, coefficients: [f32; E]) -> S::V {
    let n = round(s, x);
    let r = s.sub(x, n);
    s.ldexp_down(s.fma(r, polynomial(s, r, coefficients), s.splat(1.0)), n)
}

/// `2^x` for `x <= 0`. Error: 2 ULP. Flushes subnormal results to 0.
#[inline(always)]
pub(crate) fn exp2_down<S: Arithmetic>(s: S, x: S::V) -> S::V {
    power_of_two(s, s.max(s.splat(-200.0), x), EXP2)
}

/// `exp(x) - 1`. Error: 3 ULP; -1 where exp(x) is below 2^-126.
#[inline(always)]
pub(crate) fn expm1<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let bounded = s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x));
    let (n, r) = reduce(s, bounded);
    // p = exp(r) - 1, and 2^n p + (2^n - 1) is the result. All of it is halved, as n may be 128.
    let p = polynomial(s, r, [EXP_0, EXP_1, EXP_2, EXP_3, EXP_4]);
    let p = s.fma(s.mul(r, r), p, r);
    let half = s.ldexp(s.splat(1.0), s.max(s.splat(-126.0), s.sub(n, s.splat(1.0))));
    let halved = s.fma(p, half, s.sub(half, s.splat(0.5)));
    s.select_less(s.splat(EXP_MAX), x, s.splat(f32::INFINITY), s.add(halved, halved))
}

/// Natural logarithm. Error: 2 ULP. -inf for 0, NaN for negative numbers.
#[inline(always)]
pub(crate) fn log<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let (zero, infinity) = (s.splat(0.0), s.splat(f32::INFINITY));
    let min_normal = s.splat(f32::MIN_POSITIVE);
    let normal = s.select_less(x, min_normal, s.mul(x, s.splat(8_388_608.0)), x);
    let shift = s.select_less(x, min_normal, s.splat(-23.0), zero);
    let (m, n) = s.split(normal);
    let n = s.add(n, shift);
    let f = s.sub(m, s.splat(1.0));
    let square = s.mul(f, f);
    let p = polynomial(s, f, [LOG_0, LOG_1, LOG_2, LOG_3, LOG_4, LOG_5, LOG_6, LOG_7]);
    let p = s.fma(s.mul(p, f), square, s.mul(n, s.splat(LN_2_LOW)));
    let y = s.add(s.fma(s.splat(-0.5), square, p), f);
    let y = s.fma(n, s.splat(LN_2_HIGH), y);
    let y = s.select_equal(x, zero, s.splat(f32::NEG_INFINITY), y);
    let y = s.select_less(x, infinity, y, x);
    s.select_less(x, zero, s.splat(f32::NAN), y)
}

/// `log(1 + x)`. Error: 3 ULP.
#[inline(always)]
pub(crate) fn log1p<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    let u = s.add(one, x);
    // First-order correction of the rounding error of 1 + x.
    let correction = s.div(s.sub(x, s.sub(u, one)), u);
    let y = log(s, u);
    let corrected = s.add(y, correction);
    let y = s.select_less(u, s.splat(f32::INFINITY), corrected, y);
    s.select_equal(u, s.splat(0.0), s.splat(f32::NEG_INFINITY), y)
}

/// Sine, in radians. Error: 2 ULP.
#[inline(always)]
pub(crate) fn sin<S: Simd>(s: S, x: S::V) -> S::V {
    let y = sin_quarters(s, x, s.splat(0.0));
    // sin(x) rounds to x for small |x|, including -0.
    let y = s.select_less(s.abs(x), s.splat(1e-4), x, y);
    libm_beyond(s, x, y, libm::sinf)
}

/// Cosine, in radians. Error: 2 ULP.
#[inline(always)]
pub(crate) fn cos<S: Simd>(s: S, x: S::V) -> S::V {
    libm_beyond(s, x, sin_quarters(s, x, s.splat(1.0)), libm::cosf)
}

/// Largest |x| for which the Cody-Waite range reduction is accurate.
const MAX_RADIANS: f32 = 8192.0;

/// `sin(x + quarters * pi / 2)` for |x| up to [`MAX_RADIANS`].
#[inline(always)]
fn sin_quarters<S: Arithmetic>(s: S, x: S::V, quarters: S::V) -> S::V {
    let n = round(s, s.mul(x, s.splat(core::f32::consts::FRAC_2_PI)));
    // pi / 2 in four parts, the first three of 11 bits, so that their products with n are exact.
    let r = s.fma(n, s.splat(-1.570_312_5), x);
    let r = s.fma(n, s.splat(-4.837_513e-4), r);
    let r = s.fma(n, s.splat(-7.549_533_6e-8), r);
    let r = s.fma(n, s.splat(-2.563_344e-12), r);
    let square = s.mul(r, r);
    let sine = polynomial(s, square, [SIN_0, SIN_1, SIN_2, SIN_3]);
    let sine = s.fma(s.mul(sine, square), r, r);
    let cosine = polynomial(s, square, [COS_0, COS_1, COS_2]);
    let cosine = s.fma(cosine, s.mul(square, square), s.fma(square, s.splat(-0.5), s.splat(1.0)));
    let n = s.add(n, quarters);
    let quadrant = s.sub(n, s.mul(s.splat(4.0), s.floor(s.mul(n, s.splat(0.25)))));
    let half = s.mul(quadrant, s.splat(0.5));
    let y = s.select_equal(s.floor(half), half, sine, cosine);
    s.select_less(quadrant, s.splat(2.0), y, s.sub(s.splat(0.0), y))
}

/// Replaces lanes with |x| above [`MAX_RADIANS`] by `f(x)`.
#[inline(always)]
fn libm_beyond<S: Simd>(s: S, x: S::V, y: S::V, f: fn(f32) -> f32) -> S::V {
    let beyond = s.select_less(s.splat(MAX_RADIANS), s.abs(x), s.splat(1.0), s.splat(0.0));
    if s.reduce_add(beyond) == 0.0 {
        return y;
    }
    let (x, mut y, beyond) = (s.to_array(x), s.to_array(y), s.to_array(beyond));
    for i in 0..LANES {
        if beyond[i] != 0.0 {
            y[i] = f(x[i]);
        }
    }
    s.load_slice(&y)
}

/// Power function, computed by `libm`. Error: 1 ULP.
#[inline(always)]
pub(crate) fn pow<S: Simd>(s: S, a: S::V, b: S::V) -> S::V {
    let (a, b) = (s.to_array(a), s.to_array(b));
    let powers: [f32; LANES] = core::array::from_fn(|i| libm::powf(a[i], b[i]));
    s.load_slice(&powers)
}

const EXP_0: f32 = 4.9999994e-1;
const EXP_1: f32 = 1.666652e-1;
const EXP_2: f32 = 4.1668393e-2;
const EXP_3: f32 = 8.368781e-3;
const EXP_4: f32 = 1.3814465e-3;
const TANH_0: f32 = -3.3333284e-1;
const TANH_1: f32 = 1.3331491e-1;
const TANH_2: f32 = -5.3743497e-2;
const TANH_3: f32 = 2.0650579e-2;
const TANH_4: f32 = -5.717037e-3;
const ERF_0: f32 = 1.2837915e-1;
const ERF_1: f32 = -3.7612495e-1;
const ERF_2: f32 = 1.12818025e-1;
const ERF_3: f32 = -2.6765566e-2;
const ERF_4: f32 = 4.99098e-3;
const ERF_5: f32 = -5.9768936e-4;
const ERFC_0: f32 = -1.1286485;
const ERFC_1: f32 = -6.351513e-1;
const ERFC_2: f32 = -1.0623689e-1;
const ERFC_3: f32 = 2.3762075e-2;
const ERFC_4: f32 = -3.642465e-3;
const ERFC_5: f32 = 3.228054e-4;
const ERFC_6: f32 = -1.1231466e-5;
/// Coefficients of (2^r - 1) / r for |r| up to 1/2.
const EXP2: [f32; 5] = [6.931469e-1, 2.4022223e-1, 5.5508e-2, 9.672368e-3, 1.3253463e-3];
const EXP2_FOR_BF16: [f32; 3] = [6.932827e-1, 2.4221104e-1, 5.5009697e-2];
const GELU: [f32; 9] = [
    -1.1511114e0,
    -4.591617e-1,
    -5.262224e-2,
    7.2251707e-3,
    -2.4266061e-4,
    -1.5319066e-4,
    3.6657093e-5,
    -3.6350555e-6,
    1.390383e-7,
];
const GELU_FOR_BF16: [f32; 5] = [-1.1503266e0, -4.618175e-1, -4.9911488e-2, 6.3258526e-3, -3.722275e-4];
const LOG_0: f32 = 3.333333e-1;
const LOG_1: f32 = -2.5000823e-1;
const LOG_2: f32 = 2.0001227e-1;
const LOG_3: f32 = -1.6623355e-1;
const LOG_4: f32 = 1.4201763e-1;
const LOG_5: f32 = -1.3160199e-1;
const LOG_6: f32 = 1.276154e-1;
const LOG_7: f32 = -7.634407e-2;
const SIN_0: f32 = -1.6666667e-1;
const SIN_1: f32 = 8.333329e-3;
const SIN_2: f32 = -1.9839335e-4;
const SIN_3: f32 = 2.7183041e-6;
const COS_0: f32 = 4.1666646e-2;
const COS_1: f32 = -1.3887367e-3;
const COS_2: f32 = 2.4438377e-5;

#[cfg(test)]
mod tests {
    use crate::Isa;
    use crate::arch::{Dispatch, Kernel, LANES, Simd};

    #[derive(Clone, Copy, Debug)]
    enum TestFunction {
        Exp,
        Sigmoid,
        Tanh,
        Erf,
        Gelu,
        GeluForBf16,
        Exp2Down,
    }

    struct ApplyFunction<'a>(TestFunction, &'a mut [f32; LANES]);

    impl Kernel for ApplyFunction<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            // SAFETY: the array has 16 floats.
            let x = unsafe { s.load(self.1.as_ptr()) };
            let y = match self.0 {
                TestFunction::Exp => super::exp(s, x),
                TestFunction::Sigmoid => super::sigmoid(s, x),
                TestFunction::Tanh => super::tanh(s, x),
                TestFunction::Erf => super::erf(s, x),
                TestFunction::Gelu => super::gelu(s, x),
                TestFunction::GeluForBf16 => super::gelu_for_bf16(s, x),
                TestFunction::Exp2Down => super::exp2_down(s, x),
            };
            // SAFETY: as above.
            unsafe { s.store(self.1.as_mut_ptr(), y) };
        }
    }

    /// Distance to the exact result in ULP; 0 for results that may be flushed to zero.
    fn ulp(got: f32, exact: f64) -> f64 {
        if exact.abs() < f64::from(f32::MIN_POSITIVE) {
            return if got.abs() <= f32::MIN_POSITIVE { 0.0 } else { f64::INFINITY };
        }
        if exact > f64::from(f32::MAX) {
            return if got == f32::INFINITY || got == f32::MAX { 0.0 } else { f64::INFINITY };
        }
        let unit = 2f64.powi((exact.abs().log2().floor() as i32).max(-126) - 23);
        (f64::from(got) - exact).abs() / unit
    }

    #[test]
    fn functions_keep_their_bounds() {
        let cases: [(TestFunction, fn(f64) -> f64, f64); 5] = [
            (TestFunction::Exp, f64::exp, 2.0),
            (TestFunction::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 4.0),
            (TestFunction::Tanh, f64::tanh, 2.0),
            (TestFunction::Erf, libm::erf, 2.0),
            (TestFunction::Exp2Down, |x| if x <= 0.0 { x.exp2() } else { f64::NAN }, 2.0),
        ];
        for dispatch in Isa::available().filter_map(Dispatch::of) {
            for (function, exact, bound) in cases {
                let mut worst = (0.0, 0.0);
                // All exponents and signs, and some hundred thousand mantissas.
                for start in (0..u32::MAX - LANES as u32 * 7919).step_by(LANES * 7919) {
                    let inputs: [f32; LANES] = core::array::from_fn(|lane| f32::from_bits(start + lane as u32 * 7919));
                    let mut lanes = inputs;
                    dispatch.run(ApplyFunction(function, &mut lanes));
                    for (x, got) in inputs.into_iter().zip(lanes) {
                        let exact = exact(f64::from(x));
                        let error = match (x.is_nan(), exact.is_nan()) {
                            (true, _) => f64::from(u8::from(!got.is_nan())) * 1e9,
                            // Outside the domain of the function.
                            (false, true) => 0.0,
                            (false, false) => ulp(got, exact),
                        };
                        if error > worst.0 {
                            worst = (error, x);
                        }
                    }
                }
                assert!(worst.0 <= bound, "{dispatch:?} {function:?}: {} ULP at {:e}", worst.0, worst.1);
                println!("{dispatch:?} {function:?}: {:.2} ULP at {:e}", worst.0, worst.1);
            }
        }
    }

    #[test]
    fn gelu_keeps_its_bound() {
        for dispatch in Isa::available().filter_map(Dispatch::of) {
            for start in (-200_000..200_000).step_by(LANES) {
                let inputs: [f32; LANES] = core::array::from_fn(|lane| (start + lane as i32) as f32 / 16_000.0);
                let mut lanes = inputs;
                dispatch.run(ApplyFunction(TestFunction::Gelu, &mut lanes));
                let mut brief = inputs;
                dispatch.run(ApplyFunction(TestFunction::GeluForBf16, &mut brief));
                for ((x, got), brief) in inputs.into_iter().zip(lanes).zip(brief) {
                    let x = f64::from(x);
                    let exact = 0.5 * x * libm::erfc(-x * core::f64::consts::FRAC_1_SQRT_2);
                    let bound = 2f64.powi(-23) * (2.0 * exact.abs() + 1.0);
                    assert!((f64::from(got) - exact).abs() <= bound, "{dispatch:?}: gelu({x}) is {exact}, not {got}");
                    let bound = 2f64.powi(-12) * exact.abs() + 2f64.powi(-23);
                    assert!(
                        (f64::from(brief) - exact).abs() <= bound,
                        "{dispatch:?}: gelu({x}) is {exact}, not {brief}"
                    );
                }
            }
            for function in [TestFunction::Gelu, TestFunction::GeluForBf16] {
                let mut special = [0.0; LANES];
                special[..3].copy_from_slice(&[f32::NEG_INFINITY, f32::INFINITY, f32::NAN]);
                dispatch.run(ApplyFunction(function, &mut special));
                assert!(
                    special[0].is_nan() && special[1] == f32::INFINITY && special[2].is_nan(),
                    "{dispatch:?}: {special:?}"
                );
            }
        }
    }
}
