//! GEMV: a few rows times panels whose weights are unpacked in registers, one panel after the other.
#![allow(unsafe_code)]

use super::lhs::Lhs;
use super::{BLOCK_K, BLOCK_PAIRS, Block, GroupPart, splat_pair};
use crate::arch::{Kernel, Simd};
use crate::pack::Bits;

/// A panel, and the first of the rows that it is multiplied by.
pub(super) struct Panel<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a Lhs,
    pub(super) row: usize,
    pub(super) panel: usize,
}

/// `R` rows times a panel whose weights are unpacked in registers.
pub(super) struct Gemv<'a, const R: usize>(pub(super) Panel<'a>);

impl<const R: usize> Kernel for Gemv<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Panel { block, left, row, panel } = self.0;
        let (mut sums, mut totals) = ([s.splat(0.0); R], [s.splat(0.0); R]);
        for r in 0..R {
            sums[r] = block.sums(s, row + r, panel);
        }
        for part in block.parts(panel) {
            totals = match part.group.bits() {
                Bits::Four => self.part::<S, 4, 1>(s, &part, totals),
                Bits::Six => self.part::<S, 6, 2>(s, &part, totals),
                Bits::Eight => self.part::<S, 8, 1>(s, &part, totals),
            };
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
    /// Where a block of a row is.
    #[inline(always)]
    fn slot(&self, block: usize, r: usize) -> usize {
        block * self.block.rows.len() + self.row + r
    }
}

impl<const R: usize> Gemv<'_, R> {
    #[inline(always)]
    fn part<S: Simd, const BITS: u32, const PAIRS: usize>(
        &self,
        s: S,
        part: &GroupPart<'_>,
        mut totals: [S::V; R],
    ) -> [S::V; R] {
        let (group, left) = (&part.group, self.0.left);
        let row_of = |r: usize| self.0.slot(part.block, r);
        let pair = |r: usize, k: usize| {
            let at = row_of(r) * BLOCK_PAIRS + k % BLOCK_K / 2;
            // SAFETY: rows have as many pairs.
            splat_pair(s, unsafe { *left.pairs.as_ptr().cast::<u32>().wrapping_add(at) })
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
            // SAFETY: the group has these rows; an odd number of them is padded, with 6 bits to a multiple of 4.
            let weights = unsafe { group.load_pairs::<S, BITS, PAIRS>(s, row) };
            for r in 0..R {
                for at in 0..PAIRS {
                    products[r][at] = s.dot_i16(pair(r, row + 2 * at), weights[at], products[r][at]);
                }
            }
            row += 2 * PAIRS;
        }
        let (scales, minima, zeros) = (group.scales(s), group.minima(s), group.zeros_i32(s));
        for r in 0..R {
            // SAFETY: each group has the sum of a row.
            let sum = unsafe { left.sums[row_of(r)][part.index].assume_init() };
            // As if zero points were subtracted from the weights.
            let product = s.add_i32(s.add_i32(products[r][0], products[r][1]), s.mul_i32(zeros, -sum));
            totals[r] = s.fma(s.i32_to_f32(product), scales, totals[r]);
            if let Some(minima) = minima {
                totals[r] = s.fma(minima, s.splat(sum as f32), totals[r]);
            }
        }
        totals
    }
}
