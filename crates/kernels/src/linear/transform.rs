//! The discrete Fourier transform of one line of any length.
//!
//! Stockham's autosorting algorithm in radix 4, 2 and the odd prime factors; a length with a large prime factor is
//! turned into a circular convolution of a power of two (Bluestein, 1970).

use rushlight_runtime::Complex;

use crate::support::real::Real;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Prime factors above this make a convolution cheaper than a butterfly.
const LARGEST_FACTOR: usize = 31;

/// Complex numbers of memory that a transform of length `n` works in; `None` on overflow.
pub(super) fn work_len(n: usize) -> Option<usize> {
    // No line in memory is longer; the factors are looked for one by one.
    u32::try_from(n).ok()?;
    match padded_len(n) {
        None => n.checked_mul(3),
        Some(m) => m.checked_mul(4)?.checked_add(n.checked_mul(2)?),
    }
}

/// The power of two that a length with a large prime factor is convolved in.
fn padded_len(n: usize) -> Option<usize> {
    if largest_factor(n) <= LARGEST_FACTOR {
        return None;
    }
    n.checked_mul(2)?.checked_next_power_of_two()
}

fn largest_factor(mut n: usize) -> usize {
    let mut largest = 1;
    while n > 1 {
        largest = next_factor(n);
        n /= largest;
    }
    largest
}

/// The radix that a transform of length `n` is split by first.
fn next_factor(n: usize) -> usize {
    if n.is_multiple_of(4) {
        return 4;
    }
    let root = n.isqrt();
    (2..=root).find(|&p| n.is_multiple_of(p)).unwrap_or(n)
}

/// A transform of one length and its memory.
pub(super) struct Transform<'w, F> {
    n: usize,
    /// exp(-2 pi i k / m) for k in 0..m, where m is the length that is split into factors; conjugated if backward.
    twiddles: &'w [Complex<F>],
    a: &'w mut [Complex<F>],
    b: &'w mut [Complex<F>],
    chirp: Option<Chirp<'w, F>>,
}

struct Chirp<'w, F> {
    /// exp(-pi i k^2 / n) for k in 0..n; conjugated if backward.
    factors: &'w [Complex<F>],
    /// The transform of the conjugate chirp, divided by its length.
    filter: &'w [Complex<F>],
    line: &'w mut [Complex<F>],
}

impl<'w, F: Real> Transform<'w, F> {
    /// `work` has [`work_len`] elements, or at least `3 * n`: then a large prime factor takes its square in time.
    pub(super) fn new(n: usize, direction: Direction, work: &'w mut [Complex<F>]) -> Self {
        let sign = if direction == Direction::Forward { -1.0 } else { 1.0 };
        let padded = padded_len(n).filter(|_| work_len(n).is_some_and(|len| len <= work.len()));
        let m = padded.unwrap_or(n);
        let (twiddles, rest) = split(work, m);
        for (k, twiddle) in twiddles.iter_mut().enumerate() {
            *twiddle = turn(sign * k as f64 / m as f64);
        }
        let (a, rest) = split(rest, m);
        let (b, rest) = split(rest, m);
        if padded.is_none() {
            return Self { n, twiddles, a, b, chirp: None };
        }
        let (factors, rest) = split(rest, n);
        for (k, factor) in factors.iter_mut().enumerate() {
            // k^2 modulo 2 n keeps the angle exact.
            let square = (k as u64).wrapping_mul(k as u64) % (2 * n as u64).max(1);
            *factor = turn(sign * square as f64 / (2.0 * n as f64));
        }
        let (filter, rest) = split(rest, m);
        let (line, _) = split(rest, n);
        a.fill(Complex { re: F::ZERO, im: F::ZERO });
        let scale = F::ONE / F::of(m);
        for (k, factor) in factors.iter().enumerate() {
            let value = Complex { re: factor.re.mul(scale), im: F::ZERO.sub(factor.im).mul(scale) };
            for k in [k, (m - k) % m] {
                if let Some(slot) = a.get_mut(k) {
                    *slot = value;
                }
            }
        }
        stockham(twiddles, a, b);
        filter.copy_from_slice(a);
        Self { n, twiddles, a, b, chirp: Some(Chirp { factors, filter, line }) }
    }

    /// Where the values go in, `n` of them.
    pub(super) fn line(&mut self) -> &mut [Complex<F>] {
        match &mut self.chirp {
            Some(chirp) => chirp.line,
            None => self.a,
        }
    }

    /// Transforms [`line`](Self::line).
    pub(super) fn run(&mut self) -> &[Complex<F>] {
        let Some(chirp) = &mut self.chirp else {
            stockham(self.twiddles, self.a, self.b);
            return self.a;
        };
        let (start, rest) = self.a.split_at_mut(self.n.min(self.a.len()));
        for ((slot, value), factor) in start.iter_mut().zip(&*chirp.line).zip(chirp.factors) {
            *slot = multiply(*value, *factor);
        }
        rest.fill(Complex { re: F::ZERO, im: F::ZERO });
        stockham(self.twiddles, self.a, self.b);
        // A backward transform is the conjugate of the forward one of the conjugate.
        for (value, filter) in self.a.iter_mut().zip(chirp.filter) {
            *value = conjugate(multiply(*value, *filter));
        }
        stockham(self.twiddles, self.a, self.b);
        for ((slot, value), factor) in chirp.line.iter_mut().zip(&*self.a).zip(chirp.factors) {
            *slot = multiply(conjugate(*value), *factor);
        }
        chirp.line
    }
}

fn split<F>(work: &mut [Complex<F>], len: usize) -> (&mut [Complex<F>], &mut [Complex<F>]) {
    let len = len.min(work.len());
    work.split_at_mut(len)
}

/// exp(2 pi i x)
fn turn<F: Real>(x: f64) -> Complex<F> {
    let (sin, cos) = libm::sincos(x * core::f64::consts::TAU);
    Complex { re: F::from_f64(cos), im: F::from_f64(sin) }
}

fn conjugate<F: Real>(a: Complex<F>) -> Complex<F> {
    Complex { re: a.re, im: F::ZERO.sub(a.im) }
}

#[inline(always)]
fn multiply<F: Real>(a: Complex<F>, b: Complex<F>) -> Complex<F> {
    Complex { re: a.re.mul(b.re).sub(a.im.mul(b.im)), im: a.re.mul(b.im).add(a.im.mul(b.re)) }
}

#[inline(always)]
fn add<F: Real>(a: Complex<F>, b: Complex<F>) -> Complex<F> {
    Complex { re: a.re.add(b.re), im: a.im.add(b.im) }
}

#[inline(always)]
fn subtract<F: Real>(a: Complex<F>, b: Complex<F>) -> Complex<F> {
    Complex { re: a.re.sub(b.re), im: a.im.sub(b.im) }
}

/// Transforms `a` with the help of `b` of the same length; the result is in `a`.
///
/// After each pass the transform of length n, of which `step` lie interleaved, is one of length n / radix.
fn stockham<F: Real>(twiddles: &[Complex<F>], a: &mut [Complex<F>], b: &mut [Complex<F>]) {
    let total = twiddles.len().min(a.len()).min(b.len());
    let (mut x, mut y) = (&mut a[..total], &mut b[..total]);
    let (mut n, mut step, mut swapped) = (total, 1, false);
    while n > 1 {
        let radix = next_factor(n);
        match radix {
            2 => pass_of_two(twiddles, x, y, step),
            4 => pass_of_four(twiddles, x, y, step),
            _ => pass(twiddles, x, y, step, radix),
        }
        core::mem::swap(&mut x, &mut y);
        swapped = !swapped;
        n /= radix;
        step *= radix;
    }
    if swapped {
        // The result is in `b`, which `x` points at.
        y.copy_from_slice(x);
    }
}

fn pass_of_two<F: Real>(twiddles: &[Complex<F>], x: &[Complex<F>], y: &mut [Complex<F>], step: usize) {
    let (low, high) = x.split_at(x.len() / 2);
    let groups = low.chunks_exact(step).zip(high.chunks_exact(step)).zip(y.chunks_exact_mut(2 * step));
    for (p, ((low, high), out)) in groups.enumerate() {
        let twiddle = twiddles[p * step];
        let (first, second) = out.split_at_mut(step);
        for (((&a, &b), first), second) in low.iter().zip(high).zip(first).zip(second) {
            *first = add(a, b);
            *second = multiply(subtract(a, b), twiddle);
        }
    }
}

fn pass_of_four<F: Real>(twiddles: &[Complex<F>], x: &[Complex<F>], y: &mut [Complex<F>], step: usize) {
    let quarter = x.len() / 4;
    // A quarter turn is a multiplication by the twiddle's sine: -i forward, i backward.
    let sine = twiddles[quarter].im;
    let (low, high) = x.split_at(2 * quarter);
    let ((x0, x1), (x2, x3)) = (low.split_at(quarter), high.split_at(quarter));
    for (p, out) in y.chunks_exact_mut(4 * step).enumerate() {
        let [w1, w2, w3] = [1, 2, 3].map(|r| twiddles[p * r * step]);
        let range = p * step..(p + 1) * step;
        let (low, high) = out.split_at_mut(2 * step);
        let ((y0, y1), (y2, y3)) = (low.split_at_mut(step), high.split_at_mut(step));
        let inputs = x0[range.clone()].iter().zip(&x1[range.clone()]).zip(&x2[range.clone()]).zip(&x3[range]);
        let outputs = y0.iter_mut().zip(y1).zip(y2).zip(y3);
        for ((((&a, &b), &c), &d), (((y0, y1), y2), y3)) in inputs.zip(outputs) {
            let (even, odd) = (add(a, c), add(b, d));
            let (difference, side) = (subtract(a, c), subtract(b, d));
            let side = Complex { re: F::ZERO.sub(side.im.mul(sine)), im: side.re.mul(sine) };
            *y0 = add(even, odd);
            *y1 = multiply(add(difference, side), w1);
            *y2 = multiply(subtract(even, odd), w2);
            *y3 = multiply(subtract(difference, side), w3);
        }
    }
}

fn pass<F: Real>(twiddles: &[Complex<F>], x: &[Complex<F>], y: &mut [Complex<F>], step: usize, radix: usize) {
    let total = x.len();
    let part = total / radix;
    for (p, out) in y.chunks_exact_mut(radix * step).enumerate() {
        for (r, out) in out.chunks_exact_mut(step).enumerate() {
            let outer = twiddles[p * r * step % total];
            for (q, out) in out.iter_mut().enumerate() {
                let mut sum = x[q + step * p];
                let mut turned = 0;
                for i in 1..radix {
                    turned = (turned + r) % radix;
                    sum = add(sum, multiply(x[q + step * p + part * i], twiddles[turned * part]));
                }
                *out = multiply(sum, outer);
            }
        }
    }
}
