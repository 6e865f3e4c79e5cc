//! Depthwise convolution of bytes: each channel with a window of its own.
//!
//! Four lines under a window make quads: for each column of the input, a vector of 16 channels with the bytes of four lines
//! in each lane. A column's quads serve all windows that reach over it, for a few pixels of the output at a time.

use core::mem::MaybeUninit;
use core::ops::Range;

use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least};
use crate::pack::depthwise2d_i8_len;
use crate::{Conv2d, Engine};

use super::tail::{ByteSteps, Finish, Start};
use super::{MAX_QUANT_K, QuantOut, QuantTail};

/// Multiplications below which a task is not worth handing over.
const MIN_TASK: usize = 100_000;

/// The most lines under a window.
const MAX_LINES: usize = 32;

/// Pixels of the largest tile.
const MOST_PIXELS: usize = 8;

/// Computes `out = tail(convolution of input)` where `groups`, `in_c` and `out_c` are the same, with weights packed by
/// [`pack::depthwise2d_i8_into`](crate::pack::depthwise2d_i8_into). Padding has the byte `zero`.
///
/// # Errors
/// When a slice is too short, a size is zero or too large, the convolution is not depthwise, or its window has more than 32
/// lines.
pub fn depthwise2d_u8(
    engine: &Engine,
    conv: &Conv2d,
    zero: u8,
    input: &[u8],
    weights: &[i8],
    mut out: QuantOut,
    tail: &QuantTail,
) -> Result<(), Error> {
    let pixels = conv.in_3d().check(input.len(), out.len())?;
    for (what, channels) in [("groups", conv.groups), ("output channels", conv.out_c)] {
        if channels != conv.in_c {
            return Err(Error::Mismatch { what, expected: conv.in_c, got: channels });
        }
    }
    let len = depthwise2d_i8_len(conv).ok_or(Error::Size { what: "weights" })?;
    at_least("weights", weights.len(), len)?;
    tail.check(pixels, conv.out_c)?;
    let [kernel_h, kernel_w] = conv.kernel;
    if kernel_h > MAX_LINES || kernel_w > MAX_QUANT_K / MAX_LINES {
        return Err(Error::Size { what: "a window of bytes" });
    }
    if pixels == 0 || conv.in_c == 0 {
        return Ok(());
    }
    let (out_h, out_w) = (conv.out_h(), conv.out_w());
    let depthwise = Depthwise { conv, zero, input, weights, steps: tail.steps(&out), out: out.start(), out_h, out_w };
    let line = out_w * conv.in_c * kernel_h * kernel_w;
    engine.for_ranges(conv.batch * out_h, MIN_TASK.div_ceil(line), |lines| {
        engine.level.run(Entry { depthwise: &depthwise, lines });
    });
    Ok(())
}

struct Depthwise<'a> {
    conv: &'a Conv2d,
    zero: u8,
    input: &'a [u8],
    weights: &'a [i8],
    steps: ByteSteps,
    out: Start,
    out_h: usize,
    out_w: usize,
}

// SAFETY: tasks write disjoint lines of `out`, which `depthwise2d_u8` borrows exclusively.
unsafe impl Sync for Depthwise<'_> {}

/// One task, on the way to the best that the instruction set has for it.
struct Entry<'a> {
    depthwise: &'a Depthwise<'a>,
    lines: Range<usize>,
}

impl Job for Entry<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lines = Lines { depthwise: self.depthwise, lines: self.lines };
        if const { S::MAY_QUAD }
            && let Some(quads) = s.quads()
        {
            quads.vectorize(lines);
        } else {
            s.vectorize(lines);
        }
    }
}

/// One task.
struct Lines<'a> {
    depthwise: &'a Depthwise<'a>,
    lines: Range<usize>,
}

impl Job for Lines<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let depthwise = self.depthwise;
        let conv = depthwise.conv;
        let [kernel_h, kernel_w] = conv.kernel;
        let pad = [depthwise.zero; LANES];
        let groups = kernel_h.div_ceil(4);
        for line in self.lines {
            let (image, y) = (line / depthwise.out_h, line % depthwise.out_h);
            let mut under = Under { lines: [const { MaybeUninit::uninit() }; MAX_LINES], pad };
            for (tap, under) in under.lines.iter_mut().enumerate().take(kernel_h) {
                let y = (y * conv.stride[0] + tap * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
                let pixel = (image * conv.in_h).wrapping_add(y).wrapping_mul(conv.in_w);
                let at = depthwise.input.as_ptr().wrapping_add(pixel.wrapping_mul(conv.in_stride));
                under.write((y < conv.in_h).then_some(at));
            }
            for channel in (0..conv.in_c).step_by(LANES) {
                let first = channel / LANES * kernel_w * groups * 4 * LANES;
                let span = Span {
                    depthwise,
                    under: &under,
                    weights: depthwise.weights.as_ptr().wrapping_add(first),
                    line,
                    channel,
                    lanes: (conv.in_c - channel).min(LANES),
                };
                match (kernel_h, conv.kernel[1], conv.stride[1], conv.dilation[1]) {
                    (3, 3, 1, 1) => s.vectorize(Windows::<3, 3, 1>(&span)),
                    (3, 3, 2, 1) => s.vectorize(Windows::<3, 3, 2>(&span)),
                    (5, 5, 1, 1) => s.vectorize(Windows::<5, 5, 1>(&span)),
                    (5, 5, 2, 1) => s.vectorize(Windows::<5, 5, 2>(&span)),
                    _ => s.vectorize(AnyWindow(&span)),
                }
            }
        }
    }
}

/// The lines of the input under one of the output.
struct Under {
    /// Where each begins, if it is inside.
    lines: [MaybeUninit<Option<*const u8>>; MAX_LINES],
    /// What the others consist of.
    pad: [u8; LANES],
}

/// One line of the output, up to 16 of its channels.
struct Span<'a> {
    depthwise: &'a Depthwise<'a>,
    under: &'a Under,
    /// `[kernel_w][ceil(kernel_h / 4)][16][4]`
    weights: *const i8,
    line: usize,
    channel: usize,
    lanes: usize,
}

impl Span<'_> {
    /// Four lines under the window, from the `first` on, at an input column; those that do not count are zeros.
    #[inline(always)]
    fn quad<S: Simd>(&self, s: S, first: usize, lines: usize, column: usize) -> S::V {
        let Conv2d { in_w, in_stride: stride, .. } = *self.depthwise.conv;
        let is_inside = column < in_w;
        let mut quad = s.splat(0.0);
        for i in (first..lines.min(first + 4)).rev() {
            // SAFETY: all lines of the window were written.
            let start = unsafe { self.under.lines[i].assume_init() };
            let from = match start {
                Some(start) if is_inside => start.wrapping_add(column * stride + self.channel),
                _ => self.under.pad.as_ptr(),
            };
            // SAFETY: `depthwise2d_u8` has checked the input's size; padding has 16 bytes.
            let bytes = unsafe { s.load_bytes(from, self.lanes) };
            quad = if i + 1 == lines.min(first + 4) { bytes } else { s.push_byte(quad, bytes) };
        }
        quad
    }

    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, quad: usize) -> S::V {
        // SAFETY: `depthwise2d_u8` has checked the weights' size.
        unsafe { s.load(self.weights.wrapping_add(quad * 4 * LANES).cast()) }
    }

    #[inline(always)]
    fn offset<S: Simd>(&self, s: S) -> S::V {
        // SAFETY: there is an offset for each channel.
        unsafe { s.load_part(self.depthwise.steps.offsets.wrapping_add(self.channel).cast(), self.lanes) }
    }

    /// Stores what sums of pixels from `x` on become.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, sums: *const f32, x: usize, pixels: usize) {
        let finish = Finish {
            steps: &self.depthwise.steps,
            sums,
            panels: 1,
            rows: pixels,
            row: self.line * self.depthwise.out_w + x,
            column: self.channel,
            columns: self.lanes,
            out: self.depthwise.out,
            out_stride: self.depthwise.conv.out_stride,
        };
        // SAFETY: all sizes were checked, and tasks have their own lines.
        unsafe { finish.run_on(s) };
    }
}

/// Windows of `H` by `W`, `STEP` pixels apart.
struct Windows<'a, const H: usize, const W: usize, const STEP: usize>(&'a Span<'a>);

impl<const H: usize, const W: usize, const STEP: usize> Job for Windows<'_, H, W, STEP> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let out_w = self.0.depthwise.out_w;
        // The last tile overlaps the one before, and writes the same again.
        if const { S::VECTORS >= 32 } && out_w >= 8 {
            for x in (0..out_w).step_by(8) {
                self.pixels::<S, 8>(s, x.min(out_w - 8));
            }
        } else if const { S::VECTORS >= 8 } && out_w >= 4 {
            for x in (0..out_w).step_by(4) {
                self.pixels::<S, 4>(s, x.min(out_w - 4));
            }
        } else {
            for x in 0..out_w {
                self.pixels::<S, 1>(s, x);
            }
        }
    }
}

impl<const H: usize, const W: usize, const STEP: usize> Windows<'_, H, W, STEP> {
    #[inline(always)]
    fn pixels<S: Simd, const N: usize>(&self, s: S, x: usize) {
        let span = self.0;
        let mut sums = [span.offset(s); N];
        let first = (x * STEP).wrapping_sub(span.depthwise.conv.padding[1][0]);
        for group in 0..H.div_ceil(4) {
            let mut weights = [s.splat(0.0); W];
            for w in 0..W {
                weights[w] = span.weights(s, w * H.div_ceil(4) + group);
            }
            for column in 0..(N - 1) * STEP + W {
                let quad = span.quad(s, group * 4, H, first.wrapping_add(column));
                for n in 0..N {
                    if n * STEP <= column && column - n * STEP < W {
                        sums[n] = s.dot4(quad, weights[column - n * STEP], sums[n]);
                    }
                }
            }
        }
        let mut copy = [MaybeUninit::<[f32; LANES]>::uninit(); MOST_PIXELS];
        for n in 0..N {
            // SAFETY: there is room for the largest tile.
            unsafe { s.store(copy.as_mut_ptr().wrapping_add(n).cast(), sums[n]) };
        }
        span.finish(s, copy.as_ptr().cast(), x, N);
    }
}

/// Windows of any form, one after the other.
struct AnyWindow<'a>(&'a Span<'a>);

impl Job for AnyWindow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let span = self.0;
        let conv = span.depthwise.conv;
        let [kernel_h, kernel_w] = conv.kernel;
        for x in 0..span.depthwise.out_w {
            let mut sum = span.offset(s);
            for w in 0..kernel_w {
                let column = (x * conv.stride[1] + w * conv.dilation[1]).wrapping_sub(conv.padding[1][0]);
                for group in 0..kernel_h.div_ceil(4) {
                    let quad = span.quad(s, group * 4, kernel_h, column);
                    sum = s.dot4(quad, span.weights(s, w * kernel_h.div_ceil(4) + group), sum);
                }
            }
            let mut copy = MaybeUninit::<[f32; LANES]>::uninit();
            // SAFETY: there is room for a vector.
            unsafe { s.store(copy.as_mut_ptr().cast(), sum) };
            span.finish(s, copy.as_ptr().cast(), x, 1);
        }
    }
}
