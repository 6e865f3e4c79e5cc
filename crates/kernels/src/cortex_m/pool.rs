//! Pooling in two dimensions.

use rushlight_engine_mcu::{Image, Mismatch, Pool2d, avg_pool2d, max_pool2d};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::params::{Layout, int_in, int8, int8_mut, mismatch, pair, positions, window, zero_point};

/// `cortex_m::quantized_avg_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode,
/// int zero_point, int multiplier, int shift, Tensor scratch, *, Tensor(a!) out) -> Tensor(a!)`
///
/// Averages int8 values, without the padding. The zero point and the scale are the output's too, and have no effect.
pub const QUANTIZED_AVG_POOL2D_OUT: Op =
    Op::new("cortex_m::quantized_avg_pool2d.out", 10, |cx| quantized_avg_pool2d(cx, Layout::ChannelsLast));

/// `cortex_m::quantized_avg_pool2d_nhwc.out`, with the arguments of `quantized_avg_pool2d.out`.
pub const QUANTIZED_AVG_POOL2D_NHWC_OUT: Op =
    Op::new("cortex_m::quantized_avg_pool2d_nhwc.out", 10, |cx| quantized_avg_pool2d(cx, Layout::Nhwc));

/// `cortex_m::quantized_max_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding, int[] dilation,
/// bool ceil_mode, int input_zero_point, int output_zero_point, int activation_min, int activation_max, *, Tensor(a!) out)
/// -> Tensor(a!)`
///
/// Both zero points are equal.
pub const QUANTIZED_MAX_POOL2D_OUT: Op =
    Op::new("cortex_m::quantized_max_pool2d.out", 11, |cx| quantized_max_pool2d(cx, Layout::ChannelsLast));

/// `cortex_m::quantized_max_pool2d_nhwc.out`, with the arguments of `quantized_max_pool2d.out`.
pub const QUANTIZED_MAX_POOL2D_NHWC_OUT: Op =
    Op::new("cortex_m::quantized_max_pool2d_nhwc.out", 11, |cx| quantized_max_pool2d(cx, Layout::Nhwc));

pub const OPS: &[Op] =
    &[QUANTIZED_AVG_POOL2D_OUT, QUANTIZED_AVG_POOL2D_NHWC_OUT, QUANTIZED_MAX_POOL2D_OUT, QUANTIZED_MAX_POOL2D_NHWC_OUT];

fn quantized_avg_pool2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    pool(cx, layout, [1, 1], 4, (i8::MIN, i8::MAX), 9, avg_pool2d)
}

fn quantized_max_pool2d(cx: &KernelContext<'_>, layout: Layout) -> Result<()> {
    let (input, output) = (zero_point(cx, 6)?, zero_point(cx, 7)?);
    if input != output {
        let expected = "the zero point of the input";
        let detail = Detail::Value { what: "output zero point", expected, got: i64::from(output) };
        return Err(Error::from(detail).arg(7));
    }
    let bound = |index: usize| int_in(cx, index, (-128, 127), "bound", "an int8");
    let bounds = (bound(8)? as i8, bound(9)? as i8);
    pool(cx, layout, pair(cx, 4, "dilation", 1)?, 5, bounds, 10, max_pool2d)
}

fn pool(
    cx: &KernelContext<'_>,
    layout: Layout,
    dilation: [usize; 2],
    ceil_mode: usize,
    (min, max): (i8, i8),
    out: usize,
    kernel: fn(&Pool2d, &[i8], &mut [i8]) -> core::result::Result<(), Mismatch>,
) -> Result<()> {
    let x = cx.tensor(0)?;
    let input = layout.image(&x, 0)?;
    let kernel_size = pair(cx, 1, "kernel size", 1)?;
    let stride = if cx.ints(2)?.is_empty() { kernel_size } else { pair(cx, 2, "stride", 1)? };
    let window = window(kernel_size, stride, pair(cx, 3, "padding", 0)?, dilation);
    let is_rounded_up = cx.bool(ceil_mode)?;
    let output = Image {
        height: positions(&window.rows, input.height, is_rounded_up)?,
        width: positions(&window.columns, input.width, is_rounded_up)?,
        ..input
    };
    let mut target = layout.out(cx, out, &output)?;
    let pool = Pool2d { input, output, window, min, max };
    kernel(&pool, int8(&x, 0)?, int8_mut(&mut target, out)?).map_err(mismatch)
}
