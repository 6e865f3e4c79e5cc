//! Products with weights of fewer than 32 bits.
//!
//! Where the processor multiplies pairs of bf16, and weights are some, the rows of a part are read where they are if they are
//! bf16 too, and else rounded and copied for that. Elsewhere a block of weights is widened, and everything is computed in f32.

use core::mem::MaybeUninit;
use core::ops::Range;

use super::tile::{Bf16, Upcoming};
use super::{Blocks, ByPointers, MOST_K, MOST_PAIRS, Operands, Panels, Part, Pointers, Product, Right, Rows};
use crate::arch::{Job, LANES, Simd};
use crate::weights::{Bf16 as Halves, Lines, Widen};
use crate::{Half, Weights};

/// The most panels of a register tile.
const MOST_PANELS: usize = 2;

/// Numbers of rows that are copied at a time: they stay in the second-level cache.
const COPIES: usize = 32 << 10;

/// A part whose weights are no floats of 32 bits.
pub(super) struct Narrow<'a, R> {
    pub(super) packed: Weights<'a>,
    pub(super) part: Part,
    pub(super) product: &'a Product<'a, R>,
    pub(super) blocks: &'a Blocks,
    pub(super) panels: Range<usize>,
    pub(super) pointers: &'a mut Pointers,
}

impl<R: Rows> Narrow<'_, R> {
    #[inline(always)]
    pub(super) fn run<S: Simd>(self, s: S) {
        if const { S::MAY_DOT }
            && let Weights::Half(Half::Bf16, packed) = self.packed
            && self.blocks.are_pairs()
            && let Some(dots) = s.dots()
        {
            dots.vectorize(Dotting(self, packed));
            return;
        }
        if const { !R::IS_BF16 } {
            s.vectorize(Widening(self));
        }
    }
}

/// A part that is computed in f32, in a function of its own for the memory that it needs.
struct Widening<'a, R>(Narrow<'a, R>);

impl<R: Rows> Job for Widening<'_, R> {
    type Out = ();

    #[inline(always)]
    #[expect(
        clippy::large_stack_arrays,
        reason = "48 KB, in the stacks of threads of our own or of a caller with threads"
    )]
    fn run<S: Simd>(self, s: S) {
        let Narrow { packed, part, product, blocks, panels, pointers } = self.0;
        let floats = [const { MaybeUninit::uninit() }; MOST_PANELS * MOST_K * LANES];
        let right = Widened { packed, floats };
        part.run(s, product, blocks, panels, &mut ByPointers { pointers, right });
    }
}

/// Weights of which a block of K is widened for all tiles of a part: in the first-level cache, as if it had been read from
/// memory as it is.
struct Widened<'a> {
    packed: Weights<'a>,
    floats: [MaybeUninit<f32>; MOST_PANELS * MOST_K * LANES],
}

impl Right for Widened<'_> {
    #[inline(always)]
    fn place<S: Simd>(&mut self, s: S, part: &Part, panels: &Panels) {
        let lines = part.taps * part.depth;
        for panel in 0..panels.count.min(MOST_PANELS) {
            let first = panels.first + panel * panels.stride;
            let to = self.floats.as_mut_ptr().cast::<f32>().wrapping_add(panel * lines * LANES);
            let widen = Widen { packed: self.packed, first, lines, to };
            // SAFETY: `Product::run` asks for all weights, and a block of K has at most `MOST_K` lines.
            unsafe { widen.run(s) };
        }
    }

    #[inline(always)]
    fn panels(&self, part: &Part, _: &Panels, _: usize) -> (*const f32, usize, Upcoming) {
        (self.floats.as_ptr().cast(), part.taps * part.depth * LANES, Upcoming::NOTHING)
    }
}

/// A part whose rows are bf16, or rounded to it.
struct Dotting<'a, R>(Narrow<'a, R>, &'a [u16]);

impl<R: Rows> Job for Dotting<'_, R> {
    type Out = ();

    #[inline(always)]
    #[expect(
        clippy::large_stack_arrays,
        reason = "64 KB, in the stacks of threads of our own or of a caller with threads"
    )]
    fn run<S: Simd>(self, s: S) {
        let Self(Narrow { part, product, blocks, panels, pointers, .. }, packed) = self;
        if const { R::IS_BF16 } && !part.depth.is_multiple_of(2) {
            let pairs = [const { MaybeUninit::uninit() }; MOST_PANELS * MOST_PAIRS * LANES];
            let mut operands = Spaced { pointers, packed, pairs };
            part.run(s, product, blocks, panels, &mut operands);
            return;
        }
        if const { R::IS_BF16 } {
            let mut operands = Pairs { pointers, first: 0, taps: part.taps, pairs: part.depth / 2, packed };
            part.run(s, product, blocks, panels, &mut operands);
            return;
        }
        let pairs = (part.taps * part.depth).div_ceil(2);
        let mut rows = [const { MaybeUninit::<u32>::uninit() }; COPIES / 2 + LANES];
        let most = (COPIES / (2 * pairs).max(1) / S::ROWS).max(1) * S::ROWS;
        let chunk = part.count.div_ceil(part.count.div_ceil(most)).next_multiple_of(S::ROWS);
        // Numbers of a tap in whole vectors, and what is left: the masks are the same for all of them.
        let (whole, rest) = (part.depth / LANES * LANES, part.depth % LANES);
        for first in (0..part.count).step_by(chunk) {
            let count = (part.count - first).min(chunk);
            for row in 0..count {
                let copy = rows.as_mut_ptr().wrapping_add(row * pairs);
                let mut to = copy.cast::<u16>();
                for tap in 0..part.taps {
                    // SAFETY: `point` has written a pointer to `depth` floats for each tap and row.
                    let from = unsafe { pointers.pointers[tap * part.count + first + row].assume_init() };
                    for k in (0..whole).step_by(LANES) {
                        // SAFETY: as above; there is room for `most` rows.
                        unsafe { s.narrow(from.wrapping_add(k), LANES, to.wrapping_add(k)) };
                    }
                    if rest > 0 {
                        // SAFETY: likewise, and for what is written beyond the last row. What lies beyond an odd number is
                        // zero.
                        unsafe { s.narrow(from.wrapping_add(whole), rest, to.wrapping_add(whole)) };
                    }
                    to = to.wrapping_add(part.depth);
                }
                pointers.pointers[first + row].write(copy.cast_const().cast());
            }
            let some = Part { first: part.first + first, count, ..part };
            let mut operands = Pairs { pointers, first, taps: 1, pairs, packed };
            some.run(s, product, blocks, panels.clone(), &mut operands);
        }
    }
}

/// Rows of pairs of bf16, and packed weights of bf16.
struct Pairs<'a> {
    /// To the rows' pairs, beginning with the `first`.
    pointers: &'a Pointers,
    first: usize,
    taps: usize,
    /// Pairs of a row and tap.
    pairs: usize,
    packed: &'a [u16],
}

impl Operands for Pairs<'_> {
    type Factors = Bf16;

    #[inline(always)]
    fn place<S: Simd>(&mut self, _: S, _: &Part, _: &Panels) {}

    #[inline(always)]
    fn factors(&self, part: &Part, panels: &Panels, row: usize, tile: usize) -> Bf16 {
        let panel = self.packed.as_ptr().wrapping_add(panels.first);
        // A line of memory has two of K.
        let lines = panels.upcoming.lines.div_ceil(2);
        let from = panel.wrapping_add(panels.count * panels.stride + tile * lines * 2 * LANES).cast();
        Bf16 {
            pointers: self.pointers.pointers.as_ptr().cast::<*const u32>().wrapping_add(self.first + row),
            pointer_stride: part.count,
            taps: self.taps,
            pairs: self.pairs,
            has_single: false,
            panel,
            panel_stride: panels.stride,
            upcoming: Upcoming { from, stride: panels.stride / 2, lines, ..panels.upcoming },
        }
    }
}

/// Rows of bf16 whose taps have an odd number of elements, and panels in which each tap begins with a pair: its last element
/// makes a pair with itself, and so does half of its weight.
struct Spaced<'a> {
    pointers: &'a Pointers,
    packed: &'a [u16],
    pairs: [MaybeUninit<f32>; MOST_PANELS * MOST_PAIRS * LANES],
}

/// Pairs of an odd number of elements, the last of which has one alone.
fn spaced(depth: usize) -> usize {
    depth.div_ceil(2)
}

impl Operands for Spaced<'_> {
    type Factors = Bf16;

    #[inline(always)]
    fn place<S: Simd>(&mut self, s: S, part: &Part, panels: &Panels) {
        let half = s.splat(0.5);
        for panel in 0..panels.count.min(MOST_PANELS) {
            let weights = Halves(self.packed.as_ptr().wrapping_add(panels.first + panel * panels.stride));
            let pairs = self.pairs[panel * part.taps * spaced(part.depth) * LANES..].chunks_exact_mut(LANES);
            for (at, to) in pairs.take(part.taps * spaced(part.depth)).enumerate() {
                let (tap, pair) = (at / spaced(part.depth), at % spaced(part.depth));
                let k = tap * part.depth + 2 * pair;
                // SAFETY: `Product::run` asks for all weights; a panel has a line of 16 for each of K.
                let first = unsafe { weights.line(s, k * LANES) };
                let pair = if 2 * pair + 1 < part.depth {
                    // SAFETY: likewise.
                    s.pair_bf16(first, unsafe { weights.line(s, (k + 1) * LANES) })
                } else {
                    let first = s.mul(first, half);
                    s.pair_bf16(first, first)
                };
                // SAFETY: these are 16 floats.
                unsafe { s.store(to.as_mut_ptr().cast(), pair) };
            }
        }
    }

    #[inline(always)]
    fn factors(&self, part: &Part, _: &Panels, row: usize, _: usize) -> Bf16 {
        Bf16 {
            pointers: self.pointers.pointers.as_ptr().cast::<*const u32>().wrapping_add(row),
            pointer_stride: part.count,
            taps: part.taps,
            pairs: part.depth / 2,
            has_single: true,
            panel: self.pairs.as_ptr().cast(),
            panel_stride: part.taps * spaced(part.depth) * 2 * LANES,
            upcoming: Upcoming::NOTHING,
        }
    }
}
