//! The greatest or the mean of windows.

use crate::Engine;
use crate::error::{Error, at_least, positive, size};

/// Windows that slide over a feature map `[batch, in_h, in_w, channels]`, to `[batch, out_h, out_w, channels]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool2d {
    pub batch: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub channels: usize,
    /// Which need not be what the padding and the kernel make: windows may end beyond the padding, as in PyTorch's ceil
    /// mode, and then what is beyond does not count.
    pub out_h: usize,
    pub out_w: usize,
    /// Height and width, as in all pairs here.
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Before and after.
    pub padding: [[usize; 2]; 2],
    pub dilation: [usize; 2],
    /// `None` for the greatest.
    pub mean: Option<Mean>,
}

/// What a sum is divided by to be a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mean {
    /// Whether padding counts, with zeros, rather than only what lies inside.
    pub count_padding: bool,
    /// Divides the sum, whatever the number of elements.
    pub divisor: Option<usize>,
}

/// Pools. The greatest of a window is NaN if an element is, and -inf if none is inside; a mean of none is 0.
///
/// # Errors
/// When a slice is too short, or a size is zero or too large.
pub fn pool2d(engine: &Engine, pool: &Pool2d, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    pool.check(x, y)?;
    let _ = engine;
    let &Pool2d { batch, in_h, in_w, channels, out_h, out_w, kernel, stride, padding, dilation, mean } = pool;
    for image in 0..batch {
        for oy in 0..out_h {
            for ox in 0..out_w {
                let at = ((image * out_h + oy) * out_w + ox) * channels;
                let y = &mut y[at..at + channels];
                y.fill(if mean.is_some() { 0.0 } else { f32::NEG_INFINITY });
                let mut inside = 0;
                let mut counted = 0;
                for kh in 0..kernel[0] {
                    for kw in 0..kernel[1] {
                        let (iy, ix) = (oy * stride[0] + kh * dilation[0], ox * stride[1] + kw * dilation[1]);
                        if iy < in_h + padding[0][0] + padding[0][1] && ix < in_w + padding[1][0] + padding[1][1] {
                            counted += 1;
                        }
                        let (iy, ix) = (iy.wrapping_sub(padding[0][0]), ix.wrapping_sub(padding[1][0]));
                        if iy >= in_h || ix >= in_w {
                            continue;
                        }
                        inside += 1;
                        let x = &x[((image * in_h + iy) * in_w + ix) * channels..][..channels];
                        for (y, &x) in y.iter_mut().zip(x) {
                            *y = match mean {
                                Some(_) => *y + x,
                                None if x > *y || x.is_nan() => x,
                                None => *y,
                            };
                        }
                    }
                }
                if let Some(mean) = mean {
                    let count = if mean.count_padding { counted } else { inside };
                    let divisor = mean.divisor.unwrap_or(count).max(1) as f32;
                    y.iter_mut().for_each(|y| *y /= divisor);
                }
            }
        }
    }
    Ok(())
}

impl Pool2d {
    fn check(&self, x: &[f32], y: &[f32]) -> Result<(), Error> {
        for (what, pair) in [("kernel", self.kernel), ("stride", self.stride), ("dilation", self.dilation)] {
            for value in pair {
                positive(what, value)?;
            }
        }
        if let Some(Mean { divisor: Some(divisor), .. }) = self.mean {
            positive("divisor", divisor)?;
        }
        for (axis, (input, output)) in [(self.in_h, self.out_h), (self.in_w, self.out_w)].into_iter().enumerate() {
            let padded = self.padding[axis].iter().try_fold(input, |sum, &padding| sum.checked_add(padding));
            let last = size("output", &[output, self.stride[axis]])?;
            let reach = size("kernel", &[self.kernel[axis], self.dilation[axis]])?;
            let fits = padded.and_then(|padded| padded.checked_add(last)?.checked_add(reach));
            // Positions are computed with signs.
            if fits.is_none_or(|fits| isize::try_from(fits).is_err()) {
                return Err(Error::Size { what: "padding" });
            }
        }
        at_least("x", x.len(), size("x", &[self.batch, self.in_h, self.in_w, self.channels])?)?;
        at_least("y", y.len(), size("y", &[self.batch, self.out_h, self.out_w, self.channels])?)
    }
}
