//! Eigenvalues and eigenvectors of square matrices: reduction to Hessenberg's form by reflections, Francis's double steps of QR, and
//! back substitution (the procedures orthes and hqr2 of Martin, Peters and Wilkinson, Numerische Mathematik 12 and 16).

use rushlight_runtime::{Complex, Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, TensorMut};

use super::batch::{Source, area, each, temp};
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `linalg_eig.out(Tensor self, *, Tensor(a!) eigenvalues, Tensor(b!) eigenvectors)`
///
/// Eigenvectors have length 1, and their largest element is real.
pub const LINALG_EIG_OUT: Op = Op::new("aten::linalg_eig.out", 3, eig)
    .outs(2)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_mul(2).saturating_add(n.saturating_mul(5))));

pub const OPS: OpGroup = &[LINALG_EIG_OUT];

/// Maximum number of QR steps for one eigenvalue.
const STEPS: usize = 120;

const EPSILON: f64 = f64::EPSILON;

fn eig(cx: &KernelContext<'_>) -> Result<()> {
    let a = Source::square(cx.tensor(0)?, 0)?;
    let (mut values, mut vectors) = (cx.out(1)?, cx.out(2)?);
    let [n, _] = a.shape;
    let complex = if a.dtype() == ScalarType::Double { ScalarType::ComplexDouble } else { ScalarType::ComplexFloat };
    for (out, argument) in [(&mut values, 1), (&mut vectors, 2)] {
        if out.dtype() != complex {
            return Err(Error::from(Detail::ElementType { expected: complex, got: out.dtype() }).arg(argument));
        }
        let mut sizes = a.sizes;
        (0..argument).try_for_each(|_| sizes.push(n))?;
        out.resize(&sizes).map_err(|e| e.arg(argument))?;
    }
    let mut work = Work {
        n,
        h: cx.temp(n * n)?,
        v: cx.temp(n * n)?,
        real: cx.temp(n)?,
        imaginary: cx.temp(n)?,
        spare: cx.temp(n)?,
    };
    let column = cx.temp::<f64>(2 * n)?;
    let strides = [Dims::from_slice(values.strides())?, Dims::from_slice(vectors.strides())?];
    let (value_batch, value_step) = (&strides[0][..a.sizes.len()], strides[0][a.sizes.len()..].first().copied());
    let (vector_batch, vector_steps) = strides[1].split_at(a.sizes.len());
    let (down, across) = match *vector_steps {
        [down, across] => (down, across),
        _ => (0, 0),
    };
    each(&a.sizes, [&a.strides, value_batch, vector_batch], |[from, to, to_vectors]| {
        a.load(from, work.h)?;
        work.reduce();
        if !work.iterate() {
            return Err(Error::invalid("the eigenvalues of the matrix do not converge").arg(0));
        }
        work.substitute();
        for k in 0..n {
            let value = [work.real[k], work.imaginary[k]];
            put(&mut values, to + k * value_step.unwrap_or(0), value)?;
            work.column(k, column);
            for (row, &[re, im]) in column.as_chunks::<2>().0.iter().enumerate() {
                put(&mut vectors, to_vectors + row * down + k * across, [re, im])?;
            }
        }
        Ok(())
    })
}

/// Stores a complex number.
fn put(out: &mut TensorMut<'_>, at: usize, value: [f64; 2]) -> Result<()> {
    fn store<T: Number>(elements: &mut [Complex<T>], at: usize, [re, im]: [f64; 2]) {
        if let Some(slot) = elements.get_mut(at) {
            *slot = Complex { re: T::from_f64(re), im: T::from_f64(im) };
        }
    }
    if out.dtype() == ScalarType::ComplexDouble {
        store(out.as_mut_slice::<Complex<f64>>()?, at, value);
    } else {
        store(out.as_mut_slice::<Complex<f32>>()?, at, value);
    }
    Ok(())
}

/// The quotient of complex numbers.
fn divide([a, b]: [f64; 2], [c, d]: [f64; 2]) -> [f64; 2] {
    if c.abs() > d.abs() {
        let r = d / c;
        let s = c + r * d;
        [(a + r * b) / s, (b - r * a) / s]
    } else {
        let r = c / d;
        let s = d + r * c;
        [(r * a + b) / s, (r * b - a) / s]
    }
}

/// A matrix, and its partial results.
struct Work<'a> {
    n: usize,
    /// The matrix; then Hessenberg's form, Schur's, and the eigenvectors of that.
    h: &'a mut [f64],
    /// The orthogonal transformation; then the eigenvectors, where a complex pair has two columns for both parts.
    v: &'a mut [f64],
    real: &'a mut [f64],
    imaginary: &'a mut [f64],
    spare: &'a mut [f64],
}

impl Work<'_> {
    /// Makes the elements below the first subdiagonal zero.
    fn reduce(&mut self) {
        let Self { n, h, v, spare: ort, .. } = self;
        let n = *n;
        for m in 1..n.saturating_sub(1) {
            let scale = (m..n).fold(0.0, |sum, i| sum + h[i * n + m - 1].abs());
            if scale == 0.0 {
                continue;
            }
            let mut squares = 0.0;
            for i in (m..n).rev() {
                ort[i] = h[i * n + m - 1] / scale;
                squares += ort[i] * ort[i];
            }
            let g = if ort[m] > 0.0 { -libm::sqrt(squares) } else { libm::sqrt(squares) };
            let size = squares - ort[m] * g;
            ort[m] -= g;
            for j in m..n {
                let f = (m..n).fold(0.0, |sum, i| sum + ort[i] * h[i * n + j]) / size;
                (m..n).for_each(|i| h[i * n + j] -= f * ort[i]);
            }
            for i in 0..n {
                let f = (m..n).fold(0.0, |sum, j| sum + ort[j] * h[i * n + j]) / size;
                (m..n).for_each(|j| h[i * n + j] -= f * ort[j]);
            }
            ort[m] *= scale;
            h[m * n + m - 1] = scale * g;
        }
        super::lu::identity(v, n);
        for m in (1..n.saturating_sub(1)).rev() {
            if h[m * n + m - 1] == 0.0 {
                continue;
            }
            // The vector's first element went to `ort`, the others stayed below the subdiagonal.
            for i in m + 1..n {
                ort[i] = h[i * n + m - 1];
            }
            for j in m..n {
                let g = (m..n).fold(0.0, |sum, i| sum + ort[i] * v[i * n + j]);
                let g = (g / ort[m]) / h[m * n + m - 1];
                (m..n).for_each(|i| v[i * n + j] += g * ort[i]);
            }
        }
    }

    /// The sum of the magnitudes of Hessenberg's form.
    fn norm(&self) -> f64 {
        let n = self.n;
        let row = |i: usize| (i.saturating_sub(1)..n).fold(0.0, |sum, j| sum + self.h[i * n + j].abs());
        (0..n).fold(0.0, |sum, i| sum + row(i))
    }

    /// Reduces Hessenberg's form to Schur's, and computes the eigenvalues. False if it does not converge.
    fn iterate(&mut self) -> bool {
        let (n, norm) = (self.n, self.norm());
        // Rows below `end` are done.
        let (mut end, mut shift, mut steps) = (n, 0.0, 0);
        while end > 0 {
            let last = end - 1;
            let mut low = last;
            while low > 0 {
                let near = self.h[(low - 1) * n + low - 1].abs() + self.h[low * n + low].abs();
                let near = if near == 0.0 { norm } else { near };
                if self.h[low * n + low - 1].abs() < EPSILON * near || self.h[low * n + low - 1] == 0.0 {
                    break;
                }
                low -= 1;
            }
            if low == last {
                self.h[last * n + last] += shift;
                (self.real[last], self.imaginary[last]) = (self.h[last * n + last], 0.0);
                (end, steps) = (last, 0);
            } else if low + 1 == last {
                self.pair(last, shift);
                (end, steps) = (low, 0);
            } else {
                if steps == STEPS {
                    return false;
                }
                self.double_step(low, last, steps, &mut shift);
                steps += 1;
            }
        }
        true
    }

    /// Two eigenvalues of the block of two rows that ends with row `last`.
    fn pair(&mut self, last: usize, shift: f64) {
        let Self { n, h, v, real, imaginary, .. } = self;
        let (n, first) = (*n, last - 1);
        let w = h[last * n + first] * h[first * n + last];
        let p = (h[first * n + first] - h[last * n + last]) / 2.0;
        let q = p * p + w;
        let z = libm::sqrt(q.abs());
        h[last * n + last] += shift;
        h[first * n + first] += shift;
        let x = h[last * n + last];
        if q < 0.0 || q.is_nan() {
            (real[first], real[last]) = (x + p, x + p);
            (imaginary[first], imaginary[last]) = (z, -z);
            return;
        }
        let z = if p >= 0.0 { p + z } else { p - z };
        real[first] = x + z;
        real[last] = if z == 0.0 { x + z } else { x - w / z };
        (imaginary[first], imaginary[last]) = (0.0, 0.0);
        let x = h[last * n + first];
        let s = x.abs() + z.abs();
        let (p, q) = (x / s, z / s);
        let r = libm::sqrt(p * p + q * q);
        let (p, q) = (p / r, q / r);
        let turn = |a: &mut [f64], i: usize, j: usize| (a[i], a[j]) = (q * a[i] + p * a[j], q * a[j] - p * a[i]);
        (first..n).for_each(|j| turn(h, first * n + j, last * n + j));
        (0..=last).for_each(|i| turn(h, i * n + first, i * n + last));
        (0..n).for_each(|i| turn(v, i * n + first, i * n + last));
    }

    /// One double step of QR on the rows from `low` to `last`.
    fn double_step(&mut self, low: usize, last: usize, steps: usize, shift: &mut f64) {
        let Self { n, h, v, .. } = self;
        let n = *n;
        let at = |i: usize, j: usize| i * n + j;
        let (mut x, mut y) = (h[at(last, last)], h[at(last - 1, last - 1)]);
        let mut w = h[at(last, last - 1)] * h[at(last - 1, last)];
        // Exceptional shifts, if the usual ones do not converge.
        if steps % 20 == 10 {
            *shift += x;
            (0..=last).for_each(|i| h[at(i, i)] -= x);
            let s = h[at(last, last - 1)].abs() + h[at(last - 1, last - 2)].abs();
            (x, y, w) = (0.75 * s, 0.75 * s, -0.4375 * s * s);
        }
        let (mut p, mut q, mut r);
        let mut m = last - 2;
        loop {
            let z = h[at(m, m)];
            let (a, b) = (x - z, y - z);
            p = (a * b - w) / h[at(m + 1, m)] + h[at(m, m + 1)];
            q = h[at(m + 1, m + 1)] - z - a - b;
            r = h[at(m + 2, m + 1)];
            let s = p.abs() + q.abs() + r.abs();
            (p, q, r) = (p / s, q / s, r / s);
            if m == low {
                break;
            }
            let around = h[at(m - 1, m - 1)].abs() + z.abs() + h[at(m + 1, m + 1)].abs();
            if h[at(m, m - 1)].abs() * (q.abs() + r.abs()) < EPSILON * (p.abs() * around) {
                break;
            }
            m -= 1;
        }
        for i in m + 2..=last {
            h[at(i, i - 2)] = 0.0;
            if i > m + 2 {
                h[at(i, i - 3)] = 0.0;
            }
        }
        for k in m..last {
            let inside = k + 1 != last;
            if k != m {
                p = h[at(k, k - 1)];
                q = h[at(k + 1, k - 1)];
                r = if inside { h[at(k + 2, k - 1)] } else { 0.0 };
                x = p.abs() + q.abs() + r.abs();
                if x == 0.0 {
                    continue;
                }
                (p, q, r) = (p / x, q / x, r / x);
            }
            let s = libm::sqrt(p * p + q * q + r * r);
            let s = if p < 0.0 { -s } else { s };
            if s == 0.0 || s.is_nan() {
                continue;
            }
            if k != m {
                h[at(k, k - 1)] = -s * x;
            } else if low != m {
                h[at(k, k - 1)] = -h[at(k, k - 1)];
            }
            p += s;
            (x, y) = (p / s, q / s);
            let z = r / s;
            (q, r) = (q / p, r / p);
            for j in k..n {
                let mut sum = h[at(k, j)] + q * h[at(k + 1, j)];
                if inside {
                    sum += r * h[at(k + 2, j)];
                    h[at(k + 2, j)] -= sum * z;
                }
                h[at(k, j)] -= sum * x;
                h[at(k + 1, j)] -= sum * y;
            }
            let columns = |a: &mut [f64], i: usize| {
                let mut sum = x * a[at(i, k)] + y * a[at(i, k + 1)];
                if inside {
                    sum += z * a[at(i, k + 2)];
                    a[at(i, k + 2)] -= sum * r;
                }
                a[at(i, k)] -= sum;
                a[at(i, k + 1)] -= sum * q;
            };
            (0..=last.min(k + 3)).for_each(|i| columns(h, i));
            (0..n).for_each(|i| columns(v, i));
        }
    }

    /// The eigenvectors of Schur's form, by back substitution, and then those of the matrix.
    fn substitute(&mut self) {
        let norm = self.norm();
        if norm == 0.0 {
            super::lu::identity(self.h, self.n);
        }
        for k in (0..self.n).rev().filter(|_| norm != 0.0) {
            if self.imaginary[k] == 0.0 {
                self.real_vector(k, norm);
            } else if self.imaginary[k] < 0.0 && k > 0 {
                self.complex_vector(k, norm);
            }
        }
        let (n, h, v) = (self.n, &*self.h, &mut *self.v);
        for j in (0..n).rev() {
            for i in 0..n {
                v[i * n + j] = (0..=j).fold(0.0, |sum, k| sum + v[i * n + k] * h[k * n + j]);
            }
        }
    }

    fn real_vector(&mut self, k: usize, norm: f64) {
        let Self { n, h, real, imaginary, .. } = self;
        let n = *n;
        let at = |i: usize, j: usize| i * n + j;
        let value = real[k];
        let (mut low, mut z, mut s) = (k, 0.0, 0.0);
        h[at(k, k)] = 1.0;
        for i in (0..k).rev() {
            let w = h[at(i, i)] - value;
            let r = (low..=k).fold(0.0, |sum, j| sum + h[at(i, j)] * h[at(j, k)]);
            if imaginary[i] < 0.0 {
                (z, s) = (w, r);
                continue;
            }
            low = i;
            if imaginary[i] == 0.0 {
                h[at(i, k)] = -r / if w == 0.0 { EPSILON * norm } else { w };
            } else {
                let (x, y) = (h[at(i, i + 1)], h[at(i + 1, i)]);
                let q = (real[i] - value) * (real[i] - value) + imaginary[i] * imaginary[i];
                let t = (x * s - z * r) / q;
                h[at(i, k)] = t;
                h[at(i + 1, k)] = if x.abs() > z.abs() { (-r - w * t) / x } else { (-s - y * t) / z };
            }
            let t = h[at(i, k)].abs();
            if EPSILON * t * t > 1.0 {
                (i..=k).for_each(|j| h[at(j, k)] /= t);
            }
        }
    }

    /// The vector of the pair that ends at `k`: real parts in the column before, imaginary ones in column `k`.
    fn complex_vector(&mut self, k: usize, norm: f64) {
        let Self { n, h, real, imaginary, .. } = self;
        let n = *n;
        let at = |i: usize, j: usize| i * n + j;
        let (p, q) = (real[k], imaginary[k]);
        let before = k - 1;
        if h[at(k, before)].abs() > h[at(before, k)].abs() {
            h[at(before, before)] = q / h[at(k, before)];
            h[at(before, k)] = -(h[at(k, k)] - p) / h[at(k, before)];
        } else {
            let [re, im] = divide([0.0, -h[at(before, k)]], [h[at(before, before)] - p, q]);
            (h[at(before, before)], h[at(before, k)]) = (re, im);
        }
        (h[at(k, before)], h[at(k, k)]) = (0.0, 1.0);
        let (mut low, mut z, mut r, mut s) = (before, 0.0, 0.0, 0.0);
        for i in (0..before).rev() {
            let (mut ra, mut sa) = (0.0, 0.0);
            for j in low..=k {
                ra += h[at(i, j)] * h[at(j, before)];
                sa += h[at(i, j)] * h[at(j, k)];
            }
            let w = h[at(i, i)] - p;
            if imaginary[i] < 0.0 {
                (z, r, s) = (w, ra, sa);
                continue;
            }
            low = i;
            if imaginary[i] == 0.0 {
                let [re, im] = divide([-ra, -sa], [w, q]);
                (h[at(i, before)], h[at(i, k)]) = (re, im);
            } else {
                let (x, y) = (h[at(i, i + 1)], h[at(i + 1, i)]);
                let distance = real[i] - p;
                let mut vr = distance * distance + imaginary[i] * imaginary[i] - q * q;
                let vi = distance * 2.0 * q;
                if vr == 0.0 && vi == 0.0 {
                    vr = EPSILON * norm * (w.abs() + q.abs() + x.abs() + y.abs() + z.abs());
                }
                let [re, im] = divide([x * r - z * ra + q * sa, x * s - z * sa - q * ra], [vr, vi]);
                (h[at(i, before)], h[at(i, k)]) = (re, im);
                let [re, im] = if x.abs() > z.abs() + q.abs() {
                    [(-ra - w * re + q * im) / x, (-sa - w * im - q * re) / x]
                } else {
                    divide([-r - y * re, -s - y * im], [z, q])
                };
                (h[at(i + 1, before)], h[at(i + 1, k)]) = (re, im);
            }
            let t = h[at(i, before)].abs().max(h[at(i, k)].abs());
            if EPSILON * t * t > 1.0 {
                for j in i..=k {
                    h[at(j, before)] /= t;
                    h[at(j, k)] /= t;
                }
            }
        }
    }

    /// The eigenvector of eigenvalue `k` in pairs of real and imaginary parts, with length 1, and real where it is largest.
    fn column(&self, k: usize, column: &mut [f64]) {
        let n = self.n;
        let (re, im, sign) = match self.imaginary[k] {
            0.0 => (k, None, 1.0),
            y if y > 0.0 => (k, Some(k + 1), 1.0),
            _ => (k.saturating_sub(1), Some(k), -1.0),
        };
        let pairs = column.as_chunks_mut::<2>().0;
        for (i, pair) in pairs.iter_mut().enumerate() {
            *pair = [self.v[i * n + re], im.map_or(0.0, |im| sign * self.v[i * n + im])];
        }
        let largest = pairs.iter().fold([0.0; 2], |largest: [f64; 2], &[re, im]| {
            if libm::hypot(re, im) > libm::hypot(largest[0], largest[1]) { [re, im] } else { largest }
        });
        let scale = libm::hypot(largest[0], largest[1]);
        let squares = pairs.iter().fold(0.0, |sum, &[re, im]| {
            let (re, im) = (re / scale, im / scale);
            sum + re * re + im * im
        });
        let norm = scale * libm::sqrt(squares);
        let turn = if im.is_some() { [largest[0] / scale, largest[1] / scale] } else { [1.0, 0.0] };
        for pair in pairs {
            *pair = divide([pair[0] / norm, pair[1] / norm], turn);
        }
    }
}
