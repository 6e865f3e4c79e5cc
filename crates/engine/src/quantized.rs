//! Products of bytes: what stands for numbers is `(byte - zero) * scale`, weights are `i8`, and sums are exact integers.
//!
//! Results are the same on every instruction set, bit for bit: what follows the sums is multiplied, added and rounded in
//! `f32` operation by operation, and nothing of it is fused.
#![allow(unsafe_code)]

mod depthwise;
mod dynamic;
mod groups;
mod lookup;
mod pooling;
mod product;
mod resize;
mod rows;
mod softmax;
mod tail;
mod transposed;

pub use depthwise::depthwise2d_u8;
pub use dynamic::{Choice, DynamicRows, choose_rows, quantize_rows};
pub use groups::{GroupTail, gemm_groups};
pub use lookup::lookup;
pub use pooling::{max_pool2d_u8, mean_pool2d_u8, mean_u8};
pub use resize::resize_u8;
pub use softmax::{SoftmaxTable, softmax_u8};
pub(crate) use tail::Levels;
pub use tail::{Affine, QuantOut, QuantResidual, QuantTail, RowScales};
pub use transposed::conv_transpose2d_u8;

use crate::error::{Error, at_least, size, span};
use crate::pack::{ConvLayout, quads};
use crate::product::Place;
use crate::{Conv2d, Conv3d, Engine, Gemm};

use product::{ByteProduct, check_window};
use rows::{ByteLines, ByteMatrix, BytePixels, ByteRows};

/// Products of a sum, at most: as many of 255 times -128 still fit in 32 bits.
pub const MAX_QUANT_K: usize = 1 << 16;

/// Computes `c = tail(a b)` with `b` packed by [`pack::matrix_i8_into`](crate::pack::matrix_i8_into); strides count
/// elements.
///
/// # Errors
/// When a slice is too short, rows of the output would overlap, or `k` is more than [`MAX_QUANT_K`].
pub fn gemm_u8(
    engine: &Engine,
    gemm: &Gemm,
    a: &[u8],
    packed: &[i8],
    mut c: QuantOut,
    tail: &QuantTail,
) -> Result<(), Error> {
    let &Gemm { m, n, k, a_stride, c_stride } = gemm;
    at_least("a", a.len(), span("a stride", m, k, a_stride)?)?;
    at_least("c", c.len(), span("c stride", m, n, c_stride)?)?;
    let columns = n.checked_next_multiple_of(crate::pack::PANEL).ok_or(Error::Size { what: "n" })?;
    at_least("packed weights", packed.len(), size("packed weights", &[quads(k), columns])?)?;
    tail.check(m, n)?;
    if k > MAX_QUANT_K {
        return Err(Error::Size { what: "k of a product of bytes" });
    }
    let rows = ByteMatrix { data: a, stride: a_stride, columns: k };
    let product = ByteProduct {
        rows: &rows,
        lines: 1,
        rows_per_line: m,
        place: Place::DENSE,
        groups: 1,
        columns: n,
        packed,
        out_stride: c_stride,
        steps: tail.steps(&c),
        out: c.start(),
        zero: 0,
    };
    // SAFETY: the sizes were checked above.
    unsafe { product.run(engine) };
    Ok(())
}

/// Computes `out = tail(convolution of input)` with weights packed by
/// [`pack::conv2d_i8_into`](crate::pack::conv2d_i8_into). Padding has the byte `zero`.
///
/// # Errors
/// When a slice is too short, a size is zero or too large, a window has more than [`MAX_QUANT_K`] elements or too many
/// positions.
pub fn conv2d_u8(
    engine: &Engine,
    conv: &Conv2d,
    zero: u8,
    input: &[u8],
    packed: &[i8],
    mut out: QuantOut,
    tail: &QuantTail,
) -> Result<(), Error> {
    let conv = &conv.in_3d();
    let pixels = conv.check(input.len(), out.len())?;
    let layout = ConvLayout::of(conv).ok_or(Error::Size { what: "packed weights" })?;
    let weights = layout.len(conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights)?;
    tail.check_windows(pixels, conv.out_c)?;
    let is_padded = conv.padding != [[0; 2]; 3];
    check_window(layout.taps, layout.depth, is_padded)?;
    let is_pointwise = conv.kernel == [1; 3] && conv.stride == [1; 3] && !is_padded;
    if is_pointwise && conv.groups == 1 {
        let rows = ByteMatrix { data: input, stride: conv.in_stride, columns: conv.in_c };
        // SAFETY: the sizes were checked above.
        unsafe { product(conv, &rows, zero, pixels, packed, &mut out, tail).run(engine) };
        return Ok(());
    }
    if conv.in_c == 0 {
        // K is 0, however large the kernel is.
        let conv = &Conv3d { groups: 1, ..*conv };
        let rows = ByteMatrix { data: input, stride: 0, columns: 0 };
        // SAFETY: the sizes were checked above.
        unsafe { product(conv, &rows, zero, pixels, packed, &mut out, tail).run(engine) };
        return Ok(());
    }
    let window = conv.window(input);
    if layout.by_lines {
        // SAFETY: the sizes were checked above.
        unsafe { product(conv, &ByteLines(window), zero, pixels, packed, &mut out, tail).run(engine) };
    } else {
        // SAFETY: likewise.
        unsafe { product(conv, &BytePixels(window), zero, pixels, packed, &mut out, tail).run(engine) };
    }
    Ok(())
}

fn product<'a, R: ByteRows>(
    conv: &Conv3d,
    rows: &'a R,
    zero: u8,
    count: usize,
    packed: &'a [i8],
    out: &mut QuantOut,
    tail: &QuantTail,
) -> ByteProduct<'a, R> {
    ByteProduct {
        rows,
        lines: 1,
        rows_per_line: count,
        place: Place::DENSE,
        groups: conv.groups,
        columns: conv.out_c / conv.groups,
        packed,
        out_stride: conv.out_stride,
        steps: tail.steps(out),
        out: out.start(),
        zero,
    }
}
