//! Convolution as a product over pointers to the window's pixels, without a copy of the input.
#![allow(unsafe_code)]

use super::Conv2d;
use super::window::Window;
use crate::error::{Error, at_least};
use crate::gemm::Matrix;
use crate::product::{Place, Product, Rows};
use crate::{Engine, Tail};

/// Computes `out = tail(convolution of input)` with weights packed by [`pack::conv2d_f32`](crate::pack::conv2d_f32).
///
/// # Errors
/// When a slice is too short, or a size is zero or too large.
pub fn conv2d(
    engine: &Engine,
    conv: &Conv2d,
    input: &[f32],
    packed: &[f32],
    out: &mut [f32],
    tail: &Tail,
) -> Result<(), Error> {
    let (pixels, in_c, out_c) = conv.check(input, out)?;
    let weights = crate::pack::conv2d_f32_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights)?;
    tail.check(pixels, conv.out_c)?;
    let is_pointwise = conv.kernel == [1, 1] && conv.stride == [1, 1] && conv.padding == [[0; 2]; 2];
    if is_pointwise && conv.groups == 1 {
        let rows = Matrix { data: input, stride: conv.in_stride, depth: in_c };
        // SAFETY: the sizes were checked above.
        unsafe { product(conv, &rows, pixels, out_c, packed, out, tail).run(engine) };
        return Ok(());
    }
    let rows = Window {
        input,
        in_size: [1, conv.in_h, conv.in_w],
        out_size: [1, conv.out_h(), conv.out_w()],
        kernel: [1, conv.kernel[0], conv.kernel[1]],
        stride: [1, conv.stride[0], conv.stride[1]],
        dilation: [1, conv.dilation[0] as isize, conv.dilation[1] as isize],
        shift: [0, -(conv.padding[0][0] as isize), -(conv.padding[1][0] as isize)],
        pixel: conv.in_stride,
        channels: in_c,
    };
    // SAFETY: the sizes were checked above.
    unsafe { product(conv, &rows, pixels, out_c, packed, out, tail).run(engine) };
    Ok(())
}

fn product<'a, R: Rows>(
    conv: &Conv2d,
    rows: &'a R,
    pixels: usize,
    columns: usize,
    packed: &'a [f32],
    out: &mut [f32],
    tail: &Tail,
) -> Product<'a, R> {
    Product {
        rows,
        lines: 1,
        rows_per_line: pixels,
        groups: conv.groups,
        columns,
        packed,
        out: out.as_mut_ptr(),
        out_stride: conv.out_stride,
        place: Place::DENSE,
        steps: tail.steps(),
    }
}
