//! Checked arguments of the int8 operators.

use rushlight_engine_mcu::{Axis, Image, Mismatch, Output, Scale, Scales, Window};
use rushlight_runtime::{Detail, Error, KernelContext, Result, Tensor, TensorMut};

/// The order of dimensions in which an operator's images are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Layout {
    /// `[N, C, H, W]`, stored channels-last.
    ChannelsLast,
    /// `[N, H, W, C]`, contiguous.
    Nhwc,
}

impl Layout {
    /// The dimensions from the outermost to the innermost in memory.
    fn order(self) -> [u8; 4] {
        match self {
            Self::ChannelsLast => [0, 2, 3, 1],
            Self::Nhwc => [0, 1, 2, 3],
        }
    }

    /// The image at argument `index`. Dimensions of size 1 may be anywhere in memory.
    pub(super) fn image(self, tensor: &Tensor<'_>, index: usize) -> Result<Image> {
        let &[batch, a, b, c] = tensor.sizes() else {
            return Err(Error::from(Detail::Rank { expected: "4", got: tensor.rank() }).arg(index));
        };
        check_order(tensor, &self.order(), index)?;
        let (height, width, channels) = match self {
            Self::ChannelsLast => (b, c, a),
            Self::Nhwc => (a, b, c),
        };
        Ok(Image { batch, height, width, channels })
    }

    /// The output at argument `index`, with this shape.
    pub(super) fn out<'a>(self, cx: &'a KernelContext<'_>, index: usize, image: &Image) -> Result<TensorMut<'a>> {
        let Image { batch, height, width, channels } = *image;
        let sizes = match self {
            Self::ChannelsLast => [batch, channels, height, width],
            Self::Nhwc => [batch, height, width, channels],
        };
        let mut out = cx.out(index)?;
        out.resize(&sizes).map_err(|e| e.arg(index))?;
        check_order(&out.as_tensor(), &self.order(), index)?;
        Ok(out)
    }
}

/// Fails unless the dimensions of more than one element lie in this order in memory.
pub(super) fn check_order(tensor: &Tensor<'_>, order: &[u8], index: usize) -> Result<()> {
    let long = |d: &&u8| tensor.size(usize::from(**d)) != 1;
    if tensor.dim_order().iter().filter(long).eq(order.iter().filter(long)) {
        return Ok(());
    }
    Err(Error::invalid("the tensor has another memory layout than the operator supports").arg(index))
}

/// Fails unless the elements of both tensors, which have the same sizes, lie in the same order.
pub(super) fn check_alike(out: &TensorMut<'_>, x: &Tensor<'_>, index: usize) -> Result<()> {
    check_order(&out.as_tensor(), x.dim_order(), index)
}

/// Fails unless the elements lie in row-major order.
pub(super) fn check_contiguous(tensor: &Tensor<'_>, index: usize) -> Result<()> {
    const ORDER: [u8; rushlight_runtime::MAX_RANK] = {
        let mut order = [0; rushlight_runtime::MAX_RANK];
        let mut d = 0;
        while d < order.len() {
            order[d] = d as u8;
            d += 1;
        }
        order
    };
    check_order(tensor, &ORDER[..tensor.rank()], index)
}

/// The elements of an int8 tensor, in memory order.
pub(super) fn int8<'a>(tensor: &Tensor<'a>, index: usize) -> Result<&'a [i8]> {
    tensor.as_slice().map_err(|e| e.arg(index))
}

/// The elements of an int8 output, in memory order.
pub(super) fn int8_mut<'a>(out: &'a mut TensorMut<'_>, index: usize) -> Result<&'a mut [i8]> {
    out.as_mut_slice().map_err(|e| e.arg(index))
}

/// An int in a range.
pub(super) fn int_in(
    cx: &KernelContext<'_>,
    index: usize,
    (low, high): (i32, i32),
    what: &'static str,
    expected: &'static str,
) -> Result<i32> {
    let got = cx.int(index)?;
    match i32::try_from(got) {
        Ok(value) if value >= low && value <= high => Ok(value),
        _ => Err(Error::from(Detail::Value { what, expected, got }).arg(index)),
    }
}

pub(super) fn zero_point(cx: &KernelContext<'_>, index: usize) -> Result<i32> {
    int_in(cx, index, (-128, 127), "zero point", "an int8")
}

/// A negated zero point.
pub(super) fn offset(cx: &KernelContext<'_>, index: usize) -> Result<i32> {
    int_in(cx, index, (-127, 128), "offset", "a negated int8 zero point")
}

const SHIFTS: &str = "-31 to 30";
const MULTIPLIERS: &str = "an i32 that is not negative";

/// A multiplier and a shift at `index` and after it.
pub(super) fn scale(cx: &KernelContext<'_>, index: usize) -> Result<Scale> {
    let multiplier = int_in(cx, index, (0, i32::MAX), "multiplier", MULTIPLIERS)?;
    Ok(Scale { multiplier, shift: shift(cx, index + 1)? })
}

pub(super) fn shift(cx: &KernelContext<'_>, index: usize) -> Result<i32> {
    int_in(cx, index, (-31, 30), "shift", SHIFTS)
}

/// The first multiplier and shift of two lists, at `index` and after it.
pub(super) fn first_scale(cx: &KernelContext<'_>, index: usize) -> Result<Scale> {
    let first = |index: usize| {
        let list = cx.ints(index)?;
        list.get(0).ok_or_else(|| Error::invalid("the list is empty").arg(index))
    };
    let (multiplier, shift) = (first(index)?, first(index + 1)?);
    checked_scale(multiplier, shift, index)
}

fn checked_scale(multiplier: i64, shift: i64, index: usize) -> Result<Scale> {
    match (i32::try_from(multiplier), i32::try_from(shift)) {
        (Ok(multiplier @ 0..), Ok(shift @ -31..=30)) => Ok(Scale { multiplier, shift }),
        (Ok(0..), _) => Err(Error::from(Detail::Value { what: "shift", expected: SHIFTS, got: shift }).arg(index + 1)),
        _ => Err(Error::from(Detail::Value { what: "multiplier", expected: MULTIPLIERS, got: multiplier }).arg(index)),
    }
}

/// The factors of `count` channels, in tensors of i32 at `index` and after it.
pub(super) fn channel_scales<'a>(cx: &'a KernelContext<'_>, index: usize, count: usize) -> Result<Scales<'a>> {
    let multipliers = int32(cx.tensor(index)?, count, "multipliers", index)?;
    let shifts = int32(cx.tensor(index + 1)?, count, "shifts", index + 1)?;
    for (&multiplier, &shift) in multipliers.iter().zip(shifts) {
        checked_scale(i64::from(multiplier), i64::from(shift), index)?;
    }
    Ok(Scales::Channels { multipliers, shifts })
}

/// The elements of an i32 tensor, which has `count` of them.
pub(super) fn int32<'a>(tensor: Tensor<'a>, count: usize, what: &'static str, index: usize) -> Result<&'a [i32]> {
    let values: &[i32] = tensor.as_slice().map_err(|e| e.arg(index))?;
    if values.len() != count {
        return Err(Error::from(Detail::Count { what, expected: count, got: values.len() }).arg(index));
    }
    Ok(values)
}

/// The optional bias of `count` channels.
pub(super) fn bias<'a>(cx: &'a KernelContext<'_>, index: usize, count: usize) -> Result<Option<&'a [i32]>> {
    cx.optional_tensor(index)?.map(|tensor| int32(tensor, count, "biases", index)).transpose()
}

/// The zero point of the output and the bounds of a fused activation.
pub(super) fn output(cx: &KernelContext<'_>, offset: usize, min: usize, max: usize) -> Result<Output> {
    let bound = |index: usize| int_in(cx, index, (-128, 127), "bound", "an int8");
    Ok(Output { offset: zero_point(cx, offset)?, min: bound(min)? as i8, max: bound(max)? as i8 })
}

/// Sizes for rows and columns, from a list of two, or of one for both.
pub(super) fn pair(cx: &KernelContext<'_>, index: usize, what: &'static str, low: i64) -> Result<[usize; 2]> {
    let list = cx.ints(index)?;
    let count = list.len();
    let (Some(rows), Some(columns), 1 | 2) = (list.get(0), list.get(count.saturating_sub(1)), count) else {
        return Err(Error::from(Detail::Count { what, expected: 2, got: count }).arg(index));
    };
    let size = |got: i64| match i32::try_from(got) {
        Ok(size) if got >= low => Ok(size as usize),
        _ => Err(Error::from(Detail::Value { what, expected: "a small size", got }).arg(index)),
    };
    Ok([size(rows)?, size(columns)?])
}

/// The input and the weight of a convolution.
pub(super) struct Operands<'a> {
    pub(super) input: Image,
    pub(super) x: &'a [i8],
    pub(super) weight: &'a [i8],
    pub(super) weight_sizes: [usize; 4],
}

/// The input at argument 0, and the weight of four dimensions at argument 1.
#[inline(never)]
pub(super) fn operands<'a>(cx: &'a KernelContext<'_>, layout: Layout) -> Result<Operands<'a>> {
    let (x, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let input = layout.image(&x, 0)?;
    check_contiguous(&weight, 1)?;
    let rank = Error::from(Detail::Rank { expected: "4", got: weight.rank() }).arg(1);
    let weight_sizes = weight.sizes().try_into().map_err(|_| rank)?;
    Ok(Operands { input, x: int8(&x, 0)?, weight: int8(&weight, 1)?, weight_sizes })
}

/// The parameters that all convolutions have besides their shapes.
pub(super) struct Layer<'a> {
    pub(super) bias: Option<&'a [i32]>,
    pub(super) scales: Scales<'a>,
    pub(super) input_offset: i32,
    pub(super) epilogue: Output,
}

/// The bias at argument 2, and from `first` on the offsets of input and output, multipliers, shifts, and bounds.
#[inline(never)]
pub(super) fn layer<'a>(cx: &'a KernelContext<'_>, first: usize, channels: usize) -> Result<Layer<'a>> {
    Ok(Layer {
        bias: bias(cx, 2, channels)?,
        scales: channel_scales(cx, first + 2, channels)?,
        input_offset: offset(cx, first)?,
        epilogue: output(cx, first + 1, first + 4, first + 5)?,
    })
}

/// The window whose stride, padding and dilation are at `index` and after it, and the image of its positions.
#[inline(never)]
pub(super) fn conv_window(
    cx: &KernelContext<'_>,
    index: usize,
    kernel: [usize; 2],
    input: &Image,
    channels: usize,
) -> Result<(Window, Image)> {
    let (stride, padding) = (pair(cx, index, "stride", 1)?, pair(cx, index + 1, "padding", 0)?);
    let window = window(kernel, stride, padding, pair(cx, index + 2, "dilation", 1)?);
    let height = positions(&window.rows, input.height, false)?;
    let width = positions(&window.columns, input.width, false)?;
    Ok((window, Image { batch: input.batch, height, width, channels }))
}

pub(super) fn window(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> Window {
    let axis = |d: usize| Axis { kernel: kernel[d], stride: stride[d], padding: padding[d], dilation: dilation[d] };
    Window { rows: axis(0), columns: axis(1) }
}

/// The number of positions of a window over `size` elements, padded on both sides.
pub(super) fn positions(axis: &Axis, size: usize, is_rounded_up: bool) -> Result<usize> {
    let wrong = || Error::from(Detail::UnsupportedSize { what: "window" });
    let padded = axis.padding.checked_mul(2).and_then(|n| n.checked_add(size)).ok_or_else(wrong)?;
    let extent = axis.kernel.checked_sub(1).and_then(|n| n.checked_mul(axis.dilation)).ok_or_else(wrong)?;
    let rest = padded.checked_sub(extent).and_then(|n| n.checked_sub(1)).ok_or_else(wrong)?;
    if !is_rounded_up {
        return Ok(rest / axis.stride + 1);
    }
    // The last window begins inside of the image or of the padding before it.
    let count = rest.div_ceil(axis.stride) + 1;
    let begins_outside = (count - 1) * axis.stride >= size + axis.padding;
    Ok(count - usize::from(begins_outside))
}

/// The error for shapes that do not fit each other.
pub(super) fn mismatch(_: Mismatch) -> Error {
    Error::invalid("the shapes and sizes of the arguments do not fit each other")
}
