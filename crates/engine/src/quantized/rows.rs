//! The left sides of products of bytes: where the elements of each row are.

use core::mem::MaybeUninit;

use crate::conv::window::Window;
use crate::pack::quads;

use super::product::{BytePointers, COPIES};

/// Rows that are found through pointers, as those of [`product`](crate::product) are. Each tap is read in steps of four
/// bytes; what lies beyond its elements is multiplied by zeros.
pub(super) trait ByteRows: Sync {
    /// Taps of a row.
    fn taps(&self) -> usize;

    /// Bytes of each tap that are read, a multiple of four.
    fn depth(&self) -> usize;

    /// Bytes that [`point`](Self::point) may copy for a row and all its taps.
    fn copies(&self) -> usize;

    /// Writes the pointers of rows `first..first + count` as `[taps][count]`, each to [`depth`](Self::depth) bytes.
    fn point(&self, group: usize, first: usize, count: usize, to: &mut BytePointers);
}

/// Rows of a matrix in memory. The length was checked.
pub(super) struct ByteMatrix<'a> {
    pub(super) data: &'a [u8],
    pub(super) stride: usize,
    pub(super) columns: usize,
}

impl ByteRows for ByteMatrix<'_> {
    fn taps(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        quads(self.columns)
    }

    fn copies(&self) -> usize {
        // Of rows at the end, and rows may overlap the end by three bytes only, so that few are.
        if self.stride >= 4 || self.columns.is_multiple_of(4) { 0 } else { self.depth() }
    }

    #[inline]
    fn point(&self, _: usize, first: usize, count: usize, to: &mut BytePointers) {
        let BytePointers { pointers, copies, .. } = to;
        let start = self.data.as_ptr().wrapping_add(first * self.stride);
        for (row, pointer) in pointers.iter_mut().take(count).enumerate() {
            *pointer = MaybeUninit::new(start.wrapping_add(row * self.stride));
        }
        let mut copies = &mut copies[..];
        for row in (0..count).rev() {
            let at = (first + row) * self.stride;
            if at + self.depth() <= self.data.len() {
                break;
            }
            pointers[row] = copied(&mut copies, &self.data[at..at + self.columns], self.depth());
        }
    }
}

/// Copies bytes, followed by zeros up to a length.
#[expect(clippy::mut_mut, reason = "what is left of the room")]
fn copied(copies: &mut &mut [MaybeUninit<u8>], bytes: &[u8], len: usize) -> MaybeUninit<*const u8> {
    let (copy, rest) = core::mem::take(copies).split_at_mut(len);
    *copies = rest;
    for (i, to) in copy.iter_mut().enumerate() {
        to.write(bytes.get(i).copied().unwrap_or(0));
    }
    MaybeUninit::new(copy.as_ptr().cast())
}

/// A window, each pixel of which is a tap.
pub(super) struct BytePixels<'a>(pub(super) Window<'a, u8>);

impl ByteRows for BytePixels<'_> {
    fn taps(&self) -> usize {
        self.0.taps()
    }

    fn depth(&self) -> usize {
        quads(self.0.channels)
    }

    fn copies(&self) -> usize {
        if self.0.channels.is_multiple_of(4) { 0 } else { self.taps() * self.depth() }
    }

    #[inline]
    fn point(&self, group: usize, first: usize, count: usize, to: &mut BytePointers) {
        let window = &self.0;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, stride) = (window.in_size[2], window.stride[2]);
        let BytePointers { pointers, copies, pad } = to;
        let pad = MaybeUninit::new(pad.as_ptr().cast::<u8>());
        let mut copies = &mut copies[..];
        let depth = self.depth();
        // Taps that begin here or after would be read beyond the end.
        let late = if depth == window.channels { usize::MAX } else { (window.input.len() + 1).saturating_sub(depth) };
        for (tap, to) in pointers.chunks_exact_mut(count).take(window.taps()).enumerate() {
            let tap_w = tap % kernel_w;
            window.lines(first, [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h], to, |piece, w, line| {
                let Some(pixel) = line else { return piece.fill(pad) };
                let base = pixel * window.pixel + group * window.channels;
                let start = (w * stride) as isize + tap_w as isize * window.dilation[2] + window.shift[2];
                for (i, pointer) in piece.iter_mut().enumerate() {
                    let x = (start + (i * stride) as isize) as usize;
                    if x >= in_w {
                        *pointer = pad;
                        continue;
                    }
                    let at = base + x * window.pixel;
                    *pointer = if at < late {
                        MaybeUninit::new(window.input.as_ptr().wrapping_add(at))
                    } else {
                        copied(&mut copies, &window.input[at..at + window.channels], depth)
                    };
                }
            });
        }
    }
}

/// A window over few channels, whose taps along a line are taken as one: they are contiguous, as pixels are dense.
pub(super) struct ByteLines<'a>(pub(super) Window<'a, u8>);

impl ByteRows for ByteLines<'_> {
    fn taps(&self) -> usize {
        self.0.kernel[0] * self.0.kernel[1]
    }

    fn depth(&self) -> usize {
        quads(self.0.kernel[2] * self.0.channels)
    }

    fn copies(&self) -> usize {
        self.taps() * self.depth()
    }

    #[inline]
    fn point(&self, _: usize, first: usize, count: usize, to: &mut BytePointers) {
        let window = &self.0;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, channels, stride) = (window.in_size[2], window.channels, window.stride[2]);
        let BytePointers { pointers, copies, pad } = to;
        let outside = MaybeUninit::new(pad.as_ptr().cast::<u8>());
        // SAFETY: a driver fills the padding before it asks for pointers.
        let zero = unsafe { pad[0].assume_init() };
        let mut copies = &mut copies[..];
        let depth = self.depth();
        for (tap, to) in pointers.chunks_exact_mut(count).take(self.taps()).enumerate() {
            window.lines(first, [tap / kernel_h, tap % kernel_h], to, |piece, w, line| {
                let Some(pixel) = line else { return piece.fill(outside) };
                let line = &window.input[pixel * channels..][..in_w * channels];
                let to_end = window.input.len() - pixel * channels;
                let start = (w * stride) as isize + window.shift[2];
                // Those of the piece whose windows are inside the line, and are not read beyond the input's end.
                let inside = (-start).max(0) as usize;
                let first = inside.div_ceil(stride).min(piece.len());
                let room = (in_w as isize - kernel_w as isize - start).max(-1);
                let mut end = ((room + stride as isize) as usize / stride).clamp(first, piece.len());
                let at = |i: usize| start + (i * stride) as isize;
                while end > first && at(end - 1) as usize * channels + depth > to_end {
                    end -= 1;
                }
                let from = line.as_ptr().wrapping_offset(start * channels as isize);
                for (i, pointer) in piece[first..end].iter_mut().enumerate() {
                    *pointer = MaybeUninit::new(from.wrapping_add((first + i) * stride * channels));
                }
                for i in (0..first).chain(end..piece.len()) {
                    let (copy, rest) = core::mem::take(&mut copies).split_at_mut(depth);
                    copies = rest;
                    let x = at(i) * channels as isize;
                    for (offset, byte) in copy.iter_mut().enumerate() {
                        let from = usize::try_from(x + offset as isize).ok();
                        byte.write(from.and_then(|from| line.get(from)).copied().unwrap_or(zero));
                    }
                    piece[i] = MaybeUninit::new(copy.as_ptr().cast());
                }
            });
        }
    }
}

/// Rows of a block, by the room for copies.
pub(super) fn by_copies(copies: usize) -> usize {
    COPIES / copies.max(1)
}
