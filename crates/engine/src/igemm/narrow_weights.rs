//! GEMM with weights of fewer than 32 bits: f16, bf16, or 4- and 8-bit integers.
//!
//! If the processor has bf16 dot products and the weights are bf16, the left side is multiplied as bf16: in place if it
//! is stored so, else rounded into a copy. In all other cases a block of weights is widened to f32 in the L1 cache and
//! everything is computed in f32.

use core::mem::MaybeUninit;
use core::ops::Range;

use super::microkernel::{Prefetch, TileOperands};
use super::{
    Igemm, IndirectOperands, IndirectionBuffer, KBlocking, LhsRows, MAX_BLOCK_K, MAX_REPACKED_PAIRS, MacroKernel,
    Operands, PanelGroup, PanelSource,
};
use crate::arch::{Kernel, LANES, Simd};
use crate::weights::{Bf16Panels, PanelRows, WidenPanel};
use crate::{Half, Weights};

/// Maximum panels of a register tile.
const MAX_PANELS: usize = 2;

/// Elements of rows that are rounded to bf16 at a time; they stay in the L2 cache.
const COPIED_ELEMENTS: usize = 32 << 10;

/// A macrokernel whose weights are not f32.
pub(super) struct NarrowPass<'a, R> {
    pub(super) packed: Weights<'a>,
    pub(super) block: MacroKernel,
    pub(super) igemm: &'a Igemm<'a, R>,
    pub(super) k_blocks: &'a KBlocking,
    pub(super) panels: Range<usize>,
    pub(super) pointers: &'a mut IndirectionBuffer,
    pub(super) memory: &'a mut NarrowMemory,
}

/// Words of memory for weights that are widened or repacked, or for copies of rows: a vector may be written past their end.
const MEMORY_WORDS: usize = COPIED_ELEMENTS / 2 + LANES;

/// Memory of a task with narrow weights.
pub(super) type NarrowMemory = [MaybeUninit<u32>; MEMORY_WORDS];

impl<R: LhsRows> NarrowPass<'_, R> {
    /// Runs the macrokernel.
    #[inline(always)]
    pub(super) fn run<S: Simd>(self, s: S) {
        if const { S::MAY_HAVE_BF16 }
            && let Weights::Half(Half::Bf16, packed) = self.packed
            && self.k_blocks.are_pairs()
            && let Some(bf16) = s.with_bf16()
        {
            bf16.vectorize(Bf16Kernel(self, packed));
            return;
        }
        if const { !R::IS_BF16 } {
            s.vectorize(WidenKernel(self));
        }
    }
}

/// Computes in f32.
struct WidenKernel<'a, R>(NarrowPass<'a, R>);

impl<R: LhsRows> Kernel for WidenKernel<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        const { assert!(MAX_PANELS * MAX_BLOCK_K * LANES <= MEMORY_WORDS) };
        let NarrowPass { packed, block, igemm, k_blocks, panels, pointers, memory } = self.0;
        assert!(block.taps * block.depth <= MAX_BLOCK_K, "a block of K");
        let right = WidenedPanels { packed, floats: memory };
        block.run(s, igemm, k_blocks, panels, &mut IndirectOperands { pointers, right });
    }
}

/// Panels of which one block of K is widened, once for all tiles of the macrokernel.
struct WidenedPanels<'a> {
    packed: Weights<'a>,
    floats: &'a mut NarrowMemory,
}

impl PanelSource for WidenedPanels<'_> {
    #[inline(always)]
    fn prepare<S: Simd>(&mut self, s: S, block: &MacroKernel, panels: &PanelGroup) {
        let rows = block.taps * block.depth;
        for panel in 0..panels.count.min(MAX_PANELS) {
            let first = panels.first + panel * panels.stride;
            let to = self.floats.as_mut_ptr().cast::<f32>().wrapping_add(panel * rows * LANES);
            let widen = WidenPanel { packed: self.packed, first, rows, to };
            // SAFETY: `Igemm::run` requires all weights, and a block of K has at most `MAX_BLOCK_K` rows.
            unsafe { widen.run(s) };
        }
    }

    #[inline(always)]
    fn panels(&self, block: &MacroKernel, _: &PanelGroup, _: usize) -> (*const f32, usize, Prefetch) {
        (self.floats.as_ptr().cast(), block.taps * block.depth * LANES, Prefetch::NONE)
    }
}

/// Computes with bf16 dot products.
struct Bf16Kernel<'a, R>(NarrowPass<'a, R>, &'a [u16]);

impl<R: LhsRows> Kernel for Bf16Kernel<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self(NarrowPass { block, igemm, k_blocks, panels, pointers, memory, .. }, packed) = self;
        if const { R::IS_BF16 } && !block.depth.is_multiple_of(2) {
            const { assert!(MAX_PANELS * MAX_REPACKED_PAIRS * LANES <= MEMORY_WORDS) };
            let mut operands = OddDepthRows { pointers, packed, pairs: memory };
            block.run(s, igemm, k_blocks, panels, &mut operands);
            return;
        }
        if const { R::IS_BF16 } {
            let mut operands = PairedRows { pointers, first: 0, taps: block.taps, pairs: block.depth / 2, packed };
            block.run(s, igemm, k_blocks, panels, &mut operands);
            return;
        }
        let pairs = (block.taps * block.depth).div_ceil(2);
        let limit = (COPIED_ELEMENTS / (2 * pairs).max(1) / S::MR).max(1) * S::MR;
        let chunk = block.count.div_ceil(block.count.div_ceil(limit)).next_multiple_of(S::MR);
        assert!(chunk * pairs + LANES <= MEMORY_WORDS, "the copies of a tile's rows");
        // Whole vectors of a tap and the remainder: the mask is the same for all taps.
        let (whole, rest) = (block.depth / LANES * LANES, block.depth % LANES);
        for first in (0..block.count).step_by(chunk) {
            let count = (block.count - first).min(chunk);
            for row in 0..count {
                let copy = memory.as_mut_ptr().wrapping_add(row * pairs);
                let mut to = copy.cast::<u16>();
                for tap in 0..block.taps {
                    // SAFETY: `fill_pointers` has written a pointer to `depth` floats for each tap and row.
                    let from = unsafe { pointers.pointers[tap * block.count + first + row].assume_init() };
                    for k in (0..whole).step_by(LANES) {
                        // SAFETY: as above; there is room for `chunk` rows.
                        unsafe { s.narrow_to_bf16(from.wrapping_add(k), LANES, to.wrapping_add(k)) };
                    }
                    if rest > 0 {
                        // SAFETY: likewise; the last row may write up to a vector past its end. The element after an odd
                        // count is zero.
                        unsafe { s.narrow_to_bf16(from.wrapping_add(whole), rest, to.wrapping_add(whole)) };
                    }
                    to = to.wrapping_add(block.depth);
                }
                pointers.pointers[first + row].write(copy.cast_const().cast());
            }
            let some = MacroKernel { first: block.first + first, count, ..block };
            let mut operands = PairedRows { pointers, first, taps: 1, pairs, packed };
            some.run(s, igemm, k_blocks, panels.clone(), &mut operands);
        }
    }
}

/// Rows of bf16 pairs and packed bf16 weights.
struct PairedRows<'a> {
    /// Pointers to the rows' pairs, starting with row `first`.
    pointers: &'a IndirectionBuffer,
    first: usize,
    taps: usize,
    /// Pairs per row and tap.
    pairs: usize,
    packed: &'a [u16],
}

impl Operands for PairedRows<'_> {
    type Step = u32;

    #[inline(always)]
    fn prepare<S: Simd>(&mut self, _: S, _: &MacroKernel, _: &PanelGroup) {}

    #[inline(always)]
    fn tile_operands(&self, block: &MacroKernel, panels: &PanelGroup, row: usize, tile: usize) -> TileOperands<u32> {
        let panel = self.packed.as_ptr().wrapping_add(panels.first);
        // A row of pairs covers two of K.
        let cache_lines = panels.prefetch.lines.div_ceil(2);
        let from = panel.wrapping_add(panels.count * panels.stride + tile * cache_lines * 2 * LANES).cast();
        TileOperands {
            pointers: self.pointers.pointers.as_ptr().cast::<*const u32>().wrapping_add(self.first + row),
            pointer_stride: block.count,
            taps: self.taps,
            steps: self.pairs,
            has_unpaired: false,
            panel,
            panel_stride: panels.stride,
            prefetch: Prefetch { from, stride: panels.stride / 2, lines: cache_lines, ..panels.prefetch },
        }
    }
}

/// bf16 rows whose taps have an odd number of elements, with panels repacked so that each tap starts with a pair. The
/// last element of a tap is multiplied as a pair with itself, with half of its weight in each position.
struct OddDepthRows<'a> {
    pointers: &'a IndirectionBuffer,
    packed: &'a [u16],
    pairs: &'a mut NarrowMemory,
}

/// Pairs of a tap of odd depth, including the unpaired element.
fn pairs_per_tap(depth: usize) -> usize {
    depth.div_ceil(2)
}

impl Operands for OddDepthRows<'_> {
    type Step = u32;

    #[inline(always)]
    fn prepare<S: Simd>(&mut self, s: S, block: &MacroKernel, panels: &PanelGroup) {
        let half = s.splat(0.5);
        for panel in 0..panels.count.min(MAX_PANELS) {
            let weights = Bf16Panels(self.packed.as_ptr().wrapping_add(panels.first + panel * panels.stride));
            let pairs = self.pairs[panel * block.taps * pairs_per_tap(block.depth) * LANES..].chunks_exact_mut(LANES);
            for (at, to) in pairs.take(block.taps * pairs_per_tap(block.depth)).enumerate() {
                let (tap, pair) = (at / pairs_per_tap(block.depth), at % pairs_per_tap(block.depth));
                let k = tap * block.depth + 2 * pair;
                // SAFETY: `Igemm::run` requires all weights; a panel has a row of 16 for each of K.
                let first = unsafe { weights.load_row(s, k * LANES) };
                let pair = if 2 * pair + 1 < block.depth {
                    // SAFETY: likewise.
                    s.pack_bf16_pairs(first, unsafe { weights.load_row(s, (k + 1) * LANES) })
                } else {
                    let first = s.mul(first, half);
                    s.pack_bf16_pairs(first, first)
                };
                // SAFETY: these are 16 floats.
                unsafe { s.store_bf16_pairs(to.as_mut_ptr().cast(), pair) };
            }
        }
    }

    #[inline(always)]
    fn tile_operands(&self, block: &MacroKernel, _: &PanelGroup, row: usize, _: usize) -> TileOperands<u32> {
        TileOperands {
            pointers: self.pointers.pointers.as_ptr().cast::<*const u32>().wrapping_add(row),
            pointer_stride: block.count,
            taps: block.taps,
            steps: block.depth / 2,
            has_unpaired: true,
            panel: self.pairs.as_ptr().cast(),
            panel_stride: block.taps * pairs_per_tap(block.depth) * 2 * LANES,
            prefetch: Prefetch::NONE,
        }
    }
}
