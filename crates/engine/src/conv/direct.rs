//! Convolution as a product over pointers to the window's pixels, without a copy of the input.
#![allow(unsafe_code)]

use super::lines::{Lines, Strips};
use super::{Conv2d, Conv3d};
use crate::error::Error;
use crate::numbers::Writable;
use crate::product::{Place, Product, Rows, check_bf16};
use crate::{Engine, Gemm, Half, Numbers, NumbersMut, Tail, Weights};

/// Computes `out = tail(convolution of input)` with weights packed by [`pack::conv2d_f32`](crate::pack::conv2d_f32).
///
/// # Errors
/// When a slice is too short, or a size is zero or too large.
pub fn conv2d<'a>(
    engine: &Engine,
    conv: &Conv2d,
    input: impl Into<Numbers<'a>>,
    packed: impl Into<Weights<'a>>,
    out: impl Into<NumbersMut<'a>>,
    tail: &Tail,
) -> Result<(), Error> {
    conv3d(engine, &conv.in_3d(), input, packed, out, tail)
}

/// Computes `out = tail(convolution of input)` over volumes, with weights packed by
/// [`pack::conv3d_f32`](crate::pack::conv3d_f32).
///
/// # Errors
/// When a slice is too short, a size is zero or too large, or there are bf16 that [`takes_bf16`](crate::takes_bf16) and
/// [`gives_bf16`](crate::gives_bf16) do not allow, or weights of another type beside them.
pub fn conv3d<'a>(
    engine: &Engine,
    conv: &Conv3d,
    input: impl Into<Numbers<'a>>,
    packed: impl Into<Weights<'a>>,
    out: impl Into<NumbersMut<'a>>,
    tail: &Tail,
) -> Result<(), Error> {
    let (input, packed, mut out) = (input.into(), packed.into(), out.into());
    let pixels = conv.check(input.len(), out.len())?;
    let weights = crate::pack::conv3d_f32_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    packed.check(weights, None)?;
    tail.check_any(engine, pixels, conv.out_c)?;
    check_bf16(engine, [conv.kernel.iter().product(), conv.in_c / conv.groups], input, packed, &out, tail)?;
    let out = out.place();
    let is_pointwise = conv.kernel == [1; 3] && conv.stride == [1; 3] && conv.padding == [[0; 2]; 3];
    if is_pointwise && conv.groups == 1 {
        let (k, n) = (conv.in_c, conv.out_c);
        let gemm = Gemm { m: pixels, n, k, a_stride: conv.in_stride, c_stride: conv.out_stride };
        // SAFETY: the sizes and types were checked above.
        unsafe { crate::gemm::run(engine, &gemm, input, packed, out, tail) };
        return Ok(());
    }
    if conv.in_c == 0 {
        // K is 0: only the epilogue runs, on zeros, however large the kernel is.
        let gemm = Gemm { m: pixels, n: conv.out_c, k: 0, a_stride: 0, c_stride: conv.out_stride };
        // SAFETY: the sizes and types were checked above.
        unsafe { crate::gemm::run(engine, &gemm, input, packed, out, tail) };
        return Ok(());
    }
    match input {
        Numbers::F32(input) => {
            let rows = conv.window(input);
            let are_pairs = engine.takes_bf16() && matches!(packed, Weights::Half(Half::Bf16, _));
            if are_pairs && Strips::fits(rows, conv.groups) {
                // SAFETY: the sizes and types were checked above.
                unsafe { product(conv, &Strips(Lines(rows)), pixels, packed, out, tail).run(engine) };
            } else if Lines::fits(rows, conv.groups) {
                // SAFETY: the sizes and types were checked above.
                unsafe { product(conv, &Lines(rows), pixels, packed, out, tail).run(engine) };
            } else {
                // SAFETY: likewise.
                unsafe { product(conv, &rows, pixels, packed, out, tail).run(engine) };
            }
        }
        // SAFETY: likewise.
        Numbers::Bf16(input) => unsafe {
            product(conv, &conv.window(input), pixels, packed, out, tail).run(engine);
        },
    }
    Ok(())
}

fn product<'a, R: Rows>(
    conv: &Conv3d,
    rows: &'a R,
    pixels: usize,
    packed: Weights<'a>,
    out: Writable,
    tail: &Tail,
) -> Product<'a, R> {
    Product {
        rows,
        lines: 1,
        rows_per_line: pixels,
        groups: conv.groups,
        columns: conv.out_c / conv.groups,
        packed,
        out,
        out_stride: conv.out_stride,
        place: Place::DENSE,
        steps: tail.steps(),
    }
}
