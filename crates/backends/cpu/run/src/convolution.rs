//! Convolutions.

use rushlight_cpu_payload::{Convolution, ConvolutionKind, Window};
use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, Engine, WinogradWeights};
use rushlight_runtime::Result;

use crate::epilogue;
use crate::error::Unfit;
use crate::memory::{Reader, StepContext, done};
use crate::shapes::check_windows;

/// Runs a convolution.
pub(crate) fn convolution(step: &Convolution, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    match &step.kind {
        ConvolutionKind::Direct { window, groups, format, epilogue } => {
            let (y, reader, _) = cx.split_float_slice(step.y)?;
            let conv = conv2d(step, window, Some(*groups), &reader)?;
            check_output(&conv, y.len())?;
            let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.float_slice(step.x)?, reader.weights(step.w, *format)?);
            done(rushlight_engine::conv2d(engine, &conv, x, w, y, &epilogue))
        }
        ConvolutionKind::Direct3d { window, groups, format, epilogue } => {
            let (y, reader, _) = cx.split_float_slice(step.y)?;
            let conv = conv3d(step, window, *groups, &reader, y.len())?;
            let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.float_slice(step.x)?, reader.weights(step.w, *format)?);
            done(rushlight_engine::conv3d(engine, &conv, x, w, y, &epilogue))
        }
        ConvolutionKind::Depthwise { window, epilogue } => {
            let (y, reader, _) = cx.split_float_slice(step.y)?;
            let conv = conv2d(step, window, None, &reader)?;
            check_output(&conv, y.len())?;
            let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.float_slice(step.x)?, reader.floats(step.w)?);
            done(rushlight_engine::depthwise2d(engine, &conv, x, w, y, &epilogue))
        }
        ConvolutionKind::Transposed { window, output_padding, groups, format, epilogue } => {
            let (y, reader) = cx.split(step.y)?;
            let conv = conv_transpose2d(step, window, *output_padding, *groups, &reader, y.len())?;
            let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.floats(step.x)?, reader.weights(step.w, *format)?);
            done(rushlight_engine::conv_transpose2d(engine, &conv, x, w, y, &epilogue))
        }
        ConvolutionKind::Winograd { tile, padding, epilogue } => {
            let (y, reader, scratch) = cx.split_with_scratch(step.y)?;
            let window = Window { kernel: [3; 2], stride: [1; 2], padding: *padding, dilation: [1; 2] };
            let conv = conv2d(step, &window, Some(1), &reader)?;
            check_output(&conv, y.len())?;
            let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
            let weights = WinogradWeights { form: *tile, packed: reader.floats(step.w)? };
            let x = reader.floats(step.x)?;
            done(rushlight_engine::conv2d_winograd(engine, &conv, x, weights, y, &epilogue, scratch))
        }
        ConvolutionKind::Int8Direct { window, groups, epilogue } => {
            let elements = cx.shapes.span(step.y).1;
            let (y, reader, _) = cx.split_quant_out(step.y)?;
            let conv = conv2d(step, window, Some(*groups), &reader)?;
            check_output(&conv, elements)?;
            let zero = epilogue::zero_point(epilogue, step.x, &reader)?;
            let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.quantized(step.x)?, reader.int8_weights(step.w)?);
            done(rushlight_engine::conv2d_u8(engine, &conv, zero, x, w, y, &epilogue))
        }
        ConvolutionKind::Int8Depthwise { window, epilogue } => {
            let elements = cx.shapes.span(step.y).1;
            let (y, reader, _) = cx.split_quant_out(step.y)?;
            let conv = conv2d(step, window, None, &reader)?;
            check_output(&conv, elements)?;
            let zero = epilogue::zero_point(epilogue, step.x, &reader)?;
            let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.quantized(step.x)?, reader.int8_weights(step.w)?);
            done(rushlight_engine::depthwise2d_u8(engine, &conv, zero, x, w, y, &epilogue))
        }
        ConvolutionKind::Int8Transposed { window, output_padding, groups, epilogue } => {
            let elements = cx.shapes.span(step.y).1;
            let (y, reader, _) = cx.split_quant_out(step.y)?;
            let conv = conv_transpose2d(step, window, *output_padding, *groups, &reader, elements)?;
            let zero = epilogue::zero_point(epilogue, step.x, &reader)?;
            let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
            let (x, w) = (reader.quantized(step.x)?, reader.int8_weights(step.w)?);
            done(rushlight_engine::conv_transpose2d_u8(engine, &conv, zero, x, w, y, &epilogue))
        }
    }
}

fn usizes<const D: usize>(sizes: [u32; D]) -> [usize; D] {
    sizes.map(|size| size as usize)
}

/// Returns the shape of a convolution of images; without `groups` each channel is one.
fn conv2d(
    step: &Convolution,
    window: &Window<2>,
    groups: Option<u32>,
    reader: &Reader<'_, '_, '_, '_>,
) -> Result<Conv2d> {
    let (input, [.., out_c]) = (reader.image(step.x)?, reader.image(step.y)?);
    let [.., in_c] = input;
    Ok(Conv2d {
        stride: usizes(window.stride),
        padding: window.padding.map(usizes),
        dilation: usizes(window.dilation),
        groups: groups.map_or(in_c.max(1), |groups| groups as usize),
        ..Conv2d::new(input, out_c, usizes(window.kernel))
    })
}

/// Returns the shape of a convolution of volumes, whose output has `elements` elements.
fn conv3d(
    step: &Convolution,
    window: &Window<3>,
    groups: u32,
    reader: &Reader<'_, '_, '_, '_>,
    elements: usize,
) -> Result<Conv3d> {
    let ([batch, in_d, in_h, in_w, in_c], [.., out_c]) = (reader.volume(step.x)?, reader.volume(step.y)?);
    let conv = Conv3d {
        batch,
        in_size: [in_d, in_h, in_w],
        in_c,
        out_c,
        kernel: usizes(window.kernel),
        stride: usizes(window.stride),
        padding: window.padding.map(usizes),
        dilation: usizes(window.dilation),
        groups: groups as usize,
        in_stride: in_c,
        out_stride: out_c,
    };
    check_windows(&conv.out_size())?;
    let expected = conv.out_size().iter().fold(batch.saturating_mul(out_c), |all, size| all.saturating_mul(*size));
    check_elements(expected, elements)?;
    Ok(conv)
}

/// Returns the shape of a transposed convolution, whose output has `elements` elements.
fn conv_transpose2d(
    step: &Convolution,
    window: &Window<2>,
    output_padding: [u32; 2],
    groups: u32,
    reader: &Reader<'_, '_, '_, '_>,
    elements: usize,
) -> Result<ConvTranspose2d> {
    let ([batch, in_h, in_w, in_c], [.., out_c]) = (reader.image(step.x)?, reader.image(step.y)?);
    let conv = ConvTranspose2d {
        batch,
        in_h,
        in_w,
        in_c,
        out_c,
        kernel: usizes(window.kernel),
        stride: usizes(window.stride),
        padding: window.padding.map(usizes),
        output_padding: usizes(output_padding),
        dilation: usizes(window.dilation),
        groups: groups as usize,
        in_stride: in_c,
        out_stride: out_c,
    };
    let pixels = batch.saturating_mul(conv.out_h()).saturating_mul(conv.out_w());
    check_elements(pixels.saturating_mul(out_c), elements)?;
    Ok(conv)
}

/// Checks that an output has as many elements as a step computes.
fn check_elements(expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Unfit::Count { what: "elements of the output", expected, got }.into()) }
}

/// Checks that windows fit into what they move over, and that an output has the elements that a convolution gives.
fn check_output(conv: &Conv2d, elements: usize) -> Result<()> {
    check_windows(&[conv.out_h(), conv.out_w()])?;
    let pixels = conv.batch.saturating_mul(conv.out_h()).saturating_mul(conv.out_w());
    check_elements(pixels.saturating_mul(conv.out_c), elements)
}
