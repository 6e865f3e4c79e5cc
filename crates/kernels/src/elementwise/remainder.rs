//! Remainders of division.

use rushlight_runtime::{KernelContext, Op, Result};

use crate::elementwise::div::{Whole, divide_whole, divide_whole_scalar};

/// `fmod.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)`: the sign is that of `self`.
pub const FMOD_TENSOR_OUT: Op = Op::new("aten::fmod.Tensor_out", 3, fmod_tensor_out);
/// `fmod.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.
pub const FMOD_SCALAR_OUT: Op = Op::new("aten::fmod.Scalar_out", 3, fmod_scalar_out);
/// `remainder.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)`: the sign is that of `other`.
pub const REMAINDER_TENSOR_OUT: Op = Op::new("aten::remainder.Tensor_out", 3, remainder_tensor_out);
/// `remainder.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.
pub const REMAINDER_SCALAR_OUT: Op = Op::new("aten::remainder.Scalar_out", 3, remainder_scalar_out);

pub const OPS: &[Op] = &[FMOD_TENSOR_OUT, FMOD_SCALAR_OUT, REMAINDER_TENSOR_OUT, REMAINDER_SCALAR_OUT];

fn fmod_tensor_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_whole(cx, &Whole::FMOD, 2)
}

fn fmod_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_whole_scalar(cx, &Whole::FMOD, 2)
}

fn remainder_tensor_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_whole(cx, &Whole::REMAINDER, 2)
}

fn remainder_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    divide_whole_scalar(cx, &Whole::REMAINDER, 2)
}
