//! Int8 kernels: u8 activations, i8 weights, exact i32 accumulation.
//!
//! Activations are affinely quantized, `(byte - zero) * scale`. Results are the same on every instruction set, bit for
//! bit: the epilogue multiplies, adds and rounds in f32 operation by operation, without fused multiply-add.
#![allow(unsafe_code)]

mod depthwise;
mod dynamic;
mod epilogue;
mod groupwise;
#[cfg(target_arch = "x86_64")]
mod groupwise_amx;
mod igemm;
mod lhs;
mod lookup;
mod nibbles;
mod pooling;
mod resize;
mod softmax;
mod transposed;

pub use depthwise::{depthwise2d_u8, depthwise2d_u8_takes};
pub use dynamic::{DynamicQuantization, ZeroPointRule, choose_qparams, quantize_rows};
pub(crate) use epilogue::U8Quantizer;
pub use epilogue::{Affine, QuantEpilogue, QuantOut, QuantResidual, RowQparams};
pub use groupwise::{GroupwiseEpilogue, gemm_u8_groupwise};
pub use lookup::lookup;
pub use nibbles::{pack_nibbles, unpack_nibbles};
pub use pooling::{avg_pool2d_u8, max_pool2d_u8, mean_u8};
pub use resize::resize_u8;
pub use softmax::{SoftmaxTable, softmax_u8};
pub use transposed::conv_transpose2d_u8;

use crate::conv::pack::ConvLayout;
use crate::error::{Error, at_least, size, span};
use crate::igemm::OutputLayout;
use crate::pack::pad_to_4;
use crate::{Conv2d, Conv3d, Engine, Gemm};

use igemm::{U8Igemm, check_window};
use lhs::{U8ConvWindow, U8KernelRows, U8LhsRows, U8Matrix};

/// Maximum K of an int8 GEMM: a sum of `255 * -128` over this K fits in an i32.
pub const MAX_QUANT_K: usize = 1 << 16;

/// Computes `c = epilogue(a b)` with `b` packed by [`pack::matrix_i8_into`](crate::pack::matrix_i8_into); strides are
/// in elements.
///
/// # Errors
/// When a slice is too short, rows of the output would overlap, or `k` is more than [`MAX_QUANT_K`].
pub fn gemm_u8(
    engine: &Engine,
    gemm: &Gemm,
    a: &[u8],
    packed: &[i8],
    mut c: QuantOut,
    epilogue: &QuantEpilogue,
) -> Result<(), Error> {
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    at_least("a", a.len(), span("a stride", m, k, a_stride)?)?;
    at_least("c", c.len(), span("c stride", m, n, c_stride)?)?;
    let columns = n.checked_next_multiple_of(crate::pack::PANEL).ok_or(Error::Size { what: "n" })?;
    at_least("packed weights", packed.len(), size("packed weights", &[pad_to_4(k), columns])?)?;
    epilogue.check(m, n)?;
    if k > MAX_QUANT_K {
        return Err(Error::Size { what: "k of an int8 GEMM" });
    }
    let rows = U8Matrix { data: a, stride: a_stride, columns: k };
    let igemm = U8Igemm {
        lhs: &rows,
        m_outer: 1,
        m_inner: m,
        layout: OutputLayout::DENSE,
        groups: 1,
        columns: n,
        packed,
        out_stride: c_stride,
        epilogue: epilogue.args(&c),
        out: c.start(),
        zero: 0,
    };
    // SAFETY: the sizes were checked above.
    unsafe { igemm.run(engine) };
    Ok(())
}

/// Computes `out = epilogue(conv2d(input))` with weights packed by
/// [`pack::conv2d_i8_into`](crate::pack::conv2d_i8_into). `zero` is the zero point of the input, and pads it.
///
/// # Errors
/// As for [`conv3d_u8`].
pub fn conv2d_u8(
    engine: &Engine,
    conv: &Conv2d,
    zero: u8,
    input: &[u8],
    packed: &[i8],
    out: QuantOut,
    epilogue: &QuantEpilogue,
) -> Result<(), Error> {
    conv3d_u8(engine, &conv.in_3d(), zero, input, packed, out, epilogue)
}

/// Computes `out = epilogue(conv3d(input))` with weights packed by
/// [`pack::conv3d_i8_into`](crate::pack::conv3d_i8_into). `zero` is the zero point of the input, and pads it.
///
/// # Errors
/// If a slice is too short, a size is zero or too large, or a window has more than [`MAX_QUANT_K`] elements or too many
/// taps.
pub fn conv3d_u8(
    engine: &Engine,
    conv: &Conv3d,
    zero: u8,
    input: &[u8],
    packed: &[i8],
    mut out: QuantOut,
    epilogue: &QuantEpilogue,
) -> Result<(), Error> {
    let pixels = conv.check(input.len(), out.len())?;
    let layout = ConvLayout::of(conv).ok_or(Error::Size { what: "packed weights" })?;
    let weights = layout.len(conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights)?;
    epilogue.check_windows(pixels, conv.out_c)?;
    let is_padded = conv.padding != [[0; 2]; 3];
    check_window(layout.taps, layout.depth, is_padded)?;
    let is_pointwise = conv.kernel == [1; 3] && conv.stride == [1; 3] && !is_padded;
    if is_pointwise && conv.groups == 1 {
        let rows = U8Matrix { data: input, stride: conv.in_stride, columns: conv.in_c };
        // SAFETY: the sizes were checked above.
        unsafe { igemm(conv, &rows, zero, pixels, packed, &mut out, epilogue).run(engine) };
        return Ok(());
    }
    if conv.in_c == 0 {
        // K is 0, however large the kernel is.
        let conv = &Conv3d { groups: 1, ..*conv };
        let rows = U8Matrix { data: input, stride: 0, columns: 0 };
        // SAFETY: the sizes were checked above.
        unsafe { igemm(conv, &rows, zero, pixels, packed, &mut out, epilogue).run(engine) };
        return Ok(());
    }
    let window = conv.window(input);
    if layout.by_kernel_rows {
        // SAFETY: the sizes were checked above.
        unsafe { igemm(conv, &U8KernelRows(window), zero, pixels, packed, &mut out, epilogue).run(engine) };
    } else {
        // SAFETY: likewise.
        unsafe { igemm(conv, &U8ConvWindow(window), zero, pixels, packed, &mut out, epilogue).run(engine) };
    }
    Ok(())
}

fn igemm<'a, R: U8LhsRows>(
    conv: &Conv3d,
    lhs: &'a R,
    zero: u8,
    count: usize,
    packed: &'a [i8],
    out: &mut QuantOut,
    epilogue: &QuantEpilogue,
) -> U8Igemm<'a, R> {
    U8Igemm {
        lhs,
        m_outer: 1,
        m_inner: count,
        layout: OutputLayout::DENSE,
        groups: conv.groups,
        columns: conv.out_c / conv.groups,
        packed,
        out_stride: conv.out_stride,
        epilogue: epilogue.args(out),
        out: out.start(),
        zero,
    }
}
