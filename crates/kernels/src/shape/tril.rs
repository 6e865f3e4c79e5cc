//! The lower triangle of matrices.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use crate::support::copy::same_dtype;
use crate::support::shape::Walk;

/// `aten::tril.out(Tensor self, SymInt diagonal=0, *, Tensor(a!) out) -> Tensor(a!)`
pub const TRIL_OUT: Op = Op::new("aten::tril.out", 3, tril);

/// Triangles.
pub const OPS: OpGroup = &[TRIL_OUT];

fn tril(cx: &KernelContext<'_>) -> Result<()> {
    let (input, diagonal, mut out) = (cx.tensor(0)?, cx.int(1)?, cx.out(2)?);
    same_dtype(input.dtype(), &out, 2)?;
    let Some(row_dim) = input.rank().checked_sub(2) else {
        return Err(Error::from(Detail::Rank { expected: "2 or more", got: input.rank() }).arg(0));
    };
    out.resize(input.sizes()).map_err(|e| e.arg(2))?;
    if input.numel() == 0 {
        return Ok(());
    }
    let columns = input.size(row_dim + 1);
    let (from_step, to_step) = (input.strides()[row_dim + 1], out.strides()[row_dim + 1]);
    let mut rows = Walk::new(&input.sizes()[..=row_dim], [&input.strides()[..=row_dim], &out.strides()[..=row_dim]])?;
    dispatch_size!(input.dtype(), N => {
        let src = input.bytes().as_chunks::<N>().0;
        let dst = out.bytes_mut().as_chunks_mut::<N>().0;
        loop {
            let [from, to] = rows.offsets;
            let kept = diagonal.saturating_add(rows.index()[row_dim] as i64 + 1).clamp(0, columns as i64) as usize;
            if from_step == 1 && to_step == 1 {
                let (copied, cleared) = dst[to..to + columns].split_at_mut(kept);
                copied.copy_from_slice(&src[from..from + kept]);
                cleared.fill([0; N]);
            } else {
                for i in 0..columns {
                    dst[to + i * to_step] = if i < kept { src[from + i * from_step] } else { [0; N] };
                }
            }
            if !rows.next() {
                return Ok(());
            }
        }
    })
}
