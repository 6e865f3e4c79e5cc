//! Convolutions over feature maps with channels last.

mod depthwise;
mod direct;
mod window;

pub use depthwise::depthwise2d;
pub use direct::conv2d;

use crate::error::{Error, at_least, positive, size};

/// The shape of a convolution over a feature map `[batch, in_h, in_w, in_c]`, to `[batch, out_h, out_w, out_c]`.
///
/// Pixels begin `in_stride` and `out_stride` floats apart, which may be more than the channels: that is how a feature map
/// is read from or written into a part of the channels of a larger one. A convolution in one dimension has height 1.
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
    /// Input and output channels are cut into so many groups, the g-th of the output seeing only the g-th of the input.
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

    /// Height of the output; 0 where the window does not fit into the padded input.
    pub fn out_h(&self) -> usize {
        out_size(self.in_h, self.kernel[0], self.stride[0], self.padding[0], self.dilation[0])
    }

    /// Width of the output; 0 where the window does not fit into the padded input.
    pub fn out_w(&self) -> usize {
        out_size(self.in_w, self.kernel[1], self.stride[1], self.padding[1], self.dilation[1])
    }

    /// That every size makes sense and that the slices hold the feature maps. Returns (pixels of the output, channels
    /// of a group of the input, channels of a group of the output).
    fn check(&self, input: &[f32], out: &[f32]) -> Result<(usize, usize, usize), Error> {
        positive("groups", self.groups)?;
        for (what, pair) in [("kernel", self.kernel), ("stride", self.stride), ("dilation", self.dilation)] {
            for value in pair {
                positive(what, value)?;
            }
        }
        for (what, channels) in [("input channels", self.in_c), ("output channels", self.out_c)] {
            if channels % self.groups != 0 {
                let expected = channels.next_multiple_of(self.groups);
                return Err(Error::Mismatch { what, expected, got: channels });
            }
        }
        for (axis, size) in [self.in_h, self.in_w].into_iter().enumerate() {
            let padded = self.padding[axis].iter().try_fold(size, |sum, &padding| sum.checked_add(padding));
            let reach = (self.kernel[axis] - 1).checked_mul(self.dilation[axis]);
            let fits = padded.and_then(|padded| padded.checked_add(reach?)?.checked_add(self.stride[axis]));
            // Positions are computed with signs.
            if fits.is_none_or(|fits| isize::try_from(fits).is_err()) {
                return Err(Error::Size { what: "padding" });
            }
        }
        let in_pixels = size("input", &[self.batch, self.in_h, self.in_w])?;
        let out_pixels = size("output", &[self.batch, self.out_h(), self.out_w()])?;
        at_least("input", input.len(), crate::error::span("input stride", in_pixels, self.in_c, self.in_stride)?)?;
        at_least("output", out.len(), crate::error::span("output stride", out_pixels, self.out_c, self.out_stride)?)?;
        Ok((out_pixels, self.in_c / self.groups, self.out_c / self.groups))
    }
}

fn out_size(size: usize, kernel: usize, stride: usize, padding: [usize; 2], dilation: usize) -> usize {
    let padded = size.saturating_add(padding[0]).saturating_add(padding[1]);
    let reach = kernel.saturating_sub(1).saturating_mul(dilation);
    match padded.checked_sub(reach) {
        None | Some(0) => 0,
        Some(positions) => (positions - 1) / stride.max(1) + 1,
    }
}
