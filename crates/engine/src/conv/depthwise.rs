//! Depthwise convolution: each channel with a window of its own.
//!
//! A line of the output is computed a few pixels at a time, with the pixels' sums in registers, through as many channels as
//! lets the lines that its windows share stay in the first-level cache until the next line. Windows that reach over the
//! border skip the columns outside.
#![allow(unsafe_code)]

use core::ops::Range;

use super::Conv2d;
use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::numbers::Number;
use crate::split::piece;
use crate::tail::{Finish, Steps};
use crate::{Activation, Engine, Numbers, NumbersMut, Tail};

/// Multiplications below which a task is not worth handing over.
const MIN_TASK: usize = 50_000;

/// Channels below which a task does not have fewer than all: less than this of each pixel is read slowly.
const LEAST_CHANNELS: usize = 64;

/// Computes `out = tail(convolution of input)` where `groups`, `in_c` and `out_c` are the same, with weights
/// `[kernel_h * kernel_w][c]` of [`pack::depthwise2d_f32`](crate::pack::depthwise2d_f32).
///
/// # Errors
/// When a slice is too short, a size is zero or too large, the convolution is not depthwise, or one of its sides is bf16 and not
/// the other, or there is a residual or an activation beyond bounds and hard-swish beside them.
pub fn depthwise2d<'a>(
    engine: &Engine,
    conv: &Conv2d,
    input: impl Into<Numbers<'a>>,
    weights: &[f32],
    out: impl Into<NumbersMut<'a>>,
    tail: &Tail,
) -> Result<(), Error> {
    let (input, mut out) = (input.into(), out.into());
    let pixels = conv.in_3d().check(input.len(), out.len())?;
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
    match (input, &mut out) {
        (Numbers::F32(input), NumbersMut::F32(out)) => all(engine, conv, input, weights, out.as_mut_ptr(), tail),
        (Numbers::Bf16(input), NumbersMut::Bf16(out)) => {
            engine.check_numbers(true)?;
            if !is_plain(tail) {
                return Err(Error::Type { what: "output" });
            }
            all(engine, conv, input, weights, out.as_mut_ptr(), tail);
        }
        _ => return Err(Error::Type { what: "output" }),
    }
    Ok(())
}

/// Whether a short activation is all that follows the bias, as it must be of bf16.
fn is_plain(tail: &Tail<'_>) -> bool {
    tail.steps().is_plain && tail.residual.is_none()
}

/// All tasks. The sizes were checked.
fn all<T: Number>(engine: &Engine, conv: &Conv2d, input: &[T], weights: &[f32], out: *mut T, tail: &Tail<'_>) {
    let depthwise = Depthwise {
        conv,
        input,
        weights,
        out,
        out_h: conv.out_h(),
        out_w: conv.out_w(),
        is_plain: is_plain(tail),
        is_near: conv.in_h * conv.in_w * conv.in_stride * size_of::<T>() <= NEAR_BYTES,
        steps: tail.steps(),
    };
    let lines = conv.batch * depthwise.out_h;
    let (line_pieces, channel_pieces) = depthwise.cut(engine);
    let vectors = conv.in_c.div_ceil(LANES);
    engine.pool.run(line_pieces * channel_pieces, |task| {
        let channels = piece(task % channel_pieces, channel_pieces, vectors);
        engine.level.run_on::<T, _>(Block {
            depthwise: &depthwise,
            lines: piece(task / channel_pieces, line_pieces, lines),
            channels: channels.start * LANES..(channels.end * LANES).min(conv.in_c),
        });
    });
}

struct Depthwise<'a, T> {
    conv: &'a Conv2d,
    input: &'a [T],
    weights: &'a [f32],
    out: *mut T,
    out_h: usize,
    out_w: usize,
    steps: Steps,
    /// Whether a short activation is all that follows the bias.
    is_plain: bool,
    /// Whether an image of the input is in the second-level cache.
    is_near: bool,
}

// SAFETY: tasks write disjoint lines and channels of `out`, which `depthwise2d` borrows exclusively.
unsafe impl<T: Sync> Sync for Depthwise<'_, T> {}

impl<T: Number> Depthwise<'_, T> {
    /// Into how many pieces lines and channels are cut.
    fn cut(&self, engine: &Engine) -> (usize, usize) {
        let conv = self.conv;
        let lines = conv.batch * self.out_h;
        let work = lines as f64 * self.out_w as f64 * conv.in_c as f64 * conv.kernel.iter().product::<usize>() as f64;
        let wanted = engine.pieces((work / MIN_TASK as f64) as usize);
        // Channels first: a task's lines share what they read.
        let channel_pieces = wanted.min(conv.in_c / LEAST_CHANNELS).max(1);
        (wanted.div_ceil(channel_pieces).min(lines), channel_pieces)
    }
}

/// One task.
struct Block<'a, T> {
    depthwise: &'a Depthwise<'a, T>,
    lines: Range<usize>,
    channels: Range<usize>,
}

/// Bytes of the input's lines under a line of windows, and of their weights: most of the first-level cache.
const BLOCK_BYTES: usize = 24 << 10;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes of an input that is in the second-level cache. A larger one is read from end to end, all channels of each pixel.
const NEAR_BYTES: usize = 384 << 10;

impl<T: Number> Job for Block<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let conv = self.depthwise.conv;
        let [kernel_h, kernel_w] = conv.kernel;
        let bytes = size_of::<T>() * kernel_h.saturating_mul(conv.in_w.saturating_add(kernel_w));
        let chunks =
            if self.depthwise.is_near { self.channels.len().saturating_mul(bytes).div_ceil(BLOCK_BYTES) } else { 1 };
        let chunk = self.channels.len().div_ceil(chunks).next_multiple_of(LANES);
        let Range { mut start, end } = self.channels;
        while start < end {
            // The last part is not narrower than a vector.
            let stop = if end - start < chunk + LANES { end } else { start + chunk };
            Block { depthwise: self.depthwise, lines: self.lines.clone(), channels: start..stop }.all_lines(s);
            start = stop;
        }
    }
}

impl<T: Number> Block<'_, T> {
    #[inline(always)]
    fn all_lines<S: Simd>(&self, s: S) {
        let Depthwise { conv, out_h, out_w, .. } = *self.depthwise;
        for line in self.lines.clone() {
            let (image, y) = (line / out_h, line % out_h);
            let taps_y =
                valid_taps(conv.in_h, conv.kernel[0], y * conv.stride[0], conv.dilation[0], conv.padding[0][0]);
            Span { block: self, image, line, y, taps_y }.run(s);
            if const { !T::IS_BF16 } && !self.depthwise.is_plain {
                let steps = &self.depthwise.steps;
                let at = line * out_w;
                let finish = Finish {
                    steps,
                    sums: self.depthwise.out.wrapping_add(at * conv.out_stride + self.channels.start).cast(),
                    stride: conv.out_stride,
                    rounded: None,
                    residual: steps.residual.plus(s, at * steps.residual_stride + self.channels.start),
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
struct Span<'a, T> {
    block: &'a Block<'a, T>,
    image: usize,
    line: usize,
    y: usize,
    taps_y: Range<usize>,
}

impl<T: Number> Span<'_, T> {
    /// Where the first channel of the input pixel under tap (`tap_y`, `tap_x`) of output pixel `x`'s window is, or would be
    /// if it were inside.
    #[inline(always)]
    fn input(&self, tap_y: usize, x: usize, tap_x: usize) -> *const T {
        let conv = self.block.depthwise.conv;
        let y = (self.y * conv.stride[0] + tap_y * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
        let line = (self.image * conv.in_h).wrapping_add(y).wrapping_mul(conv.in_w);
        let column = (x * conv.stride[1] + tap_x * conv.dilation[1]).wrapping_sub(conv.padding[1][0]);
        let pixel = line.wrapping_add(column);
        self.block.depthwise.input.as_ptr().wrapping_add(pixel.wrapping_mul(conv.in_stride))
    }

    /// Asks for what the next line of windows sees that this one does not, above or below these output pixels: it is read in
    /// pieces of too many lines to be foreseen.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, pixels: Range<usize>) {
        let Depthwise { conv, is_near, input, .. } = *self.block.depthwise;
        if is_near {
            return;
        }
        let below =
            (self.y * conv.stride[0] + (conv.kernel[0] - 1) * conv.dilation[0] + 1).saturating_sub(conv.padding[0][0]);
        let columns = (pixels.start * conv.stride[1]).min(conv.in_w)..(pixels.end * conv.stride[1]).min(conv.in_w);
        for y in below..(below + conv.stride[0]).min(conv.in_h) {
            let line = (self.image * conv.in_h + y) * conv.in_w;
            let first = (line + columns.start) * conv.in_stride;
            for at in (first..(line + columns.end) * conv.in_stride).step_by(LINE / size_of::<T>()) {
                s.prefetch(input.as_ptr().wrapping_add(at).cast());
            }
        }
    }

    #[inline(always)]
    fn out(&self, x: usize) -> *mut T {
        let Depthwise { conv, out, out_w, .. } = *self.block.depthwise;
        out.wrapping_add((self.line * out_w + x) * conv.out_stride)
    }

    #[inline(always)]
    fn weights(&self, tap_y: usize, tap_x: usize) -> *const f32 {
        let Depthwise { conv, weights, .. } = *self.block.depthwise;
        weights.as_ptr().wrapping_add((tap_y * conv.kernel[1] + tap_x) * conv.in_c)
    }

    /// All pixels of the line.
    #[inline(always)]
    fn run<S: Simd>(&self, s: S) {
        let conv = self.block.depthwise.conv;
        if conv.dilation[1] == 1 && self.block.channels.len() >= LANES {
            match (conv.kernel[1], conv.stride[1]) {
                (3, 1) => return self.run_tiles::<S, 3, 1>(s),
                (3, 2) => return self.run_tiles::<S, 3, 2>(s),
                (5, 1) => return self.run_tiles::<S, 5, 1>(s),
                (5, 2) => return self.run_tiles::<S, 5, 2>(s),
                (7, 1) => return self.run_tiles::<S, 7, 1>(s),
                _ => {}
            }
        }
        self.pixels(s, 0..self.block.depthwise.out_w);
    }

    #[inline(always)]
    fn pixels<S: Simd>(&self, s: S, pixels: Range<usize>) {
        let conv = self.block.depthwise.conv;
        for x in pixels {
            let start = x * conv.stride[1];
            let taps_x = valid_taps(conv.in_w, conv.kernel[1], start, conv.dilation[1], conv.padding[1][0]);
            s.vectorize(Pixel { span: self, x, taps_x });
        }
    }

    /// Tiles of four at both ends, where windows may reach over the border, and between them wider ones, all of about the
    /// same width. Where tiles overlap, pixels are computed again.
    #[inline(always)]
    fn run_tiles<S: Simd, const K: usize, const STRIDE: usize>(&self, s: S) {
        let out_w = self.block.depthwise.out_w;
        if out_w < 4 {
            return self.pixels(s, 0..out_w);
        }
        self.tile::<S, 4, K, STRIDE>(s, 0);
        if out_w > 8 {
            // With the weights of three taps in registers, there may be no room for more than the sums of four pixels.
            let widest = if const { K == 3 && !has_registers::<S>(K) } { 4 } else { S::PIXELS };
            let tiles = (out_w - 8).div_ceil(widest);
            let width = (out_w - 8).div_ceil(tiles).max(4);
            for tile in 0..tiles {
                let x = (4 + tile * width).min(out_w - 4 - width);
                match width {
                    4 => self.tile::<S, 4, K, STRIDE>(s, x),
                    5 => self.tile::<S, 5, K, STRIDE>(s, x),
                    _ => self.tile::<S, 6, K, STRIDE>(s, x),
                }
            }
        }
        if out_w > 4 {
            self.tile::<S, 4, K, STRIDE>(s, out_w - 4);
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const W: usize, const K: usize, const STRIDE: usize>(&self, s: S, x: usize) {
        // Wider tiles than this instruction set's are never compiled.
        if const { W > S::PIXELS } {
            debug_assert!(false, "no tile has {W} pixels");
            return;
        }
        let conv = self.block.depthwise.conv;
        self.prefetch(s, x..x + W);
        let columns = valid_taps(conv.in_w, (W - 1) * STRIDE + K, x * STRIDE, 1, conv.padding[1][0]);
        if columns.len() == (W - 1) * STRIDE + K {
            s.vectorize(Tile::<T, W, K, STRIDE, false> { span: self, x, columns });
        } else if const { W == 4 } {
            s.vectorize(Tile::<T, W, K, STRIDE, true> { span: self, x, columns });
        } else {
            // The padding is wider than four pixels.
            self.pixels(s, x..x + W);
        }
    }

    /// What pixels from `x` on read and write, their windows' first column being `tap_x`.
    #[inline(always)]
    fn place(&self, x: usize, tap_x: usize) -> Place<T> {
        let Depthwise { conv, ref steps, .. } = *self.block.depthwise;
        let Range { start, end } = self.taps_y;
        Place {
            taps: end - start,
            line: self.input(start, x, tap_x),
            line_step: conv.dilation[0].wrapping_mul(conv.in_w).wrapping_mul(conv.in_stride),
            pixel_step: conv.in_stride,
            weights: self.weights(start, tap_x),
            weights_step: conv.kernel[1] * conv.in_c,
            tap_step: conv.in_c,
            bias: steps.bias,
            out: self.out(x),
            out_step: conv.out_stride,
            channels: (self.block.channels.start, self.block.channels.end),
        }
    }

    /// Stores `n` channels of output pixel `x`, with the activation if that is all that remains.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, x: usize, channel: usize, n: usize, sum: S::V) {
        let depthwise = self.block.depthwise;
        let sum = if depthwise.is_plain { depthwise.steps.short(s, sum) } else { sum };
        let to = self.out(x).wrapping_add(channel);
        // SAFETY: the output's size was checked, and this task alone has this line and these channels.
        unsafe { T::store(s, to, n, sum) };
    }
}

/// Where the parts of neighbouring pixels' windows are that are inside: in locals, as what is behind a reference would be
/// read again for every vector.
#[derive(Clone, Copy)]
struct Place<T> {
    /// Rows of taps.
    taps: usize,
    /// The first channel of the first pixel of the first row, and the floats to the next row and to the next pixel.
    line: *const T,
    line_step: usize,
    pixel_step: usize,
    /// The same of the weights.
    weights: *const f32,
    weights_step: usize,
    tap_step: usize,
    /// Of the first channel, or null.
    bias: *const f32,
    out: *mut T,
    out_step: usize,
    channels: (usize, usize),
}

impl<T: Number> Place<T> {
    /// The first channel and the number of channels of each vector. With enough channels the last vector overlaps the one
    /// before, whose results are computed again.
    #[inline(always)]
    fn vectors(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let (start, end) = self.channels;
        let n = (end - start).min(LANES);
        (0..(end - start).div_ceil(LANES)).map(move |i| ((start + i * LANES).min(end - n), n))
    }

    #[inline(always)]
    fn bias<S: Simd>(&self, s: S, channel: usize, n: usize) -> S::V {
        if self.bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each channel.
        unsafe { f32::load(s, self.bias.wrapping_add(channel), n) }
    }
}

/// Whether the weights of `K` taps, a pixel and the sums of the widest tile have registers.
const fn has_registers<S: Simd>(k: usize) -> bool {
    k + 1 + S::PIXELS <= S::VECTORS
}

/// `W` neighbouring pixels whose windows are `K` wide and `STRIDE` apart. With `BORDER`, only some of the columns under them
/// are inside. There are at least 16 channels.
struct Tile<'a, T, const W: usize, const K: usize, const STRIDE: usize, const BORDER: bool> {
    span: &'a Span<'a, T>,
    x: usize,
    columns: Range<usize>,
}

impl<T: Number, const W: usize, const K: usize, const STRIDE: usize, const BORDER: bool> Job
    for Tile<'_, T, W, K, STRIDE, BORDER>
{
    type Out = ();

    // A row's weights stay in registers while columns go by, if there are enough. Else it is one weight at a time, for all
    // pixels: the multiplication takes the pixel from memory, and all registers but the weight's are sums. At the border,
    // columns go by and weights come from memory. Each sum goes through its taps in the same order in all of these.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Depthwise { is_plain, ref steps, .. } = *self.span.block.depthwise;
        let (is_clamped, is_hard_swish) = (is_plain && !steps.is_hard_swish, is_plain && steps.is_hard_swish);
        let (min, max) = (s.splat(steps.min), s.splat(steps.max));
        let (first, last) = (self.columns.start, self.columns.end);
        let place = self.span.place(self.x, 0);
        for (channel, _) in place.vectors() {
            let mut sums = [place.bias(s, channel, LANES); W];
            let mut line = place.line.wrapping_add(channel);
            let mut weights = place.weights.wrapping_add(channel);
            for _ in 0..place.taps {
                // SAFETY: there is a weight for each tap and channel.
                let weight = |tap: usize| unsafe { s.load(weights.wrapping_add(tap * place.tap_step)) };
                // SAFETY: this column is inside the input, whose size was checked.
                let pixel = |column: usize| unsafe {
                    T::load(s, line.wrapping_add(column.wrapping_mul(place.pixel_step)), LANES)
                };
                let in_registers = const { K == 3 || has_registers::<S>(K) };
                if BORDER || in_registers {
                    let mut row = [s.splat(0.0); K];
                    if in_registers {
                        for tap in 0..K {
                            row[tap] = weight(tap);
                        }
                    }
                    for column in 0..(W - 1) * STRIDE + K {
                        if BORDER && (column < first || column >= last) {
                            continue;
                        }
                        let v = pixel(column);
                        for t in 0..W {
                            if column >= t * STRIDE && column < t * STRIDE + K {
                                let tap = column - t * STRIDE;
                                sums[t] = s.fma(v, if in_registers { row[tap] } else { weight(tap) }, sums[t]);
                            }
                        }
                    }
                } else {
                    for tap in 0..K {
                        let weight = weight(tap);
                        for t in 0..W {
                            sums[t] = s.fma(pixel(t * STRIDE + tap), weight, sums[t]);
                        }
                    }
                }
                line = line.wrapping_add(place.line_step);
                weights = weights.wrapping_add(place.weights_step);
            }
            if is_hard_swish {
                for t in 0..W {
                    sums[t] = Activation::HardSwish.apply(s, sums[t]);
                }
            } else if is_clamped {
                for t in 0..W {
                    sums[t] = s.min(max, s.max(min, sums[t]));
                }
            }
            let out = place.out.wrapping_add(channel);
            for t in 0..W {
                // SAFETY: the output's size was checked, and this task alone has this line and these channels.
                unsafe { T::store(s, out.wrapping_add(t * place.out_step), LANES, sums[t]) };
            }
        }
    }
}

/// One pixel with any window, of which the taps `taps_x` are inside.
struct Pixel<'a, T> {
    span: &'a Span<'a, T>,
    x: usize,
    taps_x: Range<usize>,
}

impl<T: Number> Job for Pixel<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let place = self.span.place(self.x, self.taps_x.start);
        let pixel_step = self.span.block.depthwise.conv.dilation[1] * place.pixel_step;
        for (channel, n) in place.vectors() {
            let mut sum = place.bias(s, channel, n);
            let mut line = place.line.wrapping_add(channel);
            let mut weights = place.weights.wrapping_add(channel);
            for _ in 0..place.taps {
                for tap in 0..self.taps_x.len() {
                    // SAFETY: these taps are inside the input, whose size was checked.
                    let v = unsafe { T::load(s, line.wrapping_add(tap * pixel_step), n) };
                    // SAFETY: there is a weight for each tap and channel.
                    sum = s.fma(v, unsafe { f32::load(s, weights.wrapping_add(tap * place.tap_step), n) }, sum);
                }
                line = line.wrapping_add(place.line_step);
                weights = weights.wrapping_add(place.weights_step);
            }
            self.span.store(s, self.x, channel, n, sum);
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
            for x in 0..out {
                let taps = valid_taps(size, kernel, x * stride, dilation, padding);
                for tap in 0..kernel {
                    assert_eq!(taps.contains(&tap), is_inside(x, tap), "{x} {tap}");
                }
            }
        }
    }
}
