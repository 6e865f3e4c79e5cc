//! Depthwise convolution.
//!
//! An output row is computed a few pixels at a time, with their accumulators in registers. Channels are processed in
//! chunks small enough that the input rows, which the next output row shares, stay in L1. Windows at the border skip the
//! columns outside.
#![allow(unsafe_code)]

use core::ops::Range;

use super::Conv2d;
use crate::arch::{Kernel, LANES, Simd};
use crate::element::Element;
use crate::epilogue::{ApplyEpilogue, EpilogueArgs};
use crate::error::{Error, at_least, size};
use crate::parallel::chunk_range;
use crate::{Activation, Engine, Epilogue, FloatSlice, FloatSliceMut};

/// Minimum multiply-adds of a task.
const MIN_TASK_FLOPS: usize = 50_000;

/// Minimum channels of a task that does not have all: shorter runs of each pixel are read slowly.
const MIN_TASK_CHANNELS: usize = 64;

/// Computes `out = epilogue(conv2d(input))` where `groups`, `in_c` and `out_c` are equal, with weights
/// `[kernel_h * kernel_w][c]` from [`pack::depthwise2d_f32`](crate::pack::depthwise2d_f32).
///
/// # Errors
/// If a slice is too short, a size is zero or too large, the convolution is not depthwise, only one of input and output
/// is bf16, or both are and there is a residual or an activation that is not [fusable](Activation::is_fusable).
pub fn depthwise2d<'a>(
    engine: &Engine,
    conv: &Conv2d,
    input: impl Into<FloatSlice<'a>>,
    weights: &[f32],
    out: impl Into<FloatSliceMut<'a>>,
    epilogue: &Epilogue,
) -> Result<(), Error> {
    depthwise2d_impl(engine, conv, input.into(), weights, out.into(), epilogue)
}

fn depthwise2d_impl(
    engine: &Engine,
    conv: &Conv2d,
    input: FloatSlice<'_>,
    weights: &[f32],
    mut out: FloatSliceMut<'_>,
    epilogue: &Epilogue,
) -> Result<(), Error> {
    let pixels = conv.in_3d().check(input.len(), out.len())?;
    for (what, channels) in [("groups", conv.groups), ("output channels", conv.out_c)] {
        if channels != conv.in_c {
            return Err(Error::Mismatch { what, expected: conv.in_c, got: channels });
        }
    }
    let taps = conv.kernel[0].saturating_mul(conv.kernel[1]);
    at_least("weights", weights.len(), size("weights", &[taps, conv.in_c])?)?;
    epilogue.check(pixels, conv.out_c)?;
    if pixels == 0 || conv.in_c == 0 {
        return Ok(());
    }
    match (input, &mut out) {
        (FloatSlice::F32(input), FloatSliceMut::F32(out)) => {
            all(engine, conv, input, weights, out.as_mut_ptr(), epilogue);
        }
        (FloatSlice::Bf16(input), FloatSliceMut::Bf16(out)) => {
            engine.check_bf16_support(true)?;
            if !is_fused(epilogue) {
                return Err(Error::Type { what: "output" });
            }
            all(engine, conv, input, weights, out.as_mut_ptr(), epilogue);
        }
        _ => return Err(Error::Type { what: "output" }),
    }
    Ok(())
}

/// Returns true if only a fused activation follows the bias, as bf16 output requires.
fn is_fused(epilogue: &Epilogue<'_>) -> bool {
    epilogue.args().is_fused && epilogue.residual.is_none()
}

/// Runs all tasks. The sizes were checked.
fn all<T: Element>(engine: &Engine, conv: &Conv2d, input: &[T], weights: &[f32], out: *mut T, epilogue: &Epilogue<'_>) {
    let depthwise = Depthwise {
        conv,
        input,
        weights,
        out,
        out_h: conv.out_h(),
        out_w: conv.out_w(),
        is_fused: is_fused(epilogue),
        is_in_l2: conv.in_h * conv.in_w * conv.in_stride * size_of::<T>() <= L2_INPUT_BYTES,
        epilogue: epilogue.args(),
    };
    let rows = conv.batch * depthwise.out_h;
    let (row_tasks, channel_tasks) = depthwise.task_grid(engine);
    let vectors = conv.in_c.div_ceil(LANES);
    engine.pool.run(row_tasks * channel_tasks, |task| {
        let channels = chunk_range(task % channel_tasks, channel_tasks, vectors);
        engine.dispatch.run_for::<T, _>(DepthwiseTask {
            depthwise: &depthwise,
            rows: chunk_range(task / channel_tasks, row_tasks, rows),
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
    epilogue: EpilogueArgs,
    /// Only a fused activation follows the bias.
    is_fused: bool,
    /// An image of the input fits in the L2 cache.
    is_in_l2: bool,
}

// SAFETY: tasks write disjoint rows and channels of `out`, which `depthwise2d` borrows exclusively.
unsafe impl<T: Sync> Sync for Depthwise<'_, T> {}

impl<T: Element> Depthwise<'_, T> {
    /// Returns the number of tasks along rows and along channels.
    fn task_grid(&self, engine: &Engine) -> (usize, usize) {
        let conv = self.conv;
        let rows = conv.batch * self.out_h;
        let work = rows as f64 * self.out_w as f64 * conv.in_c as f64 * conv.kernel.iter().product::<usize>() as f64;
        let wanted = engine.task_count((work / MIN_TASK_FLOPS as f64) as usize);
        // Channels first: the rows of a task share their input.
        let channel_tasks = wanted.min(conv.in_c / MIN_TASK_CHANNELS).max(1);
        (wanted.div_ceil(channel_tasks).min(rows), channel_tasks)
    }
}

/// One task: a range of rows and channels.
struct DepthwiseTask<'a, T> {
    depthwise: &'a Depthwise<'a, T>,
    rows: Range<usize>,
    channels: Range<usize>,
}

/// Budget for the input rows under an output row and their weights: most of the L1 cache.
const L1_ROWS_BYTES: usize = 24 << 10;

/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;

/// Largest input that is kept in the L2 cache. A larger one is streamed, all channels of each pixel at once.
const L2_INPUT_BYTES: usize = 384 << 10;

impl<T: Element> Kernel for DepthwiseTask<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let conv = self.depthwise.conv;
        let [kernel_h, kernel_w] = conv.kernel;
        let bytes = size_of::<T>() * kernel_h.saturating_mul(conv.in_w.saturating_add(kernel_w));
        let chunks =
            if self.depthwise.is_in_l2 { self.channels.len().saturating_mul(bytes).div_ceil(L1_ROWS_BYTES) } else { 1 };
        let chunk = self.channels.len().div_ceil(chunks).next_multiple_of(LANES);
        let Range { mut start, end } = self.channels;
        while start < end {
            // The last chunk must not be narrower than a vector.
            let stop = if end - start < chunk + LANES { end } else { start + chunk };
            DepthwiseTask { depthwise: self.depthwise, rows: self.rows.clone(), channels: start..stop }.all_rows(s);
            start = stop;
        }
    }
}

impl<T: Element> DepthwiseTask<'_, T> {
    #[inline(always)]
    fn all_rows<S: Simd>(&self, s: S) {
        let Depthwise { conv, out_h, out_w, .. } = *self.depthwise;
        for row in self.rows.clone() {
            let (image, y) = (row / out_h, row % out_h);
            let taps_y =
                taps_inside(conv.in_h, conv.kernel[0], y * conv.stride[0], conv.dilation[0], conv.padding[0][0]);
            OutputRow { block: self, image, row, y, taps_y }.run(s);
            if const { !T::IS_BF16 } && !self.depthwise.is_fused {
                let epilogue = &self.depthwise.epilogue;
                let at = row * out_w;
                let finish = ApplyEpilogue {
                    epilogue,
                    sums: self.depthwise.out.wrapping_add(at * conv.out_stride + self.channels.start).cast(),
                    stride: conv.out_stride,
                    rounded: None,
                    residual: epilogue.residual.add(s, at * epilogue.residual_stride + self.channels.start),
                    residual_stride: epilogue.residual_stride,
                    rows: out_w,
                    columns: self.channels.len(),
                };
                // SAFETY: the sizes of the output and the residual were checked, and only this task accesses this part.
                unsafe { finish.run_on(s) };
            }
        }
    }
}

/// Returns the taps of a window at `start - padding` that lie inside the input.
fn taps_inside(size: usize, kernel: usize, start: usize, dilation: usize, padding: usize) -> Range<usize> {
    let first = padding.saturating_sub(start).div_ceil(dilation).min(kernel);
    let end = match (size + padding).checked_sub(start) {
        Some(room) => room.div_ceil(dilation).min(kernel),
        None => 0,
    };
    first..end.max(first)
}

/// One output row, some of its channels.
struct OutputRow<'a, T> {
    block: &'a DepthwiseTask<'a, T>,
    image: usize,
    row: usize,
    y: usize,
    taps_y: Range<usize>,
}

impl<T: Element> OutputRow<'_, T> {
    /// Returns the address of the first channel of the input pixel under tap (`tap_y`, `tap_x`) of output pixel `x`,
    /// which may lie outside the input.
    #[inline(always)]
    fn input(&self, tap_y: usize, x: usize, tap_x: usize) -> *const T {
        let conv = self.block.depthwise.conv;
        let y = (self.y * conv.stride[0] + tap_y * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
        let row = (self.image * conv.in_h).wrapping_add(y).wrapping_mul(conv.in_w);
        let column = (x * conv.stride[1] + tap_x * conv.dilation[1]).wrapping_sub(conv.padding[1][0]);
        let pixel = row.wrapping_add(column);
        self.block.depthwise.input.as_ptr().wrapping_add(pixel.wrapping_mul(conv.in_stride))
    }

    /// Prefetches the input rows that the next output row reads first, at these output pixels: the access pattern has
    /// too many streams for the hardware prefetcher.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, pixels: Range<usize>) {
        let Depthwise { conv, is_in_l2, input, .. } = *self.block.depthwise;
        if is_in_l2 {
            return;
        }
        let below =
            (self.y * conv.stride[0] + (conv.kernel[0] - 1) * conv.dilation[0] + 1).saturating_sub(conv.padding[0][0]);
        let columns = (pixels.start * conv.stride[1]).min(conv.in_w)..(pixels.end * conv.stride[1]).min(conv.in_w);
        for y in below..(below + conv.stride[0]).min(conv.in_h) {
            let row = (self.image * conv.in_h + y) * conv.in_w;
            let first = (row + columns.start) * conv.in_stride;
            for at in (first..(row + columns.end) * conv.in_stride).step_by(CACHE_LINE_BYTES / size_of::<T>()) {
                s.prefetch(input.as_ptr().wrapping_add(at).cast());
            }
        }
    }

    #[inline(always)]
    fn out(&self, x: usize) -> *mut T {
        let Depthwise { conv, out, out_w, .. } = *self.block.depthwise;
        out.wrapping_add((self.row * out_w + x) * conv.out_stride)
    }

    #[inline(always)]
    fn weights(&self, tap_y: usize, tap_x: usize) -> *const f32 {
        let Depthwise { conv, weights, .. } = *self.block.depthwise;
        weights.as_ptr().wrapping_add((tap_y * conv.kernel[1] + tap_x) * conv.in_c)
    }

    /// Computes all pixels of the row.
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
            let taps_x = taps_inside(conv.in_w, conv.kernel[1], start, conv.dilation[1], conv.padding[1][0]);
            s.vectorize(SinglePixel { output_row: self, x, taps_x });
        }
    }

    /// Computes tiles of four pixels at both ends, where windows may overlap the border, and wider tiles of nearly
    /// equal width in between. Overlapping tiles recompute pixels.
    #[inline(always)]
    fn run_tiles<S: Simd, const K: usize, const STRIDE: usize>(&self, s: S) {
        let out_w = self.block.depthwise.out_w;
        if out_w < 4 {
            return self.pixels(s, 0..out_w);
        }
        self.tile::<S, 4, K, STRIDE>(s, 0);
        if out_w > 8 {
            // The widths that are matched below.
            const { assert!(matches!(S::DEPTHWISE_PIXELS, 4..=6), "a depthwise tile without a kernel") };
            // With three weights in registers, there may be room for the accumulators of only four pixels.
            let widest = if const { K == 3 && !has_registers::<S>(K) } { 4 } else { S::DEPTHWISE_PIXELS };
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
        // Wider tiles than this instruction set's are neither asked for nor instantiated.
        if const { W > S::DEPTHWISE_PIXELS } {
            unreachable!("a tile of {W} pixels");
        }
        let conv = self.block.depthwise.conv;
        self.prefetch(s, x..x + W);
        let columns = taps_inside(conv.in_w, (W - 1) * STRIDE + K, x * STRIDE, 1, conv.padding[1][0]);
        if columns.len() == (W - 1) * STRIDE + K {
            s.vectorize(PixelTile::<T, W, K, STRIDE, false> { output_row: self, x, columns });
        } else if const { W == 4 } {
            s.vectorize(PixelTile::<T, W, K, STRIDE, true> { output_row: self, x, columns });
        } else {
            // The padding is wider than four pixels.
            self.pixels(s, x..x + W);
        }
    }

    /// Returns the operands of the pixels from `x` on, whose windows start at column `tap_x`.
    #[inline(always)]
    fn operands(&self, x: usize, tap_x: usize) -> PixelOperands<T> {
        let Depthwise { conv, ref epilogue, .. } = *self.block.depthwise;
        let Range { start, end } = self.taps_y;
        PixelOperands {
            taps: end - start,
            row: self.input(start, x, tap_x),
            row_step: conv.dilation[0].wrapping_mul(conv.in_w).wrapping_mul(conv.in_stride),
            pixel_step: conv.in_stride,
            weights: self.weights(start, tap_x),
            weights_step: conv.kernel[1] * conv.in_c,
            tap_step: conv.in_c,
            bias: epilogue.bias,
            out: self.out(x),
            out_step: conv.out_stride,
            channels: (self.block.channels.start, self.block.channels.end),
        }
    }

    /// Stores `n` channels of output pixel `x`, with the activation if it is fused.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, x: usize, channel: usize, n: usize, sum: S::V) {
        let depthwise = self.block.depthwise;
        let sum = if depthwise.is_fused { depthwise.epilogue.fused_activation(s, sum) } else { sum };
        let to = self.out(x).wrapping_add(channel);
        // SAFETY: the output's size was checked, and only this task accesses this row and these channels.
        unsafe { T::store(s, to, n, sum) };
    }
}

/// Operands of neighbouring pixels, restricted to the taps inside the input. Kept in locals: fields behind a reference
/// would be reloaded for every vector.
#[derive(Clone, Copy)]
struct PixelOperands<T> {
    /// Rows of taps.
    taps: usize,
    /// First channel of the first pixel of the first row, and the steps to the next row and pixel.
    row: *const T,
    row_step: usize,
    pixel_step: usize,
    /// The same for the weights.
    weights: *const f32,
    weights_step: usize,
    tap_step: usize,
    /// Bias of the first channel, or null.
    bias: *const f32,
    out: *mut T,
    out_step: usize,
    channels: (usize, usize),
}

impl<T: Element> PixelOperands<T> {
    /// First channel and width of each vector. With 16 channels or more, the last vector overlaps the one before, whose
    /// results are recomputed.
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

/// Returns true if the weights of `k` taps, an input vector and the accumulators of the widest tile fit in registers.
const fn has_registers<S: Simd>(k: usize) -> bool {
    k + 1 + S::DEPTHWISE_PIXELS <= S::VECTOR_REGISTERS
}

/// `W` neighbouring pixels of a kernel of width `K` with stride `STRIDE`, for at least 16 channels. With `BORDER`, only
/// `columns` of the input columns are inside.
struct PixelTile<'a, T, const W: usize, const K: usize, const STRIDE: usize, const BORDER: bool> {
    output_row: &'a OutputRow<'a, T>,
    x: usize,
    columns: Range<usize>,
}

impl<T: Element, const W: usize, const K: usize, const STRIDE: usize, const BORDER: bool> Kernel
    for PixelTile<'_, T, W, K, STRIDE, BORDER>
{
    type Out = ();

    // If registers suffice, a row's weights stay in them while input columns stream by. Otherwise one weight at a time
    // is applied to all pixels, with the input as memory operand. At the border, columns stream by and weights are
    // memory operands. The order of each sum is the same in all three.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Depthwise { is_fused, ref epilogue, .. } = *self.output_row.block.depthwise;
        let (is_clamped, is_hard_swish) = (is_fused && !epilogue.is_hard_swish, is_fused && epilogue.is_hard_swish);
        let (min, max) = (s.splat(epilogue.min), s.splat(epilogue.max));
        let (first, last) = (self.columns.start, self.columns.end);
        let pixels = self.output_row.operands(self.x, 0);
        for (channel, _) in pixels.vectors() {
            let mut sums = [pixels.bias(s, channel, LANES); W];
            let mut row = pixels.row.wrapping_add(channel);
            let mut weights = pixels.weights.wrapping_add(channel);
            for _ in 0..pixels.taps {
                // SAFETY: there is a weight for each tap and channel.
                let weight = |tap: usize| unsafe { s.load(weights.wrapping_add(tap * pixels.tap_step)) };
                // SAFETY: this column is inside the input, whose size was checked.
                let pixel = |column: usize| unsafe {
                    T::load(s, row.wrapping_add(column.wrapping_mul(pixels.pixel_step)), LANES)
                };
                let in_registers = const { K == 3 || has_registers::<S>(K) };
                if BORDER || in_registers {
                    let mut row_weights = [s.splat(0.0); K];
                    if in_registers {
                        for tap in 0..K {
                            row_weights[tap] = weight(tap);
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
                                sums[t] = s.fma(v, if in_registers { row_weights[tap] } else { weight(tap) }, sums[t]);
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
                row = row.wrapping_add(pixels.row_step);
                weights = weights.wrapping_add(pixels.weights_step);
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
            let out = pixels.out.wrapping_add(channel);
            for t in 0..W {
                // SAFETY: the output's size was checked, and only this task accesses this row and these channels.
                unsafe { T::store(s, out.wrapping_add(t * pixels.out_step), LANES, sums[t]) };
            }
        }
    }
}

/// One pixel with an arbitrary window, of which the taps `taps_x` are inside.
struct SinglePixel<'a, T> {
    output_row: &'a OutputRow<'a, T>,
    x: usize,
    taps_x: Range<usize>,
}

impl<T: Element> Kernel for SinglePixel<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let pixels = self.output_row.operands(self.x, self.taps_x.start);
        let pixel_step = self.output_row.block.depthwise.conv.dilation[1] * pixels.pixel_step;
        for (channel, n) in pixels.vectors() {
            let mut sum = pixels.bias(s, channel, n);
            let mut row = pixels.row.wrapping_add(channel);
            let mut weights = pixels.weights.wrapping_add(channel);
            for _ in 0..pixels.taps {
                for tap in 0..self.taps_x.len() {
                    // SAFETY: these taps are inside the input, whose size was checked.
                    let v = unsafe { T::load(s, row.wrapping_add(tap * pixel_step), n) };
                    // SAFETY: there is a weight for each tap and channel.
                    sum = s.fma(v, unsafe { f32::load(s, weights.wrapping_add(tap * pixels.tap_step), n) }, sum);
                }
                row = row.wrapping_add(pixels.row_step);
                weights = weights.wrapping_add(pixels.weights_step);
            }
            self.output_row.store(s, self.x, channel, n, sum);
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
                let taps = taps_inside(size, kernel, x * stride, dilation, padding);
                for tap in 0..kernel {
                    assert_eq!(taps.contains(&tap), is_inside(x, tap), "{x} {tap}");
                }
            }
        }
    }
}
