//! QR decomposition by Householder's reflections, in the form and with the signs of LAPACK.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use super::batch::{Source, Target, area, each, temp};

/// `geqrf.a(Tensor self, *, Tensor(a!) a, Tensor(b!) tau)`: the upper triangle, with the reflections below it.
pub const GEQRF_A: Op =
    Op::new("aten::geqrf.a", 3, geqrf).outs(2).temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_add(m.min(n))));
/// `linalg_householder_product.out(Tensor input, Tensor tau, *, Tensor(a!) out)`: the first columns of the product of the reflections.
pub const LINALG_HOUSEHOLDER_PRODUCT_OUT: Op = Op::new("aten::linalg_householder_product.out", 3, householder_product)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_mul(2).saturating_add(n)));

pub const OPS: OpGroup = &[GEQRF_A, LINALG_HOUSEHOLDER_PRODUCT_OUT];

fn geqrf(cx: &KernelContext<'_>) -> Result<()> {
    let a = Source::new(cx.tensor(0)?, 0)?;
    let [rows, columns] = a.shape;
    let steps = rows.min(columns);
    let mut out = Target::new(cx, 1, a.dtype(), &a.sizes, &a.shape)?;
    let mut factors = Target::new(cx, 2, a.dtype(), &a.sizes, &[steps])?;
    let (work, tau) = (cx.temp::<f64>(rows * columns)?, cx.temp::<f64>(steps)?);
    let strides = [out.strides, factors.strides];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1]], |[from, to, to_factors]| {
        a.load(from, work)?;
        for (k, tau) in tau.iter_mut().enumerate() {
            *tau = reflection(work, a.shape, k);
            if *tau != 0.0 {
                let head = core::mem::replace(&mut work[k * columns + k], 1.0);
                for column in k + 1..columns {
                    reflect(work, a.shape, k, column, *tau);
                }
                work[k * columns + k] = head;
            }
        }
        out.store(to, work)?;
        factors.store(to_factors, tau)
    })
}

/// Computes the Householder reflection of column `k`. Stores its vector below the diagonal, without the first element, which is 1, and the
/// reflected column's element on the diagonal. Returns the factor `2 / |v|²`, or 0 if the column is zero below the diagonal.
fn reflection(a: &mut [f64], [rows, columns]: [usize; 2], k: usize) -> f64 {
    let largest = (k..rows).fold(0.0, |max: f64, row| max.max(a[row * columns + k].abs()));
    let below = (k + 1..rows).any(|row| a[row * columns + k] != 0.0);
    if !below || largest == 0.0 {
        return 0.0;
    }
    let squares = (k..rows).fold(0.0, |sum, row| {
        let x = a[row * columns + k] / largest;
        sum + x * x
    });
    let norm = largest * libm::sqrt(squares);
    let head = a[k * columns + k];
    let beta = if head > 0.0 { -norm } else { norm };
    (k + 1..rows).for_each(|row| a[row * columns + k] /= head - beta);
    a[k * columns + k] = beta;
    (beta - head) / beta
}

/// Reflects a column by the vector in column `k`, from the diagonal on.
fn reflect(a: &mut [f64], [rows, columns]: [usize; 2], k: usize, column: usize, tau: f64) {
    let product = (k..rows).fold(0.0, |sum, row| sum + a[row * columns + k] * a[row * columns + column]);
    (k..rows).for_each(|row| a[row * columns + column] -= tau * product * a[row * columns + k]);
}

fn householder_product(cx: &KernelContext<'_>) -> Result<()> {
    let (a, tau) = (Source::new(cx.tensor(0)?, 0)?, Source::vectors(cx.tensor(1)?, 1)?);
    let [rows, columns] = a.shape;
    let [steps, _] = tau.shape;
    if columns > rows {
        return Err(Error::from(Detail::Size { dim: a.sizes.len() + 1, expected: rows, got: columns }).arg(0));
    }
    if steps > columns || *tau.sizes != *a.sizes || tau.dtype() != a.dtype() {
        return Err(Error::invalid("the factors are not those of the reflections").arg(1));
    }
    let mut out = Target::new(cx, 2, a.dtype(), &a.sizes, &a.shape)?;
    let (vectors, q, factors) = (cx.temp(rows * columns)?, cx.temp(rows * columns)?, cx.temp(steps)?);
    let strides = out.strides;
    each(&a.sizes, [&a.strides, &tau.strides, &strides], |[from, from_tau, to]| {
        a.load(from, vectors)?;
        tau.load(from_tau, factors)?;
        product(vectors, a.shape, factors, q);
        out.store(to, q)
    })
}

/// Computes the first columns of the product of Householder reflections, with their vectors in `v` below the diagonal.
fn product(v: &[f64], [rows, columns]: [usize; 2], factors: &[f64], q: &mut [f64]) {
    q.fill(0.0);
    q.iter_mut().step_by(columns + 1).take(columns).for_each(|x| *x = 1.0);
    for (k, &tau) in factors.iter().enumerate().rev() {
        let element = |row: usize| if row == k { 1.0 } else { v[row * columns + k] };
        for column in k..columns {
            let product = (k..rows).fold(0.0, |sum, row| sum + element(row) * q[row * columns + column]);
            (k..rows).for_each(|row| q[row * columns + column] -= tau * product * element(row));
        }
    }
}
