//! Matrix multiplication: GEMM with packed weights, GEMV, and batched matmul of two activations.
#![allow(unsafe_code)]

mod gemv;
mod int16;
mod matmul;
mod operands;

pub use matmul::{Matmul, matmul, matmul_scratch};
pub use operands::Gemm;

use crate::element::ElementPtrMut;
use crate::epilogue::EpilogueArgs;
use crate::error::{Error, at_least, size, span};
use crate::igemm::{Igemm, LhsRows, OutputLayout, check_bf16};
use crate::pack::QuantizedMatrix;
use crate::{Engine, Epilogue, FloatSlice, FloatSliceMut, Weights};

use gemv::Gemv;
use int16::Int16Gemm;

pub use gemv::MIN_GEMM_ROWS;
pub(crate) use operands::Matrix;

/// Computes `c = epilogue(a b)` with `b` packed by [`pack::matrix_f32`](crate::pack::matrix_f32). If `k` is 0, the sums
/// are 0.
///
/// # Errors
/// When a slice is too short or rows of the output would overlap.
pub fn gemm<'w>(
    engine: &Engine,
    gemm: &Gemm,
    a: impl Into<FloatSlice<'w>>,
    packed: impl Into<Weights<'w>>,
    c: impl Into<FloatSliceMut<'w>>,
    epilogue: &Epilogue,
) -> Result<(), Error> {
    gemm_with_scratch(engine, gemm, a, packed, c, epilogue, &mut [])
}

/// [`gemm`](fn@gemm) with scratch memory. [`gemm_scratch`] floats make it faster for some quantized weights. The size does not
/// change the result.
///
/// # Errors
/// As [`gemm`](fn@gemm).
pub fn gemm_with_scratch<'w>(
    engine: &Engine,
    gemm: &Gemm,
    a: impl Into<FloatSlice<'w>>,
    packed: impl Into<Weights<'w>>,
    c: impl Into<FloatSliceMut<'w>>,
    epilogue: &Epilogue,
    scratch: &mut [f32],
) -> Result<(), Error> {
    gemm_impl(engine, gemm, a.into(), packed.into(), c.into(), epilogue, scratch)
}

/// Returns the scratch size, in floats, with which [`gemm_with_scratch`] is fastest for `matrix`, whatever the number of rows.
pub fn gemm_scratch(engine: &Engine, matrix: &QuantizedMatrix) -> usize {
    int16::scratch(engine, matrix)
}

fn gemm_impl(
    engine: &Engine,
    gemm: &Gemm,
    a: FloatSlice<'_>,
    packed: Weights<'_>,
    mut c: FloatSliceMut<'_>,
    epilogue: &Epilogue,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    at_least("a", a.len(), span("a stride", m, k, a_stride)?)?;
    at_least("c", c.len(), span("c stride", m, n, c_stride)?)?;
    let columns = n.checked_next_multiple_of(crate::pack::PANEL).ok_or(Error::Size { what: "n" })?;
    let rows = crate::pack::padded_rows(k);
    packed.check(size("packed weights", &[rows, columns])?, Some(rows))?;
    epilogue.check_any(engine, m, n)?;
    check_bf16(engine, [1, k], a, packed, &c, epilogue)?;
    // SAFETY: the sizes were checked above.
    unsafe { run(engine, gemm, a, packed, c.as_mut_ptr(), epilogue, scratch) };
    Ok(())
}

/// [`gemm`](fn@gemm) without checks.
///
/// # Safety
/// The slices, those of `epilogue` among them, have the sizes and types that the shape needs.
pub(crate) unsafe fn run(
    engine: &Engine,
    gemm: &Gemm,
    a: FloatSlice<'_>,
    packed: Weights<'_>,
    c: ElementPtrMut,
    epilogue: &Epilogue,
    scratch: &mut [f32],
) {
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    let (stride, depth) = (a_stride, k);
    if m == 0 || n == 0 {
        return;
    }
    let epilogue = epilogue.args();
    let is_f32 = !c.is_bf16() && !epilogue.residual.is_bf16();
    match a {
        FloatSlice::F32(a)
            if is_f32
                && let Weights::Quantized(weights) = packed
                && int16::suits(engine, &weights) =>
        {
            let (a, c) = (Matrix { data: a, stride, depth }, c.as_f32());
            // SAFETY: the caller guarantees the sizes.
            unsafe { Int16Gemm { gemm, a, weights, c, epilogue }.run(engine, scratch) };
        }
        FloatSlice::F32(a) if m < MIN_GEMM_ROWS && is_f32 => {
            let (a, c) = (Matrix { data: a, stride, depth }, c.as_f32());
            // SAFETY: the caller guarantees the sizes.
            unsafe { Gemv { gemm, a, packed, c, epilogue }.run(engine) };
        }
        FloatSlice::F32(a) => {
            let rows = Matrix { data: a, stride, depth };
            // SAFETY: the caller guarantees the sizes.
            unsafe { igemm(&rows, [m, n], packed, c, c_stride, epilogue).run(engine) };
        }
        FloatSlice::Bf16(a) => {
            let rows = Matrix { data: a, stride, depth };
            // SAFETY: the caller guarantees the sizes and the types.
            unsafe { igemm(&rows, [m, n], packed, c, c_stride, epilogue).run(engine) };
        }
    }
}

fn igemm<'a, R: LhsRows>(
    lhs: &'a R,
    [m, n]: [usize; 2],
    packed: Weights<'a>,
    out: ElementPtrMut,
    out_stride: usize,
    epilogue: EpilogueArgs,
) -> Igemm<'a, R> {
    Igemm {
        lhs,
        m_outer: 1,
        m_inner: m,
        groups: 1,
        columns: n,
        packed,
        out,
        out_stride,
        layout: OutputLayout::DENSE,
        epilogue,
    }
}
