//! Grouped GEMM: each group of rows with its own matrix, as the experts of a mixture.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor};

use super::gemm::{Addend, GemmShape, MatrixOperand, gemm};
use super::matmul::{batched, layout, same_dtype, sizes};
use crate::support::number::Number;

/// `transformers::grouped_mm_fallback.out(Tensor input, Tensor weight, Tensor offs, *, Tensor(a!) out)`
///
/// `input` is `[M, K]`, `weight` `[G, K, N]` and `out` `[M, N]`. Group `g` are the rows from `offs[g - 1]` (0 for the first)
/// up to `offs[g]`, which are multiplied with `weight[g]`; rows beyond the last group become zeros.
pub const GROUPED_MM_OUT: Op = Op::new("transformers::grouped_mm_fallback.out", 4, grouped_mm_out);

pub const OPS: OpGroup = &[GROUPED_MM_OUT];

fn grouped_mm_out(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weight, ends, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?, cx.out(3)?);
    let ([m, k], [groups, rows, n], [count]) = (sizes(input, "2", 0)?, sizes(weight, "3", 1)?, sizes(ends, "1", 2)?);
    same_dtype(&input, &[(1, weight.dtype()), (3, out.dtype())])?;
    for (argument, dim, expected, got) in [(1, 1, k, rows), (2, 0, groups, count)] {
        if expected != got {
            return Err(Error::from(Detail::Size { dim, expected, got }).arg(argument));
        }
    }
    out.resize(&[m, n]).map_err(|e| e.arg(3))?;
    out.bytes_mut().fill(0);
    let (from, matrix, to) = (layout(input.strides(), 0), batched(weight.strides()), layout(out.strides(), 0));
    accumulate!(input.dtype(), A => {
        let mut start = 0;
        for group in 0..groups {
            let end = end_of(ends, group, start..=m)?;
            if end > start {
                let shape = GemmShape { m: end - start, k, n };
                let (a, b) = (MatrixOperand::new(input, from.below(start))?, MatrixOperand::new(weight, matrix(group))?);
                gemm(shape, A::ONE, a, b, Addend::None, &mut out, to.below(start))?;
            }
            start = end;
        }
        Ok(())
    })
}

/// The row after the last one of a group, which must be among those given.
fn end_of(ends: Tensor<'_>, group: usize, rows: core::ops::RangeInclusive<usize>) -> Result<usize> {
    let end = match ends.dtype() {
        ScalarType::Int => ends.as_slice::<i32>()?.get(group).copied().map(i64::from),
        ScalarType::Long => ends.as_slice::<i64>()?.get(group).copied(),
        got => return Err(Error::from(Detail::Dtype { expected: "i32 or i64", got }).arg(2)),
    };
    let end = end.unwrap_or_default();
    match usize::try_from(end) {
        Ok(end) if rows.contains(&end) => Ok(end),
        _ => Err(Error::from(Detail::Index { index: end, size: *rows.end() }).arg(2)),
    }
}
