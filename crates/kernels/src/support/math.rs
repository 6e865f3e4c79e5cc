//! Elementary functions of `f32` without branches or calls, so that loops over them become vector code on every
//! target, with baseline instructions only.
//!
//! NaN, infinities, signed zeros and subnormal numbers give the results of C's functions. Errors are at most 3 units in
//! the last place, 2 for exponentials, logarithms, [`erf`], sine and cosine. Polynomials are minimax fits of the
//! quotient that each comment names, computed for this file; reductions follow Cody and Waite.
//!
//! Functions whose rare inputs need another method are kernels over slices ([`sin`], [`cos`], [`tan`], [`pow`],
//! [`atan2`]): they compute a chunk and then redo its rare elements with `libm`. `f64` uses `libm`, except for
//! [`exp64`].

const LOG2_E: f32 = core::f32::consts::LOG2_E;
/// The leading 9 bits of ln 2, so that products with exponents are exact, and the rest.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding 1.5 * 2^23 rounds to an integer, which the low bits then hold.
const ROUND: f32 = 12_582_912.0;

/// 2^n for n in -126..=127.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// n, r with x = n ln 2 + r and |r| <= ln 2 / 2.
#[inline(always)]
fn reduce_exp(x: f32) -> (i32, f32) {
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    (shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32, r)
}

#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    // In this form NaN passes.
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// e^x * 2^shift without overflow or underflow in between.
#[inline(always)]
fn exp_shift(x: f32, shift: i32) -> f32 {
    let (n, r) = reduce_exp(clamp(x, -105.0, 90.0));
    let n = n.wrapping_add(shift);
    let half = n >> 1;
    exp_reduced(r) * pow2(half) * pow2(n - half)
}

/// e^x for |x| <= 87, whose power of two is a normal number.
#[inline(always)]
fn exp_moderate(x: f32) -> f32 {
    let (n, r) = reduce_exp(x);
    exp_reduced(r) * pow2(n)
}

/// e^r for |r| <= ln 2 / 2.
#[inline(always)]
fn exp_reduced(r: f32) -> f32 {
    // (e^r - 1 - r) / r^2
    let p = 1.978_926_2e-4;
    let p = p * r + 1.394_575_2e-3;
    let p = p * r + 8.333_504e-3;
    let p = p * r + 4.166_628e-2;
    let p = p * r + 1.666_666_6e-1;
    let p = p * r + 5.0e-1;
    (p * (r * r) + r) + 1.0
}

#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    exp_shift(x, 0)
}

/// Adding 1.5 * 2^52 rounds to an integer, which the low bits then hold.
const ROUND64: f64 = 6_755_399_441_055_744.0;

/// 2^n of n + [`ROUND64`], for n in -1022..=1023.
#[inline(always)]
fn pow2_of_rounded(shifted: f64) -> f64 {
    f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// The exponential of an f64.
#[inline(always)]
pub(crate) fn exp64(x: f64) -> f64 {
    // The leading 32 bits of ln 2, so that products with exponents are exact, and the rest.
    const HIGH: f64 = 0.693_147_180_369_123_8;
    const LOW: f64 = 1.908_214_929_270_587_7e-10;
    // In this form NaN passes.
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let n = (x * core::f64::consts::LOG2_E + ROUND64) - ROUND64;
    let r = (x - n * HIGH) - n * LOW;
    // (e^r - 1 - r) / r^2, so fitted that e^r is right to 2^-57 for |r| <= ln 2 / 2.
    let p = 2.511_756_218_774_768_4e-8;
    let p = p * r + 2.763_084_109_455_964e-7;
    let p = p * r + 2.755_721_734_594_032_5e-6;
    let p = p * r + 2.480_149_130_062_630_2e-5;
    let p = p * r + 1.984_126_991_606_638e-4;
    let p = p * r + 1.388_888_894_553_759e-3;
    let p = p * r + 8.333_333_333_307_907e-3;
    let p = p * r + 4.166_666_666_652_198e-2;
    let p = p * r + 1.666_666_666_666_67e-1;
    let p = p * r + 0.500_000_000_000_001_2;
    let e = (p * (r * r) + r) + 1.0;
    // In two steps, because 2^n may be beyond the normal numbers.
    let half = n * 0.5 + ROUND64;
    let rest = (n - (half - ROUND64)) + ROUND64;
    e * pow2_of_rounded(half) * pow2_of_rounded(rest)
}

#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let (n, r) = reduce_exp(clamp(x, -20.0, 90.0));
    // (e^r - 1 - r) / r^2
    let p = 1.991_562_3e-4;
    let p = p * r + 1.394_204_6e-3;
    let p = p * r + 8.333_27e-3;
    let p = p * r + 4.166_634_4e-2;
    let p = p * r + 1.666_666_7e-1;
    let p = p * r + 5.0e-1;
    let q = p * (r * r) + r;
    // 2^n (q + 1) - 1, in an order that keeps small results exact.
    let half = n >> 1;
    let inverse = pow2(if n > 100 { -100 } else { -n });
    let result = (q + (1.0 - inverse)) * pow2(half) * pow2(n - half);
    let result = if n == 0 { q } else { result };
    if x == 0.0 { x } else { result }
}

#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    // Computed from the magnitude, because the quotient loses bits near -1.
    let t = expm1(2.0 * clamp(x.abs(), 0.0, 10.0));
    (t / (t + 2.0)).copysign(x)
}

#[inline(always)]
pub(crate) fn sinh(x: f32) -> f32 {
    let a = x.abs();
    let e = exp_shift(a, -1);
    let large = (e - 0.25 / e).copysign(x);
    let z = x * x;
    // Taylor series of (sinh x - x) / x^3, for |x| < 1
    let p = 2.755_731_9e-6 * z + 1.984_127e-4;
    let p = p * z + 8.333_333e-3;
    let p = p * z + 1.666_666_7e-1;
    let small = p * z * x + x;
    if a < 1.0 { small } else { large }
}

#[inline(always)]
pub(crate) fn cosh(x: f32) -> f32 {
    let e = exp_shift(x.abs(), -1);
    e + 0.25 / e
}

/// e, f and (log(1 + f) - f) for x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); x is positive and finite.
#[inline(always)]
fn reduce_log(x: f32) -> (f32, f32, f32) {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits().wrapping_sub(SQRT_HALF);
    let e = ((bits as i32) >> 23) as f32 - if subnormal { 23.0 } else { 0.0 };
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF)) - 1.0;
    // (log(1 + f) - f + f^2 / 2) / f^3
    let p = 6.915_156e-2;
    let p = p * f - 1.178_971_1e-1;
    let p = p * f + 1.187_302e-1;
    let p = p * f - 1.238_436_85e-1;
    let p = p * f + 1.421_865_5e-1;
    let p = p * f - 1.666_925e-1;
    let p = p * f + 2.000_222_7e-1;
    let p = p * f - 2.499_998_7e-1;
    let p = p * f + 3.333_331e-1;
    let z = f * f;
    (e, f, p * f * z - 0.5 * z)
}

/// Replaces the result of a logarithm where its argument is not positive and finite.
#[inline(always)]
fn log_limits(x: f32, result: f32) -> f32 {
    let result = if x == f32::INFINITY { x } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    // Also where x is NaN.
    if x >= 0.0 { result } else { f32::NAN }
}

#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    let (e, f, rest) = reduce_log(x);
    log_limits(x, (rest + e * LN2_LOW) + f + e * LN2_HIGH)
}

#[inline(always)]
pub(crate) fn log2(x: f32) -> f32 {
    let (e, f, rest) = reduce_log(x);
    // log2 e - 1: the whole part of the factor costs no rounding.
    const FRACTION: f32 = 0.442_695_04;
    log_limits(x, rest * FRACTION + f * FRACTION + rest + f + e)
}

#[inline(always)]
pub(crate) fn log10(x: f32) -> f32 {
    let (e, f, rest) = reduce_log(x);
    // log10 e and log10 2, each as a few leading bits and the rest.
    const E_HIGH: f32 = 0.433_593_75;
    const E_LOW: f32 = 7.007_319e-4;
    const TWO_HIGH: f32 = 0.300_781_25;
    const TWO_LOW: f32 = 2.487_457_6e-4;
    log_limits(x, (rest + f) * E_LOW + e * TWO_LOW + rest * E_HIGH + f * E_HIGH + e * TWO_HIGH)
}

#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let u = 1.0 + x;
    // The rounding error of u, divided by the slope there.
    let correction = (x - (u - 1.0)) / u;
    let regular = u > 0.0 && u < f32::INFINITY;
    let result = log(u) + if regular { correction } else { 0.0 };
    if x.abs() < 1e-8 { x } else { result }
}

/// Square root to within one unit in the last place, for use inside vectorized functions; see [`sqrt`] for the exact
/// one. Returns 0 for 0 and NaN for negative numbers; the result for infinity is unspecified.
#[inline(always)]
fn sqrt_near(x: f32) -> f32 {
    let y = f32::from_bits(0x5f37_59df_u32.wrapping_sub(x.to_bits() >> 1));
    let half = 0.5 * x;
    let y = y * (1.5 - half * y * y);
    let y = y * (1.5 - half * y * y);
    let s = x * y;
    let s = s + 0.5 * y * (x - s * s);
    if x < 0.0 { f32::NAN } else { s }
}

/// asin of s, |s| <= 1/2.
#[inline(always)]
fn asin_small(s: f32) -> f32 {
    let z = s * s;
    // (asin s - s) / s^3 in s^2
    let p = 4.223_05e-2;
    let p = p * z + 2.414_102_1e-2;
    let p = p * z + 4.547_833_7e-2;
    let p = p * z + 7.495_233e-2;
    let p = p * z + 1.666_675_4e-1;
    p * z * s + s
}

#[inline(always)]
pub(crate) fn asin(x: f32) -> f32 {
    let a = x.abs();
    let large = a > 0.5;
    let p = asin_small(if large { sqrt_near(0.5 * (1.0 - a)) } else { a });
    let result = if large { core::f32::consts::FRAC_PI_2 - 2.0 * p } else { p };
    result.copysign(x)
}

#[inline(always)]
pub(crate) fn acos(x: f32) -> f32 {
    use core::f32::consts::{FRAC_PI_2, PI};
    let a = x.abs();
    let large = a > 0.5;
    let p = asin_small(if large { sqrt_near(0.5 * (1.0 - a)) } else { x });
    let outer = if x < 0.0 { PI - 2.0 * p } else { 2.0 * p };
    if large { outer } else { FRAC_PI_2 - p }
}

/// atan(y / x) for y, x >= 0 that are not both 0 or infinite and whose sum is finite.
#[inline(always)]
fn atan_ratio(y: f32, x: f32) -> f32 {
    use core::f32::consts::{FRAC_PI_2, FRAC_PI_4};
    // The tangents of 3 pi / 8 and pi / 8.
    let steep = y > 2.414_213_7 * x;
    let middle = y > 0.414_213_57 * x;
    let numerator = if steep {
        -x
    } else if middle {
        y - x
    } else {
        y
    };
    let denominator = if steep {
        y
    } else if middle {
        y + x
    } else {
        x
    };
    let base = if steep {
        FRAC_PI_2
    } else if middle {
        FRAC_PI_4
    } else {
        0.0
    };
    let t = numerator / denominator;
    let z = t * t;
    // (atan t - t) / t^3 in t^2
    let p = -6.081_164_6e-2;
    let p = p * z + 1.059_514_36e-1;
    let p = p * z - 1.424_374e-1;
    let p = p * z + 1.999_848_3e-1;
    let p = p * z - 3.333_331_6e-1;
    base + (p * z * t + t)
}

#[inline(always)]
pub(crate) fn atan(x: f32) -> f32 {
    let a = x.abs();
    let a = if a > 1e30 { 1e30 } else { a };
    atan_ratio(a, 1.0).copysign(x)
}

/// log(1 + t), or log(2 large) where `large` is so large that t is lost to rounding.
#[inline(always)]
fn log_near(t: f32, large: f32) -> f32 {
    let is_large = large > 1e4;
    let u = 1.0 + t;
    let correction = (t - (u - 1.0)) / u;
    log(if is_large { large } else { u }) + if is_large { core::f32::consts::LN_2 } else { correction }
}

#[inline(always)]
pub(crate) fn asinh(x: f32) -> f32 {
    let a = x.abs();
    let square = a * a;
    let result = log_near(a + square / (1.0 + sqrt_near(square + 1.0)), a);
    (if a < 1e-8 { a } else { result }).copysign(x)
}

#[inline(always)]
pub(crate) fn acosh(x: f32) -> f32 {
    let t = x - 1.0;
    let result = log_near(t + sqrt_near(t * (2.0 + t)), x);
    if x >= 1.0 { result } else { f32::NAN }
}

#[inline(always)]
pub(crate) fn atanh(x: f32) -> f32 {
    let a = x.abs();
    (0.5 * log1p(2.0 * a / (1.0 - a))).copysign(x)
}

#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    // erf x / x - 1 in x^2
    let p = 8.223_987e-5;
    let p = p * z - 8.108_083e-4;
    let p = p * z + 5.197_992e-3;
    let p = p * z - 2.685_818_6e-2;
    let p = p * z + 1.128_367_4e-1;
    let p = p * z - 3.761_263_2e-1;
    let p = p * z + 1.283_791_7e-1;
    let small = p * x + x;
    // log(1 - erf x) in x; erf is 1 in f32 beyond 3.92.
    let t = if a > 4.0 { 4.0 } else { a };
    let q = -2.082_851_1e-5;
    let q = q * t + 4.313_924e-4;
    let q = q * t - 4.156_249_6e-3;
    let q = q * t + 2.508_060_3e-2;
    let q = q * t - 1.082_203_6e-1;
    let q = q * t - 6.334_008_6e-1;
    let q = q * t - 1.129_488_3;
    let q = q * t + 1.692_036_3e-4;
    let large = (1.0 - exp_moderate(q)).copysign(x);
    if a < 0.9 { small } else { large }
}

/// Rounds half to even; exact for every input.
#[inline(always)]
pub(crate) fn round(x: f32) -> f32 {
    const LIMIT: f32 = 8_388_608.0;
    let a = x.abs();
    let rounded = (a + LIMIT) - LIMIT;
    // From 2^23 on, and for NaN, x is returned unchanged.
    if a < LIMIT { rounded.copysign(x) } else { x }
}

#[inline(always)]
pub(crate) fn floor(x: f32) -> f32 {
    let r = round(x);
    let floor = if r > x { r - 1.0 } else { r };
    floor.copysign(x)
}

#[inline(always)]
pub(crate) fn ceil(x: f32) -> f32 {
    let r = round(x);
    let ceil = if r < x { r + 1.0 } else { r };
    ceil.copysign(x)
}

#[inline(always)]
pub(crate) fn trunc(x: f32) -> f32 {
    let a = x.abs();
    let r = round(a);
    (if r > a { r - 1.0 } else { r }).copysign(x)
}

/// The kernel of the exact square root: `out = sqrt(a)`. `libm` uses the processor's instruction if there is one.
pub(crate) fn sqrt(a: &[f32], out: &mut [f32]) {
    for (out, &a) in out.iter_mut().zip(a) {
        *out = libm::sqrtf(a);
    }
}

/// The kernel of `1 / sqrt(a)`: in two passes, the second of which is vector code.
pub(crate) fn rsqrt(a: &[f32], out: &mut [f32]) {
    for (a, out) in a.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
        sqrt(a, out);
        for out in out {
            *out = 1.0 / *out;
        }
    }
}

/// sin and cos of the remainder of x after quarter turns, and the number of quarter turns modulo 2^32, for |x| < 2^28.
#[inline(always)]
fn sin_cos(x: f32) -> (f32, f32, u32) {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // pi / 2: its first 25 bits, whose multiples are exact, and the rest.
    const HIGH: f64 = 1.570_796_310_901_641_8;
    const LOW: f64 = 1.589_325_477_352_819_7e-8;
    let wide = f64::from(x);
    let shifted = wide * core::f64::consts::FRAC_2_PI + ROUND;
    let turns = shifted - ROUND;
    let r = ((wide - turns * HIGH) - turns * LOW) as f32;
    let z = r * r;
    // (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4, in r^2
    let s = 2.718_237_3e-6;
    let s = s * z - 1.983_932_7e-4;
    let s = s * z + 8.333_329e-3;
    let s = s * z - 1.666_666_7e-1;
    let c = -2.720_955e-7;
    let c = c * z + 2.479_951_2e-5;
    let c = c * z - 1.388_888_3e-3;
    let c = c * z + 4.166_666_8e-2;
    // The select keeps the sign of zero.
    (if z == 0.0 { r } else { s * z * r + r }, (c * z * z - 0.5 * z) + 1.0, shifted.to_bits() as u32)
}

/// Elements that are computed before the rare ones among them are redone.
const CHUNK: usize = 256;

/// Runs `fast` over chunks and `exact` over the elements for which `fits` is false.
#[inline(always)]
fn with_rare(
    a: &[f32],
    out: &mut [f32],
    fits: impl Fn(f32) -> bool,
    fast: impl Fn(f32) -> f32,
    exact: impl Fn(f32) -> f32,
) {
    for (a, out) in a.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
        let mut rare = 0;
        for (out, &x) in out.iter_mut().zip(a) {
            rare += u32::from(!fits(x));
            *out = fast(x);
        }
        if rare > 0 {
            for (out, &x) in out.iter_mut().zip(a) {
                if !fits(x) {
                    *out = exact(x);
                }
            }
        }
    }
}

/// [`with_rare`] for binary functions.
#[inline(always)]
fn with_rare_pairs(
    (a, b): (&[f32], &[f32]),
    out: &mut [f32],
    fits: impl Fn(f32, f32) -> bool,
    fast: impl Fn(f32, f32) -> f32,
    exact: impl Fn(f32, f32) -> f32,
) {
    for ((a, b), out) in a.chunks(CHUNK).zip(b.chunks(CHUNK)).zip(out.chunks_mut(CHUNK)) {
        let mut rare = 0;
        for ((out, &x), &y) in out.iter_mut().zip(a).zip(b) {
            rare += u32::from(!fits(x, y));
            *out = fast(x, y);
        }
        if rare > 0 {
            for ((out, &x), &y) in out.iter_mut().zip(a).zip(b) {
                if !fits(x, y) {
                    *out = exact(x, y);
                }
            }
        }
    }
}

/// Turns a binary kernel into a unary one, with the number `b` as its second operand.
pub(crate) fn with_second<T: Copy>(kernel: impl Fn(&[T], &[T], &mut [T]), b: T) -> impl Fn(&[T], &mut [T]) {
    move |a, out| {
        let b = [b; CHUNK];
        for (a, out) in a.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
            kernel(a, b.get(..a.len()).unwrap_or(&[]), out);
        }
    }
}

#[inline(always)]
fn is_moderate(x: f32) -> bool {
    x.abs() < 268_435_456.0
}

pub(crate) fn sin(a: &[f32], out: &mut [f32]) {
    let fast = |x| {
        let (s, c, n) = sin_cos(x);
        let value = if n & 1 == 0 { s } else { c };
        f32::from_bits(value.to_bits() ^ ((n & 2) << 30))
    };
    with_rare(a, out, is_moderate, fast, libm::sinf);
}

pub(crate) fn cos(a: &[f32], out: &mut [f32]) {
    let fast = |x| {
        let (s, c, n) = sin_cos(x);
        let value = if n & 1 == 0 { c } else { s };
        f32::from_bits(value.to_bits() ^ ((n.wrapping_add(1) & 2) << 30))
    };
    with_rare(a, out, is_moderate, fast, libm::cosf);
}

pub(crate) fn tan(a: &[f32], out: &mut [f32]) {
    let fast = |x| {
        let (s, c, n) = sin_cos(x);
        if n & 1 == 0 { s / c } else { -c / s }
    };
    with_rare(a, out, is_moderate, fast, libm::tanf);
}

/// The kernel of `atan2(y, x)`.
pub(crate) fn atan2(y: &[f32], x: &[f32], out: &mut [f32]) {
    let ordinary = |v: f32| v.abs() > 1e-30 && v.abs() < 1e30;
    let fast = |y: f32, x: f32| {
        let angle = atan_ratio(y.abs(), x.abs());
        (if x < 0.0 { core::f32::consts::PI - angle } else { angle }).copysign(y)
    };
    with_rare_pairs((y, x), out, |y, x| ordinary(y) && ordinary(x), fast, libm::atan2f);
}

/// The base-2 logarithm of normal positive x.
#[inline(always)]
fn log2_regular(x: f32) -> f64 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = f64::from((bits as i32) >> 23);
    let m = f64::from(f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF)));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    // log2((1 + s) / (1 - s)) / s in s^2, in halves that do not wait for each other
    let p = 0.340_759_323_523_944_4 * z + 0.411_671_137_351_780_6;
    let low = 0.961_796_673_200_714_7 * z + 2.885_390_081_790_201;
    let p = (p * z + 0.577_083_611_508_039_3) * (z * z) + low;
    p * s + e
}

/// Largest magnitude of a power of two that [`exp2_regular`] computes correctly.
const REGULAR: f64 = 125.0;

/// 2^x for x from -[`REGULAR`] to [`REGULAR`].
#[inline(always)]
fn exp2_regular(x: f64) -> f32 {
    let shifted = x + ROUND64;
    let f = x - (shifted - ROUND64);
    // 2^f, in parts that do not wait for each other
    let square = f * f;
    let high = (1.547_832_110_528_003_3e-4 * f + 1.340_070_017_443_952e-3) * f + 9.617_993_432_892_22e-3;
    let middle = 5.550_326_543_161_221_4e-2 * f + 2.402_265_151_482_188_8e-1;
    let low = 6.931_472_070_255_557e-1 * f + 9.999_999_999_177_619e-1;
    let q = (high * square + middle) * square + low;
    (q * pow2_of_rounded(shifted)) as f32
}

/// True if x is a normal positive number.
#[inline(always)]
fn is_normal_positive(x: f32) -> bool {
    (f32::MIN_POSITIVE..f32::INFINITY).contains(&x)
}

/// The kernel of `a^b`.
pub(crate) fn pow(a: &[f32], b: &[f32], out: &mut [f32]) {
    let power = |x: f32, y: f32| log2_regular(x) * f64::from(y);
    let is_regular = |x: f32, y: f32| is_normal_positive(x) && power(x, y).abs() < REGULAR;
    with_rare_pairs((a, b), out, is_regular, |x, y| exp2_regular(power(x, y)), libm::powf);
}

/// The kernel of `a^y`.
pub(crate) fn pow_by(y: f32) -> impl Fn(&[f32], &mut [f32]) {
    // The largest magnitude of exponents for which all powers are regular; -1 if there is none.
    let limit = if y.is_nan() { 0.0 } else { REGULAR as f32 / y.abs() };
    let greatest = (libm::ceilf(limit).min(128.0) as i32 - 2).max(-1);
    let (from, to) = (pow2(-greatest), pow2(greatest + 1));
    let power = move |x: f32| exp2_regular(log2_regular(x) * f64::from(y));
    move |a, out| with_rare(a, out, |x| (from..to).contains(&x), power, |x| libm::powf(x, y))
}

/// The kernel of `x^b`.
pub(crate) fn pow_of(x: f32) -> impl Fn(&[f32], &mut [f32]) {
    let (is_regular, log) = (is_normal_positive(x), log2_regular(x));
    let power = move |y: f32| log * f64::from(y);
    move |b, out| {
        let fits = |y: f32| is_regular && power(y).abs() < REGULAR;
        with_rare(b, out, fits, |y| exp2_regular(power(y)), |y| libm::powf(x, y));
    }
}

/// True if [`fmod_regular`] is exact: with fewer than 2^28 multiples every step is, in `f64`.
#[inline(always)]
fn has_regular_remainder(a: f32, b: f32) -> bool {
    a.abs() < b.abs() * 268_435_456.0 && b.abs() < f32::INFINITY
}

#[inline(always)]
fn fmod_regular(a: f32, b: f32) -> f32 {
    const ROUND: f64 = 4_503_599_627_370_496.0;
    let (x, y) = (f64::from(a.abs()), f64::from(b.abs()));
    let multiples = (x / y + ROUND) - ROUND;
    let rest = x - multiples * y;
    let rest = if rest < 0.0 { rest + y } else { rest };
    (rest as f32).copysign(a)
}

/// The remainder with the sign of the divisor, from the one with the sign of the dividend.
#[inline(always)]
fn floored(rest: f32, b: f32) -> f32 {
    let other = rest + b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) { other } else { rest }
}

/// The kernel of C's `fmod`, exact.
pub(crate) fn fmod(a: &[f32], b: &[f32], out: &mut [f32]) {
    with_rare_pairs((a, b), out, has_regular_remainder, fmod_regular, libm::fmodf);
}

/// The kernel of Python's `%`.
pub(crate) fn remainder(a: &[f32], b: &[f32], out: &mut [f32]) {
    let fast = |a, b| floored(fmod_regular(a, b), b);
    with_rare_pairs((a, b), out, has_regular_remainder, fast, |a, b| floored(libm::fmodf(a, b), b));
}

/// The kernel of Python's `//`, from the exact remainder and not from the rounded quotient.
pub(crate) fn floor_div(a: &[f32], b: &[f32], out: &mut [f32]) {
    #[inline(always)]
    fn quotient(a: f32, b: f32, rest: f32) -> f32 {
        let near = (a - rest) / b;
        let below = near - 1.0;
        let near = if rest != 0.0 && (b < 0.0) != (rest < 0.0) { below } else { near };
        let whole = floor(near);
        let above = whole + 1.0;
        let whole = if near - whole > 0.5 { above } else { whole };
        let exact = a / b;
        let whole = if near == 0.0 { 0.0_f32.copysign(exact) } else { whole };
        if b == 0.0 { exact } else { whole }
    }
    let fast = |a, b| quotient(a, b, fmod_regular(a, b));
    with_rare_pairs((a, b), out, has_regular_remainder, fast, |a, b| quotient(a, b, libm::fmodf(a, b)));
}

/// The kernel of the quotient rounded towards zero.
pub(crate) fn trunc_div(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = trunc(a / b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of the exact value.
    fn ulps(got: f32, exact: f64) -> f64 {
        if got.is_nan() && exact.is_nan() || f64::from(got) == f64::from(exact as f32) {
            return 0.0;
        }
        let reference = (exact as f32).abs();
        let unit = f64::from(f32::from_bits(reference.to_bits() + 1)) - f64::from(reference);
        (f64::from(got) - exact).abs() / unit
    }

    /// Every 9973rd number between `low` and `high`, and those around zero.
    fn check(name: &str, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, low: f32, high: f32, limit: f64) {
        let samples = (0..u32::MAX / 9973).map(|i| f32::from_bits(i * 9973));
        let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-40];
        for x in samples.filter(|x| (low..=high).contains(x)).chain(special) {
            let (got, want) = (f(x), exact(f64::from(x)));
            let error = ulps(got, want);
            assert!(error <= limit, "{name}({x:e}) = {got:e}, not {want:e}: {error} units");
            assert!(got != 0.0 || want != 0.0 || got.is_sign_negative() == want.is_sign_negative(), "{name}({x:e})");
        }
    }

    fn kernel(f: impl Fn(&[f32], &mut [f32])) -> impl Fn(f32) -> f32 {
        move |x| {
            let mut out = [0.0];
            f(&[x], &mut out);
            out[0]
        }
    }

    const MIN: f32 = f32::MIN;
    const MAX: f32 = f32::MAX;

    #[test]
    fn exponentials() {
        check("exp", exp, libm::exp, MIN, MAX, 1.6);
        check("expm1", expm1, libm::expm1, MIN, MAX, 2.0);
        check("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), -80.0, MAX, 2.0);
        check("tanh", tanh, libm::tanh, MIN, MAX, 3.0);
        check("sinh", sinh, libm::sinh, MIN, MAX, 3.0);
        check("cosh", cosh, libm::cosh, MIN, MAX, 2.0);
    }

    #[test]
    fn logarithms() {
        check("log", log, libm::log, MIN, MAX, 1.5);
        check("log2", log2, libm::log2, MIN, MAX, 2.0);
        check("log10", log10, libm::log10, MIN, MAX, 2.0);
        check("log1p", log1p, libm::log1p, MIN, MAX, 2.0);
    }

    #[test]
    fn trigonometry() {
        check("sin", kernel(sin), libm::sin, MIN, MAX, 1.5);
        check("cos", kernel(cos), libm::cos, MIN, MAX, 1.5);
        check("tan", kernel(tan), libm::tan, MIN, MAX, 3.0);
        check("asin", asin, libm::asin, MIN, MAX, 3.0);
        check("acos", acos, libm::acos, MIN, MAX, 3.0);
        check("atan", atan, libm::atan, MIN, MAX, 3.0);
        check("asinh", asinh, libm::asinh, MIN, MAX, 3.0);
        // Below 1 `libm` has no NaN.
        check("acosh", acosh, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }, MIN, MAX, 3.0);
        check("atanh", atanh, libm::atanh, MIN, MAX, 3.0);
    }

    #[test]
    fn remainders() {
        for y in [0.3, -7.5, 1e-20, 3e20, 0.0, f32::INFINITY] {
            let of = |f: fn(&[f32], &[f32], &mut [f32])| {
                move |x: f32| {
                    let mut out = [0.0];
                    f(&[x], &[y], &mut out);
                    out[0]
                }
            };
            check("fmod", of(fmod), |x| libm::fmod(x, f64::from(y)), MIN, MAX, 0.0);
        }
    }

    #[test]
    fn others() {
        check("erf", erf, libm::erf, MIN, MAX, 2.0);
        check("sqrt", kernel(sqrt), libm::sqrt, MIN, MAX, 0.51);
        check("round", round, libm::rint, MIN, MAX, 0.0);
        check("floor", floor, libm::floor, MIN, MAX, 0.0);
        check("ceil", ceil, libm::ceil, MIN, MAX, 0.0);
        check("trunc", trunc, libm::trunc, MIN, MAX, 0.0);
        for y in [0.5, 1.7, -3.0, 12.25, 0.0, 80.0] {
            let power = |x: f32| {
                let mut out = [0.0];
                pow(&[x], &[y], &mut out);
                out[0]
            };
            check("pow", power, |x| libm::pow(x, f64::from(y)), MIN, MAX, 1.0);
            check("pow by a number", kernel(pow_by(y)), |x| libm::pow(x, f64::from(y)), MIN, MAX, 1.0);
            check("pow of a number", kernel(pow_of(y)), |x| libm::pow(f64::from(y), x), MIN, MAX, 1.0);
        }
        for x in [0.5, 3.0, -7.25, -0.0, f32::INFINITY] {
            let angle = |y: f32| {
                let mut out = [0.0];
                atan2(&[y], &[x], &mut out);
                out[0]
            };
            check("atan2", angle, |y| libm::atan2(y, f64::from(x)), MIN, MAX, 3.0);
        }
    }
}
