//! Comparisons and logic on Python numbers.

use rushlight_runtime::{KernelContext, Op, Result, Scalar};

/// `executorch_prim::eq.Scalar(Scalar a, Scalar b) -> bool`
pub const EQ_SCALAR: Op = Op::new("executorch_prim::eq.Scalar", 3, eq);

/// `executorch_prim::gt.Scalar(Scalar a, Scalar b) -> bool`
pub const GT_SCALAR: Op = Op::new("executorch_prim::gt.Scalar", 3, gt);

/// `executorch_prim::lt.Scalar(Scalar a, Scalar b) -> bool`
pub const LT_SCALAR: Op = Op::new("executorch_prim::lt.Scalar", 3, lt);

/// `executorch_prim::ge.Scalar(Scalar a, Scalar b) -> bool`
pub const GE_SCALAR: Op = Op::new("executorch_prim::ge.Scalar", 3, ge);

/// `executorch_prim::le.Scalar(Scalar a, Scalar b) -> bool`
pub const LE_SCALAR: Op = Op::new("executorch_prim::le.Scalar", 3, le);

/// `executorch_prim::sym_not.Scalar(SymBool a) -> SymBool`
pub const SYM_NOT_SCALAR: Op = Op::new("executorch_prim::sym_not.Scalar", 2, sym_not);

/// `executorch_prim::sym_ite.Scalar(SymBool b, Scalar t, Scalar f) -> Scalar`: `t` if `b` holds, else `f`.
pub const SYM_ITE_SCALAR: Op = Op::new("executorch_prim::sym_ite.Scalar", 4, sym_ite);

/// The name of `eq.Scalar` in programs of ExecuTorch 0.2.
pub const EQ_INT: Op = Op::new("executorch_prim::eq.int", 3, eq);

/// The name of `gt.Scalar` in programs of ExecuTorch 0.2.
pub const GT_INT: Op = Op::new("executorch_prim::gt.int", 3, gt);

/// The name of `lt.Scalar` in programs of ExecuTorch 0.2.
pub const LT_INT: Op = Op::new("executorch_prim::lt.int", 3, lt);

/// The name of `ge.Scalar` in programs of ExecuTorch 0.2.
pub const GE_INT: Op = Op::new("executorch_prim::ge.int", 3, ge);

/// The name of `le.Scalar` in programs of ExecuTorch 0.2.
pub const LE_INT: Op = Op::new("executorch_prim::le.int", 3, le);

pub const OPS: &[Op] = &[
    EQ_INT,
    GT_INT,
    LT_INT,
    GE_INT,
    LE_INT,
    EQ_SCALAR,
    GT_SCALAR,
    LT_SCALAR,
    GE_SCALAR,
    LE_SCALAR,
    SYM_NOT_SCALAR,
    SYM_ITE_SCALAR,
];

fn eq(cx: &KernelContext<'_>) -> Result<()> {
    compare(cx, |a, b| a == b, |a, b| a == b)
}

fn gt(cx: &KernelContext<'_>) -> Result<()> {
    compare(cx, |a, b| a > b, |a, b| a > b)
}

fn lt(cx: &KernelContext<'_>) -> Result<()> {
    compare(cx, |a, b| a < b, |a, b| a < b)
}

fn ge(cx: &KernelContext<'_>) -> Result<()> {
    compare(cx, |a, b| a >= b, |a, b| a >= b)
}

fn le(cx: &KernelContext<'_>) -> Result<()> {
    compare(cx, |a, b| a <= b, |a, b| a <= b)
}

fn sym_not(cx: &KernelContext<'_>) -> Result<()> {
    cx.set(1, Scalar::Bool(!cx.bool(0)?))
}

fn sym_ite(cx: &KernelContext<'_>) -> Result<()> {
    let chosen = if cx.bool(0)? { 1 } else { 2 };
    cx.set(3, cx.scalar(chosen)?)
}

/// Ints and bools compare as ints; beside a double, an int counts as the nearest double.
fn compare(cx: &KernelContext<'_>, ints: fn(i64, i64) -> bool, doubles: fn(f64, f64) -> bool) -> Result<()> {
    let (a, b) = (cx.scalar(0)?, cx.scalar(1)?);
    let result =
        if a.is_floating() || b.is_floating() { doubles(a.to_f64(), b.to_f64()) } else { ints(a.to_i64(), b.to_i64()) };
    cx.set(2, Scalar::Bool(result))
}
