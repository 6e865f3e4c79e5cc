//! GEMV: a few rows times panels whose weights are unpacked in registers, one panel after the other.
//!
//! Where four bytes are multiplied at once, rows are split into bytes for weights of 4 bits: the upper halves of the integers, and the
//! lower ones less 128, as signed numbers. The sum of the weights, times 128, makes up for it. Sums are exact in both ways.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use super::lhs::Lhs;
use super::{BLOCK_K, BLOCK_PAIRS, Block, GroupPart, splat_pair};
use crate::arch::{I32, Kernel, Simd};
use crate::pack::Bits;

/// Prefetch distance in bytes: hardware prefetchers stop at the end of a page.
const PREFETCH_BYTES: usize = 8192;

/// Splits the pairs of rows into bytes: of each eight elements the lower bytes of the even ones and of the odd ones, less 128, and the
/// upper bytes of both.
pub(super) struct SplitPairs<'a> {
    pub(super) left: &'a mut Lhs,
    pub(super) block: &'a Block<'a>,
}

impl Kernel for SplitPairs<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (count, depth) = (self.block.rows.len(), self.block.ks.len());
        for (index, row) in self.left.pairs.iter_mut().enumerate() {
            let pairs = depth.saturating_sub(index / count * BLOCK_K).min(BLOCK_K) / 2;
            for four in row[..pairs].as_chunks_mut::<4>().0 {
                // SAFETY: the pairs of all elements are written.
                let pairs = four.map(|pair| unsafe { pair.assume_init() }.to_le_bytes());
                let quad = |byte: usize| u32::from_le_bytes(pairs.map(|pair| pair[byte]));
                *four = [quad(0) ^ 0x8080_8080, quad(2) ^ 0x8080_8080, quad(1), quad(3)].map(MaybeUninit::new);
            }
        }
    }
}

/// A panel, and the first of the rows that it is multiplied by.
pub(super) struct Panel<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a Lhs,
    pub(super) row: usize,
    pub(super) panel: usize,
}

/// `R` rows times a panel whose weights are unpacked in registers. `BY_BYTES` if rows are [`split`](SplitPairs).
pub(super) struct Gemv<'a, const R: usize, const BY_BYTES: bool>(pub(super) Panel<'a>);

impl<const R: usize, const BY_BYTES: bool> Kernel for Gemv<'_, R, BY_BYTES> {
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
                _ if const { BY_BYTES } => self.products_of_bytes(s, &part),
                Bits::Four => self.products::<S, 4, 1>(s, &part),
                Bits::Six => self.products::<S, 6, 2>(s, &part),
                Bits::Eight => self.products::<S, 8, 1>(s, &part),
            };
            totals = self.add(s, &part, products, totals);
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

impl<const R: usize, const BY_BYTES: bool> Gemv<'_, R, BY_BYTES> {
    /// Sums of the products of rows and the integers of a group.
    #[inline(always)]
    fn products_of_bytes<S: Simd>(&self, s: S, part: &GroupPart<'_>) -> [I32<S>; R] {
        let ones = s.splat_i8_quads(0x0101_0101);
        let (mut lower, mut upper, mut of_ones) = ([s.splat_i32(0); R], [s.splat_i32(0); R], s.splat_i32(0));
        let mut quads = [self.0.left.pairs.as_ptr().cast::<u32>(); R];
        for r in 0..R {
            quads[r] = quads[r].wrapping_add(self.0.slot(part.block, r) * BLOCK_PAIRS + part.rows.start % BLOCK_K / 2);
        }
        for (eight, row) in part.rows.clone().step_by(8).enumerate() {
            // SAFETY: the group has these rows.
            let (even, odd) = s.nibbles_of_rows(unsafe { part.group.load_nibbles(s, row) });
            of_ones = s.dot_u8i8(even, ones, of_ones);
            of_ones = s.dot_u8i8(odd, ones, of_ones);
            for r in 0..R {
                // SAFETY: rows have four quads for eight elements.
                let quad = |at: usize| s.splat_i8_quads(unsafe { *quads[r].wrapping_add(4 * eight + at) });
                lower[r] = s.dot_u8i8(even, quad(0), lower[r]);
                lower[r] = s.dot_u8i8(odd, quad(1), lower[r]);
                upper[r] = s.dot_u8i8(even, quad(2), upper[r]);
                upper[r] = s.dot_u8i8(odd, quad(3), upper[r]);
            }
        }
        part.group.prefetch(s, PREFETCH_BYTES);
        let of_ones = s.mul_i32(of_ones, 1 << 7);
        for r in 0..R {
            lower[r] = s.add_i32(s.add_i32(lower[r], of_ones), s.mul_i32(upper[r], 1 << 8));
        }
        lower
    }

    /// Like [`products_of_bytes`](Self::products_of_bytes), of rows of pairs.
    #[inline(always)]
    fn products<S: Simd, const BITS: u32, const PAIRS: usize>(&self, s: S, part: &GroupPart<'_>) -> [I32<S>; R] {
        let group = &part.group;
        let pair = |r: usize, k: usize| {
            let at = self.0.slot(part.block, r) * BLOCK_PAIRS + k % BLOCK_K / 2;
            // SAFETY: rows have as many pairs.
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
            // SAFETY: the group has these rows; an odd number of them is padded, with 6 bits to a multiple of 4.
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

    /// Adds the products of a group, times its scales.
    #[inline(always)]
    fn add<S: Simd>(&self, s: S, part: &GroupPart<'_>, products: [I32<S>; R], mut totals: [S::V; R]) -> [S::V; R] {
        let group = &part.group;
        let (scales, minima, zeros) = (group.scales(s), group.minima(s), group.zeros_i32(s));
        for r in 0..R {
            // SAFETY: each group has the sum of a row.
            let sum = unsafe { self.0.left.sums[self.0.slot(part.block, r)][part.index].assume_init() };
            // As if zero points were subtracted from the weights.
            let product = s.add_i32(products[r], s.mul_i32(zeros, -sum));
            totals[r] = s.fma(s.i32_to_f32(product), scales, totals[r]);
            if let Some(minima) = minima {
                totals[r] = s.fma(minima, s.splat(sum as f32), totals[r]);
            }
        }
        totals
    }
}
