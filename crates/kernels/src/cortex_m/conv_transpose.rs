//! Transposed convolutions in two dimensions, with a fused activation.

use rushlight_engine_mcu::{Axis, ConvTranspose2d, Image, conv_transpose2d};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::params::{Layer, Layout, Operands, int8_mut, layer, mismatch, operands, pair, window};

/// `cortex_m::quantized_transpose_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding,
/// int[] output_padding, int[] dilation, int input_offset, int output_offset, Tensor requantize_multipliers,
/// Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch, Tensor output_scratch, *,
/// Tensor(a!) out) -> Tensor(a!)`
///
/// The weight is `[O, H, W, I]`; there are no groups.
pub const QUANTIZED_TRANSPOSE_CONV2D_OUT: Op =
    Op::new("cortex_m::quantized_transpose_conv2d.out", 16, |cx| quantized_transpose_conv2d(cx, Layout::ChannelsLast));

/// `cortex_m::quantized_transpose_conv2d_nhwc.out`, with the arguments of `quantized_transpose_conv2d.out`.
pub const QUANTIZED_TRANSPOSE_CONV2D_NHWC_OUT: Op =
    Op::new("cortex_m::quantized_transpose_conv2d_nhwc.out", 16, |cx| quantized_transpose_conv2d(cx, Layout::Nhwc));

pub const OPS: &[Op] = &[QUANTIZED_TRANSPOSE_CONV2D_OUT, QUANTIZED_TRANSPOSE_CONV2D_NHWC_OUT];

fn quantized_transpose_conv2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    let Operands { input, x, weight, weight_sizes: [channels, height, width, depth] } = operands(cx, layout)?;
    if depth != input.channels {
        return Err(Error::from(Detail::Size { dim: 3, expected: input.channels, got: depth }).arg(1));
    }
    let (stride, padding) = (pair(cx, 3, "stride", 1)?, pair(cx, 4, "padding", 0)?);
    let output_padding = pair(cx, 5, "output padding", 0)?;
    let window = window([height, width], stride, padding, pair(cx, 6, "dilation", 1)?);
    let image = Image {
        batch: input.batch,
        height: length(&window.rows, input.height, output_padding[0])?,
        width: length(&window.columns, input.width, output_padding[1])?,
        channels,
    };
    let Layer { bias, scales, input_offset, epilogue } = layer(cx, 7, channels)?;
    let conv = ConvTranspose2d { input, output: image, window, weight, bias, scales, input_offset, epilogue };
    let mut out = layout.out(cx, 15, &image)?;
    conv_transpose2d(&conv, x, int8_mut(&mut out, 15)?).map_err(mismatch)
}

/// The length of the output along one dimension.
fn length(axis: &Axis, input: usize, output_padding: usize) -> Result<usize> {
    let full = || {
        let last = input.checked_sub(1)?.checked_mul(axis.stride)?;
        let reach = axis.kernel.checked_sub(1)?.checked_mul(axis.dilation)?;
        let padded = last.checked_add(reach)?.checked_add(output_padding)?.checked_add(1)?;
        padded.checked_sub(axis.padding.checked_mul(2)?)
    };
    full().ok_or_else(|| Error::from(Detail::UnsupportedSize { what: "window" }))
}
