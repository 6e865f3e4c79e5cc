//! Singular values and vectors, by one-sided Jacobi rotations (Hestenes, 1958), which are accurate for small singular values too.

use rushlight_runtime::{KernelContext, Op, OpGroup, Result};

use super::batch::{Source, Target, area, each};

/// `_linalg_svd.U(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None, Tensor(a!) U, Tensor(b!) S,
/// Tensor(c!) Vh)`. `driver` is ignored.
pub const LINALG_SVD_U: Op = Op::new("aten::_linalg_svd.U", 7, svd).outs(3).temp(svd_temp);

pub const OPS: OpGroup = &[LINALG_SVD_U];

/// Sweeps over all pairs of columns; they converge after about six.
const SWEEPS: usize = 60;

fn svd_temp(cx: &KernelContext<'_>) -> Result<usize> {
    super::batch::temp(cx, 0, |m, n| {
        let (long, short) = (m.max(n), m.min(n));
        area(long, long).saturating_add(area(long, short)).saturating_add(area(short, short)).saturating_add(short)
    })
}

fn svd(cx: &KernelContext<'_>) -> Result<()> {
    let (a, full, vectors) = (Source::new(cx.tensor(0)?, 0)?, cx.bool(1)?, cx.bool(2)?);
    let [rows, columns] = a.shape;
    let (long, short) = (rows.max(columns), rows.min(columns));
    let mut values = Target::new(cx, 5, a.dtype(), &a.sizes, &[short])?;
    let (mut left, mut right) = if vectors {
        let (left, right) = if full { (rows, columns) } else { (short, short) };
        let u = Target::new(cx, 4, a.dtype(), &a.sizes, &[rows, left])?;
        let v = Target::new(cx, 6, a.dtype(), &a.sizes, &[right, columns])?;
        // The computation stores one singular vector per row.
        (Some(u.transposed()), Some(v))
    } else {
        Target::nothing(cx, 4)?;
        Target::nothing(cx, 6)?;
        (None, None)
    };
    let count = if full && vectors { long } else { short };
    // Each row of `source` becomes a row of `u`: `short` rows of `long` elements.
    let source = if rows >= columns { a.transposed() } else { a };
    let (u, v) = (cx.temp::<f64>(count * long)?, cx.temp::<f64>(short * short)?);
    let (work, sigma) = (cx.temp::<f64>(short * long)?, cx.temp::<f64>(short)?);
    let strides = [
        left.as_ref().map_or(values.strides, |left| left.strides),
        values.strides,
        right.as_ref().map_or(values.strides, |right| right.strides),
    ];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1], &strides[2]], |[from, to_left, to_values, to_right]| {
        source.load(from, work)?;
        super::lu::identity(v, short);
        rotate(work, long, v, short);
        sort(work, long, v, short, sigma);
        values.store(to_values, sigma)?;
        let (Some(left), Some(right)) = (&mut left, &mut right) else { return Ok(()) };
        normalize(work, long, sigma, u);
        if rows >= columns {
            left.store(to_left, u)?;
            right.store(to_right, v)
        } else {
            left.store(to_left, v)?;
            right.store(to_right, u)
        }
    })
}

/// Rotates pairs of rows of `a`, each of `len` elements, until all are orthogonal, and the rows of `v` with them.
fn rotate(a: &mut [f64], len: usize, v: &mut [f64], count: usize) {
    for _ in 0..SWEEPS {
        let mut turned = false;
        for i in 0..count {
            for j in i + 1..count {
                let (x, y) = pair(a, len, i, j);
                let (mut alpha, mut beta, mut gamma) = (0.0, 0.0, 0.0);
                for (x, y) in x.iter().zip(y.iter()) {
                    (alpha, beta, gamma) = (alpha + x * x, beta + y * y, gamma + x * y);
                }
                if gamma.is_nan() || gamma == 0.0 || gamma.abs() <= f64::EPSILON * libm::sqrt(alpha) * libm::sqrt(beta)
                {
                    continue;
                }
                turned = true;
                let zeta = (beta - alpha) / (2.0 * gamma);
                let t = zeta.signum() / (zeta.abs() + libm::hypot(1.0, zeta));
                let c = 1.0 / libm::hypot(1.0, t);
                let s = c * t;
                turn(pair(a, len, i, j), c, s);
                turn(pair(v, count, i, j), c, s);
            }
        }
        if !turned {
            return;
        }
    }
}

/// Rows `i` and `j`, which comes later.
fn pair(rows: &mut [f64], len: usize, i: usize, j: usize) -> (&mut [f64], &mut [f64]) {
    let (low, high) = rows.split_at_mut(j * len);
    (&mut low[i * len..(i + 1) * len], &mut high[..len])
}

fn turn((x, y): (&mut [f64], &mut [f64]), c: f64, s: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

/// Sorts the rows by length, the longest first. `sigma` gets the lengths.
fn sort(a: &mut [f64], len: usize, v: &mut [f64], count: usize, sigma: &mut [f64]) {
    for (row, sigma) in a.chunks_exact(len.max(1)).zip(sigma.iter_mut()) {
        let largest = row.iter().fold(0.0, |max: f64, x| if x.is_nan() { *x } else { max.max(x.abs()) });
        let squares = row.iter().fold(0.0, |sum, x| sum + (x / largest) * (x / largest));
        *sigma = if largest == 0.0 { 0.0 } else { largest * libm::sqrt(squares) };
    }
    for i in 0..count {
        let best = (i + 1..count).fold(i, |best, j| if sigma[j] > sigma[best] { j } else { best });
        if best != i {
            sigma.swap(i, best);
            swap(pair(a, len, i, best));
            swap(pair(v, count, i, best));
        }
    }
}

fn swap((x, y): (&mut [f64], &mut [f64])) {
    x.swap_with_slice(y);
}

/// Normalizes the rows of `a` into `u`, and replaces zero and missing rows by unit vectors orthogonal to all others.
fn normalize(a: &[f64], len: usize, sigma: &[f64], u: &mut [f64]) {
    let tolerance = sigma.first().map_or(0.0, |largest| largest * f64::EPSILON * len as f64);
    let mut next = 0;
    for (k, end) in (len..=u.len()).step_by(len.max(1)).enumerate() {
        let (done, rest) = u.split_at_mut(end - len);
        let row = &mut rest[..len];
        match sigma.get(k) {
            Some(&length) if length > tolerance || length.is_nan() => {
                row.iter_mut().zip(&a[k * len..]).for_each(|(to, x)| *to = x / length);
            }
            // Some unit vector has a component outside the span of the finished rows.
            _ => loop {
                row.fill(0.0);
                let Some(slot) = row.get_mut(next) else { break };
                *slot = 1.0;
                next += 1;
                let norm = orthogonalize(row, done);
                if norm > 0.5 / libm::sqrt(len as f64) {
                    row.iter_mut().for_each(|x| *x /= norm);
                    break;
                }
            },
        }
    }
}

/// Orthogonalizes a vector against the others, twice for accuracy. Returns its remaining length.
fn orthogonalize(row: &mut [f64], others: &[f64]) -> f64 {
    for _ in 0..2 {
        for other in others.chunks_exact(row.len().max(1)) {
            let product = row.iter().zip(other).fold(0.0, |sum, (x, y)| sum + x * y);
            row.iter_mut().zip(other).for_each(|(x, y)| *x -= product * y);
        }
    }
    libm::sqrt(row.iter().fold(0.0, |sum, x| sum + x * x))
}
