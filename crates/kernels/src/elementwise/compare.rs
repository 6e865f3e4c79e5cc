//! Comparisons.

use rushlight_runtime::{Bool8, KernelContext, Op, Result, ScalarType};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::promote;
use crate::support::tile::scalar_as;

macro_rules! comparison {
    ($OUT:ident, $SCALAR_OUT:ident, $tensor:ident, $scalar:ident, $name:literal, $op:tt) => {
        #[doc = concat!("`", $name, ".Tensor_out(Tensor self, Tensor other, *, Tensor(a!) out)`.")]
        pub const $OUT: Op = Op::new(concat!("aten::", $name, ".Tensor_out"), 3, $tensor);
        #[doc = concat!("`", $name, ".Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)`.")]
        pub const $SCALAR_OUT: Op = Op::new(concat!("aten::", $name, ".Scalar_out"), 3, $scalar);

        fn $tensor(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
            let common = promote::tensors(&a, &b)?;
            let mut out = out_broadcast(cx, 2, &a, &b, ScalarType::Bool)?;
            compute!(REAL, common, C => {
                binary(&a, &b, &mut out, (common, common, ScalarType::Bool), &zip(move |x: C, y: C| Bool8::from(x $op y)))
            })
        }

        fn $scalar(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
            let common = promote::tensor_scalar(&a, b)?;
            let mut out = out_like(cx, 2, &a, ScalarType::Bool)?;
            compute!(REAL, common, C => {
                let b = scalar_as::<C>(b, common);
                unary(&a, &mut out, (common, ScalarType::Bool), &map(move |x: C| Bool8::from(x $op b)))
            })
        }
    };
}

comparison!(EQ_TENSOR_OUT, EQ_SCALAR_OUT, eq_tensor_out, eq_scalar_out, "eq", ==);
comparison!(NE_TENSOR_OUT, NE_SCALAR_OUT, ne_tensor_out, ne_scalar_out, "ne", !=);
comparison!(LT_TENSOR_OUT, LT_SCALAR_OUT, lt_tensor_out, lt_scalar_out, "lt", <);
comparison!(LE_TENSOR_OUT, LE_SCALAR_OUT, le_tensor_out, le_scalar_out, "le", <=);
comparison!(GT_TENSOR_OUT, GT_SCALAR_OUT, gt_tensor_out, gt_scalar_out, "gt", >);
comparison!(GE_TENSOR_OUT, GE_SCALAR_OUT, ge_tensor_out, ge_scalar_out, "ge", >=);

pub const OPS: &[Op] = &[
    EQ_TENSOR_OUT,
    EQ_SCALAR_OUT,
    NE_TENSOR_OUT,
    NE_SCALAR_OUT,
    LT_TENSOR_OUT,
    LT_SCALAR_OUT,
    LE_TENSOR_OUT,
    LE_SCALAR_OUT,
    GT_TENSOR_OUT,
    GT_SCALAR_OUT,
    GE_TENSOR_OUT,
    GE_SCALAR_OUT,
];
