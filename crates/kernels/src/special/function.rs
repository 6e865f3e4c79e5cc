//! Kernels of functions of one or two numbers in `f64`.

use rushlight_runtime::{KernelContext, Result};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::promote::{ResultType, to_float};

/// `out = f(a)` for the argument at position `at`, which the output follows.
pub(super) fn of_one(cx: &KernelContext<'_>, at: usize, f: &dyn Fn(f64) -> f64) -> Result<()> {
    let a = cx.tensor(at)?;
    let common = to_float(a.dtype());
    let mut out = out_like(cx, at + 1, &a, common)?;
    unary::<f64, f64>(&a, &mut out, (common, common), &map(f))
}

/// `out = f(a, b)` for the first two arguments.
pub(super) fn of_two(cx: &KernelContext<'_>, f: &dyn Fn(f64, f64) -> f64) -> Result<()> {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let common = to_float(ResultType::default().tensor(&a)?.tensor(&b)?.get()?);
    let mut out = out_broadcast(cx, 2, &a, &b, common)?;
    binary::<f64, f64, f64>(&a, &b, &mut out, (common, common, common), &zip(f))
}

/// Declares a unary operator, its kernel and its documentation.
macro_rules! function {
    ($OUT:ident, $kernel:ident, $name:literal, $f:expr) => {
        #[doc = concat!("`", $name, ".out(Tensor self, *, Tensor(a!) out)`.")]
        pub const $OUT: rushlight_runtime::Op =
            rushlight_runtime::Op::new(concat!("aten::", $name, ".out"), 2, $kernel);

        fn $kernel(cx: &rushlight_runtime::KernelContext<'_>) -> rushlight_runtime::Result<()> {
            crate::special::function::of_one(cx, 0, &$f)
        }
    };
}

/// Declares a binary operator.
macro_rules! function2 {
    ($OUT:ident, $kernel:ident, $name:literal, $f:expr) => {
        #[doc = concat!("`", $name, ".out(Tensor self, Tensor other, *, Tensor(a!) out)`.")]
        pub const $OUT: rushlight_runtime::Op =
            rushlight_runtime::Op::new(concat!("aten::", $name, ".out"), 3, $kernel);

        fn $kernel(cx: &rushlight_runtime::KernelContext<'_>) -> rushlight_runtime::Result<()> {
            crate::special::function::of_two(cx, &$f)
        }
    };
}

pub(super) use {function, function2};
