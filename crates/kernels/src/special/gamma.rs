//! The gamma function's logarithm and derivatives, Hurwitz's zeta function, and the incomplete gamma functions.

use core::f64::consts::{FRAC_1_SQRT_2, PI};

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use super::function::{function, function2, of_one};

function!(LGAMMA_OUT, lgamma_out, "lgamma", lgamma);
function!(DIGAMMA_OUT, digamma_out, "digamma", digamma);
function2!(SPECIAL_ZETA_OUT, zeta_out, "special_zeta", zeta);
function2!(IGAMMA_OUT, igamma_out, "igamma", lower_incomplete);
function2!(IGAMMAC_OUT, igammac_out, "igammac", upper_incomplete);

/// `polygamma.out(int n, Tensor self, *, Tensor(a!) out)`: the derivative of order `n` of `digamma`.
pub const POLYGAMMA_OUT: Op = Op::new("aten::polygamma.out", 3, polygamma_out);

pub const OPS: OpGroup = &[LGAMMA_OUT, DIGAMMA_OUT, SPECIAL_ZETA_OUT, IGAMMA_OUT, IGAMMAC_OUT, POLYGAMMA_OUT];

/// The logarithm of the magnitude; infinite at integers up to 0.
pub(crate) fn lgamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { f64::INFINITY } else { libm::lgamma(x) }
}

/// By recurrence up to 10, then Bernoulli's series; below 0 by reflection.
fn digamma(x: f64) -> f64 {
    const BERNOULLI: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0];
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        let fraction = x - libm::trunc(x);
        if fraction == 0.0 || x == f64::NEG_INFINITY {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / libm::tan(PI * fraction);
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let series = BERNOULLI.iter().rev().fold(0.0, |series, term| (series + term) * z);
    let log = libm::log(x) - 0.5 / x;
    if x.is_infinite() { x } else { sum + log - series }
}

/// `Σ (k + q)^-x`, by Euler and Maclaurin's formula.
fn zeta(x: f64, q: f64) -> f64 {
    // (2k)! / B_2k
    const TERMS: [f64; 12] = [
        12.0,
        -720.0,
        30_240.0,
        -1_209_600.0,
        47_900_160.0,
        -1.892_437_580_318_379_2e9,
        7.472_424_96e10,
        -2.950_130_727_918_164e12,
        1.164_678_281_435_006_7e14,
        -4.597_978_722_407_472e15,
        1.815_210_540_194_354_7e17,
        -7.166_165_256_175_667e18,
    ];
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 {
        return f64::NAN;
    }
    // A pole, where x is NaN, too: as in PyTorch.
    if q <= 0.0 {
        if q == libm::floor(q) {
            return f64::INFINITY;
        }
        // Below -1e6 the sum would have too many terms.
        if x != libm::floor(x) || q < -1e6 {
            return f64::NAN;
        }
    }
    if x.is_nan() || q.is_nan() {
        return f64::NAN;
    }
    let (mut sum, mut at) = (libm::pow(q, -x), q);
    let mut term = 0.0;
    let mut count = 0;
    while count < 9 || at <= 9.0 {
        count += 1;
        at += 1.0;
        term = libm::pow(at, -x);
        sum += term;
        if (term / sum).abs() < f64::EPSILON * 0.5 {
            return sum;
        }
    }
    sum += term * at / (x - 1.0) - 0.5 * term;
    let (mut factor, mut k) = (1.0, 0.0);
    for divisor in TERMS {
        factor *= x + k;
        term /= at;
        let step = factor * term / divisor;
        sum += step;
        if (step / sum).abs() < f64::EPSILON * 0.5 {
            break;
        }
        factor *= x + k + 1.0;
        term /= at;
        k += 2.0;
    }
    sum
}

fn polygamma_out(cx: &KernelContext<'_>) -> Result<()> {
    let n = cx.int(0)?;
    if n < 0 {
        return Err(Error::from(Detail::Value { what: "n", expected: "not negative", got: n }).arg(0));
    }
    let order = n as f64;
    let factor = if n % 2 == 0 { -1.0 } else { 1.0 } * libm::tgamma(order + 1.0);
    match n {
        0 => of_one(cx, 1, &digamma),
        1 => of_one(cx, 1, &trigamma),
        _ => of_one(cx, 1, &|x| factor * zeta(order + 1.0, x)),
    }
}

fn trigamma(x: f64) -> f64 {
    if x < 0.5 {
        let sine = libm::sin(PI * x);
        return PI * PI / (sine * sine) - zeta(2.0, 1.0 - x);
    }
    zeta(2.0, x)
}

/// Maximum number of terms of a series or continued fraction.
const TERMS: usize = 1 << 16;

/// The minimum order for which the normal distribution approximates the gamma distribution.
const NORMAL: f64 = 1e7;

/// `x^a e^-x / Γ(a)`.
fn density(a: f64, x: f64) -> f64 {
    if a < 10.0 {
        return libm::exp(a * libm::log(x) - x - lgamma(a));
    }
    // Stirling's series avoids the cancellation of large terms.
    let (r, mu) = (1.0 / a, (x - a) / a);
    let z = r * r;
    let stirling = r * (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0))));
    let exponent = if x > 0.0 { a * (libm::log1p(mu) - mu) } else { f64::NEG_INFINITY };
    libm::sqrt(a / (2.0 * PI)) * libm::exp(exponent - stirling)
}

/// The series of the lower function (Abramowitz and Stegun 6.5.29).
fn series(a: f64, x: f64) -> f64 {
    let (mut at, mut term, mut sum) = (a, 1.0, 1.0);
    for _ in 0..TERMS {
        at += 1.0;
        term *= x / at;
        sum += term;
        if term <= f64::EPSILON * 0.5 * sum {
            break;
        }
    }
    sum * density(a, x) / a
}

/// The continued fraction of the upper function (Abramowitz and Stegun 6.5.31), by Lentz's method.
fn fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-290;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut value = d;
    for k in 1..TERMS {
        let k = k as f64;
        let numerator = -k * (k - a);
        b += 2.0;
        d = numerator * d + b;
        c = b + numerator / c;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = if c.abs() < TINY { TINY } else { c };
        let step = c * d;
        value *= step;
        if (step - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    value * density(a, x)
}

/// The lower and the upper regularized incomplete gamma functions, whose sum is 1.
fn incomplete(a: f64, x: f64) -> [f64; 2] {
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 || (a == 0.0 && x == 0.0) || (a.is_infinite() && x.is_infinite())
    {
        return [f64::NAN; 2];
    }
    if x == 0.0 || a.is_infinite() {
        return [0.0, 1.0];
    }
    if a == 0.0 || x.is_infinite() {
        return [1.0, 0.0];
    }
    if a > NORMAL {
        // Wilson and Hilferty: the cube root is approximately normal.
        let deviation = (libm::cbrt(x / a) - (1.0 - 1.0 / (9.0 * a))) * 3.0 * libm::sqrt(a);
        return [-deviation, deviation].map(|z| 0.5 * libm::erfc(z * FRAC_1_SQRT_2));
    }
    if x > 1.0 && x > a {
        let upper = fraction(a, x);
        [1.0 - upper, upper]
    } else {
        let lower = series(a, x);
        [lower, 1.0 - lower]
    }
}

fn lower_incomplete(a: f64, x: f64) -> f64 {
    incomplete(a, x)[0]
}

fn upper_incomplete(a: f64, x: f64) -> f64 {
    incomplete(a, x)[1]
}
