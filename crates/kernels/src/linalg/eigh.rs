//! Eigenvalues and eigenvectors of symmetric matrices, by Jacobi's rotations (1846).

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use super::batch::{Source, Target, area, each, temp};

/// `_linalg_eigh.eigenvalues(Tensor A, str UPLO="L", bool compute_v=True, *, Tensor(a!) eigenvalues, Tensor(b!) eigenvectors)`
///
/// Only the triangle that is named is read.
pub const LINALG_EIGH_EIGENVALUES: Op = Op::new("aten::_linalg_eigh.eigenvalues", 5, eigh)
    .outs(2)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_mul(2).saturating_add(n)));

pub const OPS: OpGroup = &[LINALG_EIGH_EIGENVALUES];

/// Sweeps over all pairs of rows; they converge after about eight.
const SWEEPS: usize = 60;

fn eigh(cx: &KernelContext<'_>) -> Result<()> {
    let (a, triangle, vectors) = (Source::square(cx.tensor(0)?, 0)?, cx.string(1)?, cx.bool(2)?);
    let [n, _] = a.shape;
    let a = match triangle {
        "L" | "l" => a,
        "U" | "u" => a.transposed(),
        _ => return Err(Error::from(Detail::Text("the triangle is neither \"L\" nor \"U\"")).arg(1)),
    };
    let mut values = Target::new(cx, 3, a.dtype(), &a.sizes, &[n])?;
    let mut columns = if vectors {
        Some(Target::new(cx, 4, a.dtype(), &a.sizes, &a.shape)?.transposed())
    } else {
        Target::nothing(cx, 4)?;
        None
    };
    let (work, v, diagonal) = (cx.temp::<f64>(n * n)?, cx.temp::<f64>(n * n)?, cx.temp::<f64>(n)?);
    let strides = [values.strides, columns.as_ref().map_or(values.strides, |columns| columns.strides)];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1]], |[from, to, to_columns]| {
        a.load(from, work)?;
        for i in 0..n {
            (0..i).for_each(|j| work[j * n + i] = work[i * n + j]);
        }
        super::lu::identity(v, n);
        diagonalize(work, v, n);
        diagonal.iter_mut().zip(work.iter().step_by(n + 1)).for_each(|(to, x)| *to = *x);
        for i in 0..n {
            let smallest =
                (i + 1..n).fold(i, |smallest, j| if diagonal[j] < diagonal[smallest] { j } else { smallest });
            diagonal.swap(i, smallest);
            (0..n).for_each(|k| v.swap(i * n + k, smallest * n + k));
        }
        values.store(to, diagonal)?;
        columns.as_mut().map_or(Ok(()), |columns| columns.store(to_columns, v))
    })
}

/// Rotates pairs of rows and columns until only the diagonal is left; a row of `v` becomes an eigenvector.
fn diagonalize(a: &mut [f64], v: &mut [f64], n: usize) {
    for _ in 0..SWEEPS {
        let mut turned = false;
        for p in 0..n {
            for q in p + 1..n {
                let off = a[p * n + q];
                let (x, y) = (a[p * n + p], a[q * n + q]);
                let small = f64::EPSILON * 0.25 * libm::sqrt(x.abs()) * libm::sqrt(y.abs());
                if off.is_nan() || off == 0.0 || off.abs() < f64::MIN_POSITIVE || off.abs() <= small {
                    continue;
                }
                turned = true;
                let theta = (y - x) / (2.0 * off);
                let t = theta.signum() / (theta.abs() + libm::hypot(1.0, theta));
                let c = 1.0 / libm::hypot(1.0, t);
                let s = c * t;
                for k in 0..n {
                    let (left, right) = (a[k * n + p], a[k * n + q]);
                    (a[k * n + p], a[k * n + q]) = (c * left - s * right, s * left + c * right);
                }
                for k in 0..n {
                    let (left, right) = (a[p * n + k], a[q * n + k]);
                    (a[p * n + k], a[q * n + k]) = (c * left - s * right, s * left + c * right);
                    let (left, right) = (v[p * n + k], v[q * n + k]);
                    (v[p * n + k], v[q * n + k]) = (c * left - s * right, s * left + c * right);
                }
                (a[p * n + q], a[q * n + p]) = (0.0, 0.0);
            }
        }
        if !turned {
            return;
        }
    }
}
