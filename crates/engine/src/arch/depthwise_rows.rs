//! Rows of an int8 depthwise convolution with a kernel of 3 x 3 or 5 x 5, for instruction sets that have
//! [`Simd::depthwise_int8`]: the accumulators of a few pixels and 16 channels stay in registers until the epilogue.
#![allow(unsafe_code)]

use core::ops::Range;

use super::tiles::{INT8_DEPTHWISE_PIXELS as PIXELS, Int8DepthwiseOperands, Int8Taps};
use super::{I32, Kernel, LANES, Simd};
use crate::task_memory::AnyBytes;

/// Groups of 16 channels whose weights are arranged together; only an instruction set of this architecture has tiles.
const MAX_BLOCKS: usize = if cfg!(target_arch = "aarch64") { 64 } else { 1 };

/// Memory of a task.
pub(crate) struct DepthwiseMemory([ChannelBlock; MAX_BLOCKS]);

// SAFETY: arrays of integers.
unsafe impl AnyBytes for DepthwiseMemory {}

/// 16 channels.
#[repr(C, align(64))]
struct ChannelBlock {
    /// Initial accumulators.
    offsets: [i32; LANES],
    taps: Int8Taps,
}

/// The start and the end of the accumulators.
pub(crate) trait DepthwiseEpilogue {
    /// Returns the initial accumulators of the 16 channels from `channel` on.
    fn offsets<S: Simd>(&self, s: S, channel: usize) -> I32<S>;

    /// Stores the results of adjacent pixels, counted from the first one of the output, for the 16 channels from `channel` on.
    fn finish<S: Simd>(&self, s: S, tile: &[[I32<S>; 1]; PIXELS], pixel: usize, channel: usize);
}

/// Sizes of an int8 depthwise convolution of NHWC tensors.
#[derive(Clone, Copy)]
pub(crate) struct DepthwiseShape {
    pub(crate) channels: usize,
    /// Height and width of an image.
    pub(crate) input: [usize; 2],
    pub(crate) output: [usize; 2],
    /// Bytes between pixels of the input.
    pub(crate) in_stride: usize,
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    /// Rows before the input, and columns.
    pub(crate) padding: [usize; 2],
}

/// Rows of the output.
pub(crate) struct DepthwiseRows<'a, E> {
    pub(crate) shape: DepthwiseShape,
    /// Zero point of the input, which pads it.
    pub(crate) zero: u8,
    pub(crate) input: &'a [u8],
    /// `[ceil(channels / 16)][kernel_w][ceil(kernel_h / 4)][16][4]`
    pub(crate) weights: &'a [i8],
    /// Rows of all images.
    pub(crate) rows: Range<usize>,
    pub(crate) epilogue: &'a E,
}

impl<E: DepthwiseEpilogue> DepthwiseRows<'_, E> {
    /// Computes the rows if there are tiles for this convolution; returns false otherwise. Rows may have been written then.
    #[inline(always)]
    pub(crate) fn run<S: Simd>(&self, s: S, memory: &mut DepthwiseMemory) -> bool {
        let DepthwiseShape { channels, output, kernel, stride, dilation, .. } = self.shape;
        // The last 16 channels may overlap those before, in units of four.
        let is_possible = dilation[1] == 1 && output[1] >= PIXELS && channels >= LANES && channels.is_multiple_of(4);
        if const { S::HAS_INT8_DEPTHWISE } && is_possible {
            return match (kernel, stride[1]) {
                ([3, 3], 1) => s.vectorize(AllRows::<E, 3, 1> { rows: self, memory }),
                ([3, 3], 2) => s.vectorize(AllRows::<E, 3, 2> { rows: self, memory }),
                ([5, 5], 1) => s.vectorize(AllRows::<E, 5, 1> { rows: self, memory }),
                ([5, 5], 2) => s.vectorize(AllRows::<E, 5, 2> { rows: self, memory }),
                _ => false,
            };
        }
        false
    }
}

/// All rows with a kernel of `K` x `K` and a horizontal stride of `STEP`.
struct AllRows<'a, E, const K: usize, const STEP: usize> {
    rows: &'a DepthwiseRows<'a, E>,
    memory: &'a mut DepthwiseMemory,
}

impl<E: DepthwiseEpilogue, const K: usize, const STEP: usize> Kernel for AllRows<'_, E, K, STEP> {
    type Out = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let Self { rows, memory: DepthwiseMemory(blocks) } = self;
        let DepthwiseShape { channels, input: [in_h, in_w], output: [out_h, _], in_stride, .. } = rows.shape;
        let count = channels.div_ceil(LANES);
        let pixels = rows.rows.end.div_ceil(out_h) * in_h * in_w;
        assert!(pixels == 0 || (pixels - 1) * in_stride + channels <= rows.input.len(), "the input");
        assert!(count * K * K.div_ceil(4) * 4 * LANES <= rows.weights.len(), "the weights");
        let pad = [rows.zero; LANES];
        for first in (0..count).step_by(MAX_BLOCKS) {
            let blocks = &mut blocks[..(count - first).min(MAX_BLOCKS)];
            let channel = |block: usize| ((first + block) * LANES).min(channels - LANES);
            for (at, block) in blocks.iter_mut().enumerate() {
                if !rows.arrange::<S, K, STEP>(s, channel(at), block) {
                    return false;
                }
            }
            for row in rows.rows.clone() {
                let (starts, strides) = rows.inputs::<K>(row, &pad);
                for (at, block) in blocks.iter().enumerate() {
                    let channel = channel(at);
                    let mut from = starts;
                    for h in 0..K {
                        // All channels of padding are at one place.
                        from[h] = from[h].wrapping_add(if strides[h] == 0 { 0 } else { channel });
                    }
                    let pad = pad.as_ptr();
                    s.vectorize(RowOfPixels::<E, K, STEP> { rows, row, channel, block, from, strides, pad });
                }
            }
        }
        true
    }
}

impl<E: DepthwiseEpilogue> DepthwiseRows<'_, E> {
    /// Arranges the weights of the 16 channels from `channel` on; returns false if there are no tiles for them.
    #[inline(always)]
    fn arrange<S: Simd, const K: usize, const STEP: usize>(
        &self,
        s: S,
        channel: usize,
        block: &mut ChannelBlock,
    ) -> bool {
        let mut weights = [self.weights.as_ptr(); 4];
        for four in 0..4 {
            let (panel, lane) = ((channel + 4 * four) / LANES, (channel + 4 * four) % LANES);
            weights[four] = weights[four].wrapping_add((panel * K * K.div_ceil(4) * LANES + lane) * 4);
        }
        // SAFETY: the weights of all channels are readable, as `AllRows` asserts.
        let Some(added) = (unsafe { s.int8_taps::<K, STEP>(weights, &mut block.taps) }) else { return false };
        let offsets = s.add_i32(self.epilogue.offsets(s, channel), added);
        // SAFETY: there is room for a vector.
        unsafe { s.store_i32(block.offsets.as_mut_ptr(), offsets) };
        true
    }

    /// Returns the starts of the input's rows under a row of the output, and the bytes from a column to the next one: 0 for
    /// padding.
    #[inline(always)]
    fn inputs<const K: usize>(&self, row: usize, pad: &[u8; LANES]) -> ([*const u8; K], [usize; K]) {
        let DepthwiseShape { input: [in_h, in_w], output: [out_h, _], in_stride, stride, dilation, padding, .. } =
            self.shape;
        let (mut from, mut strides) = ([pad.as_ptr(); K], [0; K]);
        for h in 0..K {
            let y = (row % out_h * stride[0] + h * dilation[0]).wrapping_sub(padding[0]);
            if y < in_h {
                from[h] = self.input.as_ptr().wrapping_add((row / out_h * in_h + y) * in_w * in_stride);
                strides[h] = in_stride;
            }
        }
        (from, strides)
    }
}

/// A row of the output, 16 of its channels.
struct RowOfPixels<'a, E, const K: usize, const STEP: usize> {
    rows: &'a DepthwiseRows<'a, E>,
    row: usize,
    channel: usize,
    block: &'a ChannelBlock,
    /// The channels in column 0 of each row of the input, and the bytes to those of the next column.
    from: [*const u8; K],
    strides: [usize; K],
    pad: *const u8,
}

impl<E: DepthwiseEpilogue, const K: usize, const STEP: usize> Kernel for RowOfPixels<'_, E, K, STEP> {
    type Out = ();

    // The last tile overlaps the one before and recomputes its pixels.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, row, channel, block, from, strides, pad } = self;
        let DepthwiseShape { input: [_, in_w], output: [_, out_w], in_stride, padding, .. } = rows.shape;
        let is_padded = strides != [in_stride; K];
        // The last column at which a tile may begin.
        let last = in_w.checked_sub(const { (PIXELS - 1) * STEP + K });
        for x in (0..out_w).step_by(PIXELS) {
            let x = x.min(out_w - PIXELS);
            let first = (x * STEP).wrapping_sub(padding[1]);
            let mut at = from;
            for h in 0..K {
                at[h] = at[h].wrapping_add(first.wrapping_mul(strides[h]));
            }
            let operands = Int8DepthwiseOperands { from: at, strides, first, in_w, pad, taps: &block.taps };
            // SAFETY: the block has the offsets of 16 channels.
            let mut tile = [[unsafe { s.load_i32(block.offsets.as_ptr()) }]; PIXELS];
            if is_padded || last.is_none_or(|last| first > last) {
                // SAFETY: `AllRows` asserts the input's size; padding has 16 bytes.
                unsafe { s.depthwise_int8::<K, STEP, true>(&operands, &mut tile) };
            } else {
                // SAFETY: likewise; all rows and columns are inside the input.
                unsafe { s.depthwise_int8::<K, STEP, false>(&operands, &mut tile) };
            }
            rows.epilogue.finish(s, &tile, row * out_w + x, channel);
        }
    }
}
