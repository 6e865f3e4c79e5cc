//! Int8 depthwise convolution.
//!
//! Up to four rows of the input are interleaved into quads: for each column, a vector of 16 channels whose lanes hold
//! the bytes of these rows, the operand of [`Simd::dot_u8i8`]. The quads of a part of a row are made once and serve all
//! windows that overlap it; a few output pixels at a time are accumulated in registers.

use core::mem::MaybeUninit;
use core::ops::Range;

use crate::arch::{
    Aligned, DepthwiseEpilogue, DepthwiseMemory, DepthwiseRows, DepthwiseShape, I8Quads, I32, INT8_DEPTHWISE_PIXELS,
    Kernel, LANES, Simd,
};
use crate::error::{Error, at_least};
use crate::pack::depthwise2d_i8_len;
use crate::task_memory::{AnyBytes, TaskMemory};
use crate::{Conv2d, Engine};

use super::epilogue::{ApplyQuantEpilogue, OutPtr, QuantEpilogueArgs, RegisterTile};
use super::{QuantEpilogue, QuantOut};

/// Minimum multiply-adds of a task.
const MIN_TASK_OPS: usize = 100_000;

/// Maximum height of the kernel.
const MAX_KERNEL_ROWS: usize = 32;

/// Maximum output pixels that are accumulated before the epilogue.
const MAX_PIXELS: usize = 64;

/// Maximum columns of quads that are made together: with the accumulators they fit in L1.
const MAX_COLUMNS: usize = 192;

/// Computes `out = epilogue(conv2d(input))` where `groups`, `in_c` and `out_c` are equal, with weights packed by
/// [`pack::depthwise2d_i8_into`](crate::pack::depthwise2d_i8_into). `zero` is the zero point of the input, and pads it.
///
/// # Errors
/// If a slice is too short, a size is zero or too large, the convolution is not depthwise, or its window has more than
/// 32 rows or spans more than 192 columns.
pub fn depthwise2d_u8(
    engine: &Engine,
    conv: &Conv2d,
    zero: u8,
    input: &[u8],
    weights: &[i8],
    mut out: QuantOut,
    epilogue: &QuantEpilogue,
) -> Result<(), Error> {
    let pixels = conv.in_3d().check(input.len(), out.len())?;
    for (what, channels) in [("groups", conv.groups), ("output channels", conv.out_c)] {
        if channels != conv.in_c {
            return Err(Error::Mismatch { what, expected: conv.in_c, got: channels });
        }
    }
    let len = depthwise2d_i8_len(conv).ok_or(Error::Size { what: "weights" })?;
    at_least("weights", weights.len(), len)?;
    epilogue.check_windows(pixels, conv.out_c)?;
    let [kernel_h, kernel_w] = conv.kernel;
    if !depthwise2d_u8_takes(conv.kernel, conv.dilation) {
        return Err(Error::Size { what: "window of an int8 convolution" });
    }
    let reach = reach(kernel_w, conv.dilation[1]);
    if pixels == 0 || conv.in_c == 0 {
        return Ok(());
    }
    let (out_h, out_w) = (conv.out_h(), conv.out_w());
    let limit = ((MAX_COLUMNS - reach) / conv.stride[1] + 1).min(MAX_PIXELS);
    let chunk = out_w.div_ceil(out_w.div_ceil(limit));
    let (epilogue, out) = (epilogue.args(&out), out.start());
    let depthwise = DepthwiseU8 { conv, zero, input, weights, epilogue, out, out_h, out_w, reach, chunk };
    let work = out_w * conv.in_c * kernel_h * kernel_w;
    engine.parallel_for(conv.batch * out_h, MIN_TASK_OPS.div_ceil(work), |out_rows| {
        let mut memory = TaskMemory::take();
        engine.dispatch.run_int8(DepthwiseU8Task { depthwise: &depthwise, out_rows, memory: memory.get() });
    });
    Ok(())
}

/// True if [`depthwise2d_u8`] takes windows of this height and width with this dilation.
pub const fn depthwise2d_u8_takes([kernel_h, kernel_w]: [usize; 2], dilation: [usize; 2]) -> bool {
    kernel_h <= MAX_KERNEL_ROWS && reach(kernel_w, dilation[1]) <= MAX_COLUMNS
}

/// Columns that a window reaches over.
const fn reach(kernel_w: usize, dilation: usize) -> usize {
    kernel_w.saturating_sub(1).saturating_mul(dilation).saturating_add(1)
}

struct DepthwiseU8<'a> {
    conv: &'a Conv2d,
    zero: u8,
    input: &'a [u8],
    weights: &'a [i8],
    epilogue: QuantEpilogueArgs,
    out: OutPtr,
    out_h: usize,
    out_w: usize,
    /// Columns of the input that a window spans, dilation included.
    reach: usize,
    /// Output pixels that are computed together.
    chunk: usize,
}

// SAFETY: tasks write disjoint rows of `out`, which `depthwise2d_u8` borrows exclusively.
unsafe impl Sync for DepthwiseU8<'_> {}

impl DepthwiseU8<'_> {
    fn shape(&self) -> DepthwiseShape {
        let &Self { conv, out_h, out_w, .. } = self;
        let &Conv2d { in_c, in_h, in_w, in_stride, kernel, stride, dilation, padding, .. } = conv;
        let (input, output) = ([in_h, in_w], [out_h, out_w]);
        let padding = padding.map(|[before, _]| before);
        DepthwiseShape { channels: in_c, input, output, in_stride, kernel, stride, dilation, padding }
    }
}

impl DepthwiseEpilogue for DepthwiseU8<'_> {
    #[inline(always)]
    fn offsets<S: Simd>(&self, s: S, channel: usize) -> I32<S> {
        let n = (self.conv.in_c - channel).min(LANES);
        // SAFETY: there is an offset for each channel.
        let offsets = unsafe { s.load_partial_i32(self.epilogue.offsets.wrapping_add(channel), n) };
        // SAFETY: a convolution has one zero for all rows.
        unsafe { self.epilogue.start(s, offsets, 0) }
    }

    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, tile: &[[I32<S>; 1]; INT8_DEPTHWISE_PIXELS], pixel: usize, channel: usize) {
        let (row, column, columns, out_stride) = (pixel, channel, LANES, self.conv.out_stride);
        let registers = RegisterTile { sums: tile, row, column, columns, out_stride };
        // SAFETY: all sizes were checked, and tasks have their own rows.
        if unsafe { registers.run_on(s, &self.epilogue, self.out) } {
            return;
        }
        let mut copy = [MaybeUninit::<Aligned>::uninit(); INT8_DEPTHWISE_PIXELS];
        for n in 0..INT8_DEPTHWISE_PIXELS {
            // SAFETY: there is room for a vector.
            unsafe { s.store_i32(copy[n].as_mut_ptr().cast(), tile[n][0]) };
        }
        let finish = ApplyQuantEpilogue::<i32> {
            epilogue: &self.epilogue,
            sums: copy.as_ptr().cast(),
            panels: 1,
            rows: INT8_DEPTHWISE_PIXELS,
            row,
            column,
            columns,
            out: self.out,
            out_stride,
        };
        // SAFETY: all sizes were checked, and tasks have their own rows.
        unsafe { finish.run_on(s) };
    }
}

/// One task: a range of output rows.
struct DepthwiseU8Task<'a> {
    depthwise: &'a DepthwiseU8<'a>,
    out_rows: Range<usize>,
    memory: &'a mut Memory,
}

impl Kernel for DepthwiseU8Task<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { depthwise, out_rows, memory: Memory { buffers, channels } } = self;
        let &DepthwiseU8 { conv, zero, input, weights, out_h, .. } = depthwise;
        let (shape, rows) = (depthwise.shape(), out_rows.clone());
        if (DepthwiseRows { shape, zero, input, weights, rows, epilogue: depthwise }).run(s, channels) {
            return;
        }
        let [kernel_h, kernel_w] = conv.kernel;
        let pad = [zero; LANES];
        let groups = kernel_h.div_ceil(4);
        for out_row in out_rows {
            let (image, y) = (out_row / out_h, out_row % out_h);
            let mut input_rows = InputRows { starts: [const { MaybeUninit::uninit() }; MAX_KERNEL_ROWS], pad };
            for (tap, input_rows) in input_rows.starts.iter_mut().enumerate().take(kernel_h) {
                let y = (y * conv.stride[0] + tap * conv.dilation[0]).wrapping_sub(conv.padding[0][0]);
                let pixel = (image * conv.in_h).wrapping_add(y).wrapping_mul(conv.in_w);
                let at = input.as_ptr().wrapping_add(pixel.wrapping_mul(conv.in_stride));
                input_rows.write((y < conv.in_h).then_some(at));
            }
            for channel in (0..conv.in_c).step_by(LANES) {
                let first = channel / LANES * kernel_w * groups * 4 * LANES;
                let row = ChannelRow {
                    depthwise,
                    input_rows: &input_rows,
                    weights: weights.as_ptr().wrapping_add(first),
                    out_row,
                    channel,
                    lanes: (conv.in_c - channel).min(LANES),
                };
                s.vectorize(AllPixels { row: &row, buffers: &mut *buffers });
            }
        }
    }
}

/// The input rows under one output row.
struct InputRows {
    /// Start of each row, or `None` for padding.
    starts: [MaybeUninit<Option<*const u8>>; MAX_KERNEL_ROWS],
    /// Contents of padding rows.
    pad: [u8; LANES],
}

/// One output row, up to 16 of its channels.
struct ChannelRow<'a> {
    depthwise: &'a DepthwiseU8<'a>,
    input_rows: &'a InputRows,
    /// `[kernel_w][ceil(kernel_h / 4)][16][4]`
    weights: *const i8,
    out_row: usize,
    channel: usize,
    lanes: usize,
}

/// Accumulators of pixels, or quads of columns.
type VectorBuffer<const N: usize> = [MaybeUninit<Aligned>; N];

/// Memory of a task.
struct Memory {
    buffers: Buffers,
    channels: DepthwiseMemory,
}

/// Memory for channels that are computed by quads.
struct Buffers {
    sums: VectorBuffer<MAX_PIXELS>,
    quads: VectorBuffer<MAX_COLUMNS>,
}

// SAFETY: arrays without a value of their own, of vectors of 64 bytes, and `AnyBytes`.
unsafe impl AnyBytes for Memory {}

/// Computes all pixels of a [`ChannelRow`].
struct AllPixels<'a> {
    row: &'a ChannelRow<'a>,
    buffers: &'a mut Buffers,
}

impl Kernel for AllPixels<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { row, buffers: Buffers { sums, quads } } = self;
        let DepthwiseU8 { conv, out_w, reach, chunk, .. } = *row.depthwise;
        let ([kernel_h, _], [_, step]) = (conv.kernel, conv.stride);
        let offset = row.depthwise.offsets(s, row.channel);
        for start in (0..out_w).step_by(chunk) {
            let pixels = chunk.min(out_w - start);
            let first = (start * step).wrapping_sub(conv.padding[1][0]);
            if (SmallKernel { row, start, pixels, first }).run(s, offset, sums) {
                continue;
            }
            for sum in &mut sums[..pixels] {
                // SAFETY: there is room for a vector.
                unsafe { s.store_i32(sum.as_mut_ptr().cast(), offset) };
            }
            for group in 0..kernel_h.div_ceil(4) {
                let quads = &mut quads[..(pixels - 1) * step + reach];
                let row_quads = RowQuads { row, group, first, quads };
                match kernel_h - 4 * group {
                    1 => row_quads.quads::<S, 1>(s),
                    2 => row_quads.quads::<S, 2>(s),
                    3 => row_quads.quads::<S, 3>(s),
                    _ => row_quads.quads::<S, 4>(s),
                }
                let sums = &mut sums[..pixels];
                match step {
                    1 => row.tiles::<S, 1>(s, group, quads, sums),
                    2 => row.tiles::<S, 2>(s, group, quads, sums),
                    _ => {
                        for x in 0..pixels {
                            row.add::<S, 1, 1>(s, group, &quads[x * step..], &mut sums[x..=x]);
                        }
                    }
                }
            }
            row.finish(s, sums, start, pixels);
        }
    }
}

/// Interleaves up to four input rows into quads.
struct RowQuads<'a> {
    row: &'a ChannelRow<'a>,
    group: usize,
    /// Column of the first quad; may lie before the input.
    first: usize,
    quads: &'a mut [MaybeUninit<Aligned>],
}

impl RowQuads<'_> {
    /// Makes the quads of `L` rows.
    #[inline(always)]
    fn quads<S: Simd, const L: usize>(self, s: S) {
        if self.row.lanes == LANES {
            self.quads_of::<S, L, true>(s);
        } else {
            self.quads_of::<S, L, false>(s);
        }
    }

    /// Makes the quads of `L` rows of 16 channels, or of fewer channels unless `WHOLE`.
    #[inline(always)]
    fn quads_of<S: Simd, const L: usize, const WHOLE: bool>(self, s: S) {
        let Self { row, group, first, quads } = self;
        let Conv2d { in_w, in_stride, .. } = *row.depthwise.conv;
        let lanes = if WHOLE { LANES } else { row.lanes };
        // Columns before the input, inside it and after it.
        let before = if first.cast_signed() < 0 { first.wrapping_neg().min(quads.len()) } else { 0 };
        let inside = in_w.saturating_sub(first.wrapping_add(before)).min(quads.len() - before);
        let (head, rest) = quads.split_at_mut(before);
        let (middle, after) = rest.split_at_mut(inside);
        // Padding rows are read with a stride of 0.
        let pad = row.input_rows.pad.as_ptr();
        let (mut at, mut strides) = ([pad; L], [0; L]);
        for i in 0..L {
            // SAFETY: all rows of the window were written.
            if let Some(start) = unsafe { row.input_rows.starts[4 * group + i].assume_init() } {
                let column = first.wrapping_add(before);
                at[i] = start.wrapping_add(column.wrapping_mul(in_stride).wrapping_add(row.channel));
                strides[i] = in_stride;
            }
        }
        for to in head.iter_mut().chain(after) {
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

    /// Stores the quad of the bytes at `L` addresses.
    ///
    /// # Safety
    /// `lanes` bytes are readable at each address, and 16 lanes are writable.
    #[inline(always)]
    unsafe fn quad<S: Simd, const L: usize>(s: S, from: [*const u8; L], lanes: usize, to: *mut u8) {
        // SAFETY: the caller guarantees all of it.
        let mut quad = unsafe { s.load_u8(from[L - 1], lanes) }.as_u8_quads();
        for i in 1..L {
            // SAFETY: likewise.
            quad = s.push_u8(quad, unsafe { s.load_u8(from[L - 1 - i], lanes) });
        }
        // SAFETY: likewise.
        unsafe { s.store_u8_quads(to, quad) };
    }
}

/// Adjacent pixels of a small kernel, whose quads stay in registers.
#[derive(Clone, Copy)]
struct SmallKernel<'a> {
    row: &'a ChannelRow<'a>,
    /// First pixel and number of pixels.
    start: usize,
    pixels: usize,
    /// Input column of the first pixel; may lie before the input.
    first: usize,
}

impl SmallKernel<'_> {
    /// Computes the pixels if there is a specialized tile for this kernel; returns false otherwise.
    #[inline(always)]
    fn run<S: Simd>(self, s: S, offset: I32<S>, sums: &mut VectorBuffer<MAX_PIXELS>) -> bool {
        let conv = self.row.depthwise.conv;
        if conv.stride[1] != 1 || conv.dilation[1] != 1 {
            return false;
        }
        let is_wide = const { S::VECTOR_REGISTERS >= 32 } && self.row.lanes == LANES && self.pixels >= 7;
        // Image sizes are often multiples of seven.
        match conv.kernel {
            [3, 3] if is_wide => self.tiles::<S, 7, 3, true>(s, offset, sums),
            [5, 5] if is_wide => self.tiles::<S, 7, 5, true>(s, offset, sums),
            [3, 3] if const { S::VECTOR_REGISTERS >= 8 } && self.pixels >= 4 => {
                self.tiles::<S, 4, 3, false>(s, offset, sums);
            }
            _ => return false,
        }
        true
    }

    /// Returns the first channel of column 0 of each row, and the bytes from a column to the next one. Padding rows are read
    /// with a stride of 0.
    #[inline(always)]
    fn rows<const K: usize>(self) -> ([*const u8; K], [usize; K]) {
        let row = self.row;
        let (mut starts, mut strides) = ([row.input_rows.pad.as_ptr(); K], [0; K]);
        for i in 0..K {
            // SAFETY: all rows of the window were written.
            if let Some(start) = unsafe { row.input_rows.starts[i].assume_init() } {
                starts[i] = start.wrapping_add(row.channel);
                strides[i] = row.depthwise.conv.in_stride;
            }
        }
        (starts, strides)
    }

    /// Computes `N` pixels at a time with a `K` x `K` kernel, for 16 channels or fewer unless `WHOLE`. The last tile
    /// overlaps the one before and recomputes its pixels.
    #[inline(always)]
    fn tiles<S: Simd, const N: usize, const K: usize, const WHOLE: bool>(
        self,
        s: S,
        offset: I32<S>,
        sums: &mut VectorBuffer<MAX_PIXELS>,
    ) {
        let row = self.row;
        let DepthwiseU8 { conv, out_w, ref epilogue, out, .. } = *row.depthwise;
        let (starts, strides) = self.rows::<K>();
        let groups = const { K.div_ceil(4) };
        let mut weights = [[s.splat_i8_quads(0); 2]; K];
        for w in 0..K {
            for group in 0..groups {
                let at = row.weights.wrapping_add((w * groups + group) * 4 * LANES);
                // SAFETY: `depthwise2d_u8` has checked the weights' size.
                weights[w][group] = unsafe { s.load_i8_quads(at) };
            }
        }
        let mut are_stored = true;
        for x in (0..self.pixels).step_by(N) {
            let x = x.min(self.pixels - N);
            let first = self.first.wrapping_add(x);
            let mut from = starts;
            for i in 0..K {
                from[i] = from[i].wrapping_add(first.wrapping_mul(strides[i]));
            }
            let tile = self.tile::<S, N, K, WHOLE>(s, offset, &weights, first, from, strides);
            let first_row = row.out_row * out_w + self.start + x;
            let (column, columns) = (row.channel, row.lanes);
            let registers = RegisterTile { sums: &tile, row: first_row, column, columns, out_stride: conv.out_stride };
            // SAFETY: all sizes were checked, and tasks have their own rows.
            if const { WHOLE && K == 3 } && unsafe { registers.run_on(s, epilogue, out) } {
                continue;
            }
            are_stored = false;
            for n in 0..N {
                // SAFETY: there is room for a vector.
                unsafe { s.store_i32(sums[x + n].as_mut_ptr().cast(), tile[n][0]) };
            }
        }
        if !are_stored {
            row.finish(s, sums, self.start, self.pixels);
        }
    }

    /// Accumulates `N` pixels; `from` points to the first column of each row.
    #[inline(always)]
    fn tile<S: Simd, const N: usize, const K: usize, const WHOLE: bool>(
        self,
        s: S,
        offset: I32<S>,
        weights: &[[I8Quads<S>; 2]; K],
        first: usize,
        mut from: [*const u8; K],
        strides: [usize; K],
    ) -> [[I32<S>; 1]; N] {
        let in_w = self.row.depthwise.conv.in_w;
        let lanes = if WHOLE { LANES } else { self.row.lanes };
        let pad = self.row.input_rows.pad.as_ptr();
        let mut sums = [[offset]; N];
        for column in 0..N - 1 + K {
            let is_inside = first.wrapping_add(column) < in_w;
            for group in 0..const { K.div_ceil(4) } {
                let height = if K - 4 * group < 4 { K - 4 * group } else { 4 };
                let mut quad = s.splat_u8_quads(0);
                // No closures: they are not always inlined into the `target_feature` function.
                for i in 0..height {
                    let tap = 4 * group + height - 1 - i;
                    let from = core::hint::select_unpredictable(is_inside, from[tap], pad);
                    // SAFETY: `depthwise2d_u8` has checked the input's size; padding has 16 bytes.
                    let bytes = unsafe { s.load_u8(from, lanes) };
                    quad = if i == 0 { bytes.as_u8_quads() } else { s.push_u8(quad, bytes) };
                }
                for n in 0..N {
                    if n <= column && column < n + K {
                        sums[n][0] = s.dot_u8i8(quad, weights[column - n][group], sums[n][0]);
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

impl ChannelRow<'_> {
    /// Applies the epilogue to the accumulators of the pixels from `x` on.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, sums: &VectorBuffer<MAX_PIXELS>, x: usize, pixels: usize) {
        let finish = ApplyQuantEpilogue::<i32> {
            epilogue: &self.depthwise.epilogue,
            sums: sums.as_ptr().cast(),
            panels: 1,
            rows: pixels,
            row: self.out_row * self.depthwise.out_w + x,
            column: self.channel,
            columns: self.lanes,
            out: self.depthwise.out,
            out_stride: self.depthwise.conv.out_stride,
        };
        // SAFETY: all sizes were checked, and tasks have their own rows.
        unsafe { finish.run_on(s) };
    }

    /// Accumulates the products of quads into pixels that are `STEP` columns apart, a few pixels at a time.
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
                if const { $pixels == 1 || S::VECTOR_REGISTERS >= 4 * $pixels || S::VECTOR_REGISTERS == 2 * $pixels } {
                    while sums.len() - x >= $pixels {
                        self.add::<S, $pixels, STEP>(s, group, &quads[x * STEP..], &mut sums[x..x + $pixels]);
                        x += $pixels;
                    }
                }
            )*};
        }
        by_pixels!(8 4 2 1);
    }

    /// Accumulates the products of quads into `N` pixels.
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
        let to: *mut i32 = sums.as_mut_ptr().cast();
        let mut tile = [s.splat_i32(0); N];
        for n in 0..N {
            // SAFETY: the sums were written.
            tile[n] = unsafe { s.load_i32(to.wrapping_add(n * LANES)) };
        }
        let mut weights = self.weights.wrapping_add(group * 4 * LANES);
        let mut quads: *const u8 = quads.as_ptr().cast();
        for _ in 0..kernel_w {
            // SAFETY: `depthwise2d_u8` has checked the weights' size.
            let right = unsafe { s.load_i8_quads(weights) };
            for n in 0..N {
                // SAFETY: the quads of all columns under the pixels were written.
                let quad = unsafe { s.load_u8_quads(quads.wrapping_add(n * STEP * 4 * LANES)) };
                tile[n] = s.dot_u8i8(quad, right, tile[n]);
            }
            weights = weights.wrapping_add(groups * 4 * LANES);
            quads = quads.wrapping_add(dilation * 4 * LANES);
        }
        for n in 0..N {
            // SAFETY: as above.
            unsafe { s.store_i32(to.wrapping_add(n * LANES), tile[n]) };
        }
    }
}
