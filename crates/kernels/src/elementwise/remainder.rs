//! Remainders of division.

use rushlight_runtime::{KernelContext, Op, Result};

use crate::elementwise::div::{Divide, checked};
use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::promote;
use crate::support::tile::scalar_as;

/// `fmod.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)`: the sign is that of `self`.
pub const FMOD_TENSOR_OUT: Op = Op::new("aten::fmod.Tensor_out", 3, fmod_tensor_out);
/// `fmod.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.
pub const FMOD_SCALAR_OUT: Op = Op::new("aten::fmod.Scalar_out", 3, fmod_scalar_out);
/// `remainder.Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)`: the sign is that of `other`.
pub const REMAINDER_TENSOR_OUT: Op = Op::new("aten::remainder.Tensor_out", 3, remainder_tensor_out);
/// `remainder.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.
pub const REMAINDER_SCALAR_OUT: Op = Op::new("aten::remainder.Scalar_out", 3, remainder_scalar_out);

pub const OPS: &[Op] = &[FMOD_TENSOR_OUT, FMOD_SCALAR_OUT, REMAINDER_TENSOR_OUT, REMAINDER_SCALAR_OUT];

macro_rules! remainder {
    ($tensor:ident, $scalar:ident, $method:ident) => {
        fn $tensor(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
            let common = promote::tensors(&a, &b)?;
            let mut out = out_broadcast(cx, 2, &a, &b, common)?;
            let types = (common, common, common);
            compute!(REAL, common, C => checked(|by_zero| {
                binary(&a, &b, &mut out, types, &zip(|x: C, y: C| x.$method(y, by_zero)))
            }))
        }

        fn $scalar(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
            let common = promote::tensor_scalar(&a, b)?;
            let mut out = out_like(cx, 2, &a, common)?;
            compute!(REAL, common, C => checked(|by_zero| {
                let b = scalar_as::<C>(b, common);
                unary(&a, &mut out, (common, common), &map(|x: C| x.$method(b, by_zero)))
            }))
        }
    };
}

remainder!(fmod_tensor_out, fmod_scalar_out, fmod);
remainder!(remainder_tensor_out, remainder_scalar_out, remainder);
