//! Orthogonal polynomials of an order for each element, which is rounded towards zero. Below order 0 they are 0.

use rushlight_runtime::OpGroup;

use super::function::function2;

function2!(SPECIAL_CHEBYSHEV_POLYNOMIAL_T_OUT, chebyshev_t, "special_chebyshev_polynomial_t", |x: f64, n| chebyshev(
    Kind::T,
    x,
    n
));
function2!(SPECIAL_CHEBYSHEV_POLYNOMIAL_U_OUT, chebyshev_u, "special_chebyshev_polynomial_u", |x: f64, n| chebyshev(
    Kind::U,
    x,
    n
));
function2!(SPECIAL_CHEBYSHEV_POLYNOMIAL_V_OUT, chebyshev_v, "special_chebyshev_polynomial_v", |x: f64, n| chebyshev(
    Kind::V,
    x,
    n
));
function2!(SPECIAL_CHEBYSHEV_POLYNOMIAL_W_OUT, chebyshev_w, "special_chebyshev_polynomial_w", |x: f64, n| chebyshev(
    Kind::W,
    x,
    n
));
function2!(
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T_OUT,
    shifted_t,
    "special_shifted_chebyshev_polynomial_t",
    |x: f64, n| { chebyshev(Kind::T, 2.0 * x - 1.0, n) }
);
function2!(
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U_OUT,
    shifted_u,
    "special_shifted_chebyshev_polynomial_u",
    |x: f64, n| { chebyshev(Kind::U, 2.0 * x - 1.0, n) }
);
function2!(
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V_OUT,
    shifted_v,
    "special_shifted_chebyshev_polynomial_v",
    |x: f64, n| { chebyshev(Kind::V, 2.0 * x - 1.0, n) }
);
function2!(
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W_OUT,
    shifted_w,
    "special_shifted_chebyshev_polynomial_w",
    |x: f64, n| { chebyshev(Kind::W, 2.0 * x - 1.0, n) }
);
function2!(SPECIAL_HERMITE_POLYNOMIAL_H_OUT, hermite_h, "special_hermite_polynomial_h", |x: f64, n| {
    recurrence(2.0 * x, n, HERMITE, |k, this, before| 2.0 * x * this - 2.0 * k * before)
});
function2!(SPECIAL_HERMITE_POLYNOMIAL_HE_OUT, hermite_he, "special_hermite_polynomial_he", |x: f64, n| {
    recurrence(x, n, HERMITE, |k, this, before| x * this - k * before)
});
function2!(SPECIAL_LAGUERRE_POLYNOMIAL_L_OUT, laguerre_l, "special_laguerre_polynomial_l", |x: f64, n| {
    recurrence(1.0 - x, n, LONGEST, |k, this, before| ((2.0 * k + 1.0 - x) * this - k * before) / (k + 1.0))
});
function2!(SPECIAL_LEGENDRE_POLYNOMIAL_P_OUT, legendre_p, "special_legendre_polynomial_p", |x: f64, n| {
    recurrence(x, n, LONGEST, |k, this, before| ((2.0 * k + 1.0) * x * this - k * before) / (k + 1.0))
});

pub const OPS: OpGroup = &[
    SPECIAL_CHEBYSHEV_POLYNOMIAL_T_OUT,
    SPECIAL_CHEBYSHEV_POLYNOMIAL_U_OUT,
    SPECIAL_CHEBYSHEV_POLYNOMIAL_V_OUT,
    SPECIAL_CHEBYSHEV_POLYNOMIAL_W_OUT,
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T_OUT,
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U_OUT,
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V_OUT,
    SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W_OUT,
    SPECIAL_HERMITE_POLYNOMIAL_H_OUT,
    SPECIAL_HERMITE_POLYNOMIAL_HE_OUT,
    SPECIAL_LAGUERRE_POLYNOMIAL_L_OUT,
    SPECIAL_LEGENDRE_POLYNOMIAL_P_OUT,
];

/// The order beyond which Hermite's polynomials are NaN, as in PyTorch.
const HERMITE: f64 = 512.0;

/// The maximum order of a recurrence; beyond it the result is NaN.
const LONGEST: f64 = 1_048_576.0;

/// Computes the polynomial of order `n` by recurrence. Order 0 is 1, order 1 is `first`, and order `k + 1` is `next(k, this, before)`.
fn recurrence(first: f64, n: f64, limit: f64, next: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let n = libm::trunc(n);
    if n < 1.0 {
        return if n < 0.0 { 0.0 } else { 1.0 };
    }
    if n > limit || n.is_nan() {
        return f64::NAN;
    }
    let (mut before, mut this, mut k) = (1.0, first, 1.0);
    while k < n {
        (before, this) = (this, next(k, this, before));
        k += 1.0;
        if this.is_nan() {
            break;
        }
    }
    this
}

/// The kinds of Chebyshev's polynomials.
#[derive(Clone, Copy)]
enum Kind {
    T,
    U,
    V,
    W,
}

/// Computes by recurrence, or for high orders by the closed form with (hyperbolic) cosines and sines.
fn chebyshev(kind: Kind, x: f64, n: f64) -> f64 {
    let n = libm::trunc(n);
    if n > 64.0 && x.abs() != 1.0 && x.is_finite() {
        return closed(kind, x, n);
    }
    if n > 64.0 && x.abs() == 1.0 {
        let sign = if x > 0.0 || libm::fmod(n, 2.0) == 0.0 { 1.0 } else { -1.0 };
        return match (kind, x > 0.0) {
            (Kind::T, _) | (Kind::V, true) | (Kind::W, false) => sign,
            (Kind::U, _) => sign * (n + 1.0),
            (Kind::V, false) | (Kind::W, true) => sign * (2.0 * n + 1.0),
        };
    }
    let first = match kind {
        Kind::T => x,
        Kind::U => 2.0 * x,
        Kind::V => 2.0 * x - 1.0,
        Kind::W => 2.0 * x + 1.0,
    };
    recurrence(first, n, LONGEST, |_, this, before| 2.0 * x * this - before)
}

fn closed(kind: Kind, x: f64, n: f64) -> f64 {
    let inside = x.abs() < 1.0;
    let even = libm::fmod(n, 2.0) == 0.0;
    // At -x the orders alternate in sign, and V and W change places.
    let flipped = !inside && x < 0.0;
    let angle = if inside { libm::acos(x) } else { libm::acosh(x.abs()) };
    let (cos, sin): (fn(f64) -> f64, fn(f64) -> f64) =
        if inside { (libm::cos, libm::sin) } else { (libm::cosh, libm::sinh) };
    let value = match (kind, flipped) {
        (Kind::T, _) => cos(n * angle),
        (Kind::U, _) => sin((n + 1.0) * angle) / sin(angle),
        (Kind::V, false) | (Kind::W, true) => cos((n + 0.5) * angle) / cos(angle / 2.0),
        (Kind::V, true) | (Kind::W, false) => sin((n + 0.5) * angle) / sin(angle / 2.0),
    };
    if flipped && !even { -value } else { value }
}
