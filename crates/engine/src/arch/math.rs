//! Transcendental functions on vectors. Coefficients are minimax fits; errors are against the exact value, in units in
//! the last place (ULP) of the result, as the tests measure them over the whole range.
//!
//! NaN gives NaN everywhere.

use super::Simd;

/// Horner's rule: `c[0] + x * (c[1] + x * …)`.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut sum = s.splat(c[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.fma(sum, x, s.splat(c[i]));
    }
    sum
}

/// The integer nearest to `x`, ties to even, for |x| below 2^22.
#[inline(always)]
fn round<S: Simd>(s: S, x: S::V) -> S::V {
    let shift = s.splat(12_582_912.0); // 1.5 * 2^23: the sum has no bits left for fractions.
    s.sub(s.add(x, shift), shift)
}

/// e to the power of `x`. Error: 2 ULP. Results below the least normal number are 0.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    const LEAST: f32 = -87.336_54; // ln of the least normal number
    const GREATEST: f32 = 88.722_83; // ln of the greatest number
    let bounded = s.min(s.splat(GREATEST), s.max(s.splat(LEAST), x));
    let n = round(s, s.mul(bounded, s.splat(core::f32::consts::LOG2_E)));
    // ln 2 in two parts (Cody and Waite): the first has trailing zeros, so that its product with n is exact.
    let r = s.fma(n, s.splat(-0.693_359_4), bounded);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let p = polynomial(s, r, [EXP_0, EXP_1, EXP_2, EXP_3, EXP_4]);
    let p = s.add(s.fma(s.mul(r, r), p, r), s.splat(1.0));
    // n may be 128, which `exp2i` cannot do.
    let scaled = s.mul(s.mul(p, s.exp2i(s.sub(n, s.splat(1.0)))), s.splat(2.0));
    let scaled = s.select_less(x, s.splat(LEAST), s.splat(0.0), scaled);
    s.select_less(s.splat(GREATEST), x, s.splat(f32::INFINITY), scaled)
}

/// 1 / (1 + exp(-x)). Error: 4 ULP; 0 where the exact result is below 2^-126.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// The hyperbolic tangent. Error: 2 ULP.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let magnitude = s.abs(x);
    let square = s.mul(x, x);
    let p = polynomial(s, square, [TANH_0, TANH_1, TANH_2, TANH_3, TANH_4]);
    let small = s.fma(s.mul(p, square), x, x);
    let one = s.splat(1.0);
    // Beyond 10, where the result is 1, the exponential would overflow in the end.
    let doubled = s.min(s.splat(20.0), s.add(magnitude, magnitude));
    let large = s.sub(one, s.div(s.splat(2.0), s.add(one, exp(s, doubled))));
    s.select_less(magnitude, s.splat(0.625), small, s.copysign(large, x))
}

/// The error function. Error: 2 ULP.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::V) -> S::V {
    let magnitude = s.abs(x);
    let p = polynomial(s, s.mul(x, x), [ERF_0, ERF_1, ERF_2, ERF_3, ERF_4, ERF_5]);
    let small = s.fma(p, x, x);
    // ln(1 - erf(t)) = t P(t) up to 4, from where on the result is 1.
    let t = s.min(s.splat(4.0), magnitude);
    let q = polynomial(s, t, [ERFC_0, ERFC_1, ERFC_2, ERFC_3, ERFC_4, ERFC_5, ERFC_6]);
    let large = s.sub(s.splat(1.0), exp(s, s.mul(q, t)));
    s.select_less(magnitude, s.splat(0.93), small, s.copysign(large, x))
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
