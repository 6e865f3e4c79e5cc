//! Left sides of the int8 GEMM: where the elements of each row are stored.

use core::mem::MaybeUninit;

use crate::conv::window::ConvWindow;
use crate::pack::pad_to_4;

use super::igemm::{MAX_COPIED_BYTES, U8IndirectionBuffer};

/// Rows that are read through pointers, like those of [`LhsRows`](crate::igemm::LhsRows). A tap is read in steps of four bytes;
/// bytes after its elements are multiplied by zero weights.
pub(super) trait U8LhsRows: Sync {
    /// Taps per row.
    fn taps(&self) -> usize;

    /// Bytes of each tap that are read, a multiple of four.
    fn depth(&self) -> usize;

    /// Bytes that [`fill_pointers`](Self::fill_pointers) may copy for one row with all its taps.
    fn copies(&self) -> usize;

    /// Writes the pointers of rows `first..first + count` as `[taps][count]`, each to [`depth`](Self::depth) readable
    /// bytes.
    fn fill_pointers(&self, group: usize, first: usize, count: usize, to: &mut U8IndirectionBuffer);
}

/// A row-major matrix. Its length was checked.
pub(super) struct U8Matrix<'a> {
    pub(super) data: &'a [u8],
    pub(super) stride: usize,
    pub(super) columns: usize,
}

impl U8LhsRows for U8Matrix<'_> {
    fn taps(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        pad_to_4(self.columns)
    }

    fn copies(&self) -> usize {
        // Only rows at the end are copied, where reads of up to three bytes past a row would leave the slice.
        if self.stride >= 4 || self.columns.is_multiple_of(4) { 0 } else { self.depth() }
    }

    #[inline]
    fn fill_pointers(&self, _: usize, first: usize, count: usize, to: &mut U8IndirectionBuffer) {
        let U8IndirectionBuffer { pointers, copies, .. } = to;
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

/// Copies bytes, zero-padded to a length.
#[expect(clippy::mut_mut, reason = "advances the caller's remaining storage")]
fn copied(copies: &mut &mut [MaybeUninit<u8>], bytes: &[u8], len: usize) -> MaybeUninit<*const u8> {
    let (copy, rest) = core::mem::take(copies).split_at_mut(len);
    *copies = rest;
    for (i, to) in copy.iter_mut().enumerate() {
        to.write(bytes.get(i).copied().unwrap_or(0));
    }
    MaybeUninit::new(copy.as_ptr().cast())
}

/// A convolution window with one tap per pixel.
pub(super) struct U8ConvWindow<'a>(pub(super) ConvWindow<'a, u8>);

impl U8LhsRows for U8ConvWindow<'_> {
    fn taps(&self) -> usize {
        self.0.taps()
    }

    fn depth(&self) -> usize {
        pad_to_4(self.0.channels)
    }

    fn copies(&self) -> usize {
        if self.0.channels.is_multiple_of(4) { 0 } else { self.taps() * self.depth() }
    }

    #[inline]
    fn fill_pointers(&self, group: usize, first: usize, count: usize, to: &mut U8IndirectionBuffer) {
        let window = &self.0;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, stride) = (window.in_size[2], window.stride[2]);
        let U8IndirectionBuffer { pointers, copies, pad, .. } = to;
        let pad = MaybeUninit::new(pad.as_ptr().cast::<u8>());
        let mut copies = &mut copies[..];
        let depth = self.depth();
        // Taps that start here or later would be read past the end of the slice.
        let late = if depth == window.channels { usize::MAX } else { (window.input.len() + 1).saturating_sub(depth) };
        for (tap, to) in pointers.chunks_exact_mut(count).take(window.taps()).enumerate() {
            let tap_w = tap % kernel_w;
            window.for_each_run(first, [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h], to, |run, w, row| {
                let Some(pixel) = row else { return run.fill(pad) };
                let base = pixel * window.pixel + group * window.channels;
                let start = (w * stride) as isize + tap_w as isize * window.dilation[2] + window.shift[2];
                for (i, pointer) in run.iter_mut().enumerate() {
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

/// A convolution window over few channels with one tap per kernel row: its pixels are contiguous, as the input is
/// dense.
pub(super) struct U8KernelRows<'a>(pub(super) ConvWindow<'a, u8>);

impl U8LhsRows for U8KernelRows<'_> {
    fn taps(&self) -> usize {
        self.0.kernel[0] * self.0.kernel[1]
    }

    fn depth(&self) -> usize {
        pad_to_4(self.0.kernel[2] * self.0.channels)
    }

    fn copies(&self) -> usize {
        self.taps() * self.depth()
    }

    #[inline]
    fn fill_pointers(&self, _: usize, first: usize, count: usize, to: &mut U8IndirectionBuffer) {
        let window = &self.0;
        let [_, kernel_h, kernel_w] = window.kernel;
        let (in_w, channels, stride) = (window.in_size[2], window.channels, window.stride[2]);
        let U8IndirectionBuffer { pointers, copies, pad, .. } = to;
        let outside = MaybeUninit::new(pad.as_ptr().cast::<u8>());
        // SAFETY: a driver fills the padding before it asks for pointers.
        let zero = unsafe { pad[0].assume_init() };
        let mut copies = &mut copies[..];
        let depth = self.depth();
        for (tap, to) in pointers.chunks_exact_mut(count).take(self.taps()).enumerate() {
            window.for_each_run(first, [tap / kernel_h, tap % kernel_h], to, |run, w, row| {
                let Some(pixel) = row else { return run.fill(outside) };
                let row = &window.input[pixel * channels..][..in_w * channels];
                let to_end = window.input.len() - pixel * channels;
                let start = (w * stride) as isize + window.shift[2];
                // Windows inside the row that do not read past the end of the input.
                let inside = (-start).max(0) as usize;
                let first = inside.div_ceil(stride).min(run.len());
                let room = (in_w as isize - kernel_w as isize - start).max(-1);
                let mut end = ((room + stride as isize) as usize / stride).clamp(first, run.len());
                let at = |i: usize| start + (i * stride) as isize;
                while end > first && at(end - 1) as usize * channels + depth > to_end {
                    end -= 1;
                }
                let from = row.as_ptr().wrapping_offset(start * channels as isize);
                for (i, pointer) in run[first..end].iter_mut().enumerate() {
                    *pointer = MaybeUninit::new(from.wrapping_add((first + i) * stride * channels));
                }
                for i in (0..first).chain(end..run.len()) {
                    let (copy, rest) = core::mem::take(&mut copies).split_at_mut(depth);
                    copies = rest;
                    let x = at(i) * channels as isize;
                    for (offset, byte) in copy.iter_mut().enumerate() {
                        let from = usize::try_from(x + offset as isize).ok();
                        byte.write(from.and_then(|from| row.get(from)).copied().unwrap_or(zero));
                    }
                    run[i] = MaybeUninit::new(copy.as_ptr().cast());
                }
            });
        }
    }
}

/// Largest number of rows whose copies fit the buffer.
pub(super) fn max_rows_by_copies(copies: usize) -> usize {
    MAX_COPIED_BYTES / copies.max(1)
}
