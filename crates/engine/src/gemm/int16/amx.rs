//! Tiles of AMX: 16 rows and 64 elements of K. A row of 16 bits is two rows of 8: the upper halves, signed, and the lower ones. The
//! products of both by the same weights are joined before they are scaled, which gives the sums of 16 bits.
//!
//! A group of 32 has half a tile. Its weights have zeros in place of those of the other half, which takes no longer.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::lhs::{Lhs, RoundRows};
use super::{BLOCK_K, BLOCK_PAIRS, Block, GroupPart, Int16Gemm, MAX_GROUPS};
use crate::Engine;
use crate::arch::amx::{Amx, Product, TILE_ROW_BYTES, TILE_ROWS, Tiles};
use crate::arch::{I8Quads, I32, Kernel, LANES, Simd};
use crate::pack::Bits;
use crate::parallel::chunk_range;
use crate::partition::{OutputBlock, OutputPartition};
use crate::weights::QuantizedGroup;

/// Maximum rows on the left in a block.
const BLOCK_ROWS: usize = 128;

/// Panels whose weights are unpacked at a time: a tile of rows is multiplied by them while it is in the L1 cache.
const PANELS: usize = 2;

/// Elements of K in a tile, and in half of one.
const TILE_K: usize = TILE_ROW_BYTES;
const HALF_K: usize = TILE_K / 2;

/// Groups of a block of K, the smallest of which have half a tile.
const MAX_PRODUCTS: usize = BLOCK_K / HALF_K;

/// Bytes of half a tile of weights, and of two halves with zeros in between.
const HALF_BYTES: usize = HALF_K * LANES;
const PAIR_BYTES: usize = 3 * HALF_BYTES;

/// Bytes of a row of a block: the lower halves, and the upper ones.
const ROW_BYTES: usize = 2 * BLOCK_K;

/// Computes a GEMM by tiles; false if there is no AMX, there are too few rows, or the weights do not suit.
///
/// # Safety
/// What [`Int16Gemm::run`] requires.
pub(super) unsafe fn run(engine: &Engine, gemm: &Int16Gemm<'_>) -> bool {
    let (m, n, k, group) = (gemm.gemm.m, gemm.gemm.n, gemm.gemm.k, gemm.weights.group());
    // The groups of a block of K have the same size: half a tile, or whole ones.
    let has_tiles = group >= HALF_K && (BLOCK_K.is_multiple_of(group) || group.is_multiple_of(BLOCK_K) || group >= k);
    let suits = m >= TILE_ROWS && k > 0 && k.is_multiple_of(TILE_K) && has_tiles && gemm.weights.fits_i8();
    let Some((simd, amx)) = engine.dispatch.amx().filter(|_| suits) else { return false };
    // Each task has all rows: a part could have fewer than a tile.
    let partition = OutputPartition::per_group(1, [1, m], n).for_threads(engine, n, k / 2, (m, 1));
    engine.pool.run(partition.tasks(), |task| {
        simd.vectorize(AmxTask { gemm, block: partition.block(task), amx });
    });
    true
}

/// A task of at least [`TILE_ROWS`] rows.
struct AmxTask<'a> {
    gemm: &'a Int16Gemm<'a>,
    block: OutputBlock,
    amx: Amx,
}

/// Weights of a block of K and a panel, less their zero points.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct UnpackedPanel {
    /// Tiles `[K / 4][16][4]`; the quads are the elements 0, 2, 1 and 3 of four.
    weights: [i8; BLOCK_K / TILE_K * PAIR_BYTES],
    scales: [MaybeUninit<[f32; LANES]>; MAX_PRODUCTS],
    minima: [MaybeUninit<[f32; LANES]>; MAX_PRODUCTS],
    has_minima: bool,
    groups: usize,
}

/// Some panels, and what tiles are stored to.
struct Scratch {
    panels: [UnpackedPanel; PANELS],
    /// Products of two groups, by the lower halves of rows and by the upper ones.
    products: [[Product; 2]; 2],
    totals: [MaybeUninit<[f32; LANES]>; TILE_ROWS],
}

/// Rows of a block: first [`Lhs`], then bytes in its place.
#[repr(C, align(64))]
struct Left(Lhs<BLOCK_ROWS>);

impl Kernel for AmxTask<'_> {
    type Out = ();

    #[inline(always)]
    #[expect(
        clippy::large_stack_arrays,
        reason = "98 KB, in the stacks of threads of our own or of a caller with threads"
    )]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, block: OutputBlock { m_inner, panels, .. }, amx } = self;
        let k = gemm.gemm.k;
        let registers = amx.configure();
        let mut left = Left(Lhs {
            pairs: [const { [const { MaybeUninit::uninit() }; _] }; _],
            scales: [const { MaybeUninit::uninit() }; _],
            sums: [const { [const { MaybeUninit::uninit() }; _] }; _],
        });
        let panel = UnpackedPanel {
            weights: [0; _],
            scales: [const { MaybeUninit::uninit() }; _],
            minima: [const { MaybeUninit::uninit() }; _],
            has_minima: false,
            groups: 0,
        };
        let mut scratch = Scratch {
            panels: [panel; _],
            totals: [const { MaybeUninit::uninit() }; _],
            products: [[Product([[0; LANES]; TILE_ROWS]); 2]; 2],
        };
        let blocks = m_inner.len().div_ceil(BLOCK_ROWS);
        for block in 0..blocks {
            let rows = chunk_range(block, blocks, m_inner.len());
            let rows = m_inner.start + rows.start..m_inner.start + rows.end;
            for from in (0..k).step_by(BLOCK_K) {
                let ks = from..k.min(from + BLOCK_K);
                let block = Block { gemm, rows: rows.clone(), ks };
                s.vectorize(RoundRows { block: &block, left: &mut left.0 });
                s.vectorize(SplitRows { left: &mut left.0, rows: rows.len(), depth: block.ks.len() });
                for first in panels.clone().step_by(PANELS) {
                    let (registers, left, scratch) = (&registers, &left.0, &mut scratch);
                    let panels = first..panels.end.min(first + PANELS);
                    s.vectorize(PanelsOfRows { block: &block, registers, left, scratch, panels });
                }
            }
            gemm.finish(s, rows, &panels);
        }
    }
}

/// Splits the pairs of rows into the lower halves of their integers and the upper ones, in the order of the weights.
struct SplitRows<'a> {
    left: &'a mut Lhs<BLOCK_ROWS>,
    rows: usize,
    depth: usize,
}

impl Kernel for SplitRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for row in self.left.pairs.iter_mut().take(self.rows) {
            let [mut lower, mut upper] = [[MaybeUninit::uninit(); BLOCK_PAIRS / 2]; 2];
            for (at, [first, second]) in row[..self.depth / 2].as_chunks::<2>().0.iter().enumerate() {
                // SAFETY: the pairs of all elements are written.
                let [first, second] = [first, second].map(|pair| unsafe { pair.assume_init() });
                lower[at].write(first & 0x00ff_00ff | (second & 0x00ff_00ff) << 8);
                upper[at].write(first >> 8 & 0x00ff_00ff | second & 0xff00_ff00);
            }
            let (to_lower, to_upper) = row.split_at_mut(BLOCK_PAIRS / 2);
            to_lower.copy_from_slice(&lower);
            to_upper.copy_from_slice(&upper);
        }
    }
}

/// Multiplies the rows of a block by some panels.
struct PanelsOfRows<'a> {
    block: &'a Block<'a>,
    registers: &'a Tiles,
    left: &'a Lhs<BLOCK_ROWS>,
    scratch: &'a mut Scratch,
    panels: Range<usize>,
}

impl Kernel for PanelsOfRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        for index in 0..self.panels.len() {
            self.unpack(s, index);
        }
        for row in (0..self.block.rows.len()).step_by(TILE_ROWS) {
            self.prefetch(s, row);
            for index in 0..self.panels.len() {
                self.multiply(s, index, row);
            }
        }
    }
}

impl PanelsOfRows<'_> {
    /// Unpacks the weights of the block of K.
    #[inline(always)]
    fn unpack<S: Simd>(&mut self, s: S, index: usize) {
        let block = self.block;
        for part in block.parts(self.panels.start + index) {
            let place = self.place(part.rows.start - block.ks.start);
            let (panel, GroupPart { group, rows, index, .. }) = (&mut self.scratch.panels[index], &part);
            group.prefetch(s, block.gemm.weights.panel_bytes() * PANELS);
            panel.groups = index + 1;
            // SAFETY: there is room for a vector.
            unsafe { s.store(panel.scales[*index].as_mut_ptr().cast(), group.scales(s)) };
            let minima = group.minima(s);
            panel.has_minima = minima.is_some();
            if let Some(minima) = minima {
                // SAFETY: likewise.
                unsafe { s.store(panel.minima[*index].as_mut_ptr().cast(), minima) };
            }
            let to = panel.weights[place..].as_mut_ptr();
            match group.bits() {
                Bits::Four => unpack_group::<S, 4>(s, group, rows, to),
                Bits::Six => unpack_group::<S, 6>(s, group, rows, to),
                Bits::Eight => unpack_group::<S, 8>(s, group, rows, to),
            }
        }
    }

    /// Prefetches the sums of a tile for the next panels.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, row: usize) {
        for row in row..self.block.rows.len().min(row + TILE_ROWS) {
            let sums = self.block.output(row, self.panels.start).0;
            for panel in 0..PANELS {
                s.prefetch(sums.wrapping_add((PANELS + panel) * LANES));
            }
        }
    }

    /// True if groups have half a tile.
    #[inline(always)]
    fn has_halves(&self) -> bool {
        self.block.gemm.weights.group() == HALF_K
    }

    /// Where the weights from row `k` of the block on are.
    #[inline(always)]
    fn place(&self, k: usize) -> usize {
        let (tile, half) = (k / TILE_K, k % TILE_K / HALF_K);
        if self.has_halves() { tile * PAIR_BYTES + half * 2 * HALF_BYTES } else { tile * TILE_K * LANES }
    }

    /// Multiplies a tile of rows, from row `row` of the block on, by a panel.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S, index: usize, row: usize) {
        // The last tile has some rows of the one before, where rows are no multiple, and does not store them again.
        let start = row.min(self.block.rows.len() - TILE_ROWS);
        let has_halves = self.has_halves();
        let (block, depth) = (self.block, self.block.ks.len());
        let Scratch { panels, products, totals } = &mut *self.scratch;
        let UnpackedPanel { weights, scales, minima, has_minima, groups } = &panels[index];
        let groups = *groups;
        let mut steps = Steps {
            tiles: self.registers,
            left: self.left.pairs[start..].as_ptr().cast(),
            sums: &self.left.sums[start..],
            weights: weights.as_ptr().cast(),
            scales,
            minima: has_minima.then_some(minima),
            groups,
            group: block.gemm.weights.group().min(depth),
            depth,
            has_halves,
            products,
            totals: [s.splat(0.0); TILE_ROWS],
        };
        steps.start::<0>(0);
        let mut group = 0;
        while group < groups {
            steps.step::<0>(s, group);
            if group + 1 < groups {
                steps.step::<1>(s, group + 1);
            }
            group += 2;
        }
        steps.add(s, groups - 1);
        for r in 0..TILE_ROWS {
            // SAFETY: there is room for a vector.
            unsafe { s.store(totals[r].as_mut_ptr().cast(), steps.totals[r]) };
        }
        let panel = self.panels.start + index;
        for (row, totals) in (start..start + TILE_ROWS).zip(&*totals).skip(row - start) {
            // SAFETY: each row has its scale.
            let scale = s.splat(unsafe { self.left.scales[row].assume_init() });
            // SAFETY: they have just been stored.
            let totals = unsafe { s.load(totals.as_ptr().cast()) };
            block.store(s, row, panel, s.fma(totals, scale, block.sums(s, row, panel)));
        }
    }
}

/// Unpacks the rows of a group, less their zero points.
#[inline(always)]
fn unpack_group<S: Simd, const BITS: u32>(s: S, group: &QuantizedGroup<'_>, rows: &Range<usize>, to: *mut i8) {
    let zeros = I8Quads::of(s.mul_i32(group.zeros_i32(s), 0x0101_0101));
    for (at, row) in rows.clone().step_by(4).enumerate() {
        let [first, second] = if const { BITS == 6 } {
            // SAFETY: groups have a multiple of four rows.
            unsafe { group.load_pairs::<S, BITS, 2>(s, row) }
        } else {
            // SAFETY: likewise.
            [row, row + 2].map(|row| unsafe { group.load_pairs::<S, BITS, 1>(s, row) }[0])
        };
        let quads = I8Quads::of(s.join_bits::<8>(second.into_i32(), first.into_i32()));
        // SAFETY: there is room for a vector for each four rows.
        unsafe { s.store_i32(to.wrapping_add(at * TILE_ROW_BYTES).cast(), s.sub_i8(quads, zeros).into_i32()) };
    }
}

/// Products of a tile of rows by groups of a panel. A product takes a while: one begins a group before it is stored, and is stored
/// while the one before is added.
struct Steps<'a, S: Simd> {
    tiles: &'a Tiles,
    /// The lower halves of rows, which the upper ones follow.
    left: *const u8,
    /// The sums of the groups of rows.
    sums: &'a [[MaybeUninit<i32>; MAX_GROUPS]],
    weights: *const u8,
    scales: &'a [MaybeUninit<[f32; LANES]>; MAX_PRODUCTS],
    minima: Option<&'a [MaybeUninit<[f32; LANES]>; MAX_PRODUCTS]>,
    groups: usize,
    /// Elements of K of a group and of the block.
    group: usize,
    depth: usize,
    has_halves: bool,
    products: &'a mut [[Product; 2]; 2],
    totals: [S::V; TILE_ROWS],
}

impl<S: Simd> Steps<'_, S> {
    /// Begins the products of a group. `PARITY` is its number modulo 2, which determines their tiles.
    #[inline(always)]
    fn start<const PARITY: u8>(&self, group: usize) {
        if const { PARITY == 0 } {
            self.tiles.zero::<0>();
            self.tiles.zero::<1>();
        } else {
            self.tiles.zero::<2>();
            self.tiles.zero::<3>();
        }
        if self.has_halves {
            // The second half of a tile of rows is there already.
            self.add_tile::<PARITY>(group / 2, group / 2 * PAIR_BYTES + group % 2 * HALF_BYTES, PARITY == 0);
        } else {
            let from = group * self.group;
            for tile in from / TILE_K..(from + self.group).min(self.depth) / TILE_K {
                self.add_tile::<PARITY>(tile, tile * TILE_K * LANES, true);
            }
        }
    }

    /// Adds the product of a tile of rows, which is loaded if `is_new`, and the weights at `weights`.
    #[inline(always)]
    fn add_tile<const PARITY: u8>(&self, tile: usize, weights: usize, is_new: bool) {
        if is_new {
            let left = self.left.wrapping_add(tile * TILE_ROW_BYTES);
            // SAFETY: the rows have both halves of all elements.
            unsafe { self.tiles.load::<4>(left, ROW_BYTES) };
            // SAFETY: likewise.
            unsafe { self.tiles.load::<5>(left.wrapping_add(BLOCK_K), ROW_BYTES) };
        }
        let weights = self.weights.wrapping_add(weights);
        // SAFETY: the weights of the block's groups are unpacked.
        unsafe { self.tiles.load::<6>(weights, TILE_ROW_BYTES) };
        if const { PARITY == 0 } {
            self.tiles.add_u8i8::<0, 4, 6>();
            self.tiles.add_i8i8::<1, 5, 6>();
        } else {
            self.tiles.add_u8i8::<2, 4, 6>();
            self.tiles.add_i8i8::<3, 5, 6>();
        }
    }

    /// Begins the products of the next group, stores those of this one, and adds those of the group before.
    #[inline(always)]
    fn step<const PARITY: u8>(&mut self, s: S, group: usize) {
        let has_next = group + 1 < self.groups;
        if const { PARITY == 0 } {
            if has_next {
                self.start::<1>(group + 1);
            }
            let [lower, upper] = &mut self.products[0];
            self.tiles.store::<0>(lower);
            self.tiles.store::<1>(upper);
        } else {
            if has_next {
                self.start::<0>(group + 1);
            }
            let [lower, upper] = &mut self.products[1];
            self.tiles.store::<2>(lower);
            self.tiles.store::<3>(upper);
        }
        if group > 0 {
            self.add(s, group - 1);
        }
    }

    /// Adds the products of a group, times the scales of its columns, and the minima times the sums of its rows.
    #[inline(always)]
    fn add(&mut self, s: S, group: usize) {
        let [lower, upper] = &self.products[group % 2];
        // SAFETY: the scales of all groups are unpacked.
        let scales = unsafe { s.load(self.scales[group].as_ptr().cast()) };
        for r in 0..TILE_ROWS {
            // SAFETY: a product has 16 rows.
            let lower: I32<S> = unsafe { s.load_i32(lower.0[r].as_ptr()) };
            // SAFETY: likewise.
            let upper = unsafe { s.load_i32(upper.0[r].as_ptr()) };
            let product = s.add_i32(s.mul_i32(upper, 1 << 8), lower);
            self.totals[r] = s.fma(s.i32_to_f32(product), scales, self.totals[r]);
        }
        if let Some(minima) = self.minima {
            // SAFETY: likewise.
            let minima = unsafe { s.load(minima[group].as_ptr().cast()) };
            for r in 0..TILE_ROWS {
                // SAFETY: each group has the sum of a row.
                let sum = unsafe { self.sums[r][group].assume_init() };
                self.totals[r] = s.fma(minima, s.splat(sum as f32), self.totals[r]);
            }
        }
    }
}
