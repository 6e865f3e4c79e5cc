//! The rows of a convolution seen as a product: for each output pixel, pointers to the input pixels of its window.

use core::mem::MaybeUninit;

use crate::product::{Pointers, Rows, ZEROS};

/// A window that slides over a volume; planes and lines have depth and height 1. Positions outside are zeros.
pub(crate) struct Window<'a> {
    pub(crate) input: &'a [f32],
    /// Depth, height, width, as in all triples here.
    pub(crate) in_size: [usize; 3],
    pub(crate) out_size: [usize; 3],
    pub(crate) kernel: [usize; 3],
    /// Input position = output position * stride + tap * dilation + shift. Dilation and shift may be negative.
    pub(crate) stride: [usize; 3],
    pub(crate) dilation: [isize; 3],
    pub(crate) shift: [isize; 3],
    /// Floats between pixels.
    pub(crate) pixel: usize,
    /// Channels of a group.
    pub(crate) channels: usize,
}

impl Window<'_> {
    /// The position in the input, or `None` outside.
    #[inline(always)]
    fn position(&self, axis: usize, out: usize, tap: usize) -> Option<usize> {
        let position = (out * self.stride[axis]) as isize + tap as isize * self.dilation[axis] + self.shift[axis];
        let position = position as usize; // Negative ones become too large.
        (position < self.in_size[axis]).then_some(position)
    }
}

impl Rows for Window<'_> {
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    fn depth(&self) -> usize {
        self.channels
    }

    #[inline]
    fn point(
        &self,
        group: usize,
        first: usize,
        count: usize,
        (first_tap, taps): (usize, usize),
        offset: usize,
        to: &mut Pointers,
    ) {
        let [out_d, out_h, out_w] = self.out_size;
        let [in_d, in_h, in_w] = self.in_size;
        let [_, kernel_h, kernel_w] = self.kernel;
        let channel = group * self.channels + offset;
        let zeros = ZEROS.as_ptr();
        let start = [first / out_w / out_h / out_d, first / out_w / out_h % out_d, first / out_w % out_h];
        for (tap, to) in to.chunks_exact_mut(count).take(taps).enumerate() {
            let tap = first_tap + tap;
            let (tap_d, tap_h, tap_w) = (tap / kernel_w / kernel_h, tap / kernel_w % kernel_h, tap % kernel_w);
            let [mut image, mut d, mut h] = start;
            let mut w = first % out_w;
            let mut to = to;
            while !to.is_empty() {
                let (line, rest) = to.split_at_mut((out_w - w).min(to.len()));
                match (self.position(0, d, tap_d), self.position(1, h, tap_h)) {
                    (Some(in_z), Some(in_y)) => {
                        let first_pixel = ((image * in_d + in_z) * in_h + in_y) * in_w;
                        let base = self.input.as_ptr().wrapping_add(first_pixel * self.pixel + channel);
                        let shift = (w * self.stride[2]) as isize + tap_w as isize * self.dilation[2] + self.shift[2];
                        for (i, pointer) in line.iter_mut().enumerate() {
                            let x = (shift + (i * self.stride[2]) as isize) as usize;
                            let inside = base.wrapping_add(x.wrapping_mul(self.pixel));
                            *pointer = MaybeUninit::new(if x < in_w { inside } else { zeros });
                        }
                    }
                    _ => line.fill(MaybeUninit::new(zeros)),
                }
                to = rest;
                w = 0;
                h += 1;
                if h == out_h {
                    h = 0;
                    d += 1;
                    if d == out_d {
                        d = 0;
                        image += 1;
                    }
                }
            }
        }
    }
}
