//! Cumulative sums.

use rushlight_runtime::{KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, Writer, map_run};
use crate::support::number::Arithmetic;
use crate::support::reduce::{COLUMNS, DimSet, Nest, check_dtype};
use crate::support::tile::Compute;

/// `cumsum.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out)`
///
/// Elements are cast to the type of `out`; sums of floats are kept in `f64`, as in PyTorch.
pub const CUMSUM_OUT: Op = Op::new("aten::cumsum.out", 4, cumsum_out);

pub const OPS: &[Op] = &[CUMSUM_OUT];

fn cumsum_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let dims = DimSet::one(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let mut out = cx.out(3)?;
    check_dtype(cx.optional_int(2)?, out.dtype(), 2)?;
    out.resize(input.sizes()).map_err(|e| e.arg(3))?;
    // The walk over the lines would visit empty ones, of which a file can claim any number.
    if input.numel() == 0 {
        return Ok(());
    }
    // Truth must not be lost in a cast of fractions to integers.
    let floating = out.dtype().is_floating() || input.dtype().is_floating() && out.dtype() == ScalarType::Bool;
    if floating { scan::<f64>(&input, dims, out) } else { scan::<i64>(&input, dims, out) }
}

fn scan<C: Arithmetic + Compute>(input: &Tensor<'_>, dims: DimSet, out: TensorMut<'_>) -> Result<()> {
    let from = Reader::<C>::through(*input, out.dtype()).map_err(|e| e.arg(0))?;
    let nest = Nest::new(input.sizes(), [input.strides(), out.strides()], dims)?;
    let mut to = Writer::<C>::new(out)?;
    nest.groups(|group| {
        let mut sums = [C::ZERO; COLUMNS];
        let (is_run, stride) = (group.is_run(), group.strides()[1]);
        group.rows(|row| {
            map_run(&from, &mut to, row.offsets[0], (row.offsets[1], stride), row.len, |_, x, y| {
                if is_run {
                    for (y, &x) in y.iter_mut().zip(x) {
                        sums[0] = sums[0].add(x);
                        *y = sums[0];
                    }
                } else {
                    for ((y, &x), sum) in y.iter_mut().zip(x).zip(&mut sums) {
                        *sum = sum.add(x);
                        *y = *sum;
                    }
                }
            })
        })
    })
}
