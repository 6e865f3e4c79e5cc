//! Convolution windows over few channels, as in the first layer of image models: each row of the kernel is one tap.

use core::mem::MaybeUninit;

use super::window::ConvWindow;
use crate::float16::to_bf16;
use crate::igemm::{
    IndirectionBuffer, LhsRows, MAX_BF16_COPIES, MAX_COPIES, MAX_DEPTH, MAX_REPACKED_PAIRS, MAX_TAPS, ZEROS,
};

/// A window whose taps are kernel rows; in a dense input their pixels are contiguous.
pub(super) struct KernelRows<'a>(pub(super) ConvWindow<'a>);

impl KernelRows<'_> {
    /// Returns true if the window can be read by kernel rows, and few of them overlap padding: those are copied.
    pub(super) fn fits(window: ConvWindow<'_>, groups: usize) -> bool {
        let rows = KernelRows(window);
        rows.are_contiguous(groups)
            && (rows.depth() * rows.taps() <= MAX_COPIES / 16 || rows.are_inside() && rows.depth() <= MAX_DEPTH)
    }

    /// Returns true if the pixels of a kernel row are contiguous, and channels are few.
    fn are_contiguous(&self, groups: usize) -> bool {
        let Self(window) = self;
        groups == 1
            && window.pixel == window.channels
            && window.dilation[2] == 1
            && window.channels <= 8
            && window.kernel[2] > 1
    }

    /// Returns true if no row overlaps padding, so that nothing is copied.
    fn are_inside(&self) -> bool {
        let Self(window) = self;
        let last = (window.out_size[2].saturating_sub(1) * window.stride[2] + window.kernel[2]) as isize;
        window.shift[2] >= 0 && last + window.shift[2] <= window.in_size[2] as isize
    }
}

impl LhsRows for KernelRows<'_> {
    fn taps(&self) -> usize {
        self.0.kernel[0] * self.0.kernel[1]
    }

    fn depth(&self) -> usize {
        self.0.kernel[2] * self.0.channels
    }

    fn max_rows(&self) -> usize {
        if self.are_inside() { usize::MAX } else { MAX_COPIES / (self.taps() * self.depth()) }
    }

    #[inline]
    fn fill_pointers(
        &self,
        _: usize,
        first: usize,
        count: usize,
        (first_tap, taps): (usize, usize),
        offset: usize,
        to: &mut IndirectionBuffer,
    ) {
        let Self(window) = self;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, channels, stride) = (window.in_size[2], window.channels, window.stride[2]);
        let zeros = MaybeUninit::new(ZEROS.as_ptr());
        let mut copies = &mut to.copies[..];
        for (tap, to) in to.pointers.chunks_exact_mut(count).take(taps).enumerate() {
            let tap = first_tap + tap;
            window.for_each_run(first, [tap / kernel_h, tap % kernel_h], to, |run, w, row| {
                let Some(pixel) = row else { return run.fill(zeros) };
                let row = &window.input[pixel * channels..][..in_w * channels];
                let start = (w * stride) as isize + window.shift[2];
                // The windows that lie inside the image row.
                let first = ((-start).max(0) as usize).div_ceil(stride).min(run.len());
                let room = (in_w as isize - kernel_w as isize - start).max(-1);
                let end = ((room + stride as isize) as usize / stride).clamp(first, run.len());
                let from = row.as_ptr().wrapping_offset(start * channels as isize).wrapping_add(offset);
                for (i, pointer) in run[first..end].iter_mut().enumerate() {
                    *pointer = MaybeUninit::new(from.wrapping_add((first + i) * stride * channels));
                }
                for i in (0..first).chain(end..run.len()) {
                    let x = start + (i * stride) as isize;
                    let (copy, rest) = core::mem::take(&mut copies).split_at_mut(kernel_w * channels);
                    copies = rest;
                    for (at, value) in copy.iter_mut().enumerate() {
                        let from = x * channels as isize + at as isize;
                        value.write(usize::try_from(from).ok().and_then(|from| row.get(from)).copied().unwrap_or(0.0));
                    }
                    run[i] = MaybeUninit::new(copy.as_ptr().cast::<f32>().wrapping_add(offset));
                }
            });
        }
    }
}

/// The same with the input rounded to bf16: an image row is rounded once for each kernel row that reads it.
pub(super) struct Bf16KernelRows<'a>(pub(super) KernelRows<'a>);

impl Bf16KernelRows<'_> {
    /// Minimum rows per block that pay for repacking the weights.
    const MIN_ROWS: usize = 64;

    /// Returns true if the window can be read by kernel rows and the bf16 copies fit in the buffer.
    pub(super) fn fits(window: ConvWindow<'_>, groups: usize) -> bool {
        let rows = Bf16KernelRows(KernelRows(window));
        let (taps, depth) = (rows.taps(), rows.depth());
        rows.0.are_contiguous(groups)
            && taps <= MAX_TAPS
            && depth <= MAX_DEPTH
            && taps * depth.div_ceil(2) <= MAX_REPACKED_PAIRS
            && rows.max_rows() >= Self::MIN_ROWS
    }
}

impl LhsRows for Bf16KernelRows<'_> {
    const IS_BF16: bool = true;

    fn taps(&self) -> usize {
        self.0.taps()
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn max_rows(&self) -> usize {
        let Self(KernelRows(window)) = self;
        let (out_w, stride) = (window.out_size[2].max(1), window.stride[2]);
        // Each output pixel needs `stride` input pixels of a row, and each run along an output row the overlap of its
        // last window; a block has at most two partial runs.
        let over = window.kernel[2].saturating_sub(stride);
        let room = MAX_BF16_COPIES / (self.taps() * window.channels);
        room.saturating_sub(2 * over) * out_w / (stride * out_w + over)
    }

    #[inline]
    fn fill_pointers(
        &self,
        _: usize,
        first: usize,
        count: usize,
        (first_tap, taps): (usize, usize),
        offset: usize,
        to: &mut IndirectionBuffer,
    ) {
        debug_assert_eq!(offset, 0, "all of K is read at once");
        let Self(KernelRows(window)) = self;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, channels, stride) = (window.in_size[2], window.channels, window.stride[2]);
        let zeros = MaybeUninit::new(ZEROS.as_ptr());
        let IndirectionBuffer { pointers, bf16_copies, .. } = to;
        let mut copies = &mut bf16_copies[..];
        for (tap, to) in pointers.chunks_exact_mut(count).take(taps).enumerate() {
            let tap = first_tap + tap;
            window.for_each_run(first, [tap / kernel_h, tap % kernel_h], to, |run, w, row| {
                let Some(pixel) = row else { return run.fill(zeros) };
                let row = &window.input[pixel * channels..][..in_w * channels];
                let pixels = (run.len() - 1) * stride + kernel_w;
                let (strip, rest) = core::mem::take(&mut copies).split_at_mut(pixels * channels);
                copies = rest;
                let start = (w * stride) as isize + window.shift[2];
                // Pixels of padding before the row, and the first pixel inside.
                let before = ((-start).max(0) as usize).min(pixels);
                let from = (start.max(0) as usize).min(in_w);
                let inside = (in_w - from).min(pixels - before);
                let (left, others) = strip.split_at_mut(before * channels);
                let (middle, right) = others.split_at_mut(inside * channels);
                left.fill(MaybeUninit::new(0));
                for (element, x) in middle.iter_mut().zip(&row[from * channels..]) {
                    element.write(to_bf16(*x));
                }
                right.fill(MaybeUninit::new(0));
                for (i, pointer) in run.iter_mut().enumerate() {
                    *pointer = MaybeUninit::new(strip.as_ptr().wrapping_add(i * stride * channels).cast());
                }
            });
        }
    }
}
