//! Properties and single values of tensors as scalars.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Scalar, Tensor};

use crate::support::number::Number;
use crate::support::shape::normalize_dim;

/// `aten::sym_size.int(Tensor self, int dim) -> SymInt`
pub const SYM_SIZE_INT: Op = Op::new("aten::sym_size.int", 3, sym_size);

/// `aten::sym_stride.int(Tensor self, int dim) -> SymInt`: in elements.
pub const SYM_STRIDE_INT: Op = Op::new("aten::sym_stride.int", 3, sym_stride);

/// `aten::sym_numel(Tensor self) -> SymInt`
pub const SYM_NUMEL: Op = Op::new("aten::sym_numel", 2, sym_numel);

/// `aten::sym_storage_offset(Tensor self) -> SymInt`: always 0, each tensor has storage of its own.
pub const SYM_STORAGE_OFFSET: Op = Op::new("aten::sym_storage_offset", 2, sym_storage_offset);

/// `aten::sym_is_contiguous(Tensor self, MemoryFormat memory_format=contiguous_format) -> SymBool`
pub const SYM_IS_CONTIGUOUS: Op = Op::new("aten::sym_is_contiguous", 3, sym_is_contiguous);

/// `aten::_local_scalar_dense(Tensor self) -> Scalar`: the first element in memory.
pub const LOCAL_SCALAR_DENSE: Op = Op::new("aten::_local_scalar_dense", 2, local_scalar_dense);

pub const OPS: &[Op] =
    &[SYM_SIZE_INT, SYM_STRIDE_INT, SYM_NUMEL, SYM_STORAGE_OFFSET, SYM_IS_CONTIGUOUS, LOCAL_SCALAR_DENSE];

fn sym_size(cx: &KernelContext<'_>) -> Result<()> {
    let tensor = cx.tensor(0)?;
    let size = at_dim(tensor.sizes(), cx.int(1)?)?;
    cx.set(2, Scalar::Int(size as i64))
}

fn sym_stride(cx: &KernelContext<'_>) -> Result<()> {
    let tensor = cx.tensor(0)?;
    let stride = at_dim(tensor.strides(), cx.int(1)?)?;
    cx.set(2, Scalar::Int(stride as i64))
}

fn sym_numel(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(1, Scalar::Int(cx.tensor(0)?.numel() as i64))
}

fn sym_storage_offset(cx: &KernelContext<'_>) -> Result<()> {
    cx.tensor(0)?;
    cx.set(1, Scalar::Int(0))
}

fn sym_is_contiguous(cx: &KernelContext<'_>) -> Result<()> {
    let tensor = cx.tensor(0)?;
    let result = match (cx.optional_int(1)?.unwrap_or(0), tensor.rank()) {
        (0 | 1, rank) => is_dense_in_order(&tensor, 0..rank),
        (2, 4) => is_dense_in_order(&tensor, [0, 2, 3, 1].into_iter()),
        (3, 5) => is_dense_in_order(&tensor, [0, 2, 3, 4, 1].into_iter()),
        (2 | 3, _) => false,
        (got, _) => {
            let detail = Detail::Value { what: "memory format", expected: "0, 1, 2 or 3", got };
            return Err(Error::from(detail).arg(1));
        }
    };
    cx.set(2, Scalar::Bool(result))
}

fn local_scalar_dense(cx: &KernelContext<'_>) -> Result<()> {
    let tensor = cx.tensor(0)?;
    let value = dispatch!(REALHBBF16, tensor.dtype(), T => {
        match tensor.as_slice::<T>()?.first() {
            Some(&value) if T::IS_FLOAT => Ok(Scalar::Double(value.to_f64())),
            Some(&value) if tensor.dtype() == rushlight_runtime::ScalarType::Bool => {
                Ok(Scalar::Bool(value.to_i64() != 0))
            }
            Some(&value) => Ok(Scalar::Int(value.to_i64())),
            None => Err(Error::invalid("an empty tensor has no value").arg(0)),
        }
    })?;
    cx.set(1, value)
}

fn at_dim(values: &[usize], dim: i64) -> Result<usize> {
    let index = normalize_dim(dim, values.len()).map_err(|e| e.arg(1))?;
    values.get(index).copied().ok_or_else(|| Error::from(Detail::Dim { dim, rank: values.len() }).arg(1))
}

/// True if the dimensions lie densely in memory in this order, outermost first. Dimensions of size 1 lie anywhere.
fn is_dense_in_order(tensor: &Tensor<'_>, order: impl DoubleEndedIterator<Item = usize>) -> bool {
    let mut expected = 1;
    tensor.numel() == 0
        || order.rev().all(|dim| {
            let (size, stride) = (tensor.size(dim), tensor.strides().get(dim).copied().unwrap_or(1));
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
}
