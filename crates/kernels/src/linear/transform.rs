//! The discrete Fourier transform of several lines of any length at once.
//!
//! Stockham's autosorting algorithm in radix 4, 2 and the odd prime factors; a length with a large prime factor is
//! turned into a circular convolution of a power of two (Bluestein, 1970). `N` lines are transformed side by side, so
//! that every step is arithmetic on whole vectors.

use crate::support::real::Real;

/// A complex number: real part, imaginary part.
type Complex<F> = [F; 2];

/// A complex number of each of `N` lines: the real parts, the imaginary parts.
pub(super) type Lanes<F, const N: usize> = [[F; N]; 2];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Maximum prime factor of a butterfly. For larger ones a convolution is cheaper.
const MAX_FACTOR: usize = 31;

/// Reals of memory that a transform of `lanes` lines of length `n` works in; `None` on overflow.
pub(super) fn work_len(n: usize, lanes: usize) -> Option<usize> {
    // No line in memory is longer; the factors are looked for one by one.
    u32::try_from(n).ok()?;
    match padded_len(n) {
        None => least_work_len(n, lanes),
        Some(m) => m.checked_mul(4 * lanes + 4)?.checked_add(n.checked_mul(2 * lanes + 2)?),
    }
}

/// Reals of memory that a transform needs at least; a large prime factor takes its square in time then.
pub(super) fn least_work_len(n: usize, lanes: usize) -> Option<usize> {
    n.checked_mul(4 * lanes + 2)
}

/// The power of two that a length with a large prime factor is convolved in.
fn padded_len(n: usize) -> Option<usize> {
    if largest_factor(n) <= MAX_FACTOR {
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
pub(super) struct Transform<'w, F, const N: usize> {
    n: usize,
    /// exp(-2 pi i k / m) for k in 0..m, where m is the length that is split into factors; conjugated if backward.
    twiddles: &'w [Complex<F>],
    a: &'w mut [Lanes<F, N>],
    b: &'w mut [Lanes<F, N>],
    chirp: Option<Chirp<'w, F, N>>,
}

struct Chirp<'w, F, const N: usize> {
    /// exp(-pi i k^2 / n) for k in 0..n; conjugated if backward.
    factors: &'w [Complex<F>],
    /// The transform of the conjugate chirp, divided by its length.
    filter: &'w [Complex<F>],
    lines: &'w mut [Lanes<F, N>],
}

impl<'w, F: Real, const N: usize> Transform<'w, F, N> {
    /// `work` has [`work_len`] reals, or at least [`least_work_len`].
    pub(super) fn new(n: usize, direction: Direction, work: &'w mut [F]) -> Self {
        Self::with_turns(n, direction, work, &[])
    }

    /// The same with the first `n + 1` [turns](turns) of twice the length, every other one of which is needed.
    pub(super) fn with_turns(n: usize, direction: Direction, work: &'w mut [F], of_twice: &[Complex<F>]) -> Self {
        let sign = if direction == Direction::Forward { -1.0 } else { 1.0 };
        let padded = padded_len(n).filter(|_| work_len(n, N).is_some_and(|len| len <= work.len()));
        let m = padded.unwrap_or(n);
        let (twiddles, rest) = complex_of(work, m);
        if m == n && of_twice.len() > n {
            let (first, second) = twiddles.split_at_mut(n / 2 + 1);
            let every_other = of_twice.iter().step_by(2);
            first.iter_mut().zip(every_other).for_each(|(twiddle, &turn)| *twiddle = turn);
            // The second half of the circle is the mirror image of the first.
            let mirrored = first[1..].iter().rev().skip(1 - n % 2);
            second.iter_mut().zip(mirrored).for_each(|(twiddle, &[cos, sin])| *twiddle = [cos, F::ZERO.sub(sin)]);
        } else {
            turns(twiddles, m, sign);
        }
        let (a, rest) = lanes(rest, m);
        let (b, rest) = lanes(rest, m);
        if padded.is_none() {
            return Self { n, twiddles, a, b, chirp: None };
        }
        let (factors, rest) = complex_of(rest, n);
        for (k, factor) in factors.iter_mut().enumerate() {
            // k^2 modulo 2 n keeps the angle exact.
            let square = (k as u64).wrapping_mul(k as u64) % (2 * n as u64).max(1);
            *factor = turn(sign * square as f64 / (2.0 * n as f64));
        }
        let (filter, rest) = complex_of(rest, m);
        let (lines, _) = lanes(rest, n);
        a.fill([[F::ZERO; N]; 2]);
        let scale = F::ONE / F::of(m);
        for (k, factor) in factors.iter().enumerate() {
            let value = [[factor[0].mul(scale); N], [F::ZERO.sub(factor[1]).mul(scale); N]];
            for k in [k, (m - k) % m] {
                if let Some(slot) = a.get_mut(k) {
                    *slot = value;
                }
            }
        }
        stockham(twiddles, a, b);
        for (filter, [re, im]) in filter.iter_mut().zip(&*a) {
            *filter = [re[0], im[0]];
        }
        Self { n, twiddles, a, b, chirp: Some(Chirp { factors, filter, lines }) }
    }

    /// Inputs of the transform, `n` of each line.
    pub(super) fn lines(&mut self) -> &mut [Lanes<F, N>] {
        match &mut self.chirp {
            Some(chirp) => chirp.lines,
            None => self.a,
        }
    }

    /// Transforms [`lines`](Self::lines), in place.
    pub(super) fn run(&mut self) -> &mut [Lanes<F, N>] {
        let Some(chirp) = &mut self.chirp else {
            stockham(self.twiddles, self.a, self.b);
            return self.a;
        };
        let (start, rest) = self.a.split_at_mut(self.n.min(self.a.len()));
        for ((slot, value), factor) in start.iter_mut().zip(&*chirp.lines).zip(chirp.factors) {
            *slot = multiply(*value, *factor);
        }
        rest.fill([[F::ZERO; N]; 2]);
        stockham(self.twiddles, self.a, self.b);
        // A backward transform is the conjugate of the forward one of the conjugate.
        for (value, filter) in self.a.iter_mut().zip(chirp.filter) {
            *value = conjugate(multiply(*value, *filter));
        }
        stockham(self.twiddles, self.a, self.b);
        for ((slot, value), factor) in chirp.lines.iter_mut().zip(&*self.a).zip(chirp.factors) {
            *slot = multiply(conjugate(*value), *factor);
        }
        chirp.lines
    }
}

/// Takes `len` complex numbers off the memory.
pub(super) fn complex_of<F>(work: &mut [F], len: usize) -> (&mut [Complex<F>], &mut [F]) {
    let (head, rest) = work.split_at_mut((2 * len).min(work.len()));
    (head.as_chunks_mut().0, rest)
}

fn lanes<F, const N: usize>(work: &mut [F], len: usize) -> (&mut [Lanes<F, N>], &mut [F]) {
    let (head, rest) = work.split_at_mut((2 * N * len).min(work.len()));
    (head.as_chunks_mut().0.as_chunks_mut().0, rest)
}

/// Fills `slots` with exp(2 pi i sign k / n) for k from 0 on, `sign` being 1 or -1.
pub(super) fn turns<F: Real>(slots: &mut [Complex<F>], n: usize, sign: f64) {
    // The sum of two angles takes a fraction of the time of sines.
    const FINE: usize = 8;
    let sum = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a * c - b * d, a * d + b * c];
    // Seven eighths of a circle are mirror images of the first.
    let first = (n / if n.is_multiple_of(4) {
        8
    } else if n.is_multiple_of(2) {
        4
    } else {
        2
    } + 1)
        .min(slots.len());
    let angle = |k: usize| turn::<f64>(sign * k as f64 / n as f64);
    let mut fine = [[1.0, 0.0]; FINE];
    fine[1] = angle(1);
    for i in 2..FINE {
        fine[i] = sum(fine[i / 2], fine[i - i / 2]);
    }
    for (i, slots) in slots[..first].chunks_mut(FINE).enumerate() {
        let coarse = angle(i * FINE);
        for (slot, fine) in slots.iter_mut().zip(fine) {
            *slot = sum(coarse, fine).map(F::from_f64);
        }
    }
    let mut done = first;
    let mut mirror = |at: usize, f: &dyn Fn(Complex<F>) -> Complex<F>| {
        for k in done..slots.len().min(at + 1) {
            slots[k] = f(slots[at - k]);
        }
        done = done.max(slots.len().min(at + 1));
    };
    if n.is_multiple_of(4) {
        let sign = F::from_f64(sign);
        mirror(n / 4, &|[cos, sin]| [sin.mul(sign), cos.mul(sign)]);
    }
    if n.is_multiple_of(2) {
        mirror(n / 2, &|[cos, sin]| [F::ZERO.sub(cos), sin]);
    }
    mirror(n, &|[cos, sin]| [cos, F::ZERO.sub(sin)]);
}

/// exp(2 pi i x)
pub(super) fn turn<F: Real>(x: f64) -> Complex<F> {
    let (sin, cos) = libm::sincos(x * core::f64::consts::TAU);
    [F::from_f64(cos), F::from_f64(sin)]
}

#[inline(always)]
pub(super) fn each<T, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    core::array::from_fn(f)
}

#[inline(always)]
pub(super) fn conjugate<F: Real, const N: usize>([re, im]: Lanes<F, N>) -> Lanes<F, N> {
    [re, each(|l| F::ZERO.sub(im[l]))]
}

#[inline(always)]
pub(super) fn multiply<F: Real, const N: usize>([re, im]: Lanes<F, N>, [c, s]: Complex<F>) -> Lanes<F, N> {
    [each(|l| re[l].mul(c).sub(im[l].mul(s))), each(|l| re[l].mul(s).add(im[l].mul(c)))]
}

#[inline(always)]
pub(super) fn add<F: Real, const N: usize>(a: Lanes<F, N>, b: Lanes<F, N>) -> Lanes<F, N> {
    [each(|l| a[0][l].add(b[0][l])), each(|l| a[1][l].add(b[1][l]))]
}

#[inline(always)]
pub(super) fn subtract<F: Real, const N: usize>(a: Lanes<F, N>, b: Lanes<F, N>) -> Lanes<F, N> {
    [each(|l| a[0][l].sub(b[0][l])), each(|l| a[1][l].sub(b[1][l]))]
}

/// Times a real number.
#[inline(always)]
pub(super) fn scale<F: Real, const N: usize>(a: Lanes<F, N>, by: F) -> Lanes<F, N> {
    [each(|l| a[0][l].mul(by)), each(|l| a[1][l].mul(by))]
}

/// `a + i b`
#[inline(always)]
pub(super) fn add_turned<F: Real, const N: usize>(a: Lanes<F, N>, b: Lanes<F, N>) -> Lanes<F, N> {
    [each(|l| a[0][l].sub(b[1][l])), each(|l| a[1][l].add(b[0][l]))]
}

/// `a - i b`
#[inline(always)]
pub(super) fn subtract_turned<F: Real, const N: usize>(a: Lanes<F, N>, b: Lanes<F, N>) -> Lanes<F, N> {
    [each(|l| a[0][l].add(b[1][l])), each(|l| a[1][l].sub(b[0][l]))]
}

/// Transforms `a` with the help of `b` of the same length; the result is in `a`.
///
/// After each pass the transform of length n, of which `step` lie interleaved, is one of length n / radix.
fn stockham<F: Real, const N: usize>(twiddles: &[Complex<F>], a: &mut [Lanes<F, N>], b: &mut [Lanes<F, N>]) {
    let total = twiddles.len().min(a.len()).min(b.len());
    let (mut x, mut y) = (&mut a[..total], &mut b[..total]);
    let (mut n, mut step, mut swapped) = (total, 1, false);
    while n > 1 {
        let radix = next_factor(n);
        match (radix, n == radix) {
            (2, _) => pass_of_two(twiddles, x, y, step),
            (3, _) => pass_of_odd::<F, N, 3, false>(twiddles, x, y, step),
            (4, _) => pass_of_four(twiddles, x, y, step),
            (5, false) => pass_of_odd::<F, N, 5, false>(twiddles, x, y, step),
            (5, true) => pass_of_odd::<F, N, 5, true>(twiddles, x, y, step),
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

fn pass_of_two<F: Real, const N: usize>(
    twiddles: &[Complex<F>],
    x: &[Lanes<F, N>],
    y: &mut [Lanes<F, N>],
    step: usize,
) {
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

fn pass_of_four<F: Real, const N: usize>(
    twiddles: &[Complex<F>],
    x: &[Lanes<F, N>],
    y: &mut [Lanes<F, N>],
    step: usize,
) {
    let quarter = x.len() / 4;
    // A quarter turn is -i forward, i backward, which exchanges two of the outputs.
    let is_backward = twiddles[quarter][1] > F::ZERO;
    let (low, high) = x.split_at(2 * quarter);
    let ((x0, x1), (x2, x3)) = (low.split_at(quarter), high.split_at(quarter));
    let turns = |p: usize| [1, 2, 3].map(|r| twiddles[p * r * step]);
    if step == 1 {
        let inputs = x0.iter().zip(x1).zip(x2).zip(x3).zip(y.as_chunks_mut().0);
        for (p, ((((&a, &b), &c), &d), [y0, y1, y2, y3])) in inputs.enumerate() {
            let [w1, w2, w3] = turns(p);
            let [e, f, g, h] = butterfly(a, b, c, d);
            let (f, h) = if is_backward { (h, f) } else { (f, h) };
            (*y0, *y1, *y2, *y3) = (e, multiply(f, w1), multiply(g, w2), multiply(h, w3));
        }
        return;
    }
    for (p, out) in y.chunks_exact_mut(4 * step).enumerate() {
        let [w1, w2, w3] = turns(p);
        let range = p * step..(p + 1) * step;
        let (low, high) = out.split_at_mut(2 * step);
        let ((y0, y1), (y2, y3)) = (low.split_at_mut(step), high.split_at_mut(step));
        let (y1, y3, w1, w3) = if is_backward { (y3, y1, w3, w1) } else { (y1, y3, w1, w3) };
        let inputs = x0[range.clone()].iter().zip(&x1[range.clone()]).zip(&x2[range.clone()]).zip(&x3[range]);
        let quadruples = inputs.zip(y0.iter_mut().zip(y1).zip(y2).zip(y3));
        // All turns of the first group, which the last pass has only, are 1.
        if p == 0 {
            for ((((&a, &b), &c), &d), (((y0, y1), y2), y3)) in quadruples {
                [*y0, *y1, *y2, *y3] = butterfly(a, b, c, d);
            }
        } else {
            for ((((&a, &b), &c), &d), (((y0, y1), y2), y3)) in quadruples {
                let [e, f, g, h] = butterfly(a, b, c, d);
                (*y0, *y1, *y2, *y3) = (e, multiply(f, w1), multiply(g, w2), multiply(h, w3));
            }
        }
    }
}

/// The forward transform of four numbers; the backward one exchanges the second and the last output.
#[inline(always)]
fn butterfly<F: Real, const N: usize>(
    a: Lanes<F, N>,
    b: Lanes<F, N>,
    c: Lanes<F, N>,
    d: Lanes<F, N>,
) -> [Lanes<F, N>; 4] {
    let (even, odd, difference, side) = (add(a, c), add(b, d), subtract(a, c), subtract(b, d));
    [add(even, odd), subtract_turned(difference, side), subtract(even, odd), add_turned(difference, side)]
}

/// A small odd radix: outputs r and R - r are the sum and the difference of a cosine and a sine part.
fn pass_of_odd<F: Real, const N: usize, const R: usize, const IS_LAST: bool>(
    twiddles: &[Complex<F>],
    x: &[Lanes<F, N>],
    y: &mut [Lanes<F, N>],
    step: usize,
) {
    let part = x.len() / R;
    let roots: [Complex<F>; R] = core::array::from_fn(|i| twiddles[i * part]);
    let by = |value: Lanes<F, N>, twiddle| if IS_LAST { value } else { multiply(value, twiddle) };
    for (p, out) in y.chunks_exact_mut(R * step).enumerate() {
        let outer: [Complex<F>; R] = core::array::from_fn(|r| twiddles[p * r * step]);
        let inputs: [&[Lanes<F, N>]; R] = core::array::from_fn(|i| &x[step * p + part * i..][..step]);
        for q in 0..step {
            let input: [Lanes<F, N>; R] = core::array::from_fn(|i| inputs[i][q]);
            let sums: [Lanes<F, N>; R] = core::array::from_fn(|i| add(input[i], input[R - i.max(1)]));
            let differences: [Lanes<F, N>; R] = core::array::from_fn(|i| subtract(input[i], input[R - i.max(1)]));
            let mut total = input[0];
            for sum in &sums[1..=R / 2] {
                total = add(total, *sum);
            }
            out[q] = total;
            for r in 1..=R / 2 {
                let [cos, sin] = roots[r];
                let (mut cosines, mut sines) = (add(input[0], scale(sums[1], cos)), scale(differences[1], sin));
                for i in 2..=R / 2 {
                    let [cos, sin] = roots[i * r % R];
                    cosines = add(cosines, scale(sums[i], cos));
                    sines = add(sines, scale(differences[i], sin));
                }
                out[q + step * r] = by(add_turned(cosines, sines), outer[r]);
                out[q + step * (R - r)] = by(subtract_turned(cosines, sines), outer[R - r]);
            }
        }
    }
}

fn pass<F: Real, const N: usize>(
    twiddles: &[Complex<F>],
    x: &[Lanes<F, N>],
    y: &mut [Lanes<F, N>],
    step: usize,
    radix: usize,
) {
    let part = x.len() / radix;
    for (p, out) in y.chunks_exact_mut(radix * step).enumerate() {
        for (r, out) in out.chunks_exact_mut(step).enumerate() {
            let outer = twiddles[p * r * step];
            for (q, out) in out.iter_mut().enumerate() {
                let mut sum = x[q + step * p];
                let mut turned = 0;
                for i in 1..radix {
                    turned += r;
                    if turned >= radix {
                        turned -= radix;
                    }
                    sum = add(sum, multiply(x[q + step * p + part * i], twiddles[turned * part]));
                }
                *out = multiply(sum, outer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    /// Compares with the definition, for values without structure.
    fn check<const N: usize>(n: usize, direction: Direction, reals: usize) {
        let value = |i: usize, l: usize| {
            let part = |seed: usize| (i * 7919 + l * 104_729 + seed) % 1009;
            [part(1) as f64 / 1009.0 - 0.5, part(500) as f64 / 1009.0 - 0.5]
        };
        let mut work = vec![0.0f64; reals];
        let mut transform = Transform::<f64, N>::new(n, direction, &mut work);
        for (i, [re, im]) in transform.lines().iter_mut().enumerate() {
            for l in 0..N {
                [re[l], im[l]] = value(i, l);
            }
        }
        let sign = if direction == Direction::Forward { -1.0 } else { 1.0 };
        let result = transform.run();
        assert_eq!(result.len(), n);
        for (k, [re, im]) in result.iter().enumerate() {
            for l in 0..N {
                let mut expected = [0.0; 2];
                for i in 0..n {
                    let ([a, b], [c, s]) = (value(i, l), turn::<f64>(sign * (i * k % n) as f64 / n as f64));
                    expected[0] += a * c - b * s;
                    expected[1] += a * s + b * c;
                }
                let error = (re[l] - expected[0]).abs().max((im[l] - expected[1]).abs());
                assert!(error < 1e-11, "length {n}, frequency {k}, line {l}: off by {error}");
            }
        }
    }

    #[test]
    fn every_length_agrees_with_the_definition() {
        for n in (1..=70).chain([97, 111, 128, 135, 202, 251]) {
            for direction in [Direction::Forward, Direction::Backward] {
                check::<1>(n, direction, work_len(n, 1).unwrap_or(0));
                check::<4>(n, direction, work_len(n, 4).unwrap_or(0));
            }
        }
    }

    #[test]
    fn large_prime_factors_do_with_little_memory() {
        for n in [37, 74, 101] {
            check::<1>(n, Direction::Forward, least_work_len(n, 1).unwrap_or(0));
        }
    }
}
