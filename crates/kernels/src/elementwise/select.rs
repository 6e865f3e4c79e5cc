//! Choices between two values by a mask.

use rushlight_runtime::{Bool8, Detail, Error, KernelContext, Op, Result, ScalarType};

use crate::support::elementwise::{binary, out_broadcast, ternary, zip, zip3};
use crate::support::promote::{self, check_cast};
use crate::support::shape::broadcast;
use crate::support::tile::scalar_as;

/// `where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out)`.
pub const WHERE_SELF_OUT: Op = Op::new("aten::where.self_out", 4, where_self_out);
/// `masked_fill.Scalar_out(Tensor self, Tensor mask, Scalar value, *, Tensor(a!) out)`.
pub const MASKED_FILL_SCALAR_OUT: Op = Op::new("aten::masked_fill.Scalar_out", 4, masked_fill_scalar_out);

pub const OPS: &[Op] = &[WHERE_SELF_OUT, MASKED_FILL_SCALAR_OUT];

fn where_self_out(cx: &KernelContext<'_>) -> Result<()> {
    let (condition, a, b) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    if !matches!(condition.dtype(), ScalarType::Bool | ScalarType::Byte) {
        return Err(Error::from(Detail::Dtype { expected: "bool or u8", got: condition.dtype() }).arg(0));
    }
    let common = promote::tensors(&a, &b)?;
    let mut out = cx.out(3)?;
    check_cast(common, out.dtype()).map_err(|e| e.arg(3))?;
    let sizes = broadcast(&broadcast(a.sizes(), b.sizes())?, condition.sizes())?;
    out.resize(&sizes).map_err(|e| e.arg(3))?;
    let types = (ScalarType::Bool, common);
    if common.is_complex() {
        return compute!(COMPLEX, common, C => {
            ternary(&condition, &a, &b, &mut out, types, &zip3(|c: Bool8, x: C, y: C| if c.get() { x } else { y }))
        });
    }
    compute!(REAL, common, C => {
        ternary(&condition, &a, &b, &mut out, types, &zip3(|c: Bool8, x: C, y: C| if c.get() { x } else { y }))
    })
}

fn masked_fill_scalar_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, mask, value) = (cx.tensor(0)?, cx.tensor(1)?, cx.scalar(2)?);
    if mask.dtype() != ScalarType::Bool {
        return Err(Error::from(Detail::Dtype { expected: "bool", got: mask.dtype() }).arg(1));
    }
    let dtype = a.dtype();
    let mut out = out_broadcast(cx, 3, &a, &mask, dtype)?;
    let types = (ScalarType::Bool, dtype, dtype);
    compute!(REAL, dtype, C => {
        let value = scalar_as::<C>(value, dtype);
        binary(&mask, &a, &mut out, types, &zip(move |m: Bool8, x: C| if m.get() { value } else { x }))
    })
}
