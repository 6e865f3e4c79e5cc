//! Indexing with tensors: `x[i, :, mask]` and its assignment.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorList, TensorMut};

use super::indexing::{Indexing, Strides};
use super::rows::RowSelection;
use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::number::{Arithmetic, Number};
use crate::support::shape::{Dims, broadcast_strides, numel};

/// `aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out) -> Tensor(a!)`
pub const INDEX_TENSOR_OUT: Op = Op::new("aten::index.Tensor_out", 3, index);

/// `aten::index_put.out(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, *, Tensor(a!) out) ->
/// Tensor(a!)`
pub const INDEX_PUT_OUT: Op = Op::new("aten::index_put.out", 5, index_put);

/// `aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)`
pub const INDEX_PUT_: Op = Op::new("aten::index_put_", 4, index_put_in_place).writing(&[0]);

/// Advanced indexing.
pub const OPS: OpGroup = &[INDEX_TENSOR_OUT, INDEX_PUT_OUT, INDEX_PUT_];

fn index(cx: &KernelContext<'_>) -> Result<()> {
    let (input, list, mut out) = (cx.tensor(0)?, cx.optional_tensors(1)?, cx.out(2)?);
    same_dtype(input.dtype(), &out, 2)?;
    if input.is_contiguous()
        && let Some(index) = only(&list)?
        && let Some(rows) = RowSelection::new(input.sizes(), input.dtype().size(), &index, true)
    {
        out.resize(&RowSelection::sizes(input.sizes(), &index)?).map_err(|e| e.arg(2))?;
        if out.is_contiguous() {
            return rows.take(out.bytes_mut(), input.bytes()).map_err(|e| e.arg(1));
        }
    }
    let plan = Indexing::new(input.sizes(), &list).map_err(|e| e.arg(1))?;
    out.resize(&plan.result_sizes()?).map_err(|e| e.arg(2))?;
    plan.take(&mut out, input).map_err(|e| e.arg(1))
}

/// The index of the first dimension, if there are no others.
fn only<'a>(list: &TensorList<'a>) -> Result<Option<Tensor<'a>>> {
    if list.len() == 1 { list.get_optional(0) } else { Ok(None) }
}

fn index_put(cx: &KernelContext<'_>) -> Result<()> {
    let (input, values, mut out) = (cx.tensor(0)?, cx.tensor(2)?, cx.out(4)?);
    same_dtype(input.dtype(), &out, 4)?;
    out.resize(input.sizes()).map_err(|e| e.arg(4))?;
    StridedCopy::of(input.sizes(), out.strides(), input.strides()).run(&mut out, input)?;
    put(&mut out, &cx.optional_tensors(1)?, values, cx.bool(3)?)
}

fn index_put_in_place(cx: &KernelContext<'_>) -> Result<()> {
    let (values, mut out) = (cx.tensor(2)?, cx.out(0)?);
    put(&mut out, &cx.optional_tensors(1)?, values, cx.bool(3)?)
}

fn put(out: &mut TensorMut<'_>, list: &TensorList<'_>, values: Tensor<'_>, accumulate: bool) -> Result<()> {
    if values.dtype() != out.dtype() {
        let detail = Detail::Dtype { expected: out.dtype().name(), got: values.dtype() };
        return Err(Error::from(detail).arg(2));
    }
    if !accumulate
        && out.is_contiguous()
        && values.is_contiguous()
        && let Some(index) = only(list)?
        && *values.sizes() == *RowSelection::sizes(out.sizes(), &index)?
        && let Some(rows) = RowSelection::new(out.sizes(), out.dtype().size(), &index, true)
    {
        return rows.put(out.bytes_mut(), values.bytes()).map_err(|e| e.arg(1));
    }
    let (sizes, strides) = (Dims::from_slice(out.sizes())?, Dims::from_slice(out.strides())?);
    let plan = Indexing::new(&sizes, list).map_err(|e| e.arg(1))?;
    let result = plan.result_sizes()?;
    let from = broadcast_strides(values.sizes(), values.strides(), &result).map_err(|e| e.arg(2))?;
    if numel(&result)? == 0 {
        return Ok(());
    }
    let strides = Strides { indexed: &strides, other: &from };
    let mut block = plan.block(strides, true)?;
    let Some(block) = block.prepare() else { return Ok(()) };
    let dtype = out.dtype();
    if accumulate {
        return dispatch!(REALHBBF16, dtype, T => {
            let src = values.as_slice::<T>()?;
            let dst = out.as_mut_slice::<T>()?;
            plan.walk_blocks(strides, &mut |to, from| {
                block.rows(to, from, |row| {
                    let (mut to, mut from) = (row.dst, row.src);
                    for _ in 0..row.len {
                        dst[to] = T::from_acc(dst[to].to_acc().add(src[from].to_acc()));
                        to = to.wrapping_add_signed(row.dst_stride);
                        from = from.wrapping_add_signed(row.src_stride);
                    }
                });
            })
            .map_err(|e| e.arg(1))
        });
    }
    plan.copy(strides, &block, out.bytes_mut(), values.bytes(), dtype.size(), true).map_err(|e| e.arg(1))
}
