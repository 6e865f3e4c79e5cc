//! Convolutions.

use rushlight_cpu_payload::{Convolution, ConvolutionKind, Epilogue, Residual, TensorId, Window};
use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, Engine, WinogradWeights};
use rushlight_runtime::Result;

use super::RunStep;
use crate::bf16_choice::{BF16, Choice};
use crate::epilogue;
use crate::error::Unfit;
use crate::memory::{Reader, StepContext, done};
use crate::shapes::check_windows;

impl RunStep for Convolution {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        match &self.kind {
            ConvolutionKind::Direct { window, groups, format, epilogue } => {
                let (y, reader, _) = cx.split_float_slice(self.y)?;
                let conv = conv2d(self, window, Some(*groups), &reader)?;
                check_output(&conv, y.len())?;
                let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.float_slice(self.x)?, reader.weights(self.w, *format)?);
                done(rushlight_engine::conv2d(engine, &conv, x, w, y, &epilogue))
            }
            ConvolutionKind::Direct3d { window, groups, format, epilogue } => {
                let (y, reader, _) = cx.split_float_slice(self.y)?;
                let conv = conv3d(self, window, *groups, &reader, y.len())?;
                let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.float_slice(self.x)?, reader.weights(self.w, *format)?);
                done(rushlight_engine::conv3d(engine, &conv, x, w, y, &epilogue))
            }
            ConvolutionKind::Depthwise { window, epilogue } => {
                let (y, reader, _) = cx.split_float_slice(self.y)?;
                let conv = conv2d(self, window, None, &reader)?;
                check_output(&conv, y.len())?;
                let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.float_slice(self.x)?, reader.floats(self.w)?);
                done(rushlight_engine::depthwise2d(engine, &conv, x, w, y, &epilogue))
            }
            ConvolutionKind::Transposed { window, output_padding, groups, format, epilogue } => {
                let (y, reader) = cx.split(self.y)?;
                let conv = conv_transpose2d(self, window, *output_padding, *groups, &reader, y.len())?;
                let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.floats(self.x)?, reader.weights(self.w, *format)?);
                done(rushlight_engine::conv_transpose2d(engine, &conv, x, w, y, &epilogue))
            }
            ConvolutionKind::Winograd { tile, padding, epilogue } => {
                let (y, reader, scratch) = cx.split_with_scratch(self.y)?;
                let window = Window { kernel: [3; 2], stride: [1; 2], padding: *padding, dilation: [1; 2] };
                let conv = conv2d(self, &window, Some(1), &reader)?;
                check_output(&conv, y.len())?;
                let epilogue = epilogue::float(epilogue, conv.out_c, &reader)?;
                let weights = WinogradWeights { form: *tile, packed: reader.floats(self.w)? };
                let x = reader.floats(self.x)?;
                done(rushlight_engine::conv2d_winograd(engine, &conv, x, weights, y, &epilogue, scratch))
            }
            ConvolutionKind::Int8Direct { window, groups, epilogue } => {
                let elements = cx.shapes.span(self.y).1;
                let (y, reader, _) = cx.split_quant_out(self.y)?;
                let conv = conv2d(self, window, Some(*groups), &reader)?;
                check_output(&conv, elements)?;
                let zero = epilogue::zero_point(epilogue, self.x, &reader)?;
                let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.quantized(self.x)?, reader.int8_weights(self.w)?);
                done(rushlight_engine::conv2d_u8(engine, &conv, zero, x, w, y, &epilogue))
            }
            ConvolutionKind::Int8Depthwise { window, epilogue } => {
                let elements = cx.shapes.span(self.y).1;
                let (y, reader, _) = cx.split_quant_out(self.y)?;
                let conv = conv2d(self, window, None, &reader)?;
                check_output(&conv, elements)?;
                let zero = epilogue::zero_point(epilogue, self.x, &reader)?;
                let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.quantized(self.x)?, reader.int8_weights(self.w)?);
                done(rushlight_engine::depthwise2d_u8(engine, &conv, zero, x, w, y, &epilogue))
            }
            ConvolutionKind::Int8Transposed { window, output_padding, groups, epilogue } => {
                let elements = cx.shapes.span(self.y).1;
                let (y, reader, _) = cx.split_quant_out(self.y)?;
                let conv = conv_transpose2d(self, window, *output_padding, *groups, &reader, elements)?;
                let zero = epilogue::zero_point(epilogue, self.x, &reader)?;
                let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.quantized(self.x)?, reader.int8_weights(self.w)?);
                done(rushlight_engine::conv_transpose2d_u8(engine, &conv, zero, x, w, y, &epilogue))
            }
            ConvolutionKind::Int8Direct3d { window, groups, epilogue } => {
                let elements = cx.shapes.span(self.y).1;
                let (y, reader, _) = cx.split_quant_out(self.y)?;
                let conv = conv3d(self, window, *groups, &reader, elements)?;
                let zero = epilogue::zero_point(epilogue, self.x, &reader)?;
                let epilogue = epilogue::int8(epilogue, conv.out_c, &reader)?;
                let (x, w) = (reader.quantized(self.x)?, reader.int8_weights(self.w)?);
                done(rushlight_engine::conv3d_u8(engine, &conv, zero, x, w, y, &epilogue))
            }
        }
    }

    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        let Self { x, y, kind, .. } = self;
        match kind {
            ConvolutionKind::Depthwise { epilogue, .. } => depthwise_bf16(choice, *x, *y, epilogue),
            ConvolutionKind::Direct { groups, format: BF16, epilogue, .. }
            | ConvolutionKind::Direct3d { groups, format: BF16, epilogue, .. } => {
                let taps = kind.kernel().iter().fold(1usize, |taps, size| taps.saturating_mul(*size as usize));
                let channels = choice.last(*x).map(|channels| channels / (*groups as usize).max(1));
                choice.gemm(*x, *y, epilogue, taps, channels)
            }
            _ => choice.refuse_all(self),
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

/// Restricts a depthwise convolution: its input and output have one type.
fn depthwise_bf16(choice: &mut Choice<'_>, x: TensorId, y: TensorId, epilogue: &Epilogue) -> bool {
    let mut changed = choice.read(x) | choice.both(x, y);
    if let Some(residual) = epilogue.residual.map(Residual::tensor) {
        changed |= choice.refuse(residual);
    }
    if epilogue.residual.is_some() || !epilogue.activation.is_fusable() {
        changed |= choice.refuse(x) | choice.refuse(y);
    }
    changed
}
