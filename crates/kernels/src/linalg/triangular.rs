//! Systems of equations with triangular matrices.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use super::batch::{Source, Target, area, each};
use crate::support::shape::broadcast;

/// `linalg_solve_triangular.out(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False,
/// Tensor(a!) out)`. Only the triangle is read, and not a unit diagonal.
pub const LINALG_SOLVE_TRIANGULAR_OUT: Op =
    Op::new("aten::linalg_solve_triangular.out", 6, solve_triangular).temp(solve_triangular_temp);

pub const OPS: OpGroup = &[LINALG_SOLVE_TRIANGULAR_OUT];

/// The triangle of a square matrix that is read.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub(super) upper: bool,
    /// The diagonal is all ones.
    pub(super) unit: bool,
    /// Reads the matrix by columns.
    pub(super) transposed: bool,
}

/// Solves `T X = B` in place; `t` has `n` rows and columns, `b` `n` rows of `columns`.
pub(super) fn substitute(t: &[f64], n: usize, b: &mut [f64], columns: usize, triangle: Triangle) {
    let Triangle { upper, unit, transposed } = triangle;
    let backwards = upper != transposed;
    let place = |step: usize| if backwards { n - 1 - step } else { step };
    let at = |i: usize, j: usize| if transposed { t[j * n + i] } else { t[i * n + j] };
    for step in 0..n {
        let i = place(step);
        for j in (0..step).map(place) {
            subtract_row(b, columns, i, j, at(i, j));
        }
        if !unit {
            let head = at(i, i);
            b[i * columns..(i + 1) * columns].iter_mut().for_each(|x| *x /= head);
        }
    }
}

/// Subtracts `factor` times row `j` from row `i`, another one.
pub(super) fn subtract_row(rows: &mut [f64], columns: usize, i: usize, j: usize, factor: f64) {
    let (low, high) = rows.split_at_mut(i.max(j) * columns);
    let (first, second) = (&mut low[i.min(j) * columns..][..columns], &mut high[..columns]);
    let (to, from) = if i < j { (first, second) } else { (second, first) };
    to.iter_mut().zip(from).for_each(|(to, from)| *to -= factor * *from);
}

fn solve_triangular_temp(cx: &KernelContext<'_>) -> Result<usize> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let last = |sizes: &[usize]| match sizes {
        &[.., rows, columns] => area(rows, columns),
        _ => 0,
    };
    Ok(last(a.sizes()).saturating_add(last(b.sizes())).saturating_mul(8).saturating_add(256))
}

fn solve_triangular(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b) = (Source::square(cx.tensor(0)?, 0)?, Source::new(cx.tensor(1)?, 1)?);
    let (upper, left, unit) = (cx.bool(2)?, cx.bool(3)?, cx.bool(4)?);
    if b.dtype() != a.dtype() {
        return Err(Error::from(Detail::ElementType { expected: a.dtype(), got: b.dtype() }).arg(1));
    }
    let sizes = broadcast(&a.sizes, &b.sizes).map_err(|e| e.arg(1))?;
    let mut out = Target::new(cx, 5, a.dtype(), &sizes, &b.shape)?;
    // X A = B is the same as A' X' = B'.
    let b = if left { b } else { b.transposed() };
    out = if left { out } else { out.transposed() };
    let ([n, _], [rows, columns]) = (a.shape, b.shape);
    if rows != n {
        return Err(Error::from(Detail::Size { dim: sizes.len() + usize::from(!left), expected: n, got: rows }).arg(1));
    }
    let (t, x) = (cx.temp::<f64>(n * n)?, cx.temp::<f64>(n * columns)?);
    let strides = out.strides;
    each(&sizes, [&a.broadcast(&sizes)?, &b.broadcast(&sizes)?, &strides], |[from, right, to]| {
        a.load(from, t)?;
        b.load(right, x)?;
        substitute(t, n, x, columns, Triangle { upper, unit, transposed: !left });
        out.store(to, x)
    })
}
