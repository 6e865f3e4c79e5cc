//! The write of one loop iteration's result, as `map` and `scan` programs use it.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use crate::support::shape::{Dims, Walk};

/// `executorch_prim::et_copy_index.tensor(Tensor(a!) copy_to, Tensor copy_from, int index) -> Tensor(a!)`
///
/// Gives `copy_to` the size `index + 1` in dimension 0 and writes `copy_from` at `index`. Exporters before ExecuTorch
/// 1.0 declare a `copy_to` of static shape: it keeps its size, and `index` must be below it.
pub const ET_COPY_INDEX_TENSOR: Op = Op::new("executorch_prim::et_copy_index.tensor", 3, et_copy_index).writing(&[0]);

pub const OPS: &[Op] = &[ET_COPY_INDEX_TENSOR];

fn et_copy_index(cx: &KernelContext<'_>) -> Result<()> {
    let from = cx.tensor(1)?;
    let index = cx.int(2)?;
    let mut to = cx.out(0)?;
    let index = usize::try_from(index).ok().filter(|&i| i < isize::MAX as usize).ok_or_else(|| {
        Error::from(Detail::Value { what: "index", expected: "a value of at least 0", got: index }).arg(2)
    })?;
    if from.dtype() != to.dtype() {
        return Err(Error::from(Detail::Dtype { expected: to.dtype().name(), got: from.dtype() }).arg(1));
    }
    let mut sizes = Dims::EMPTY;
    sizes.push(index + 1)?;
    for &size in from.sizes() {
        sizes.push(size).map_err(|e| e.arg(1))?;
    }
    if to.dim_order().first().is_some_and(|&outermost| outermost != 0) {
        return Err(Error::invalid("dimension 0 must be the outermost one in memory").arg(0));
    }
    if let Some((dim, (&expected, &got))) =
        to.sizes().iter().zip(&*sizes).enumerate().skip(1).find(|(_, (a, b))| a != b)
    {
        return Err(Error::from(Detail::Size { dim: dim - 1, expected, got }).arg(1));
    }
    if let Err(error) = to.resize(&sizes)
        && index >= to.size(0)
    {
        return Err(error.arg(0));
    }

    let numel = from.numel();
    let same_order = from.dim_order().iter().zip(to.dim_order().iter().skip(1)).all(|(&a, &b)| a + 1 == b);
    let inner = Dims::from_slice(to.strides().get(1..).unwrap_or(&[]))?;
    dispatch_size!(from.dtype(), N => {
        let source = from.bytes().as_chunks::<N>().0;
        let start = index * numel;
        let rows = to.bytes_mut().as_chunks_mut::<N>().0;
        let row = rows.get_mut(start..start + numel).ok_or(Detail::Index { index: index as i64, size: index })?;
        if same_order {
            row.copy_from_slice(source);
        } else if numel > 0 {
            let mut walk = Walk::new(from.sizes(), [from.strides(), &inner])?;
            loop {
                let [read, write] = walk.offsets;
                row[write] = source[read];
                if !walk.next() {
                    break;
                }
            }
        }
        Ok(())
    })
}
