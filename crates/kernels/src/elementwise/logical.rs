//! Logical operators: every number but zero is true.

use rushlight_runtime::{Bool8, Complex, KernelContext, Op, Result, ScalarType};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};

/// `logical_not.out(Tensor self, *, Tensor(a!) out)`.
pub const LOGICAL_NOT_OUT: Op = Op::new("aten::logical_not.out", 2, logical_not_out);

macro_rules! logical {
    ($OUT:ident, $kernel:ident, $name:literal, $op:tt) => {
        #[doc = concat!("`", $name, ".out(Tensor self, Tensor other, *, Tensor(a!) out)`.")]
        pub const $OUT: Op = Op::new(concat!("aten::", $name, ".out"), 3, $kernel);

        fn $kernel(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
            let mut out = out_broadcast(cx, 2, &a, &b, ScalarType::Bool)?;
            let types = (ScalarType::Bool, ScalarType::Bool, ScalarType::Bool);
            binary(&a, &b, &mut out, types, &zip(|x: Bool8, y: Bool8| Bool8::from(x.get() $op y.get())))
        }
    };
}

logical!(LOGICAL_AND_OUT, logical_and_out, "logical_and", &);
logical!(LOGICAL_OR_OUT, logical_or_out, "logical_or", |);
logical!(LOGICAL_XOR_OUT, logical_xor_out, "logical_xor", ^);

pub const OPS: &[Op] = &[LOGICAL_AND_OUT, LOGICAL_OR_OUT, LOGICAL_XOR_OUT, LOGICAL_NOT_OUT];

fn logical_not_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let mut out = out_like(cx, 1, &a, ScalarType::Bool)?;
    if a.dtype().is_complex() {
        let not = |x: Complex<f64>| Bool8::from(x.re == 0.0 && x.im == 0.0);
        return unary(&a, &mut out, (a.dtype(), ScalarType::Bool), &map(not));
    }
    unary(&a, &mut out, (ScalarType::Bool, ScalarType::Bool), &map(|x: Bool8| Bool8::from(!x.get())))
}
