//! Register tiles of many rows and weights that are unpacked to the L1 cache.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::lhs::Lhs;
use super::{BLOCK_PAIRS, Block, GroupPart, MAX_GROUPS, PANELS, splat_pair};
use crate::arch::{I16Pairs, Kernel, LANES, Simd};
use crate::pack::Bits;

/// Weights of a block of two panels.
pub(super) struct UnpackedPanels {
    /// Pairs of integers, `[panels][BLOCK_PAIRS]`.
    pub(super) pairs: [[MaybeUninit<[u32; LANES]>; BLOCK_PAIRS]; PANELS],
    /// For each group the factor of the dot product, and that of the sum of the row, `[panels][MAX_GROUPS]`.
    pub(super) scales: [[MaybeUninit<[f32; LANES]>; MAX_GROUPS]; PANELS],
    pub(super) minima: [[MaybeUninit<[f32; LANES]>; MAX_GROUPS]; PANELS],
    /// The end of each group, in pairs.
    pub(super) ends: [usize; MAX_GROUPS],
    pub(super) groups: usize,
    /// 1 if there are minima, else 0.
    pub(super) has_minima: u32,
}

/// Unpacks the weights of a block.
pub(super) struct Unpack<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) panels: Range<usize>,
    pub(super) right: &'a mut UnpackedPanels,
}

impl Unpack<'_> {
    #[inline(always)]
    fn part<S: Simd, const BITS: u32, const PAIRS: usize>(&mut self, s: S, panel: usize, part: &GroupPart<'_>) {
        let (group, start) = (&part.group, self.block.ks.start);
        let zeros = group.zeros_i32(s);
        let zeros = I16Pairs::of(s.join_bits::<16>(zeros, zeros));
        group.prefetch(s, self.block.gemm.weights.panel_bytes() * PANELS);
        let end = (part.rows.end - start).next_multiple_of(2 * PAIRS) / 2;
        let to = self.right.pairs[panel][(part.rows.start - start) / 2..end].as_mut_ptr().cast::<[i32; LANES]>();
        for row in (0..part.rows.len()).step_by(2 * PAIRS) {
            // SAFETY: groups have a multiple of `2 * PAIRS` rows.
            let pairs = unsafe { group.load_pairs::<S, BITS, PAIRS>(s, part.rows.start + row) };
            for at in 0..PAIRS {
                let to = to.wrapping_add(row / 2 + at).cast();
                // SAFETY: there is room for a vector for each pair.
                unsafe { s.store_i32(to, s.sub_i16(pairs[at], zeros).into_i32()) };
            }
        }
    }
}

impl Kernel for Unpack<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (block, panels) = (self.block, self.panels.clone());
        self.right.groups = 0;
        for (panel, index) in panels.enumerate() {
            for part in block.parts(index) {
                let (right, group) = (&mut *self.right, &part.group);
                // SAFETY: there is room for a vector.
                unsafe { s.store(right.scales[panel][part.index].as_mut_ptr().cast(), group.scales(s)) };
                let minima = group.minima(s);
                right.has_minima = u32::from(minima.is_some());
                if let Some(minima) = minima {
                    // SAFETY: likewise.
                    unsafe { s.store(right.minima[panel][part.index].as_mut_ptr().cast(), minima) };
                }
                right.ends[part.index] = (part.rows.end - block.ks.start).div_ceil(2);
                right.groups = part.index + 1;
                match group.bits() {
                    Bits::Four => self.part::<S, 4, 1>(s, panel, &part),
                    Bits::Six => self.part::<S, 6, 2>(s, panel, &part),
                    Bits::Eight => self.part::<S, 8, 1>(s, panel, &part),
                }
            }
        }
    }
}

/// The rows of a block, and unpacked weights.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a Lhs,
    pub(super) right: &'a UnpackedPanels,
    /// The first of the unpacked panels, and the number among them of the first that is multiplied.
    pub(super) first: usize,
    pub(super) panel: usize,
}

impl Rows<'_> {
    /// Multiplies them by `P` panels, in tiles of up to `R` rows.
    #[inline(always)]
    pub(super) fn tiles<S: Simd, const R: usize, const P: usize>(self, s: S) {
        let (mut row, count) = (0, self.block.rows.len());
        while row < count {
            row += match count - row {
                1 => s.vectorize_int8(Tile::<1, P> { rows: self, row }),
                rest if rest >= R => s.vectorize_int8(Tile::<R, P> { rows: self, row }),
                2 | 3 => s.vectorize_int8(Tile::<2, P> { rows: self, row }),
                _ => s.vectorize_int8(Tile::<4, P> { rows: self, row }),
            };
        }
    }
}

/// A register tile of `R` rows and `P` panels. Returns `R`.
pub(super) struct Tile<'a, const R: usize, const P: usize> {
    pub(super) rows: Rows<'a>,
    pub(super) row: usize,
}

impl<const R: usize, const P: usize> Kernel for Tile<'_, R, P> {
    type Out = usize;

    // LLVM keeps the accumulators in registers only if every access is in an unrolled loop over indices.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let Self { rows: Rows { block, left, right, first, panel }, row } = self;
        let rows = left.pairs[row..row + R].as_ptr().cast::<u32>();
        let mut totals = [[s.splat(0.0); P]; R];
        let mut pair = 0;
        for group in 0..right.groups {
            let mut products = [[s.splat_i32(0); P]; R];
            while pair < right.ends[group] {
                let mut weights = [I16Pairs::of(s.splat_i32(0)); P];
                for p in 0..P {
                    // SAFETY: the weights of the block's groups are unpacked.
                    weights[p] = I16Pairs::of(unsafe { s.load_i32(right.pairs[panel + p][pair].as_ptr().cast()) });
                }
                for r in 0..R {
                    // SAFETY: a row has a pair for each two rows of the weights.
                    let x = splat_pair(s, unsafe { *rows.wrapping_add(r * BLOCK_PAIRS + pair) });
                    for p in 0..P {
                        products[r][p] = s.dot_i16(x, weights[p], products[r][p]);
                    }
                }
                pair += 1;
            }
            for p in 0..P {
                // SAFETY: each group has its scales.
                let scales = unsafe { s.load(right.scales[panel + p][group].as_ptr().cast()) };
                for r in 0..R {
                    totals[r][p] = s.fma(s.i32_to_f32(products[r][p]), scales, totals[r][p]);
                }
                if right.has_minima != 0 {
                    // SAFETY: likewise.
                    let minima = unsafe { s.load(right.minima[panel + p][group].as_ptr().cast()) };
                    for r in 0..R {
                        // SAFETY: each group has the sum of a row.
                        let sum = unsafe { left.sums[row + r][group].assume_init() };
                        totals[r][p] = s.fma(minima, s.splat(sum as f32), totals[r][p]);
                    }
                }
            }
        }
        for r in 0..R {
            // SAFETY: each row has its scale.
            let scale = s.splat(unsafe { left.scales[row + r].assume_init() });
            for p in 0..P {
                let panel = first + panel + p;
                let sums = block.sums(s, row + r, panel);
                block.store(s, row + r, panel, s.fma(totals[r][p], scale, sums));
            }
        }
        R
    }
}
