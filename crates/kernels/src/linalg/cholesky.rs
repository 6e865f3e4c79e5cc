//! Cholesky decomposition of symmetric positive definite matrices.

use rushlight_runtime::{KernelContext, Op, OpGroup, Result, ScalarType};

use super::batch::{Source, Target, area, check, each, temp};

/// `linalg_cholesky_ex.L(Tensor self, *, bool upper=False, bool check_errors=False, Tensor(a!) L, Tensor(b!) info)`
///
/// Only the requested triangle is read. `info` is 0, or the order of the first leading minor that is not positive.
pub const LINALG_CHOLESKY_EX_L: Op =
    Op::new("aten::linalg_cholesky_ex.L", 5, cholesky).outs(2).temp(|cx| temp(cx, 0, area));

pub const OPS: OpGroup = &[LINALG_CHOLESKY_EX_L];

fn cholesky(cx: &KernelContext<'_>) -> Result<()> {
    let (a, upper, checked) = (Source::square(cx.tensor(0)?, 0)?, cx.bool(1)?, cx.bool(2)?);
    let [n, _] = a.shape;
    let out = Target::new(cx, 3, a.dtype(), &a.sizes, &a.shape)?;
    let mut info = Target::new(cx, 4, ScalarType::Int, &a.sizes, &[])?;
    // The upper factor is the transposed lower one of the transposed matrix.
    let (a, mut out) = if upper { (a.transposed(), out.transposed()) } else { (a, out) };
    let work = cx.temp::<f64>(n * n)?;
    let strides = [out.strides, info.strides];
    each(&a.sizes, [&a.strides, &strides[0], &strides[1]], |[from, to, to_info]| {
        a.load(from, work)?;
        let failed = factor(work, n);
        check(checked, failed, "the matrix is not positive definite")?;
        out.store(to, work)?;
        info.store(to_info, &[failed as f64])
    })
}

/// Replaces the lower triangle by the factor and clears the upper one.
fn factor(a: &mut [f64], n: usize) -> usize {
    let mut info = 0;
    for j in 0..n {
        for i in j..n {
            let (row, other) = (&a[i * n..i * n + j], &a[j * n..j * n + j]);
            let rest = a[i * n + j] - row.iter().zip(other).fold(0.0, |sum, (x, y)| sum + x * y);
            if i > j {
                a[i * n + j] = rest / a[j * n + j];
            } else if rest > 0.0 {
                a[j * n + j] = libm::sqrt(rest);
            } else {
                info = j + 1;
                break;
            }
        }
        if info != 0 {
            break;
        }
    }
    for i in 0..n {
        a[i * n + i + 1..(i + 1) * n].fill(0.0);
    }
    info
}
