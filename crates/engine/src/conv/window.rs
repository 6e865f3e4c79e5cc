//! The left side of a convolution as a GEMM: for each output pixel, pointers to the input pixels of its window.

use core::mem::MaybeUninit;

use crate::element::Element;
use crate::igemm::{IndirectionBuffer, LhsRows, ZEROS};

/// A window that slides over a volume; images have depth 1. Positions outside read zeros.
#[derive(Clone, Copy)]
pub(crate) struct ConvWindow<'a, T = f32> {
    pub(crate) input: &'a [T],
    /// Depth, height, width, as in all triples here.
    pub(crate) in_size: [usize; 3],
    pub(crate) out_size: [usize; 3],
    pub(crate) kernel: [usize; 3],
    /// Input position = output position * stride + tap * dilation + shift. Dilation and shift may be negative.
    pub(crate) stride: [usize; 3],
    pub(crate) dilation: [isize; 3],
    pub(crate) shift: [isize; 3],
    /// Elements between pixels.
    pub(crate) pixel: usize,
    /// Channels per group.
    pub(crate) channels: usize,
}

impl<T> ConvWindow<'_, T> {
    pub(crate) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Returns the position in the input, or `None` outside.
    #[inline(always)]
    fn position(&self, axis: usize, out: usize, tap: usize) -> Option<usize> {
        let position = (out * self.stride[axis]) as isize + tap as isize * self.dilation[axis] + self.shift[axis];
        let position = position as usize; // Negative ones become too large.
        (position < self.in_size[axis]).then_some(position)
    }
}

impl<T> ConvWindow<'_, T> {
    /// Splits the pointers of rows `first..`, for one kernel row, into runs along output rows. Calls `each` with the
    /// run, its first position within the output row, and the first pixel of the input row under the kernel row, or
    /// `None` if that is padding.
    #[inline(always)]
    pub(crate) fn for_each_run<P>(
        &self,
        first: usize,
        [tap_d, tap_h]: [usize; 2],
        to: &mut [P],
        mut each: impl FnMut(&mut [P], usize, Option<usize>),
    ) {
        let [out_d, out_h, out_w] = self.out_size;
        let [in_d, in_h, in_w] = self.in_size;
        let [mut image, mut d, mut h] =
            [first / out_w / out_h / out_d, first / out_w / out_h % out_d, first / out_w % out_h];
        let mut w = first % out_w;
        let mut to = to;
        while !to.is_empty() {
            let (run, rest) = to.split_at_mut((out_w - w).min(to.len()));
            let input_row = self.position(0, d, tap_d).zip(self.position(1, h, tap_h));
            each(run, w, input_row.map(|(z, y)| ((image * in_d + z) * in_h + y) * in_w));
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

impl<T: Element> LhsRows for ConvWindow<'_, T> {
    const IS_BF16: bool = T::IS_BF16;

    fn taps(&self) -> usize {
        ConvWindow::taps(self)
    }

    fn depth(&self) -> usize {
        self.channels
    }

    #[inline]
    fn fill_pointers(
        &self,
        group: usize,
        first: usize,
        count: usize,
        (first_tap, taps): (usize, usize),
        offset: usize,
        to: &mut IndirectionBuffer,
    ) {
        let [_, kernel_h, kernel_w] = self.kernel;
        let (in_w, stride) = (self.in_size[2], self.stride[2]);
        let channel = group * self.channels + offset;
        let zeros = MaybeUninit::new(ZEROS.as_ptr());
        for (tap, to) in to.pointers.chunks_exact_mut(count).take(taps).enumerate() {
            let tap = first_tap + tap;
            let tap_w = tap % kernel_w;
            self.for_each_run(
                first,
                [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h],
                to,
                |run, w, input_row| {
                    let Some(pixel) = input_row else { return run.fill(zeros) };
                    let base = self.input.as_ptr().wrapping_add(pixel * self.pixel + channel);
                    let start = (w * stride) as isize + tap_w as isize * self.dilation[2] + self.shift[2];
                    for (i, pointer) in run.iter_mut().enumerate() {
                        let x = (start + (i * stride) as isize) as usize;
                        let inside = MaybeUninit::new(base.wrapping_add(x.wrapping_mul(self.pixel)).cast());
                        *pointer = if x < in_w { inside } else { zeros };
                    }
                },
            );
        }
    }
}
