//! Tensors joined along a dimension.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut, copy_bytes};

use crate::support::copy::StridedCopy;
use crate::support::promote::check_cast;
use crate::support::shape::{Dims, normalize_dim};

/// `aten::cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)`
pub const CAT_OUT: Op = Op::new("aten::cat.out", 3, cat);

/// `aten::stack.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out) -> Tensor(a!)`
pub const STACK_OUT: Op = Op::new("aten::stack.out", 3, stack);

/// Concatenation. Inputs are converted to the output's type.
pub const OPS: OpGroup = &[CAT_OUT, STACK_OUT];

fn cat(cx: &KernelContext<'_>) -> Result<()> {
    let (tensors, mut out) = (cx.tensors(0)?, cx.out(2)?);
    // PyTorch ignores tensors of size [0], even if the ranks of the others differ.
    let takes_part = |tensor: &Tensor<'_>| tensor.sizes() != [0];
    let mut sizes = Dims::EMPTY;
    let mut dim = None;
    for tensor in tensors.iter() {
        let tensor = tensor?;
        check_cast(tensor.dtype(), out.dtype()).map_err(|e| e.arg(2))?;
        if !takes_part(&tensor) {
            continue;
        }
        match dim {
            None if tensor.rank() == 0 => {
                return Err(Error::from(Detail::Rank { expected: "1 or more", got: 0 }).arg(0));
            }
            None => {
                dim = Some(normalize_dim(cx.int(1)?, tensor.rank()).map_err(|e| e.arg(1))?);
                sizes = Dims::from_slice(tensor.sizes())?;
            }
            Some(dim) => join(&mut sizes, &tensor, dim)?,
        }
    }
    let Some(dim) = dim else {
        if tensors.is_empty() {
            return Err(Error::invalid("at least one tensor is needed").arg(0));
        }
        return out.resize(&[0]).map_err(|e| e.arg(2));
    };
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    let parts = tensors.iter().filter(|tensor| tensor.as_ref().map_or(true, takes_part));
    if cat_dense(parts, dim, &mut out)? {
        return Ok(());
    }
    let mut offset = 0;
    for tensor in tensors.iter() {
        let tensor = tensor?;
        if takes_part(&tensor) {
            let mut copy = StridedCopy::of(tensor.sizes(), out.strides(), tensor.strides());
            copy.dst_offset = offset;
            copy.run(&mut out, tensor)?;
            offset = offset.wrapping_add(tensor.size(dim).wrapping_mul(out.strides()[dim]));
        }
    }
    Ok(())
}

/// Concatenates up to 8 contiguous tensors by copying runs of bytes, so that the output is written from its start to
/// its end. Returns false and writes nothing for other tensors, and for runs that are too short to be worth a call.
fn cat_dense<'t>(
    tensors: impl Iterator<Item = Result<Tensor<'t>>>,
    dim: usize,
    out: &mut TensorMut<'_>,
) -> Result<bool> {
    const MAX_PARTS: usize = 8;
    const MIN_RUN: usize = 64;
    // The rest of each tensor, and the length of its runs in the output, in bytes.
    let mut parts: [(&[u8], usize); MAX_PARTS] = [(&[], 0); MAX_PARTS];
    let (mut count, mut row) = (0, 0);
    for tensor in tensors {
        let tensor = tensor?;
        let outer: usize = tensor.sizes()[..dim].iter().product();
        let run = tensor.bytes().len().checked_div(outer).unwrap_or(0);
        let Some(part) = parts.get_mut(count) else { return Ok(false) };
        if tensor.dtype() != out.dtype() || !tensor.is_contiguous() || run < MIN_RUN {
            return Ok(false);
        }
        *part = (tensor.bytes(), run);
        (count, row) = (count + 1, row + run);
    }
    if !out.is_contiguous() || row == 0 {
        return Ok(false);
    }
    for mut to in out.bytes_mut().chunks_exact_mut(row) {
        for (bytes, run) in &mut parts[..count] {
            let ((from, rest), (start, end)) = (bytes.split_at(*run), to.split_at_mut(*run));
            copy_bytes(start, from);
            (*bytes, to) = (rest, end);
        }
    }
    Ok(true)
}

/// Adds the size of `tensor` along `dim`; the other sizes must be the same.
fn join(sizes: &mut Dims, tensor: &Tensor<'_>, dim: usize) -> Result<()> {
    if tensor.rank() != sizes.len() {
        let detail = Detail::Rank { expected: "that of the other tensors", got: tensor.rank() };
        return Err(Error::from(detail).arg(0));
    }
    for (i, (expected, &got)) in sizes.iter_mut().zip(tensor.sizes()).enumerate() {
        if i == dim {
            *expected = expected.saturating_add(got);
        } else if *expected != got {
            return Err(Error::from(Detail::Size { dim: i, expected: *expected, got }).arg(0));
        }
    }
    Ok(())
}

fn stack(cx: &KernelContext<'_>) -> Result<()> {
    let (tensors, mut out) = (cx.tensors(0)?, cx.out(2)?);
    if tensors.is_empty() {
        return Err(Error::invalid("at least one tensor is needed").arg(0));
    }
    let first = tensors.get(0)?;
    let dim = normalize_dim(cx.int(1)?, first.rank() + 1).map_err(|e| e.arg(1))?;
    let mut sizes = Dims::EMPTY;
    for i in 0..=first.rank() {
        sizes.push(if i == dim { tensors.len() } else { first.sizes()[i - usize::from(i > dim)] })?;
    }
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    for (index, tensor) in tensors.iter().enumerate() {
        let tensor = tensor?;
        check_cast(tensor.dtype(), out.dtype()).map_err(|e| e.arg(2))?;
        if tensor.sizes() != first.sizes() {
            return Err(Error::invalid("the tensors to stack must have the same sizes").arg(0));
        }
        let mut copy = StridedCopy::new();
        for (i, (&size, &from)) in tensor.sizes().iter().zip(tensor.strides()).enumerate() {
            copy.dim(size, out.strides()[i + usize::from(i >= dim)], from)?;
        }
        copy.dst_offset = index.wrapping_mul(out.strides()[dim]);
        copy.run(&mut out, tensor)?;
    }
    Ok(())
}
