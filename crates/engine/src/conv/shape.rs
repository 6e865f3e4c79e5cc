//! Shapes of convolutions and their validation.

use super::window::ConvWindow;
use crate::error::{Error, at_least, positive, size, span};

/// Shape of a 2D convolution from `[batch, in_h, in_w, in_c]` to `[batch, out_h, out_w, out_c]`.
///
/// Pixels begin `in_stride` and `out_stride` elements apart. Strides larger than the channel count read from, or write
/// to, a channel slice of a larger image. A 1D convolution has height 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    pub batch: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub in_c: usize,
    pub out_c: usize,
    /// Height and width, as in all pairs here.
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Zeros before and after, for height and for width.
    pub padding: [[usize; 2]; 2],
    pub dilation: [usize; 2],
    /// Channel groups: group g of the output channels sees only group g of the input channels.
    pub groups: usize,
    pub in_stride: usize,
    pub out_stride: usize,
}

impl Conv2d {
    /// A convolution with stride and dilation 1, no padding, one group and dense pixels.
    pub const fn new([batch, in_h, in_w, in_c]: [usize; 4], out_c: usize, kernel: [usize; 2]) -> Self {
        Self {
            batch,
            in_h,
            in_w,
            in_c,
            out_c,
            kernel,
            stride: [1; 2],
            padding: [[0; 2]; 2],
            dilation: [1; 2],
            groups: 1,
            in_stride: in_c,
            out_stride: out_c,
        }
    }

    /// Height of the output; 0 if the window does not fit in the padded input.
    pub fn out_h(&self) -> usize {
        out_size(self.in_h, self.kernel[0], self.stride[0], self.padding[0], self.dilation[0])
    }

    /// Width of the output; 0 if the window does not fit in the padded input.
    pub fn out_w(&self) -> usize {
        out_size(self.in_w, self.kernel[1], self.stride[1], self.padding[1], self.dilation[1])
    }

    /// The same as a 3D convolution of depth 1.
    pub(crate) fn in_3d(&self) -> Conv3d {
        Conv3d {
            batch: self.batch,
            in_size: [1, self.in_h, self.in_w],
            in_c: self.in_c,
            out_c: self.out_c,
            kernel: [1, self.kernel[0], self.kernel[1]],
            stride: [1, self.stride[0], self.stride[1]],
            padding: [[0; 2], self.padding[0], self.padding[1]],
            dilation: [1, self.dilation[0], self.dilation[1]],
            groups: self.groups,
            in_stride: self.in_stride,
            out_stride: self.out_stride,
        }
    }
}

/// Shape of a 3D convolution over `[batch, depth, height, width, in_c]`; otherwise like [`Conv2d`]. Triples are depth,
/// height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv3d {
    pub batch: usize,
    pub in_size: [usize; 3],
    pub in_c: usize,
    pub out_c: usize,
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub padding: [[usize; 2]; 3],
    pub dilation: [usize; 3],
    pub groups: usize,
    pub in_stride: usize,
    pub out_stride: usize,
}

impl Conv3d {
    /// Depth, height and width of the output; 0 if the window does not fit in the padded input.
    pub fn out_size(&self) -> [usize; 3] {
        core::array::from_fn(|axis| {
            let Self { in_size, kernel, stride, padding, dilation, .. } = self;
            out_size(in_size[axis], kernel[axis], stride[axis], padding[axis], dilation[axis])
        })
    }

    /// Checks all sizes, and that slices of `input` and `out` elements hold the images. Returns the number of output
    /// pixels.
    pub(crate) fn check(&self, input: usize, out: usize) -> Result<usize, Error> {
        check_channels(self.groups, self.in_c, self.out_c)?;
        for axis in 0..3 {
            positive("kernel", self.kernel[axis])?;
            positive("stride", self.stride[axis])?;
            positive("dilation", self.dilation[axis])?;
            let [before, after] = self.padding[axis];
            let reach = (self.kernel[axis] - 1).checked_mul(self.dilation[axis]);
            check_positions(&[Some(self.in_size[axis]), Some(before), Some(after), reach, Some(self.stride[axis])])?;
        }
        let [in_d, in_h, in_w] = self.in_size;
        let [out_d, out_h, out_w] = self.out_size();
        let in_pixels = size("input", &[self.batch, in_d, in_h, in_w])?;
        let out_pixels = size("output", &[self.batch, out_d, out_h, out_w])?;
        at_least("input", input, span("input stride", in_pixels, self.in_c, self.in_stride)?)?;
        at_least("output", out, span("output stride", out_pixels, self.out_c, self.out_stride)?)?;
        Ok(out_pixels)
    }
}

impl Conv3d {
    /// Returns the window that slides over an input.
    pub(crate) fn window<'a, T>(&self, input: &'a [T]) -> ConvWindow<'a, T> {
        ConvWindow {
            input,
            in_size: self.in_size,
            out_size: self.out_size(),
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation.map(|dilation| dilation as isize),
            shift: self.padding.map(|[before, _]| -(before as isize)),
            pixel: self.in_stride,
            channels: self.in_c / self.groups,
        }
    }
}

/// Checks that the channels divide into groups.
pub(super) fn check_channels(groups: usize, in_c: usize, out_c: usize) -> Result<(), Error> {
    positive("groups", groups)?;
    for (what, channels) in [("input channels", in_c), ("output channels", out_c)] {
        if channels % groups != 0 {
            return Err(Error::Mismatch { what, expected: channels.next_multiple_of(groups), got: channels });
        }
    }
    Ok(())
}

/// Checks that positions, bounded by the sum of these terms, fit in `isize`.
pub(super) fn check_positions(terms: &[Option<usize>]) -> Result<(), Error> {
    let sum = terms.iter().try_fold(0usize, |sum, term| sum.checked_add((*term)?));
    if sum.is_some_and(|sum| isize::try_from(sum).is_ok()) {
        Ok(())
    } else {
        Err(Error::Size { what: "size and padding" })
    }
}

pub(super) fn out_size(size: usize, kernel: usize, stride: usize, padding: [usize; 2], dilation: usize) -> usize {
    let padded = size.saturating_add(padding[0]).saturating_add(padding[1]);
    let reach = kernel.saturating_sub(1).saturating_mul(dilation);
    match padded.checked_sub(reach) {
        None | Some(0) => 0,
        Some(positions) => (positions - 1) / stride.max(1) + 1,
    }
}
