//! Convolutions in two dimensions, with a fused activation.

use rushlight_engine_mcu::{Conv2d, Depthwise2d, Image, conv2d, depthwise2d};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, Tensor};

use super::params::{Layout, bias, channel_scales, conv_window, int8, mismatch, offset, output, positions};

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

/// The sizes of a weight of four dimensions.
pub(super) fn weight_sizes(weight: &Tensor<'_>) -> Result<[usize; 4]> {
    super::params::check_contiguous(weight, 1)?;
    <[usize; 4]>::try_from(weight.sizes())
        .map_err(|_| Error::from(Detail::Rank { expected: "4", got: weight.rank() }).arg(1))
}

fn quantized_conv2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    let (x, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let input = layout.image(&x, 0)?;
    let [channels, height, width, depth] = weight_sizes(&weight)?;
    let window = conv_window(cx, 3, [height, width])?;
    let output_image = Image {
        batch: input.batch,
        height: positions(&window.rows, input.height, false)?,
        width: positions(&window.columns, input.width, false)?,
        channels,
    };
    if depth == 0 || !input.channels.is_multiple_of(depth) {
        return Err(Error::from(Detail::Size { dim: 3, expected: input.channels, got: depth }).arg(1));
    }
    let conv = Conv2d {
        input,
        output: output_image,
        window,
        groups: input.channels / depth,
        weight: int8(&weight, 1)?,
        bias: bias(cx, 2, channels)?,
        scales: channel_scales(cx, 8, channels)?,
        input_offset: offset(cx, 6)?,
        epilogue: output(cx, 7, 10, 11)?,
    };
    let mut out = layout.out(cx, 13, &output_image)?;
    conv2d(&conv, int8(&x, 0)?, out.as_mut_slice().map_err(|e| e.arg(13))?).map_err(mismatch)
}

fn quantized_depthwise_conv2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    let (x, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let input = layout.image(&x, 0)?;
    let [one, height, width, channels] = weight_sizes(&weight)?;
    if one != 1 {
        return Err(Error::from(Detail::Size { dim: 0, expected: 1, got: one }).arg(1));
    }
    let window = conv_window(cx, 3, [height, width])?;
    let multiplier = cx.int(6)?;
    let multiplied = usize::try_from(multiplier).ok().and_then(|m| m.checked_mul(input.channels));
    if multiplied != Some(channels) {
        let expected = "output channels by input channels";
        return Err(Error::from(Detail::Value { what: "depth_multiplier", expected, got: multiplier }).arg(6));
    }
    let output_image = Image {
        batch: input.batch,
        height: positions(&window.rows, input.height, false)?,
        width: positions(&window.columns, input.width, false)?,
        channels,
    };
    let conv = Depthwise2d {
        input,
        output: output_image,
        window,
        weight: int8(&weight, 1)?,
        bias: bias(cx, 2, channels)?,
        scales: channel_scales(cx, 9, channels)?,
        input_offset: offset(cx, 7)?,
        epilogue: output(cx, 8, 11, 12)?,
    };
    let mut out = layout.out(cx, 14, &output_image)?;
    depthwise2d(&conv, int8(&x, 0)?, out.as_mut_slice().map_err(|e| e.arg(14))?).map_err(mismatch)
}
