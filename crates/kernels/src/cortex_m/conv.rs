//! Convolutions in two dimensions, with a fused activation.

use rushlight_engine_mcu::{Conv2d, Depthwise2d, conv2d, depthwise2d};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::params::{Layer, Layout, Operands, conv_window, int8_mut, layer, mismatch, operands};

/// `cortex_m::quantized_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation,
/// int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min,
/// int activation_max, Tensor scratch, *, Tensor(a!) out) -> Tensor(a!)`
///
/// The weight is `[O, H, W, I]`. Groups follow from its last dimension.
pub const QUANTIZED_CONV2D_OUT: Op =
    Op::new("cortex_m::quantized_conv2d.out", 14, |cx| quantized_conv2d(cx, Layout::ChannelsLast));

/// `cortex_m::quantized_conv2d_nhwc.out`, with the arguments of `quantized_conv2d.out`.
pub const QUANTIZED_CONV2D_NHWC_OUT: Op =
    Op::new("cortex_m::quantized_conv2d_nhwc.out", 14, |cx| quantized_conv2d(cx, Layout::Nhwc));

/// `cortex_m::quantized_depthwise_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding,
/// int[] dilation, int depth_multiplier, int input_offset, int output_offset, Tensor requantize_multipliers,
/// Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch, *, Tensor(a!) out) -> Tensor(a!)`
///
/// The weight is `[1, H, W, O]`.
pub const QUANTIZED_DEPTHWISE_CONV2D_OUT: Op =
    Op::new("cortex_m::quantized_depthwise_conv2d.out", 15, |cx| quantized_depthwise_conv2d(cx, Layout::ChannelsLast));

/// `cortex_m::quantized_depthwise_conv2d_nhwc.out`, with the arguments of `quantized_depthwise_conv2d.out`.
pub const QUANTIZED_DEPTHWISE_CONV2D_NHWC_OUT: Op =
    Op::new("cortex_m::quantized_depthwise_conv2d_nhwc.out", 15, |cx| quantized_depthwise_conv2d(cx, Layout::Nhwc));

pub const OPS: &[Op] = &[
    QUANTIZED_CONV2D_OUT,
    QUANTIZED_CONV2D_NHWC_OUT,
    QUANTIZED_DEPTHWISE_CONV2D_OUT,
    QUANTIZED_DEPTHWISE_CONV2D_NHWC_OUT,
];

fn quantized_conv2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    let Operands { input, x, weight, weight_sizes: [channels, height, width, depth] } = operands(cx, layout)?;
    let (window, image) = conv_window(cx, 3, [height, width], &input, channels)?;
    if depth == 0 || !input.channels.is_multiple_of(depth) {
        return Err(Error::from(Detail::Size { dim: 3, expected: input.channels, got: depth }).arg(1));
    }
    let groups = input.channels / depth;
    let Layer { bias, scales, input_offset, epilogue } = layer(cx, 6, channels)?;
    let conv = Conv2d { input, output: image, window, groups, weight, bias, scales, input_offset, epilogue };
    let mut out = layout.out(cx, 13, &image)?;
    conv2d(&conv, x, int8_mut(&mut out, 13)?).map_err(mismatch)
}

fn quantized_depthwise_conv2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    let Operands { input, x, weight, weight_sizes: [one, height, width, channels] } = operands(cx, layout)?;
    if one != 1 {
        return Err(Error::from(Detail::Size { dim: 0, expected: 1, got: one }).arg(1));
    }
    let (window, image) = conv_window(cx, 3, [height, width], &input, channels)?;
    let multiplier = cx.int(6)?;
    let multiplied = usize::try_from(multiplier).ok().and_then(|m| m.checked_mul(input.channels));
    if multiplied != Some(channels) {
        let expected = "output channels by input channels";
        return Err(Error::from(Detail::Value { what: "depth_multiplier", expected, got: multiplier }).arg(6));
    }
    let Layer { bias, scales, input_offset, epilogue } = layer(cx, 7, channels)?;
    let conv = Depthwise2d { input, output: image, window, weight, bias, scales, input_offset, epilogue };
    let mut out = layout.out(cx, 14, &image)?;
    depthwise2d(&conv, x, int8_mut(&mut out, 14)?).map_err(mismatch)
}
