//! Depthwise convolution: each channel with a window of its own.
//!
//! A line of the output is computed a few pixels at a time, through all channels, with the pixels' sums in registers, so
//! that each input pixel that several windows share is loaded once for them. Pixels whose window reaches over the border
//! are computed one by one.
#![allow(unsafe_code)]

use core::ops::Range;

use super::Conv2d;
use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::tail::{Finish, Steps};
use crate::{Engine, Tail};

/// Multiplications below which a task is not worth handing over.
const MIN_TASK: usize = 50_000;

/// Computes `out = tail(convolution of input)` where `groups`, `in_c` and `out_c` are the same, with weights
/// `[kernel_h * kernel_w][c]` of [`pack::depthwise2d_f32`](crate::pack::depthwise2d_f32).
///
/// # Errors
/// When a slice is too short, a size is zero or too large, or the convolution is not depthwise.
pub fn depthwise2d(
    engine: &Engine,
    conv: &Conv2d,
    input: &[f32],
    weights: &[f32],
    out: &mut [f32],
    tail: &Tail,
) -> Result<(), Error> {
    let pixels = conv.in_3d().check(input, out)?;
    for (what, channels) in [("groups", conv.groups), ("output channels", conv.out_c)] {
        if channels != conv.in_c {
            return Err(Error::Mismatch { what, expected: conv.in_c, got: channels });
        }
    }
    let taps = conv.kernel[0].saturating_mul(conv.kernel[1]);
    at_least("weights", weights.len(), size("weights", &[taps, conv.in_c])?)?;
    tail.check(pixels, conv.out_c)?;
    if pixels == 0 || conv.in_c == 0 {
        return Ok(());
    }
    let steps = tail.steps();
    let depthwise = Depthwise {
        conv,
        input,
        weights,
        out: out.as_mut_ptr(),
        out_h: conv.out_h(),
        out_w: conv.out_w(),
        is_plain: steps.is_plain && tail.residual.is_none(),
        steps,
    };
    let lines = conv.batch * depthwise.out_h;
    let (line_chunk, channel_chunk) = depthwise.cut(engine.threads());
    let channel_chunks = conv.in_c.div_ceil(channel_chunk);
    engine.pool.run(lines.div_ceil(line_chunk) * channel_chunks, |task| {
        let (line, channel) = (task / channel_chunks * line_chunk, task % channel_chunks * channel_chunk);
        engine.level.run(Block {
            depthwise: &depthwise,
            lines: line..(line + line_chunk).min(lines),
            channels: channel..(channel + channel_chunk).min(conv.in_c),
        });
    });
    Ok(())
}

struct Depthwise<'a> {
    conv: &'a Conv2d,
    input: &'a [f32],
    weights: &'a [f32],
    out: *mut f32,
    out_h: usize,
    out_w: usize,
    steps: Steps,
    /// Whether clamping is all that follows the bias.
    is_plain: bool,
}

// SAFETY: tasks write disjoint lines and channels of `out`, which `depthwise2d` borrows exclusively.
unsafe impl Sync for Depthwise<'_> {}

impl Depthwise<'_> {
    /// Lines and channels of a task.
    fn cut(&self, threads: usize) -> (usize, usize) {
        let conv = self.conv;
        let lines = conv.batch * self.out_h;
        let work = lines as f64 * self.out_w as f64 * conv.in_c as f64 * conv.kernel.iter().product::<usize>() as f64;
        let wanted = ((work / MIN_TASK as f64) as usize).clamp(1, 4 * threads);
        if threads == 1 || wanted == 1 {
            return (lines, conv.in_c);
        }
        let line_chunk = lines.div_ceil(wanted);
        let channel_chunks = wanted.div_ceil(lines.div_ceil(line_chunk));
        (line_chunk, conv.in_c.div_ceil(channel_chunks).next_multiple_of(4 * LANES))
    }
}

/// One task.
struct Block<'a> {
    depthwise: &'a Depthwise<'a>,
    lines: Range<usize>,
    channels: Range<usize>,
}

impl Job for Block<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Depthwise { conv, out_h, out_w, .. } = *self.depthwise;
        let [kernel_h, kernel_w] = conv.kernel;
        let inside = inside(conv.in_w, out_w, kernel_w, conv.stride[1], conv.dilation[1], conv.padding[1][0]);
        for line in self.lines.clone() {
            let (image, y) = (line / out_h, line % out_h);
            let taps_y = valid_taps(conv.in_h, kernel_h, y * conv.stride[0], conv.dilation[0], conv.padding[0][0]);
            let span = Span { block: &self, image, line, y, taps_y };
            for x in (0..inside.start).chain(inside.end..out_w) {
                let start = x * conv.stride[1];
                let taps_x = valid_taps(conv.in_w, kernel_w, start, conv.dilation[1], conv.padding[1][0]);
                s.vectorize(Pixel { span: &span, x, taps_x });
            }
            span.run_inside(s, inside.clone());
            if !self.depthwise.is_plain {
                let steps = &self.depthwise.steps;
                let at = line * out_w;
                let finish = Finish {
                    steps,
                    out: self.depthwise.out.wrapping_add(at * conv.out_stride + self.channels.start),
                    out_stride: conv.out_stride,
                    residual: steps.residual.wrapping_add(at * steps.residual_stride + self.channels.start),
                    residual_stride: steps.residual_stride,
                    rows: out_w,
                    columns: self.channels.len(),
                };
                // SAFETY: the sizes of the output and the residual were checked, and this task alone has this part.
                unsafe { finish.run_on(s) };
            }
        }
    }
}

/// The output positions whose windows lie inside the input. Empty ranges are within `0..out` too.
fn inside(size: usize, out: usize, kernel: usize, stride: usize, dilation: usize, padding: usize) -> Range<usize> {
    let first = padding.div_ceil(stride).min(out);
    // The last input position of a window is x * stride - padding + reach.
    let reach = (kernel - 1) * dilation;
    let end = match (size + padding).checked_sub(reach + 1) {
        Some(last) => (last / stride + 1).min(out),
        None => 0,
    };
    first..end.max(first)
}

/// The taps of a window at `start - padding` that lie inside the input.
fn valid_taps(size: usize, kernel: usize, start: usize, dilation: usize, padding: usize) -> Range<usize> {
    let first = padding.saturating_sub(start).div_ceil(dilation).min(kernel);
    let end = match (size + padding).checked_sub(start) {
        Some(room) => room.div_ceil(dilation).min(kernel),
        None => 0,
    };
    first..end.max(first)
}

/// One line of the output, some of its channels.
struct Span<'a> {
    block: &'a Block<'a>,
    image: usize,
    line: usize,
    y: usize,
    taps_y: Range<usize>,
}

impl Span<'_> {
    /// The first channel of the input pixel under tap (`tap_y`, `tap_x`) of the window of output pixel `x`, which is inside.
    #[inline(always)]
    fn input(&self, tap_y: usize, x: usize, tap_x: usize) -> *const f32 {
        let conv = self.block.depthwise.conv;
        let y = self.y * conv.stride[0] + tap_y * conv.dilation[0] - conv.padding[0][0];
        let x = x * conv.stride[1] + tap_x * conv.dilation[1] - conv.padding[1][0];
        let pixel = (self.image * conv.in_h + y) * conv.in_w + x;
        self.block.depthwise.input.as_ptr().wrapping_add(pixel * conv.in_stride)
    }

    #[inline(always)]
    fn out(&self, x: usize) -> *mut f32 {
        let Depthwise { conv, out, out_w, .. } = *self.block.depthwise;
        out.wrapping_add((self.line * out_w + x) * conv.out_stride)
    }

    #[inline(always)]
    fn weights(&self, tap_y: usize, tap_x: usize) -> *const f32 {
        let Depthwise { conv, weights, .. } = *self.block.depthwise;
        weights.as_ptr().wrapping_add((tap_y * conv.kernel[1] + tap_x) * conv.in_c)
    }

    /// All pixels whose window is inside.
    #[inline(always)]
    fn run_inside<S: Simd>(&self, s: S, pixels: Range<usize>) {
        let conv = self.block.depthwise.conv;
        if conv.dilation[1] == 1 {
            match (conv.kernel[1], conv.stride[1]) {
                (3, 1) => return self.run_tiles::<S, 3, 1>(s, pixels),
                (3, 2) => return self.run_tiles::<S, 3, 2>(s, pixels),
                (5, 1) => return self.run_tiles::<S, 5, 1>(s, pixels),
                (5, 2) => return self.run_tiles::<S, 5, 2>(s, pixels),
                (7, 1) => return self.run_tiles::<S, 7, 1>(s, pixels),
                _ => {}
            }
        }
        for x in pixels {
            s.vectorize(Pixel { span: self, x, taps_x: 0..conv.kernel[1] });
        }
    }

    #[inline(always)]
    fn run_tiles<S: Simd, const K: usize, const STRIDE: usize>(&self, s: S, pixels: Range<usize>) {
        let mut x = pixels.start;
        while x < pixels.end {
            let n = (pixels.end - x).min(4);
            match n {
                1 => s.vectorize(Tile::<1, K, STRIDE> { span: self, x }),
                2 => s.vectorize(Tile::<2, K, STRIDE> { span: self, x }),
                3 => s.vectorize(Tile::<3, K, STRIDE> { span: self, x }),
                _ => s.vectorize(Tile::<4, K, STRIDE> { span: self, x }),
            }
            x += n;
        }
    }

    /// The first channel and the number of channels of each vector. With enough channels the last vector overlaps the one
    /// before, whose results are computed again.
    #[inline(always)]
    fn vectors(&self) -> impl Iterator<Item = (usize, usize)> {
        let Range { start, end } = self.block.channels;
        let n = (end - start).min(LANES);
        (0..(end - start).div_ceil(LANES)).map(move |i| ((start + i * LANES).min(end - n), n))
    }

    #[inline(always)]
    fn bias<S: Simd>(&self, s: S, channel: usize, n: usize) -> S::V {
        let bias = self.block.depthwise.steps.bias;
        if bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each channel.
        unsafe { load(s, bias.wrapping_add(channel), n) }
    }

    /// Clamps and stores `n` channels of output pixel `x`.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, x: usize, channel: usize, n: usize, sum: S::V) {
        let depthwise = self.block.depthwise;
        let (min, max) = if depthwise.is_plain {
            (depthwise.steps.min, depthwise.steps.max)
        } else {
            (f32::NEG_INFINITY, f32::INFINITY)
        };
        let sum = s.min(s.splat(max), s.max(s.splat(min), sum));
        let to = self.out(x).wrapping_add(channel);
        if n == LANES {
            // SAFETY: the output's size was checked, and this task alone has this line and these channels.
            unsafe { s.store(to, sum) };
        } else {
            // SAFETY: likewise.
            unsafe { s.store_part(to, n, sum) };
        }
    }
}

/// # Safety
/// `n` floats are readable at `from`.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::V {
    if n == LANES {
        // SAFETY: the caller vouches for 16 floats.
        unsafe { s.load(from) }
    } else {
        // SAFETY: the caller vouches for `n` floats.
        unsafe { s.load_part(from, n) }
    }
}

/// `T` neighbouring pixels whose windows, `K` wide and `STRIDE` apart, are inside.
struct Tile<'a, const T: usize, const K: usize, const STRIDE: usize> {
    span: &'a Span<'a>,
    x: usize,
}

impl<const T: usize, const K: usize, const STRIDE: usize> Job for Tile<'_, T, K, STRIDE> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let span = self.span;
        let pixel = span.block.depthwise.conv.in_stride;
        for (channel, n) in span.vectors() {
            let mut sums = [span.bias(s, channel, n); T];
            for tap_y in span.taps_y.clone() {
                let line = span.input(tap_y, self.x, 0).wrapping_add(channel);
                let weights = span.weights(tap_y, 0).wrapping_add(channel);
                let stride = span.block.depthwise.conv.in_c;
                let from = weights;
                let mut weights = [s.splat(0.0); K];
                for tap in 0..K {
                    // SAFETY: there is a weight for each tap and channel.
                    weights[tap] = unsafe { load(s, from.wrapping_add(tap * stride), n) };
                }
                for i in 0..(T - 1) * STRIDE + K {
                    // SAFETY: the windows are inside the input, whose size was checked.
                    let v = unsafe { load(s, line.wrapping_add(i * pixel), n) };
                    for t in 0..T {
                        if i >= t * STRIDE && i < t * STRIDE + K {
                            sums[t] = s.fma(v, weights[i - t * STRIDE], sums[t]);
                        }
                    }
                }
            }
            for t in 0..T {
                span.store(s, self.x + t, channel, n, sums[t]);
            }
        }
    }
}

/// One pixel with any window, of which the taps `taps_x` are inside.
struct Pixel<'a> {
    span: &'a Span<'a>,
    x: usize,
    taps_x: Range<usize>,
}

impl Job for Pixel<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let span = self.span;
        let conv = span.block.depthwise.conv;
        let tap_stride = conv.dilation[1] * conv.in_stride;
        for (channel, n) in span.vectors() {
            let mut sum = span.bias(s, channel, n);
            if !self.taps_x.is_empty() {
                for tap_y in span.taps_y.clone() {
                    let mut pixel = span.input(tap_y, self.x, self.taps_x.start).wrapping_add(channel);
                    let mut weight = span.weights(tap_y, self.taps_x.start).wrapping_add(channel);
                    for _ in self.taps_x.clone() {
                        // SAFETY: these taps are inside the input, whose size was checked.
                        let v = unsafe { load(s, pixel, n) };
                        // SAFETY: there is a weight for each tap and channel.
                        sum = s.fma(v, unsafe { load(s, weight, n) }, sum);
                        pixel = pixel.wrapping_add(tap_stride);
                        weight = weight.wrapping_add(conv.in_c);
                    }
                }
            }
            span.store(s, self.x, channel, n, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_positions() {
        for (size, kernel, stride, dilation, padding) in [
            (7, 3, 1, 1, 1),
            (8, 3, 2, 1, 1),
            (3, 5, 1, 1, 2),
            (9, 3, 2, 3, 2),
            (2, 3, 3, 2, 4),
            (1, 1, 1, 1, 0),
            (5, 2, 1, 1, 3),
        ] {
            let out = super::super::shape::out_size(size, kernel, stride, [padding; 2], dilation);
            let is_inside = |x: usize, tap: usize| (x * stride + tap * dilation).wrapping_sub(padding) < size;
            let whole = inside(size, out, kernel, stride, dilation, padding);
            for x in 0..out {
                assert_eq!(whole.contains(&x), (0..kernel).all(|tap| is_inside(x, tap)));
                let taps = valid_taps(size, kernel, x * stride, dilation, padding);
                for tap in 0..kernel {
                    assert_eq!(taps.contains(&tap), is_inside(x, tap), "{x} {tap}");
                }
            }
        }
    }
}
