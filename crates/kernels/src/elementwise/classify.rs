//! Tests for infinity and NaN.

use rushlight_runtime::{Bool8, KernelContext, Op, Result, Scalar, ScalarType};

use crate::support::convert::fill;
use crate::support::elementwise::{map, out_like, unary};

/// `isinf.out(Tensor self, *, Tensor(a!) out)`.
pub const ISINF_OUT: Op = Op::new("aten::isinf.out", 2, isinf_out);
/// `isnan.out(Tensor self, *, Tensor(a!) out)`.
pub const ISNAN_OUT: Op = Op::new("aten::isnan.out", 2, isnan_out);

pub const OPS: &[Op] = &[ISINF_OUT, ISNAN_OUT];

macro_rules! classify {
    ($kernel:ident, $method:ident) => {
        fn $kernel(cx: &KernelContext<'_>) -> Result<()> {
            let a = cx.tensor(0)?;
            let dtype = a.dtype();
            let mut out = out_like(cx, 1, &a, ScalarType::Bool)?;
            let types = (dtype, ScalarType::Bool);
            if dtype.is_complex() {
                return compute!(COMPLEX, dtype, C => {
                    unary(&a, &mut out, types, &map(move |x: C| Bool8::from(x.re.$method() || x.im.$method())))
                });
            }
            if dtype.is_integral(true) {
                return fill(Scalar::Bool(false), &mut out);
            }
            compute!(FLOAT, dtype, C => unary(&a, &mut out, types, &map(move |x: C| Bool8::from(x.$method()))))
        }
    };
}

classify!(isinf_out, is_infinite);
classify!(isnan_out, is_nan);
