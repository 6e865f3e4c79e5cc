//! Windows over few channels, as the first layers of networks of images have: the taps along a line are taken as one.

use core::mem::MaybeUninit;

use super::window::Window;
use crate::convert::to_bf16;
use crate::product::{MAX_COPIES, MAX_DEPTH, MAX_HALVES, MAX_TAPS, MOST_PAIRS, Pointers, Rows, ZEROS};

/// A window over few channels, whose taps along a line are taken as one: they are contiguous when pixels are dense.
pub(super) struct Lines<'a>(pub(super) Window<'a>);

impl Lines<'_> {
    /// Whether a window can be taken so, and it helps: as it does in the first layer of a network of images. Padding is
    /// copied, so that there must not be much.
    pub(super) fn fits(window: Window<'_>, groups: usize) -> bool {
        let lines = Lines(window);
        lines.are_contiguous(groups)
            && (lines.depth() * lines.taps() <= MAX_COPIES / 16 || lines.are_inside() && lines.depth() <= MAX_DEPTH)
    }

    fn are_contiguous(&self, groups: usize) -> bool {
        let Self(window) = self;
        groups == 1
            && window.pixel == window.channels
            && window.dilation[2] == 1
            && window.channels <= 8
            && window.kernel[2] > 1
    }

    /// Whether there is no padding along lines, so that nothing is copied.
    fn are_inside(&self) -> bool {
        let Self(window) = self;
        let last = (window.out_size[2].saturating_sub(1) * window.stride[2] + window.kernel[2]) as isize;
        window.shift[2] >= 0 && last + window.shift[2] <= window.in_size[2] as isize
    }
}

impl Rows for Lines<'_> {
    fn taps(&self) -> usize {
        self.0.kernel[0] * self.0.kernel[1]
    }

    fn depth(&self) -> usize {
        self.0.kernel[2] * self.0.channels
    }

    fn most_rows(&self) -> usize {
        if self.are_inside() { usize::MAX } else { MAX_COPIES / (self.taps() * self.depth()) }
    }

    #[inline]
    fn point(
        &self,
        _: usize,
        first: usize,
        count: usize,
        (first_tap, taps): (usize, usize),
        offset: usize,
        to: &mut Pointers,
    ) {
        let Self(window) = self;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, channels, stride) = (window.in_size[2], window.channels, window.stride[2]);
        let zeros = MaybeUninit::new(ZEROS.as_ptr());
        let mut copies = &mut to.copies[..];
        for (tap, to) in to.pointers.chunks_exact_mut(count).take(taps).enumerate() {
            let tap = first_tap + tap;
            window.lines(first, [tap / kernel_h, tap % kernel_h], to, |piece, w, line| {
                let Some(pixel) = line else { return piece.fill(zeros) };
                let line = &window.input[pixel * channels..][..in_w * channels];
                let start = (w * stride) as isize + window.shift[2];
                // Those of the piece whose windows are inside the line.
                let first = ((-start).max(0) as usize).div_ceil(stride).min(piece.len());
                let room = (in_w as isize - kernel_w as isize - start).max(-1);
                let end = ((room + stride as isize) as usize / stride).clamp(first, piece.len());
                let from = line.as_ptr().wrapping_offset(start * channels as isize).wrapping_add(offset);
                for (i, pointer) in piece[first..end].iter_mut().enumerate() {
                    *pointer = MaybeUninit::new(from.wrapping_add((first + i) * stride * channels));
                }
                for i in (0..first).chain(end..piece.len()) {
                    let x = start + (i * stride) as isize;
                    let (copy, rest) = core::mem::take(&mut copies).split_at_mut(kernel_w * channels);
                    copies = rest;
                    for (at, value) in copy.iter_mut().enumerate() {
                        let from = x * channels as isize + at as isize;
                        value.write(usize::try_from(from).ok().and_then(|from| line.get(from)).copied().unwrap_or(0.0));
                    }
                    piece[i] = MaybeUninit::new(copy.as_ptr().cast::<f32>().wrapping_add(offset));
                }
            });
        }
    }
}

/// Such a window whose numbers are rounded to bf16: once for each line of the kernel that goes over them.
pub(super) struct Strips<'a>(pub(super) Lines<'a>);

impl Strips<'_> {
    /// Rows for which a block is worth laying the weights out anew.
    const LEAST_ROWS: usize = 64;

    /// Whether a window can be taken so.
    pub(super) fn fits(window: Window<'_>, groups: usize) -> bool {
        let strips = Strips(Lines(window));
        let (taps, depth) = (strips.taps(), strips.depth());
        strips.0.are_contiguous(groups)
            && taps <= MAX_TAPS
            && depth <= MAX_DEPTH
            && taps * depth.div_ceil(2) <= MOST_PAIRS
            && strips.most_rows() >= Self::LEAST_ROWS
    }
}

impl Rows for Strips<'_> {
    const IS_BF16: bool = true;

    fn taps(&self) -> usize {
        self.0.taps()
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn most_rows(&self) -> usize {
        let Self(Lines(window)) = self;
        let (out_w, stride) = (window.out_size[2].max(1), window.stride[2]);
        // Each output pixel needs as many pixels of a line as windows are apart, and each piece of a line of the output what
        // the last window has beyond that; there are at most two pieces more than whole lines.
        let over = window.kernel[2].saturating_sub(stride);
        let room = MAX_HALVES / (self.taps() * window.channels);
        room.saturating_sub(2 * over) * out_w / (stride * out_w + over)
    }

    #[inline]
    fn point(
        &self,
        _: usize,
        first: usize,
        count: usize,
        (first_tap, taps): (usize, usize),
        offset: usize,
        to: &mut Pointers,
    ) {
        debug_assert_eq!(offset, 0, "all of K is read at once");
        let Self(Lines(window)) = self;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, channels, stride) = (window.in_size[2], window.channels, window.stride[2]);
        let zeros = MaybeUninit::new(ZEROS.as_ptr());
        let Pointers { pointers, halves, .. } = to;
        let mut copies = &mut halves[..];
        for (tap, to) in pointers.chunks_exact_mut(count).take(taps).enumerate() {
            let tap = first_tap + tap;
            window.lines(first, [tap / kernel_h, tap % kernel_h], to, |piece, w, line| {
                let Some(pixel) = line else { return piece.fill(zeros) };
                let line = &window.input[pixel * channels..][..in_w * channels];
                let pixels = (piece.len() - 1) * stride + kernel_w;
                let (strip, rest) = core::mem::take(&mut copies).split_at_mut(pixels * channels);
                copies = rest;
                let start = (w * stride) as isize + window.shift[2];
                // Pixels of padding, and from the first after them on those of the line.
                let before = ((-start).max(0) as usize).min(pixels);
                let from = (start.max(0) as usize).min(in_w);
                let inside = (in_w - from).min(pixels - before);
                let (left, others) = strip.split_at_mut(before * channels);
                let (middle, right) = others.split_at_mut(inside * channels);
                left.fill(MaybeUninit::new(0));
                for (half, x) in middle.iter_mut().zip(&line[from * channels..]) {
                    half.write(to_bf16(*x));
                }
                right.fill(MaybeUninit::new(0));
                for (i, pointer) in piece.iter_mut().enumerate() {
                    *pointer = MaybeUninit::new(strip.as_ptr().wrapping_add(i * stride * channels).cast());
                }
            });
        }
    }
}
