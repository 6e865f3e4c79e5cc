//! The angle of a point in the plane.

use rushlight_runtime::{KernelContext, Op, Result, ScalarType};

use crate::support::elementwise::{binary, out_broadcast, zip};
use crate::support::math;
use crate::support::promote;

/// `atan2.out(Tensor self, Tensor other, *, Tensor(a!) out)`: `self` is y, `other` x.
pub const ATAN2_OUT: Op = Op::new("aten::atan2.out", 3, atan2_out);

pub const OPS: &[Op] = &[ATAN2_OUT];

fn atan2_out(cx: &KernelContext<'_>) -> Result<()> {
    let (y, x) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = promote::to_float(promote::tensors(&y, &x)?);
    let mut out = out_broadcast(cx, 2, &y, &x, common)?;
    let types = (common, common, common);
    if common == ScalarType::Double {
        return binary(&y, &x, &mut out, types, &zip(libm::atan2));
    }
    binary(&y, &x, &mut out, types, &math::atan2)
}
