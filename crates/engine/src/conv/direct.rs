//! Convolution by indirect GEMM, without an im2col copy of the input.
#![allow(unsafe_code)]

use super::kernel_rows::{Bf16KernelRows, KernelRows};
use super::{Conv2d, Conv3d};
use crate::element::ElementPtrMut;
use crate::error::Error;
use crate::igemm::{Igemm, LhsRows, OutputLayout, check_bf16};
use crate::{Engine, Epilogue, FloatSlice, FloatSliceMut, Gemm, Half, Weights};

/// Computes `out = epilogue(conv2d(input))` with weights packed by [`pack::conv2d_f32`](crate::pack::conv2d_f32).
///
/// # Errors
/// As for [`conv3d`].
pub fn conv2d<'a>(
    engine: &Engine,
    conv: &Conv2d,
    input: impl Into<FloatSlice<'a>>,
    packed: impl Into<Weights<'a>>,
    out: impl Into<FloatSliceMut<'a>>,
    epilogue: &Epilogue,
) -> Result<(), Error> {
    conv3d_impl(engine, &conv.in_3d(), input.into(), packed.into(), out.into(), epilogue)
}

/// Computes `out = epilogue(conv3d(input))` with weights packed by [`pack::conv3d_f32`](crate::pack::conv3d_f32).
///
/// # Errors
/// If a slice is too short, a size is zero or too large, or an operand is bf16 where the weights have another type or
/// [`gemm_supports_bf16_input`](crate::gemm_supports_bf16_input) or
/// [`gemm_supports_bf16_output`](crate::gemm_supports_bf16_output) returns false.
pub fn conv3d<'a>(
    engine: &Engine,
    conv: &Conv3d,
    input: impl Into<FloatSlice<'a>>,
    packed: impl Into<Weights<'a>>,
    out: impl Into<FloatSliceMut<'a>>,
    epilogue: &Epilogue,
) -> Result<(), Error> {
    conv3d_impl(engine, conv, input.into(), packed.into(), out.into(), epilogue)
}

fn conv3d_impl(
    engine: &Engine,
    conv: &Conv3d,
    input: FloatSlice<'_>,
    packed: Weights<'_>,
    mut out: FloatSliceMut<'_>,
    epilogue: &Epilogue,
) -> Result<(), Error> {
    let pixels = conv.check(input.len(), out.len())?;
    let weights = super::pack::conv3d_f32_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    packed.check(weights, None)?;
    epilogue.check_any(engine, pixels, conv.out_c)?;
    check_bf16(engine, [conv.kernel.iter().product(), conv.in_c / conv.groups], input, packed, &out, epilogue)?;
    let out = out.as_mut_ptr();
    let is_pointwise = conv.kernel == [1; 3] && conv.stride == [1; 3] && conv.padding == [[0; 2]; 3];
    if is_pointwise && conv.groups == 1 {
        let (k, n) = (conv.in_c, conv.out_c);
        let gemm = Gemm { m: pixels, n, k, a_stride: conv.in_stride, c_stride: conv.out_stride };
        // SAFETY: the sizes and types were checked above.
        unsafe { crate::gemm::run(engine, &gemm, input, packed, out, epilogue, &mut []) };
        return Ok(());
    }
    if conv.in_c == 0 {
        // K is 0: only the epilogue runs, on zeros, however large the kernel is.
        let gemm = Gemm { m: pixels, n: conv.out_c, k: 0, a_stride: 0, c_stride: conv.out_stride };
        // SAFETY: the sizes and types were checked above.
        unsafe { crate::gemm::run(engine, &gemm, input, packed, out, epilogue, &mut []) };
        return Ok(());
    }
    match input {
        FloatSlice::F32(input) => {
            let rows = conv.window(input);
            let are_pairs = engine.supports_bf16() && matches!(packed, Weights::Half(Half::Bf16, _));
            if are_pairs && Bf16KernelRows::fits(rows, conv.groups) {
                // SAFETY: the sizes and types were checked above.
                unsafe { igemm(conv, &Bf16KernelRows(KernelRows(rows)), pixels, packed, out, epilogue).run(engine) };
            } else if KernelRows::fits(rows, conv.groups) {
                // SAFETY: the sizes and types were checked above.
                unsafe { igemm(conv, &KernelRows(rows), pixels, packed, out, epilogue).run(engine) };
            } else {
                // SAFETY: likewise.
                unsafe { igemm(conv, &rows, pixels, packed, out, epilogue).run(engine) };
            }
        }
        // SAFETY: likewise.
        FloatSlice::Bf16(input) => unsafe {
            igemm(conv, &conv.window(input), pixels, packed, out, epilogue).run(engine);
        },
    }
    Ok(())
}

fn igemm<'a, R: LhsRows>(
    conv: &Conv3d,
    lhs: &'a R,
    pixels: usize,
    packed: Weights<'a>,
    out: ElementPtrMut,
    epilogue: &Epilogue,
) -> Igemm<'a, R> {
    Igemm {
        lhs,
        m_outer: 1,
        m_inner: pixels,
        groups: conv.groups,
        columns: conv.out_c / conv.groups,
        packed,
        out,
        out_stride: conv.out_stride,
        layout: OutputLayout::DENSE,
        epilogue: epilogue.args(),
    }
}
