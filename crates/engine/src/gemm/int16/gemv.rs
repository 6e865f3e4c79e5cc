//! GEMV for a few rows: the weights of one panel after the other are unpacked in registers.
//!
//! VNNI multiplies u8 by i8. There, 4-bit weights are the u8. The 16-bit integers of a row are split into two i8: the
//! high byte, and the low byte minus 128. Adding 128 times the sum of the weights corrects the second. Both ways, with
//! and without VNNI, compute the exact sum.
#![allow(unsafe_code)]

use super::lhs::Lhs;
use super::{BLOCK_K, BLOCK_PAIRS, Block, GroupPart, splat_pair};
use crate::arch::{I32, Kernel, Simd};
use crate::pack::Bits;

/// Prefetch distance in bytes: hardware prefetchers stop at the end of a page.
const PREFETCH_BYTES: usize = 8192;

/// The operands of one call: rows of the left side from `row` on, and a panel of weights.
pub(super) struct Panel<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a Lhs,
    /// The first row.
    pub(super) row: usize,
    /// Index of the panel.
    pub(super) panel: usize,
}

/// `R` rows times a panel whose weights are unpacked in registers; with `INT8` the weights have 4 bits and rows are
/// [split](super::lhs::SplitForInt8).
pub(super) struct Gemv<'a, const R: usize, const INT8: bool>(pub(super) Panel<'a>);

impl<const R: usize, const INT8: bool> Kernel for Gemv<'_, R, INT8> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Panel { block, left, row, panel } = self.0;
        let (mut sums, mut totals) = ([s.splat(0.0); R], [s.splat(0.0); R]);
        for r in 0..R {
            sums[r] = block.sums(s, row + r, panel);
        }
        for part in block.parts(panel) {
            let products = match part.group.bits() {
                _ if const { INT8 } => self.dot_int8(s, &part),
                Bits::Four => self.dot_int16::<S, 4, 1>(s, &part),
                Bits::Six => self.dot_int16::<S, 6, 2>(s, &part),
                Bits::Eight => self.dot_int16::<S, 8, 1>(s, &part),
            };
            totals = self.accumulate(s, &part, products, totals);
            if part.rows.end.is_multiple_of(BLOCK_K) || part.rows.end == block.ks.end {
                for r in 0..R {
                    // SAFETY: each block of a row has its scale.
                    let scale = s.splat(unsafe { left.scales[self.0.slot(part.block, r)].assume_init() });
                    sums[r] = s.fma(totals[r], scale, sums[r]);
                }
                totals = [s.splat(0.0); R];
            }
        }
        for r in 0..R {
            block.store(s, row + r, panel, sums[r]);
        }
    }
}

impl Panel<'_> {
    /// Index in [`Lhs`] of block `block` of the `r`-th row.
    #[inline(always)]
    fn slot(&self, block: usize, r: usize) -> usize {
        block * self.block.rows.len() + self.row + r
    }
}

impl<const R: usize, const INT8: bool> Gemv<'_, R, INT8> {
    /// Dot products of the 4-bit weights of a group and rows that are [split](super::lhs::SplitForInt8) into bytes.
    #[inline(always)]
    fn dot_int8<S: Simd>(&self, s: S, part: &GroupPart<'_>) -> [I32<S>; R] {
        let ones = s.splat_i8_quads(0x0101_0101);
        let (mut low, mut high, mut weight_sums) = ([s.splat_i32(0); R], [s.splat_i32(0); R], s.splat_i32(0));
        let mut quads = [self.0.left.pairs.as_ptr().cast::<u32>(); R];
        for r in 0..R {
            quads[r] = quads[r].wrapping_add(self.0.slot(part.block, r) * BLOCK_PAIRS + part.rows.start % BLOCK_K / 2);
        }
        for (eight, row) in part.rows.clone().step_by(8).enumerate() {
            // SAFETY: the group has these rows, of 4 bits.
            let (even, odd) = s.nibbles_of_rows(unsafe { part.group.load_nibbles(s, row) });
            weight_sums = s.dot_u8i8(even, ones, weight_sums);
            weight_sums = s.dot_u8i8(odd, ones, weight_sums);
            for r in 0..R {
                // SAFETY: a row has four quads for each eight elements.
                let quad = |at: usize| s.splat_i8_quads(unsafe { *quads[r].wrapping_add(4 * eight + at) });
                low[r] = s.dot_u8i8(even, quad(0), low[r]);
                low[r] = s.dot_u8i8(odd, quad(1), low[r]);
                high[r] = s.dot_u8i8(even, quad(2), high[r]);
                high[r] = s.dot_u8i8(odd, quad(3), high[r]);
            }
        }
        part.group.prefetch(s, PREFETCH_BYTES);
        let weight_sums = s.mul_i32(weight_sums, 1 << 7);
        for r in 0..R {
            low[r] = s.add_i32(s.add_i32(low[r], weight_sums), s.mul_i32(high[r], 1 << 8));
        }
        low
    }

    /// Dot products of the weights of a group and rows of 16-bit pairs.
    #[inline(always)]
    fn dot_int16<S: Simd, const BITS: u32, const PAIRS: usize>(&self, s: S, part: &GroupPart<'_>) -> [I32<S>; R] {
        let group = &part.group;
        let pair = |r: usize, k: usize| {
            let at = self.0.slot(part.block, r) * BLOCK_PAIRS + k % BLOCK_K / 2;
            // SAFETY: a row has a pair for each two rows of the weights.
            splat_pair(s, unsafe { *self.0.left.pairs.as_ptr().cast::<u32>().wrapping_add(at) })
        };
        // Two sums for each row hide the latency of an addition.
        let mut products = [[s.splat_i32(0); 2]; R];
        let mut row = part.rows.start;
        while part.rows.end - row >= 4 {
            // SAFETY: the group has these rows.
            let weights = unsafe { group.load_pairs::<S, BITS, 2>(s, row) };
            for r in 0..R {
                for at in 0..2 {
                    products[r][at] = s.dot_i16(pair(r, row + 2 * at), weights[at], products[r][at]);
                }
            }
            row += 4;
        }
        while row < part.rows.end {
            // SAFETY: the group has these rows. It is padded to an even number of them, with 6 bits to a multiple of 4.
            let weights = unsafe { group.load_pairs::<S, BITS, PAIRS>(s, row) };
            for r in 0..R {
                for at in 0..PAIRS {
                    products[r][at] = s.dot_i16(pair(r, row + 2 * at), weights[at], products[r][at]);
                }
            }
            row += 2 * PAIRS;
        }
        let mut sums = [s.splat_i32(0); R];
        for r in 0..R {
            sums[r] = s.add_i32(products[r][0], products[r][1]);
        }
        sums
    }

    /// Accumulates the dot products of a group, times its scales.
    #[inline(always)]
    fn accumulate<S: Simd>(
        &self,
        s: S,
        part: &GroupPart<'_>,
        products: [I32<S>; R],
        mut totals: [S::V; R],
    ) -> [S::V; R] {
        let group = &part.group;
        let (scales, minima, zeros) = (group.scales(s), group.minima(s), group.zeros_i32(s));
        for r in 0..R {
            // SAFETY: each row has a sum for each group.
            let sum = unsafe { self.0.left.sums[self.0.slot(part.block, r)][part.index].assume_init() };
            // sum((w - zero) x) = sum(w x) - zero sum(x)
            let product = s.add_i32(products[r], s.mul_i32(zeros, -sum));
            totals[r] = s.fma(s.i32_to_f32(product), scales, totals[r]);
            if let Some(minima) = minima {
                totals[r] = s.fma(minima, s.splat(sum as f32), totals[r]);
            }
        }
        totals
    }
}
