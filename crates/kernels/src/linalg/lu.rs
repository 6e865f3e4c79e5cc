//! LU decomposition with partial pivoting, and its uses: inverses, solutions, determinants.

use core::cmp::Ordering;

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor};

use super::batch::{Source, Target, area, check, each, temp};
use super::triangular::{Triangle, substitute};
use crate::support::shape::{Dims, broadcast};

/// `linalg_lu_factor_ex.out(Tensor A, *, bool pivot=True, bool check_errors=False, Tensor(a!) LU, Tensor(b!) pivots,
/// Tensor(c!) info)`
pub const LINALG_LU_FACTOR_EX_OUT: Op = Op::new("aten::linalg_lu_factor_ex.out", 6, lu_factor)
    .outs(3)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_add(m.saturating_mul(2))));
/// `linalg_inv_ex.inverse(Tensor A, *, bool check_errors=False, Tensor(a!) inverse, Tensor(b!) info)`
pub const LINALG_INV_EX_INVERSE: Op = Op::new("aten::linalg_inv_ex.inverse", 4, inverse)
    .outs(2)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_mul(2).saturating_add(m)));
/// `_linalg_det.result(Tensor A, *, Tensor(a!) result, Tensor(b!) LU, Tensor(c!) pivots)`
pub const LINALG_DET_RESULT: Op = Op::new("aten::_linalg_det.result", 4, determinant)
    .outs(3)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_add(m.saturating_mul(2))));
/// `_linalg_slogdet.sign(Tensor A, *, Tensor(a!) sign, Tensor(b!) logabsdet, Tensor(c!) LU, Tensor(d!) pivots)`
pub const LINALG_SLOGDET_SIGN: Op = Op::new("aten::_linalg_slogdet.sign", 5, log_determinant)
    .outs(4)
    .temp(|cx| temp(cx, 0, |m, n| area(m, n).saturating_add(m.saturating_mul(2))));
/// `_linalg_solve_ex.result(Tensor A, Tensor B, *, bool left=True, bool check_errors=False, Tensor(a!) result,
/// Tensor(b!) LU, Tensor(c!) pivots, Tensor(d!) info)`
pub const LINALG_SOLVE_EX_RESULT: Op = Op::new("aten::_linalg_solve_ex.result", 8, solve_ex).outs(4).temp(solve_temp);
/// `linalg_lu_solve.out(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False, Tensor(a!) out)`
pub const LINALG_LU_SOLVE_OUT: Op = Op::new("aten::linalg_lu_solve.out", 6, lu_solve).temp(lu_solve_temp);
/// `lu_unpack.out(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True, *, Tensor(a!) P,
/// Tensor(b!) L, Tensor(c!) U)`
pub const LU_UNPACK_OUT: Op = Op::new("aten::lu_unpack.out", 7, unpack).outs(3).temp(|cx| {
    temp(cx, 0, |m, n| {
        let k = m.min(n);
        area(m, n).saturating_add(area(m, k)).saturating_add(area(k, n)).saturating_add(area(m, m)).saturating_add(m)
    })
});

pub const OPS: OpGroup = &[
    LINALG_LU_FACTOR_EX_OUT,
    LINALG_INV_EX_INVERSE,
    LINALG_DET_RESULT,
    LINALG_SLOGDET_SIGN,
    LINALG_SOLVE_EX_RESULT,
    LINALG_LU_SOLVE_OUT,
    LU_UNPACK_OUT,
];

const SINGULAR: &str = "the matrix is singular";

/// Decomposes a matrix in place; `pivots[k]` is the row that step `k` swapped with row `k`. Returns 0, or the number of the first
/// pivot that is zero, counted from 1.
pub(super) fn factor(a: &mut [f64], [rows, columns]: [usize; 2], pivots: &mut [i64]) -> usize {
    let mut info = 0;
    for (k, slot) in pivots.iter_mut().enumerate().take(rows.min(columns)) {
        let size = |row: usize| a[row * columns + k].abs();
        let pivot = (k + 1..rows).fold(k, |best, row| if size(row) > size(best) { row } else { best });
        *slot = pivot as i64;
        swap_rows(a, columns, k, pivot);
        let head = a[k * columns + k];
        if head == 0.0 {
            info = if info == 0 { k + 1 } else { info };
            continue;
        }
        for row in k + 1..rows {
            let factor = a[row * columns + k] / head;
            a[row * columns + k] = factor;
            let (above, below) = a.split_at_mut(row * columns);
            let from = &above[k * columns + k + 1..(k + 1) * columns];
            below[k + 1..columns].iter_mut().zip(from).for_each(|(to, from)| *to -= factor * *from);
        }
    }
    info
}

fn swap_rows(a: &mut [f64], columns: usize, i: usize, j: usize) {
    if i != j {
        (0..columns).for_each(|column| a.swap(i * columns + column, j * columns + column));
    }
}

/// Solves `A X = B`, or `A' X = B`, in place from the factors of `A`, which has `n` rows.
pub(super) fn solve(lu: &[f64], n: usize, pivots: &[i64], b: &mut [f64], columns: usize, transposed: bool) {
    let lower = Triangle { upper: false, unit: true, transposed };
    let upper = Triangle { upper: true, unit: false, transposed };
    let swap = |b: &mut [f64], k: usize| {
        let pivot = pivots.get(k).map_or(k, |&pivot| pivot as usize);
        if pivot < n {
            swap_rows(b, columns, k, pivot);
        }
    };
    if transposed {
        substitute(lu, n, b, columns, upper);
        substitute(lu, n, b, columns, lower);
        (0..n).rev().for_each(|k| swap(b, k));
    } else {
        (0..n).for_each(|k| swap(b, k));
        substitute(lu, n, b, columns, lower);
        substitute(lu, n, b, columns, upper);
    }
}

/// Pivots as PyTorch counts them, from 1.
fn counted(pivots: &[i64], to: &mut [f64]) {
    to.iter_mut().zip(pivots).for_each(|(to, &pivot)| *to = pivot as f64 + 1.0);
}

fn lu_factor(cx: &KernelContext<'_>) -> Result<()> {
    let (a, pivot, checked) = (Source::new(cx.tensor(0)?, 0)?, cx.bool(1)?, cx.bool(2)?);
    if !pivot {
        return Err(Error::invalid("an LU decomposition needs pivots").arg(1));
    }
    let [rows, columns] = a.shape;
    let steps = rows.min(columns);
    let mut lu = Target::new(cx, 3, a.dtype(), &a.sizes, &a.shape)?;
    let mut order = Target::new(cx, 4, ScalarType::Int, &a.sizes, &[steps])?;
    let mut info = Target::new(cx, 5, ScalarType::Int, &a.sizes, &[])?;
    let (work, pivots, shown) = (cx.temp::<f64>(rows * columns)?, cx.temp::<i64>(steps)?, cx.temp::<f64>(steps)?);
    let strides = [lu.strides, order.strides, info.strides];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1], &strides[2]], |[from, to, to_order, to_info]| {
        a.load(from, work)?;
        let failed = factor(work, a.shape, pivots);
        check(checked, failed, SINGULAR)?;
        counted(pivots, shown);
        lu.store(to, work)?;
        order.store(to_order, shown)?;
        info.store(to_info, &[failed as f64])
    })
}

fn inverse(cx: &KernelContext<'_>) -> Result<()> {
    let (a, checked) = (Source::square(cx.tensor(0)?, 0)?, cx.bool(1)?);
    let [n, _] = a.shape;
    let mut out = Target::new(cx, 2, a.dtype(), &a.sizes, &a.shape)?;
    let mut info = Target::new(cx, 3, ScalarType::Int, &a.sizes, &[])?;
    let (work, inverse, pivots) = (cx.temp::<f64>(n * n)?, cx.temp::<f64>(n * n)?, cx.temp::<i64>(n)?);
    let strides = [out.strides, info.strides];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1]], |[from, to, to_info]| {
        a.load(from, work)?;
        let failed = factor(work, a.shape, pivots);
        check(checked, failed, SINGULAR)?;
        identity(inverse, n);
        solve(work, n, pivots, inverse, n, false);
        out.store(to, inverse)?;
        info.store(to_info, &[failed as f64])
    })
}

/// Makes rows of `n` numbers the identity.
pub(super) fn identity(a: &mut [f64], n: usize) {
    a.fill(0.0);
    a.iter_mut().step_by(n.saturating_add(1)).for_each(|x| *x = 1.0);
}

fn determinant(cx: &KernelContext<'_>) -> Result<()> {
    determinants(cx, |cx, a| {
        let mut result = Target::new(cx, 1, a.dtype(), &a.sizes, &[])?;
        let strides = result.strides;
        Ok((
            strides,
            strides,
            2,
            move |offset: usize, _: usize, negative: bool, diagonal: &mut dyn Iterator<Item = f64>| {
                let product = diagonal.fold(if negative { -1.0 } else { 1.0 }, |product, x| product * x);
                result.store(offset, &[product])
            },
        ))
    })
}

fn log_determinant(cx: &KernelContext<'_>) -> Result<()> {
    determinants(cx, |cx, a| {
        let mut sign = Target::new(cx, 1, a.dtype(), &a.sizes, &[])?;
        let mut log = Target::new(cx, 2, a.dtype(), &a.sizes, &[])?;
        let strides = (sign.strides, log.strides);
        let store = move |to: usize, to_log: usize, negative: bool, diagonal: &mut dyn Iterator<Item = f64>| {
            let (mut sum, mut product) = (0.0, if negative { -1.0 } else { 1.0 });
            for x in diagonal {
                sum += libm::log(x.abs());
                product *= if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    x
                };
            }
            sign.store(to, &[product])?;
            log.store(to_log, &[sum])
        };
        Ok((strides.0, strides.1, 3, store))
    })
}

/// Decomposes each matrix, and stores its result. `outputs` returns the strides of two results, the position of the output for factors, and
/// a function that stores. That function gets the diagonal of the upper factor, and whether an odd number of rows was swapped.
fn determinants<'c, S>(
    cx: &'c KernelContext<'_>,
    outputs: impl FnOnce(&'c KernelContext<'_>, &Source<'_>) -> Result<(Dims, Dims, usize, S)>,
) -> Result<()>
where
    S: FnMut(usize, usize, bool, &mut dyn Iterator<Item = f64>) -> Result<()>,
{
    let a = Source::square(cx.tensor(0)?, 0)?;
    let [n, _] = a.shape;
    let (first, second, at, mut store) = outputs(cx, &a)?;
    let mut lu = Target::new(cx, at, a.dtype(), &a.sizes, &a.shape)?;
    let mut order = Target::new(cx, at + 1, ScalarType::Int, &a.sizes, &[n])?;
    let (work, pivots, shown) = (cx.temp::<f64>(n * n)?, cx.temp::<i64>(n)?, cx.temp::<f64>(n)?);
    let strides = [lu.strides, order.strides];
    let all: [&[usize]; 5] = [&a.strides, &first, &second, &strides[0], &strides[1]];
    each(&a.sizes, all, |[from, to, to_second, to_lu, to_order]| {
        a.load(from, work)?;
        factor(work, a.shape, pivots);
        let swaps = pivots.iter().enumerate().filter(|&(k, &pivot)| pivot != k as i64).count();
        store(to, to_second, swaps % 2 == 1, &mut work.iter().copied().step_by(n + 1))?;
        counted(pivots, shown);
        lu.store(to_lu, work)?;
        order.store(to_order, shown)
    })
}

/// True if the right-hand side is a batch of vectors, by PyTorch's rule.
fn is_vector(a: &[usize], b: &[usize]) -> bool {
    b.len() == 1 || (b.len() + 1 == a.len() && a.get(..b.len()) == Some(b))
}

/// The right-hand side as matrices.
fn right_side<'a>(a: &[usize], b: Tensor<'a>, argument: usize) -> Result<(Source<'a>, bool)> {
    let vector = is_vector(a, b.sizes());
    let source = if vector { Source::vectors(b, argument) } else { Source::new(b, argument) };
    Ok((source?, vector))
}

fn solve_temp(cx: &KernelContext<'_>) -> Result<usize> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let n = a.sizes().last().copied().unwrap_or(0);
    let wide = if is_vector(a.sizes(), b.sizes()) {
        n
    } else {
        area(b.size(b.rank().saturating_sub(1)), b.size(b.rank().saturating_sub(2)))
    };
    Ok(area(n, n).saturating_add(wide).saturating_add(n.saturating_mul(2)).saturating_mul(8).saturating_add(256))
}

fn solve_ex(cx: &KernelContext<'_>) -> Result<()> {
    let (tensor, left, checked) = (cx.tensor(0)?, cx.bool(2)?, cx.bool(3)?);
    let a = Source::square(tensor, 0)?;
    let (b, vector) = right_side(tensor.sizes(), cx.tensor(1)?, 1)?;
    if b.dtype() != a.dtype() {
        return Err(Error::from(Detail::ElementType { expected: a.dtype(), got: b.dtype() }).arg(1));
    }
    let sizes = broadcast(&a.sizes, &b.sizes).map_err(|e| e.arg(1))?;
    let each_result: &[usize] = if vector { &b.shape[..1] } else { &b.shape };
    let out = Target::new(cx, 4, a.dtype(), &sizes, each_result)?;
    // X A = B is the same as A' X' = B'.
    let (b, mut out) = if left || vector { (b, out) } else { (b.transposed(), out.transposed()) };
    let ([n, _], [rows, columns]) = (a.shape, b.shape);
    if rows != n {
        return Err(Error::from(Detail::Size { dim: sizes.len(), expected: n, got: rows }).arg(1));
    }
    let mut lu = Target::new(cx, 5, a.dtype(), &a.sizes, &a.shape)?;
    let mut order = Target::new(cx, 6, ScalarType::Int, &a.sizes, &[n])?;
    let mut info = Target::new(cx, 7, ScalarType::Int, &a.sizes, &[])?;
    let (work, x) = (cx.temp::<f64>(n * n)?, cx.temp::<f64>(n * columns)?);
    let (pivots, shown) = (cx.temp::<i64>(n)?, cx.temp::<f64>(n)?);
    let strides = [lu.strides, order.strides, info.strides];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1], &strides[2]], |[from, to, to_order, to_info]| {
        a.load(from, work)?;
        let failed = factor(work, a.shape, pivots);
        check(checked, failed, SINGULAR)?;
        counted(pivots, shown);
        lu.store(to, work)?;
        order.store(to_order, shown)?;
        info.store(to_info, &[failed as f64])
    })?;
    // A matrix that is shared by several right-hand sides next to each other is decomposed once.
    let (strides, mut last) = (out.strides, None);
    each(&sizes, [&a.broadcast(&sizes)?, &b.broadcast(&sizes)?, &strides], |[from, right, to]| {
        if last != Some(from) {
            a.load(from, work)?;
            factor(work, a.shape, pivots);
            last = Some(from);
        }
        b.load(right, x)?;
        solve(work, n, pivots, x, columns, !left && !vector);
        out.store(to, x)
    })
}

fn lu_solve_temp(cx: &KernelContext<'_>) -> Result<usize> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(2)?);
    let n = a.sizes().last().copied().unwrap_or(0);
    let wide = area(b.size(b.rank().saturating_sub(1)), b.size(b.rank().saturating_sub(2)));
    Ok(area(n, n).saturating_add(wide).saturating_add(n).saturating_mul(8).saturating_add(256))
}

fn lu_solve(cx: &KernelContext<'_>) -> Result<()> {
    let (a, order, b) = (Source::square(cx.tensor(0)?, 0)?, cx.tensor(1)?, Source::new(cx.tensor(2)?, 2)?);
    let (left, adjoint) = (cx.bool(3)?, cx.bool(4)?);
    if b.dtype() != a.dtype() {
        return Err(Error::from(Detail::ElementType { expected: a.dtype(), got: b.dtype() }).arg(2));
    }
    let sizes = broadcast(&a.sizes, &b.sizes).map_err(|e| e.arg(2))?;
    let out = Target::new(cx, 5, a.dtype(), &sizes, &b.shape)?;
    let (b, mut out) = if left { (b, out) } else { (b.transposed(), out.transposed()) };
    let ([n, _], [rows, columns]) = (a.shape, b.shape);
    if rows != n {
        return Err(Error::from(Detail::Size { dim: sizes.len(), expected: n, got: rows }).arg(2));
    }
    let (lead, step) = pivot_strides(&order, &a, n)?;
    let steps = order.as_slice::<i32>().map_err(|e| e.arg(1))?;
    let (work, x, pivots) = (cx.temp::<f64>(n * n)?, cx.temp::<f64>(n * columns)?, cx.temp::<i64>(n)?);
    let strides = out.strides;
    let shared = crate::support::shape::broadcast_strides(&a.sizes, &lead, &sizes)?;
    each(&sizes, [&a.broadcast(&sizes)?, &shared, &b.broadcast(&sizes)?, &strides], |[from, at, right, to]| {
        a.load(from, work)?;
        read_pivots(steps, at, step, pivots, n)?;
        b.load(right, x)?;
        solve(work, n, pivots, x, columns, adjoint == left);
        out.store(to, x)
    })
}

/// The strides of a tensor of pivots: of the batch, which it shares with the factors, and of the pivots of one matrix.
fn pivot_strides(order: &Tensor<'_>, factors: &Source<'_>, steps: usize) -> Result<(Dims, usize)> {
    let (&[ref sizes @ .., count], &[ref lead @ .., step]) = (order.sizes(), order.strides()) else {
        return Err(Error::from(Detail::Rank { expected: "at least 1", got: order.rank() }).arg(1));
    };
    if sizes != &*factors.sizes || count != steps {
        return Err(Error::invalid("the pivots are not those of the factors").arg(1));
    }
    Ok((Dims::from_slice(lead)?, step))
}

/// Reads pivots, which count from 1.
fn read_pivots(steps: &[i32], at: usize, step: usize, pivots: &mut [i64], rows: usize) -> Result<()> {
    for (k, pivot) in pivots.iter_mut().enumerate() {
        let index = steps.get(at + k * step).map_or(0, |&step| i64::from(step));
        if index < 1 || index > rows as i64 {
            return Err(Error::from(Detail::Index { index, size: rows }).arg(1));
        }
        *pivot = index - 1;
    }
    Ok(())
}

fn unpack(cx: &KernelContext<'_>) -> Result<()> {
    let (a, order, data, wanted) = (Source::new(cx.tensor(0)?, 0)?, cx.tensor(1)?, cx.bool(2)?, cx.bool(3)?);
    let [rows, columns] = a.shape;
    let steps = rows.min(columns);
    let work = cx.temp::<f64>(rows * columns)?;
    if data {
        let mut lower = Target::new(cx, 5, a.dtype(), &a.sizes, &[rows, steps])?;
        let mut upper = Target::new(cx, 6, a.dtype(), &a.sizes, &[steps, columns])?;
        let (l, u) = (cx.temp::<f64>(rows * steps)?, cx.temp::<f64>(steps * columns)?);
        let strides = [lower.strides, upper.strides];
        each(&a.sizes, [&a.strides, &strides[0], &strides[1]], |[from, to_lower, to_upper]| {
            a.load(from, work)?;
            for i in 0..rows {
                for j in 0..columns {
                    let x = work[i * columns + j];
                    if j < steps {
                        l[i * steps + j] = match i.cmp(&j) {
                            Ordering::Equal => 1.0,
                            Ordering::Greater => x,
                            Ordering::Less => 0.0,
                        };
                    }
                    if i < steps {
                        u[i * columns + j] = if i <= j { x } else { 0.0 };
                    }
                }
            }
            lower.store(to_lower, l)?;
            upper.store(to_upper, u)
        })?;
    } else {
        Target::nothing(cx, 5)?;
        Target::nothing(cx, 6)?;
    }
    if !wanted {
        return Target::nothing(cx, 4);
    }
    let (lead, step) = pivot_strides(&order, &a, steps)?;
    let entries = order.as_slice::<i32>().map_err(|e| e.arg(1))?;
    let mut out = Target::new(cx, 4, a.dtype(), &a.sizes, &[rows, rows])?.transposed();
    let (matrix, pivots) = (cx.temp::<f64>(rows * rows)?, cx.temp::<i64>(steps)?);
    let strides = out.strides;
    each(&a.sizes, [&lead, &strides], |[at, to]| {
        read_pivots(entries, at, step, pivots, rows)?;
        identity(matrix, rows);
        for (k, &pivot) in pivots.iter().enumerate() {
            swap_rows(matrix, rows, k, pivot as usize);
        }
        out.store(to, matrix)
    })
}
