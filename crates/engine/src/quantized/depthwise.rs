//! Depthwise convolution of bytes: each channel with a window of its own.
//!
//! Up to four lines under a window make quads: for each column of the input, a vector of 16 channels with the bytes of these
//! lines in each lane. The quads of a part of a line are made first; each then serves all windows that reach over it, a few
//! pixels of the output at a time.

use core::mem::MaybeUninit;
use core::ops::Range;

use crate::arch::{Aligned, Job, LANES, Simd};
use crate::error::{Error, at_least};
use crate::pack::depthwise2d_i8_len;
use crate::{Conv2d, Engine};

use super::tail::{ByteSteps, Finish, Registers, Start};
use super::{QuantOut, QuantTail};

/// Multiplications below which a task is not worth handing over.
const MIN_TASK: usize = 100_000;

/// The most lines under a window.
const MAX_LINES: usize = 32;

/// Pixels whose sums are finished together.
const MOST_PIXELS: usize = 64;

/// Columns of quads that are made together: with the sums they stay in the first-level cache.
const MOST_COLUMNS: usize = 192;

/// Computes `out = tail(convolution of input)` where `groups`, `in_c` and `out_c` are the same, with weights packed by
/// [`pack::depthwise2d_i8_into`](crate::pack::depthwise2d_i8_into). Padding has the byte `zero`.
///
/// # Errors
/// When a slice is too short, a size is zero or too large, the convolution is not depthwise, or its window has more than 32
/// lines or reaches over more than 192 columns.
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
    tail.check_windows(pixels, conv.out_c)?;
    let [kernel_h, kernel_w] = conv.kernel;
    let reach = kernel_w.saturating_sub(1).saturating_mul(conv.dilation[1]).saturating_add(1);
    if kernel_h > MAX_LINES || reach > MOST_COLUMNS {
        return Err(Error::Size { what: "a window of bytes" });
    }
    if pixels == 0 || conv.in_c == 0 {
        return Ok(());
    }
    let (out_h, out_w) = (conv.out_h(), conv.out_w());
    let most = ((MOST_COLUMNS - reach) / conv.stride[1] + 1).min(MOST_PIXELS);
    let chunk = out_w.div_ceil(out_w.div_ceil(most));
    let (steps, out) = (tail.steps(&out), out.start());
    let depthwise = Depthwise { conv, zero, input, weights, steps, out, out_h, out_w, reach, chunk };
    let line = out_w * conv.in_c * kernel_h * kernel_w;
    engine.for_ranges(conv.batch * out_h, MIN_TASK.div_ceil(line), |lines| {
        engine.level.run_quads(Lines { depthwise: &depthwise, lines });
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
    /// Columns of the input under a pixel of the output, those that dilation leaves out included.
    reach: usize,
    /// Pixels of the output that are computed together.
    chunk: usize,
}

// SAFETY: tasks write disjoint lines of `out`, which `depthwise2d_u8` borrows exclusively.
unsafe impl Sync for Depthwise<'_> {}

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
                s.vectorize(span);
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

/// Sums of pixels, and quads of columns.
type Vectors<const N: usize> = [MaybeUninit<Aligned>; N];

impl Job for Span<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Depthwise { conv, out_w, reach, chunk, .. } = *self.depthwise;
        let ([kernel_h, _], [_, step]) = (conv.kernel, conv.stride);
        let mut sums: Vectors<MOST_PIXELS> = [const { MaybeUninit::uninit() }; MOST_PIXELS];
        let mut quads: Vectors<MOST_COLUMNS> = [const { MaybeUninit::uninit() }; MOST_COLUMNS];
        let steps = &self.depthwise.steps;
        // SAFETY: there is an offset for each channel.
        let offset = unsafe { s.load_part(steps.offsets.wrapping_add(self.channel).cast(), self.lanes) };
        // SAFETY: a convolution has one zero for all rows.
        let offset = unsafe { steps.start(s, offset, 0) };
        for start in (0..out_w).step_by(chunk) {
            let pixels = chunk.min(out_w - start);
            let first = (start * step).wrapping_sub(conv.padding[1][0]);
            if (Small { span: &self, start, first, pixels }).run(s, offset, &mut sums) {
                continue;
            }
            for sum in &mut sums[..pixels] {
                // SAFETY: there is room for a vector.
                unsafe { s.store(sum.as_mut_ptr().cast(), offset) };
            }
            for group in 0..kernel_h.div_ceil(4) {
                let quads = &mut quads[..(pixels - 1) * step + reach];
                let lines = Lines4 { span: &self, group, first, quads };
                match kernel_h - 4 * group {
                    1 => lines.quads::<S, 1>(s),
                    2 => lines.quads::<S, 2>(s),
                    3 => lines.quads::<S, 3>(s),
                    _ => lines.quads::<S, 4>(s),
                }
                let sums = &mut sums[..pixels];
                match step {
                    1 => self.tiles::<S, 1>(s, group, quads, sums),
                    2 => self.tiles::<S, 2>(s, group, quads, sums),
                    _ => {
                        for x in 0..pixels {
                            self.add::<S, 1, 1>(s, group, &quads[x * step..], &mut sums[x..=x]);
                        }
                    }
                }
            }
            self.finish(s, &sums, start, pixels);
        }
    }
}

/// Up to four lines under a window, and the quads to make of them.
struct Lines4<'a> {
    span: &'a Span<'a>,
    group: usize,
    /// The column of the first quad, which may lie before the input.
    first: usize,
    quads: &'a mut [MaybeUninit<Aligned>],
}

impl Lines4<'_> {
    /// Makes the quads of the `L` lines that there are.
    #[inline(always)]
    fn quads<S: Simd, const L: usize>(self, s: S) {
        if self.span.lanes == LANES {
            self.quads_of::<S, L, true>(s);
        } else {
            self.quads_of::<S, L, false>(s);
        }
    }

    /// The same, of as many channels as a vector has, or of fewer.
    #[inline(always)]
    fn quads_of<S: Simd, const L: usize, const WHOLE: bool>(self, s: S) {
        let Self { span, group, first, quads } = self;
        let Conv2d { in_w, in_stride, .. } = *span.depthwise.conv;
        let lanes = if WHOLE { LANES } else { span.lanes };
        // Columns before the input, inside of it and behind it.
        let before = if first.cast_signed() < 0 { first.wrapping_neg().min(quads.len()) } else { 0 };
        let inside = in_w.saturating_sub(first.wrapping_add(before)).min(quads.len() - before);
        let (head, rest) = quads.split_at_mut(before);
        let (middle, tail) = rest.split_at_mut(inside);
        // Lines outside are read from the padding again and again.
        let pad = span.under.pad.as_ptr();
        let (mut at, mut strides) = ([pad; L], [0; L]);
        for i in 0..L {
            // SAFETY: all lines of the window were written.
            if let Some(start) = unsafe { span.under.lines[4 * group + i].assume_init() } {
                let column = first.wrapping_add(before);
                at[i] = start.wrapping_add(column.wrapping_mul(in_stride).wrapping_add(span.channel));
                strides[i] = in_stride;
            }
        }
        for to in head.iter_mut().chain(tail) {
            // SAFETY: padding has 16 bytes, and there is room for a vector.
            unsafe { Self::quad::<S, L>(s, [pad; L], lanes, to.as_mut_ptr().cast()) };
        }
        for to in middle {
            // SAFETY: `depthwise2d_u8` has checked the input's size, and there is room for a vector.
            unsafe { Self::quad::<S, L>(s, at, lanes, to.as_mut_ptr().cast()) };
            for i in 0..L {
                at[i] = at[i].wrapping_add(strides[i]);
            }
        }
    }

    /// Writes a quad of the bytes at `L` places.
    ///
    /// # Safety
    /// `lanes` bytes are readable at each, and 16 lanes are writable.
    #[inline(always)]
    unsafe fn quad<S: Simd, const L: usize>(s: S, from: [*const u8; L], lanes: usize, to: *mut f32) {
        // SAFETY: the caller vouches for all of it.
        let mut quad = unsafe { s.load_bytes(from[L - 1], lanes) };
        for i in 1..L {
            // SAFETY: likewise.
            quad = s.push_byte(quad, unsafe { s.load_bytes(from[L - 1 - i], lanes) });
        }
        // SAFETY: likewise.
        unsafe { s.store(to, quad) };
    }
}

/// Small windows side by side, whose quads never leave the registers.
#[derive(Clone, Copy)]
struct Small<'a> {
    span: &'a Span<'a>,
    /// The first pixel, and how many there are.
    start: usize,
    pixels: usize,
    /// The column under the first pixel, which may lie before the input.
    first: usize,
}

impl Small<'_> {
    /// Computes the pixels, if it can.
    #[inline(always)]
    fn run<S: Simd>(self, s: S, offset: S::V, sums: &mut Vectors<MOST_PIXELS>) -> bool {
        let conv = self.span.depthwise.conv;
        if conv.stride[1] != 1 || conv.dilation[1] != 1 {
            return false;
        }
        let is_wide = const { S::VECTORS >= 32 } && self.span.lanes == LANES && self.pixels >= 7;
        // Sizes of images are often multiples of seven.
        match conv.kernel {
            [3, 3] if is_wide => self.tiles::<S, 7, 3, true>(s, offset, sums),
            [5, 5] if is_wide => self.tiles::<S, 7, 5, true>(s, offset, sums),
            [3, 3] if const { S::VECTORS >= 8 } && self.pixels >= 4 => self.tiles::<S, 4, 3, false>(s, offset, sums),
            _ => return false,
        }
        true
    }

    /// Windows of `K` by `K`, `N` at a time, of as many channels as a vector has or of fewer. The last tile overlaps the one
    /// before, and computes the same again.
    #[inline(always)]
    fn tiles<S: Simd, const N: usize, const K: usize, const WHOLE: bool>(
        self,
        s: S,
        offset: S::V,
        sums: &mut Vectors<MOST_PIXELS>,
    ) {
        let span = self.span;
        let Depthwise { conv, out_w, ref steps, out, .. } = *span.depthwise;
        // Lines outside are read from the padding again and again.
        let pad = span.under.pad.as_ptr();
        let (mut lines, mut strides) = ([pad; K], [0; K]);
        for i in 0..K {
            // SAFETY: all lines of the window were written.
            if let Some(start) = unsafe { span.under.lines[i].assume_init() } {
                lines[i] = start.wrapping_add(span.channel);
                strides[i] = conv.in_stride;
            }
        }
        let groups = const { K.div_ceil(4) };
        let mut weights = [[offset; 2]; K];
        for w in 0..K {
            for group in 0..groups {
                let at = span.weights.wrapping_add((w * groups + group) * 4 * LANES);
                // SAFETY: `depthwise2d_u8` has checked the weights' size.
                weights[w][group] = unsafe { s.load(at.cast()) };
            }
        }
        let mut are_stored = true;
        for x in (0..self.pixels).step_by(N) {
            let x = x.min(self.pixels - N);
            let first = self.first.wrapping_add(x);
            let mut from = lines;
            for i in 0..K {
                from[i] = from[i].wrapping_add(first.wrapping_mul(strides[i]));
            }
            let tile = self.tile::<S, N, K, WHOLE>(s, offset, &weights, first, from, strides);
            let row = span.line * out_w + self.start + x;
            let registers = Registers { sums: &tile, row, column: span.channel, out_stride: conv.out_stride };
            // SAFETY: all sizes were checked, and tasks have their own lines.
            if const { WHOLE && K == 3 } && unsafe { registers.run_on(s, steps, out) } {
                continue;
            }
            are_stored = false;
            for n in 0..N {
                // SAFETY: there is room for a vector.
                unsafe { s.store(sums[x + n].as_mut_ptr().cast(), tile[n][0]) };
            }
        }
        if !are_stored {
            span.finish(s, sums, self.start, self.pixels);
        }
    }

    /// Sums of `N` pixels; `from` is where the lines are at their first column.
    #[inline(always)]
    fn tile<S: Simd, const N: usize, const K: usize, const WHOLE: bool>(
        self,
        s: S,
        offset: S::V,
        weights: &[[S::V; 2]; K],
        first: usize,
        mut from: [*const u8; K],
        strides: [usize; K],
    ) -> [[S::V; 1]; N] {
        let in_w = self.span.depthwise.conv.in_w;
        let lanes = if WHOLE { LANES } else { self.span.lanes };
        let pad = self.span.under.pad.as_ptr();
        let mut sums = [[offset]; N];
        for column in 0..N - 1 + K {
            let is_inside = first.wrapping_add(column) < in_w;
            for group in 0..const { K.div_ceil(4) } {
                let lines = if K - 4 * group < 4 { K - 4 * group } else { 4 };
                let mut quad = offset;
                // Not by closures, which are not always inlined into code for an instruction set.
                for i in 0..lines {
                    let line = 4 * group + lines - 1 - i;
                    let from = core::hint::select_unpredictable(is_inside, from[line], pad);
                    // SAFETY: `depthwise2d_u8` has checked the input's size; padding has 16 bytes.
                    let bytes = unsafe { s.load_bytes(from, lanes) };
                    quad = if i == 0 { bytes } else { s.push_byte(quad, bytes) };
                }
                for n in 0..N {
                    if n <= column && column < n + K {
                        sums[n][0] = s.dot4(quad, weights[column - n][group], sums[n][0]);
                    }
                }
            }
            for i in 0..K {
                from[i] = from[i].wrapping_add(strides[i]);
            }
        }
        sums
    }
}

impl Span<'_> {
    /// Stores what the sums of pixels from `x` on become.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, sums: &Vectors<MOST_PIXELS>, x: usize, pixels: usize) {
        let finish = Finish {
            steps: &self.depthwise.steps,
            sums: sums.as_ptr().cast(),
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

    /// Adds the products of quads to the sums of pixels that are `STEP` columns apart, a few at a time.
    #[inline(always)]
    fn tiles<S: Simd, const STEP: usize>(
        &self,
        s: S,
        group: usize,
        quads: &[MaybeUninit<Aligned>],
        sums: &mut [MaybeUninit<Aligned>],
    ) {
        let mut x = 0;
        macro_rules! by_pixels {
            ($($pixels:literal)*) => {$(
                if const { $pixels == 1 || S::VECTORS >= 4 * $pixels || S::VECTORS == 2 * $pixels } {
                    while sums.len() - x >= $pixels {
                        self.add::<S, $pixels, STEP>(s, group, &quads[x * STEP..], &mut sums[x..x + $pixels]);
                        x += $pixels;
                    }
                }
            )*};
        }
        by_pixels!(8 4 2 1);
    }

    /// Adds the products of quads to the sums of `N` pixels.
    #[inline(always)]
    fn add<S: Simd, const N: usize, const STEP: usize>(
        &self,
        s: S,
        group: usize,
        quads: &[MaybeUninit<Aligned>],
        sums: &mut [MaybeUninit<Aligned>],
    ) {
        let Conv2d { kernel: [kernel_h, kernel_w], dilation: [_, dilation], .. } = *self.depthwise.conv;
        let groups = kernel_h.div_ceil(4);
        debug_assert!(sums.len() == N && quads.len() > (N - 1) * STEP + (kernel_w - 1) * dilation, "all columns");
        let to: *mut f32 = sums.as_mut_ptr().cast();
        let mut tile = [s.splat(0.0); N];
        for n in 0..N {
            // SAFETY: the sums were written.
            tile[n] = unsafe { s.load(to.wrapping_add(n * LANES)) };
        }
        let mut weights = self.weights.wrapping_add(group * 4 * LANES);
        let mut quads: *const f32 = quads.as_ptr().cast();
        for _ in 0..kernel_w {
            // SAFETY: `depthwise2d_u8` has checked the weights' size.
            let right = unsafe { s.load(weights.cast()) };
            for n in 0..N {
                // SAFETY: the quads of all columns under the pixels were written.
                let quad = unsafe { s.load(quads.wrapping_add(n * STEP * LANES)) };
                tile[n] = s.dot4(quad, right, tile[n]);
            }
            weights = weights.wrapping_add(groups * 4 * LANES);
            quads = quads.wrapping_add(dilation * LANES);
        }
        for n in 0..N {
            // SAFETY: as above.
            unsafe { s.store(to.wrapping_add(n * LANES), tile[n]) };
        }
    }
}
