//! Bessel functions of orders 0 and 1, modified and not, and Airy's function.

use core::f64::consts::{FRAC_1_PI, FRAC_1_SQRT_2, FRAC_2_PI, PI};

use rushlight_runtime::OpGroup;

use super::function::function;

function!(I0_OUT, i0_out, "i0", |x: f64| modified(0, x));
function!(SPECIAL_I0E_OUT, i0e_out, "special_i0e", |x: f64| modified_scaled(0, x));
function!(SPECIAL_I1_OUT, i1_out, "special_i1", |x: f64| modified(1, x));
function!(SPECIAL_I1E_OUT, i1e_out, "special_i1e", |x: f64| modified_scaled(1, x));
function!(SPECIAL_MODIFIED_BESSEL_I0_OUT, modified_i0, "special_modified_bessel_i0", |x: f64| modified(0, x));
function!(SPECIAL_MODIFIED_BESSEL_I1_OUT, modified_i1, "special_modified_bessel_i1", |x: f64| modified(1, x));
function!(SPECIAL_MODIFIED_BESSEL_K0_OUT, modified_k0, "special_modified_bessel_k0", |x: f64| second(0.0, x)
    * libm::exp(-x));
function!(SPECIAL_MODIFIED_BESSEL_K1_OUT, modified_k1, "special_modified_bessel_k1", |x: f64| second(1.0, x)
    * libm::exp(-x));
function!(SPECIAL_SCALED_MODIFIED_BESSEL_K0_OUT, scaled_k0, "special_scaled_modified_bessel_k0", |x: f64| second(
    0.0, x
));
function!(SPECIAL_SCALED_MODIFIED_BESSEL_K1_OUT, scaled_k1, "special_scaled_modified_bessel_k1", |x: f64| second(
    1.0, x
));
function!(SPECIAL_BESSEL_J0_OUT, bessel_j0, "special_bessel_j0", |x: f64| pair(x.abs())[0]);
function!(SPECIAL_BESSEL_J1_OUT, bessel_j1, "special_bessel_j1", |x: f64| pair(x.abs())[1] * 1.0_f64.copysign(x));
function!(SPECIAL_BESSEL_Y0_OUT, bessel_y0, "special_bessel_y0", |x: f64| pair(x)[2]);
function!(SPECIAL_BESSEL_Y1_OUT, bessel_y1, "special_bessel_y1", |x: f64| pair(x)[3]);
function!(SPECIAL_SPHERICAL_BESSEL_J0_OUT, spherical, "special_spherical_bessel_j0", spherical_j0);
function!(SPECIAL_AIRY_AI_OUT, airy_out, "special_airy_ai", airy);

pub const OPS: OpGroup = &[
    I0_OUT,
    SPECIAL_I0E_OUT,
    SPECIAL_I1_OUT,
    SPECIAL_I1E_OUT,
    SPECIAL_MODIFIED_BESSEL_I0_OUT,
    SPECIAL_MODIFIED_BESSEL_I1_OUT,
    SPECIAL_MODIFIED_BESSEL_K0_OUT,
    SPECIAL_MODIFIED_BESSEL_K1_OUT,
    SPECIAL_SCALED_MODIFIED_BESSEL_K0_OUT,
    SPECIAL_SCALED_MODIFIED_BESSEL_K1_OUT,
    SPECIAL_BESSEL_J0_OUT,
    SPECIAL_BESSEL_J1_OUT,
    SPECIAL_BESSEL_Y0_OUT,
    SPECIAL_BESSEL_Y1_OUT,
    SPECIAL_SPHERICAL_BESSEL_J0_OUT,
    SPECIAL_AIRY_AI_OUT,
];

/// Terms of Hankel's asymptotic series, which are kept while they get smaller.
const HANKEL: usize = 40;

/// `e^-|x| I_n(x)` for `n` 0 or 1: the power series, all of whose terms have one sign, then Hankel's.
fn modified_scaled(n: u32, x: f64) -> f64 {
    let (a, order) = (x.abs(), f64::from(n));
    let value = if a <= 30.0 {
        let quarter = a * a / 4.0;
        let (mut term, mut sum) = (if n == 0 { 1.0 } else { a / 2.0 }, 0.0);
        for k in 1..120 {
            sum += term;
            term *= quarter / (f64::from(k) * (f64::from(k) + order));
        }
        sum * libm::exp(-a)
    } else if a.is_infinite() {
        0.0
    } else {
        let (mut term, mut sum) = (1.0, 0.0);
        for k in 1..HANKEL {
            sum += term;
            let odd = (2 * k - 1) as f64;
            let next: f64 = -term * (4.0 * order - odd * odd) / (8.0 * k as f64 * a);
            if next.abs() >= f64::abs(term) {
                break;
            }
            term = next;
        }
        sum / libm::sqrt(2.0 * PI * a)
    };
    if n == 1 { value.copysign(x) } else { value }
}

fn modified(n: u32, x: f64) -> f64 {
    if x.is_infinite() {
        return if n == 1 { x } else { f64::INFINITY };
    }
    // Two factors avoid an overflow of a finite result.
    let root = libm::exp(x.abs() / 2.0);
    modified_scaled(n, x) * root * root
}

/// `e^x K_v(x)`: the integral of `exp(-x (cosh t - 1)) cosh vt` over positive t, by the trapezoidal rule, whose error falls
/// exponentially with the number of points.
fn second(v: f64, x: f64) -> f64 {
    if x <= 0.0 || x.is_nan() {
        return if x == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    if x.is_infinite() {
        return 0.0;
    }
    let step = if x > 16.0 { 0.5 / libm::sqrt(x) } else { 0.125 };
    let (mut sum, mut t) = (0.5, step);
    for _ in 0..8192 {
        let sinh = libm::sinh(t / 2.0);
        let exponent = 2.0 * x * sinh * sinh;
        if exponent - v * t > 45.0 {
            break;
        }
        sum += 0.5 * (libm::exp(v * t - exponent) + libm::exp(-v * t - exponent));
        t += step;
    }
    sum * step
}

/// J0, J1, Y0 and Y1 of positive numbers.
fn pair(x: f64) -> [f64; 4] {
    const GAMMA: f64 = 0.577_215_664_901_532_9;
    if x.is_nan() || x < 0.0 {
        return [f64::NAN; 4];
    }
    if x == 0.0 {
        return [1.0, 0.0, f64::NEG_INFINITY, f64::NEG_INFINITY];
    }
    if x > 25.0 {
        return hankel(x);
    }
    let log = libm::log(x / 2.0);
    if x < 1e-8 {
        return [1.0, x / 2.0, FRAC_2_PI * (log + GAMMA), -FRAC_2_PI / x];
    }
    // Miller's recurrence downwards, with the sums that normalize it (1 = J0 + 2 Σ J_2k) and that are Neumann's series of Y0 and Y1.
    let mut k = 2 * (x as usize / 2) + 48;
    let (mut next, mut this) = (0.0, 1e-300);
    let (mut norm, mut even, mut odd) = (0.0, 0.0, 0.0);
    while k > 0 {
        let order = k as f64;
        let half = (k / 2) as f64;
        let sign = if (k / 2).is_multiple_of(2) { 1.0 } else { -1.0 };
        if k.is_multiple_of(2) {
            norm += 2.0 * this;
            even += sign * this / half;
        } else if k > 1 {
            odd += sign * order * this / (half * (half + 1.0));
        }
        (next, this) = (this, 2.0 * order / x * this - next);
        if f64::abs(this) > 1e200 {
            for value in [&mut next, &mut this, &mut norm, &mut even, &mut odd] {
                *value *= 1e-250;
            }
        }
        k -= 1;
    }
    norm += this;
    let [j0, j1, even, odd] = [this, next, even, odd].map(|value| value / norm);
    let y0 = FRAC_2_PI * ((log + GAMMA) * j0 - 2.0 * even);
    let y1 = FRAC_2_PI * ((log + GAMMA - 1.0) * j1 - odd - j0 / x);
    [j0, j1, y0, y1]
}

/// Hankel's asymptotic series.
fn hankel(x: f64) -> [f64; 4] {
    let series = |order: f64| {
        let (mut term, mut sums) = (1.0, [0.0, 0.0]);
        for k in 0..HANKEL {
            let sign = if (k / 2) % 2 == 0 { 1.0 } else { -1.0 };
            sums[k % 2] += sign * term;
            let odd = (2 * k + 1) as f64;
            let next: f64 = term * (4.0 * order - odd * odd) / (8.0 * (k + 1) as f64 * x);
            if next.abs() >= f64::abs(term) {
                break;
            }
            term = next;
        }
        sums
    };
    let (sin, cos) = libm::sincos(x);
    let (sum, difference) = ((cos + sin) * FRAC_1_SQRT_2, (sin - cos) * FRAC_1_SQRT_2);
    let scale = libm::sqrt(FRAC_2_PI / x);
    let ([p0, q0], [p1, q1]) = (series(0.0), series(1.0));
    let values = [
        p0 * sum - q0 * difference,
        p1 * difference + q1 * sum,
        p0 * difference + q0 * sum,
        q1 * difference - p1 * sum,
    ];
    values.map(|value| scale * value)
}

fn spherical_j0(x: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    if x.abs() < 0.5 {
        let z = x * x;
        let terms = [210.0, 156.0, 110.0, 72.0, 42.0, 20.0, 6.0];
        return terms.iter().fold(1.0, |sum, divisor| 1.0 - z / divisor * sum);
    }
    libm::sin(x) / x
}

/// Airy's function of the first kind.
fn airy(x: f64) -> f64 {
    if x.is_nan() || x.is_infinite() {
        return f64::NAN;
    }
    // The same bound as PyTorch's.
    if x > 103.892 {
        return 0.0;
    }
    let zeta = 2.0 / 3.0 * x.abs() * libm::sqrt(x.abs());
    if x > 1.0 {
        return FRAC_1_PI * libm::sqrt(x / 3.0) * second(1.0 / 3.0, zeta) * libm::exp(-zeta);
    }
    if x < -16.0 {
        let (mut term, mut sums) = (1.0, [0.0, 0.0]);
        for k in 0..HANKEL {
            let sign = if (k / 2) % 2 == 0 { 1.0 } else { -1.0 };
            sums[k % 2] += sign * term;
            let n = (k + 1) as f64;
            let next: f64 =
                term * (6.0 * n - 5.0) * (6.0 * n - 3.0) * (6.0 * n - 1.0) / ((2.0 * n - 1.0) * 216.0 * n * zeta);
            if next.abs() >= f64::abs(term) {
                break;
            }
            term = next;
        }
        let (sin, cos) = libm::sincos(zeta);
        let (sum, difference) = ((cos + sin) * FRAC_1_SQRT_2, (sin - cos) * FRAC_1_SQRT_2);
        return (sum * sums[0] + difference * sums[1]) / (libm::sqrt(PI) * libm::sqrt(libm::sqrt(-x)));
    }
    // Taylor's series of y'' = x y, from 0 in steps of at most 1.
    let (mut at, mut y, mut slope) = (0.0, 0.355_028_053_887_817_2, -0.258_819_403_792_806_8);
    for _ in 0..17 {
        let step = (x - at).clamp(-1.0, 1.0);
        let (mut coefficients, mut power) = ([0.0, y, slope], step);
        let (mut value, mut derivative) = (y, 0.0);
        for n in 0..40 {
            let n = f64::from(n);
            let [before, this, next] = coefficients;
            value += next * power;
            derivative += (n + 1.0) * next * power / step;
            power *= step;
            coefficients = [this, next, (at * this + before) / ((n + 2.0) * (n + 1.0))];
        }
        if step == 0.0 {
            break;
        }
        (y, slope, at) = (value, derivative, at + step);
    }
    y
}
