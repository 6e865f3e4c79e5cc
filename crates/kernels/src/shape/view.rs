//! Operators that keep the elements in order and change the sizes around them.

use rushlight_runtime::{
    Detail, Error, IntList, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut, copy_bytes,
};

use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::shape::{Dims, Walk, normalize_dim, numel};

/// `aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)`
pub const VIEW_COPY_OUT: Op = Op::new("aten::view_copy.out", 3, view_copy);

/// `aten::squeeze_copy.dim_out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)`
pub const SQUEEZE_COPY_DIM_OUT: Op = Op::new("aten::squeeze_copy.dim_out", 3, squeeze_copy_dim);

/// `aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out) -> Tensor(a!)`
pub const SQUEEZE_COPY_DIMS_OUT: Op = Op::new("aten::squeeze_copy.dims_out", 3, squeeze_copy_dims);

/// `aten::unsqueeze_copy.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)`
pub const UNSQUEEZE_COPY_OUT: Op = Op::new("aten::unsqueeze_copy.out", 3, unsqueeze_copy);

/// `aten::view_as_real_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`
pub const VIEW_AS_REAL_COPY_OUT: Op = Op::new("aten::view_as_real_copy.out", 2, view_as_real_copy);

/// `et_copy::_h2d_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`. Both sides are host memory here.
pub const H2D_COPY_OUT: Op = Op::new("et_copy::_h2d_copy.out", 2, device_copy);

/// `et_copy::_d2h_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)`. Both sides are host memory here.
pub const D2H_COPY_OUT: Op = Op::new("et_copy::_d2h_copy.out", 2, device_copy);

/// Views as copies.
pub const OPS: OpGroup = &[
    VIEW_COPY_OUT,
    SQUEEZE_COPY_DIM_OUT,
    SQUEEZE_COPY_DIMS_OUT,
    UNSQUEEZE_COPY_OUT,
    VIEW_AS_REAL_COPY_OUT,
    H2D_COPY_OUT,
    D2H_COPY_OUT,
];

fn view_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(2)?);
    let sizes = view_sizes(cx.ints(1)?, input.numel()).map_err(|e| e.arg(1))?;
    same_dtype(input.dtype(), &out, 2)?;
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    reshape(&mut out, input)
}

/// The sizes of a view, with the one that is -1 inferred.
fn view_sizes(sizes: IntList<'_>, elements: usize) -> Result<Dims> {
    let mut result = Dims::EMPTY;
    let mut inferred = None;
    for (dim, size) in sizes.iter().enumerate() {
        if size == -1 && inferred.is_none() {
            inferred = Some(dim);
            result.push(1)?;
        } else {
            let expected = if size == -1 { "at most one size of -1" } else { "a size, or -1 once" };
            let positive = usize::try_from(size);
            result.push(positive.map_err(|_| Detail::Value { what: "size of the view", expected, got: size })?)?;
        }
    }
    let known = numel(&result)?;
    match inferred {
        Some(dim) if known > 0 && elements.is_multiple_of(known) => result[dim] = elements / known,
        None if known == elements => {}
        _ => return Err(Detail::Count { what: "elements of the view", expected: elements, got: known }.into()),
    }
    Ok(result)
}

/// Copies the elements in row-major order of both shapes.
fn reshape(out: &mut TensorMut<'_>, input: Tensor<'_>) -> Result<()> {
    if input.is_contiguous() && out.is_contiguous() {
        copy_bytes(out.bytes_mut(), input.bytes());
        return Ok(());
    }
    if input.numel() == 0 {
        return Ok(());
    }
    let mut from = Walk::new(input.sizes(), [input.strides()])?;
    let mut to = Walk::new(out.sizes(), [out.strides()])?;
    dispatch_size!(input.dtype(), N => {
        let src = input.bytes().as_chunks::<N>().0;
        let dst = out.bytes_mut().as_chunks_mut::<N>().0;
        loop {
            dst[to.offsets[0]] = src[from.offsets[0]];
            if !(from.next() & to.next()) {
                return Ok(());
            }
        }
    })
}

fn squeeze_copy_dim(cx: &KernelContext<'_>) -> Result<()> {
    let rank = cx.tensor(0)?.rank();
    let dim = normalize_dim(cx.int(1)?, rank).map_err(|e| e.arg(1))?;
    squeeze(cx, 1 << dim)
}

fn squeeze_copy_dims(cx: &KernelContext<'_>) -> Result<()> {
    let rank = cx.tensor(0)?.rank();
    let mut mask = 0u32;
    for dim in cx.ints(1)?.iter() {
        let bit = 1 << normalize_dim(dim, rank).map_err(|e| e.arg(1))?;
        if mask & bit != 0 {
            return Err(Error::invalid("a dimension appears twice").arg(1));
        }
        mask |= bit;
    }
    squeeze(cx, mask)
}

/// Drops the dimensions of size 1 whose bit is set.
fn squeeze(cx: &KernelContext<'_>, mask: u32) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(2)?);
    same_dtype(input.dtype(), &out, 2)?;
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (dim, (&size, &stride)) in input.sizes().iter().zip(input.strides()).enumerate() {
        if size != 1 || mask & 1 << dim == 0 {
            sizes.push(size)?;
            strides.push(stride)?;
        }
    }
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    copy_dense(&mut out, input, &strides)
}

fn unsqueeze_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(2)?);
    let dim = normalize_dim(cx.int(1)?, input.rank() + 1).map_err(|e| e.arg(1))?;
    same_dtype(input.dtype(), &out, 2)?;
    let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
    for (i, (&size, &stride)) in input.sizes().iter().zip(input.strides()).enumerate() {
        if i == dim {
            sizes.push(1)?;
            strides.push(0)?;
        }
        sizes.push(size)?;
        strides.push(stride)?;
    }
    if dim == input.rank() {
        sizes.push(1)?;
        strides.push(0)?;
    }
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    copy_dense(&mut out, input, &strides)
}

/// Copies all of `input`, which has `out`'s sizes if it is read with `strides`.
pub(super) fn copy_dense(out: &mut TensorMut<'_>, input: Tensor<'_>, strides: &[usize]) -> Result<()> {
    if input.is_contiguous() && out.is_contiguous() && input.dtype() == out.dtype() {
        copy_bytes(out.bytes_mut(), input.bytes());
        return Ok(());
    }
    StridedCopy::of(out.sizes(), out.strides(), strides).run(out, input)
}

fn view_as_real_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(1)?);
    let part = match input.dtype() {
        ScalarType::ComplexHalf => ScalarType::Half,
        ScalarType::ComplexFloat => ScalarType::Float,
        ScalarType::ComplexDouble => ScalarType::Double,
        got => return Err(Error::from(Detail::Dtype { expected: "a complex type", got }).arg(0)),
    };
    let mut sizes = Dims::from_slice(input.sizes())?;
    sizes.push(2)?;
    out.resize(&sizes).map_err(|e| e.arg(1))?;
    same_dtype(part, &out, 1)?;
    let mut copy = StridedCopy::new();
    for ((&size, &to), &from) in sizes.iter().zip(out.strides()).zip(input.strides()) {
        copy.dim(size, to, from.wrapping_mul(2))?;
    }
    copy.dim(2, out.strides().last().copied().unwrap_or(1), 1)?;
    copy.run_bytes(out.bytes_mut(), input.bytes(), part.size())
}

fn device_copy(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(1)?);
    same_dtype(input.dtype(), &out, 1)?;
    out.resize(input.sizes()).map_err(|e| e.arg(1))?;
    copy_dense(&mut out, input, input.strides())
}
