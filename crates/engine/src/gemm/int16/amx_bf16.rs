//! GEMM of 4-bit weights in groups of 32 by AMX tiles of bf16, which accumulate both bytes of 16-bit rows in one.
//!
//! A 16-bit integer is the sum of two digits that bf16 has exactly: its high byte times 256, and its low byte. bf16 also has weights of
//! 4 bits less their zero points, which are in 0..=15. Partial sums of 32 products are below `(32768 + 255) * 15 * 32 < 2^24`, so
//! that f32 has them exactly, in any order.
//!
//! Up to 128 rows at a time are rounded to tiles in the scratch memory. A task then goes through K in blocks whose tiles fit in the L2
//! cache, through some panels at a time, and through groups of weights that are unpacked for all rows.
#![allow(unsafe_code)]

use core::ops::Range;

use super::super::operands::Matrix;
use super::lhs::Rounding;
use super::{BLOCK_K, Block, Int16Gemm};
use crate::Engine;
use crate::arch::amx::{Amx, GroupPipeline, StoredTile, TILE_ROW_BYTES, TILE_ROWS, Tiles};
use crate::arch::{I16Pairs, Kernel, LANES, Simd};
use crate::pack::{Bits, QuantizedMatrix};
use crate::parallel::SharedOutput;
use crate::partition::{OutputBlock, OutputPartition};
use crate::task_memory::{AnyBytes, TaskMemory};

/// Rows of a group of weights, and elements of K in a tile.
const GROUP: usize = 32;
/// Groups of a block of K that has a scale.
const GROUPS: usize = BLOCK_K / GROUP;

/// Panels whose weights are unpacked at a time: a tile of rows is multiplied by them while it is in the L1 cache.
const PANELS: usize = 4;

/// Minimum rows: from here on a padded tile is faster than rows one by one.
const MIN_ROWS: usize = 8;
/// Maximum rows that are rounded, and that weights are unpacked for, at a time.
const MAX_ROWS: usize = 128;
const MAX_ROW_TILES: usize = MAX_ROWS / TILE_ROWS;

/// Rows of weights that are multiplied one panel after the other: with 128 rounded rows about 1 MB, half of an L2 cache.
const DEPTH: usize = 8 * BLOCK_K;

/// Digits of an element.
const DIGITS: usize = 2;

/// True if such a matrix is multiplied by tiles of bf16.
fn has_tiles(bits: Bits, group: usize, k: usize) -> bool {
    bits == Bits::Four && group == GROUP && k.is_multiple_of(GROUP)
}

/// Returns the scratch memory in floats that [`run`] needs for any number of rows; 0 if it does not multiply such a matrix.
pub(super) fn scratch(engine: &Engine, matrix: &QuantizedMatrix) -> usize {
    if !has_tiles(matrix.bits, matrix.group, matrix.k) || engine.dispatch.amx().is_none() {
        return 0;
    }
    let tiles = matrix.k.div_ceil(BLOCK_K).saturating_mul(MAX_ROW_TILES);
    let bytes = tiles.saturating_mul(size_of::<RoundedTile>()).saturating_add(align_of::<RoundedTile>());
    bytes / size_of::<f32>()
}

/// Computes a GEMM by tiles; false without AMX or enough scratch memory, for few rows, and for other weights.
///
/// # Safety
/// See [`Int16Gemm::run`].
pub(super) unsafe fn run(engine: &Engine, gemm: &Int16Gemm<'_>, scratch: &mut [f32]) -> bool {
    let (m, n, k) = (gemm.gemm.m, gemm.gemm.n, gemm.gemm.k);
    let suits = m >= MIN_ROWS && k > 0 && has_tiles(gemm.weights.bits(), gemm.weights.group(), k);
    let Some((simd, amx)) = engine.dispatch.amx().filter(|_| suits) else { return false };
    // SAFETY: tiles are arrays of numbers, of which all bits are valid.
    let (_, tiles, _) = unsafe { scratch.align_to_mut::<RoundedTile>() };
    let blocks = k.div_ceil(BLOCK_K);
    for first in (0..m).step_by(MAX_ROWS) {
        let rows = first..m.min(first + MAX_ROWS);
        let row_tiles = rows.len().div_ceil(TILE_ROWS);
        // Later rows are no more than the first ones.
        let Some(tiles) = tiles.get_mut(..row_tiles * blocks) else { return false };
        let to = SharedOutput::new(&mut *tiles);
        engine.parallel_for(row_tiles * blocks, 1, |parts| {
            for part in parts {
                let (block, tile) = (part / row_tiles, part % row_tiles);
                let first = rows.start + tile * TILE_ROWS;
                let rows = first..rows.end.min(first + TILE_ROWS);
                let ks = block * BLOCK_K..k.min((block + 1) * BLOCK_K);
                // SAFETY: each tile is rounded by one thread.
                let to = unsafe { to.slice(part..part + 1) };
                simd.vectorize(RoundTile { gemm, rows, ks, to: &mut to[0] });
            }
        });
        let left = &RoundedRows { tiles, row_tiles, first };
        let partition =
            OutputPartition::per_group(1, [1, rows.len()], n).for_threads(engine, n, k / 2, (TILE_ROWS, PANELS));
        engine.pool.run(partition.tasks(), |task| {
            let OutputBlock { m_inner: rows, panels, .. } = partition.block(task);
            let mut memory = TaskMemory::take();
            simd.vectorize(AmxTask { gemm, left, rows, panels, amx, scratch: memory.get() });
        });
    }
    true
}

/// A tile of rows in a block of K, as digits.
#[repr(C, align(64))]
struct RoundedTile {
    /// Tiles of the high digits of groups and of the low ones. Pairs of bf16 are elements `i` and `i + 16` of a group.
    digits: [[[[u32; LANES]; TILE_ROWS]; DIGITS]; GROUPS],
    /// Sums of the integers of groups, if weights have minima.
    sums: [[f32; TILE_ROWS]; GROUPS],
    scales: [f32; TILE_ROWS],
}

/// Rounds a tile of rows in a block of K.
struct RoundTile<'a> {
    gemm: &'a Int16Gemm<'a>,
    rows: Range<usize>,
    ks: Range<usize>,
    to: &'a mut RoundedTile,
}

impl Kernel for RoundTile<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, rows, ks, to } = self;
        let Matrix { data, stride, .. } = gemm.a;
        let has_minima = gemm.weights.has_minima();
        for at in 0..TILE_ROWS {
            // Rows beyond the last are zeros.
            let start = (rows.start + at) * stride;
            let row = if at < rows.len() { &data[start + ks.start..start + ks.end] } else { &[] };
            let Rounding { inverse, scale } = Rounding::of(row);
            to.scales[at] = scale;
            for group in 0..ks.len() / GROUP {
                let integers = match row.get(group * GROUP..) {
                    Some(row) if inverse > 0.0 => {
                        [0, LANES].map(|half| s.round(s.mul(s.load_slice(&row[half..]), s.splat(inverse))))
                    }
                    _ => [s.splat(0.0); 2],
                };
                let high = integers.map(|x| s.mul(s.floor(s.mul(x, s.splat(1.0 / 256.0))), s.splat(256.0)));
                let low = [0, 1].map(|half| s.sub(integers[half], high[half]));
                for (digit, [first, second]) in [high, low].into_iter().enumerate() {
                    let pairs = s.pack_bf16_pairs(first, second);
                    // SAFETY: there is room for a vector.
                    unsafe { s.store_bf16_pairs(to.digits[group][digit][at].as_mut_ptr().cast(), pairs) };
                }
                if has_minima {
                    to.sums[group][at] = s.reduce_add(s.add(integers[0], integers[1]));
                }
            }
        }
    }
}

/// Rows as tiles.
struct RoundedRows<'a> {
    /// `[blocks of K][row_tiles]`.
    tiles: &'a [RoundedTile],
    row_tiles: usize,
    /// The row of the output that these begin with.
    first: usize,
}

/// A block of the output.
struct AmxTask<'a> {
    gemm: &'a Int16Gemm<'a>,
    left: &'a RoundedRows<'a>,
    /// Rows of `left`.
    rows: Range<usize>,
    panels: Range<usize>,
    amx: Amx,
    scratch: &'a mut Scratch,
}

/// Weights of a block of K and a panel, less their zero points.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct UnpackedPanel {
    /// Tiles of pairs of bf16.
    weights: [[[u32; LANES]; TILE_ROWS]; GROUPS],
    scales: [[f32; LANES]; GROUPS],
    minima: [[f32; LANES]; GROUPS],
}

/// Some panels, and what tiles are stored to.
#[repr(C)]
struct Scratch {
    panels: [UnpackedPanel; PANELS],
    /// Products of two groups.
    products: [StoredTile; 2],
    /// Sums of the blocks of K that are done.
    sums: [[[f32; LANES]; MAX_ROWS]; PANELS],
}

// SAFETY: arrays of numbers.
unsafe impl AnyBytes for Scratch {}

impl Kernel for AmxTask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, left, rows, panels, amx, scratch } = self;
        let tiles = amx.configure();
        let row_tiles = rows.start / TILE_ROWS..rows.end.div_ceil(TILE_ROWS);
        let (rows, k) = (left.first + rows.start..left.first + rows.end, gemm.gemm.k);
        for from in (0..k).step_by(DEPTH) {
            let block = &Block { gemm, rows: rows.clone(), ks: from..k.min(from + DEPTH) };
            for first in panels.clone().step_by(PANELS) {
                let (tiles, scratch, row_tiles) = (&tiles, &mut *scratch, row_tiles.clone());
                let panels = first..panels.end.min(first + PANELS);
                s.vectorize(PanelsOfRows { block, tiles, left, row_tiles, scratch, panels });
            }
        }
        gemm.finish(s, rows, &panels);
    }
}

/// Multiplies rows by some panels.
struct PanelsOfRows<'a> {
    block: &'a Block<'a>,
    tiles: &'a Tiles,
    left: &'a RoundedRows<'a>,
    /// The block's rows as tiles of `left`.
    row_tiles: Range<usize>,
    scratch: &'a mut Scratch,
    panels: Range<usize>,
}

impl Kernel for PanelsOfRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Self { block, left, .. } = self;
        for row in 0..block.rows.len() {
            for (sums, panel) in self.scratch.sums.iter_mut().zip(self.panels.clone()) {
                s.store_slice(&mut sums[row], block.sums(s, row, panel));
            }
        }
        for from in block.ks.clone().step_by(BLOCK_K) {
            let ks = from..block.ks.end.min(from + BLOCK_K);
            for index in 0..self.panels.len() {
                self.unpack(s, index, ks.clone());
            }
            let left = &left.tiles[from / BLOCK_K * left.row_tiles..][self.row_tiles.clone()];
            for (tile, left) in left.iter().enumerate() {
                for index in 0..self.panels.len() {
                    self.prefetch(s, index, ks.end, tile);
                    self.multiply(s, index, (tile, left), ks.len() / GROUP);
                }
            }
        }
        for row in 0..block.rows.len() {
            for (sums, panel) in self.scratch.sums.iter().zip(self.panels.clone()) {
                block.store(s, row, panel, s.load_slice(&sums[row]));
            }
        }
    }
}

impl PanelsOfRows<'_> {
    /// Unpacks the weights of a block of K.
    #[inline(always)]
    fn unpack<S: Simd>(&mut self, s: S, index: usize, ks: Range<usize>) {
        let groups = self.block.gemm.weights.groups(self.panels.start + index, ks.start, ks.end);
        let UnpackedPanel { weights, scales, minima } = &mut self.scratch.panels[index];
        for (index, group) in groups.enumerate() {
            s.store_slice(&mut scales[index], group.scales(s));
            if let Some(numbers) = group.minima(s) {
                s.store_slice(&mut minima[index], numbers);
            }
            let zeros = group.zeros_i32(s);
            let zeros = I16Pairs::of(s.join_bits::<16>(zeros, zeros));
            for pair in (0..GROUP / 2).step_by(2) {
                // SAFETY: the group has 32 rows of 4 bits.
                let pairs = unsafe { group.load_nibble_pairs(s, group.from + pair, GROUP / 2) };
                let numbers = [s.nibbles_to_bf16::<0>(pairs, zeros), s.nibbles_to_bf16::<4>(pairs, zeros)];
                for row in 0..2 {
                    // SAFETY: there is room for a vector.
                    unsafe { s.store_bf16_pairs(weights[index][pair + row].as_mut_ptr().cast(), numbers[row]) };
                }
            }
        }
    }

    /// Prefetches a tile's part of the weights that are unpacked next: those of the panel from row `k` on, or of the next panels.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, index: usize, k: usize, tile: usize) {
        let (ks, panel) = (&self.block.ks, self.panels.start + index);
        let (panel, k) = if k < ks.end { (panel, k) } else { (panel + PANELS, ks.start) };
        let ks = [k, ks.end.min(k + BLOCK_K)];
        self.block.gemm.weights.prefetch_rows(s, panel, ks, [tile, self.row_tiles.len()]);
    }

    /// Multiplies a tile of rows by a panel.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S, index: usize, (tile, left): (usize, &RoundedTile), groups: usize) {
        let Scratch { panels, products, sums } = &mut *self.scratch;
        let has_minima = self.block.gemm.weights.has_minima();
        let totals = [s.splat(0.0); TILE_ROWS];
        let mut pipeline = Pipeline { tiles: self.tiles, left, panel: &panels[index], has_minima, products, totals };
        pipeline.run(s, groups);
        let sums = &mut sums[index][tile * TILE_ROWS..][..TILE_ROWS];
        for r in 0..TILE_ROWS {
            let sum = s.fma(pipeline.totals[r], s.splat(left.scales[r]), s.load_slice(&sums[r]));
            s.store_slice(&mut sums[r], sum);
        }
    }
}

/// The groups of a panel.
struct Pipeline<'a, S: Simd> {
    tiles: &'a Tiles,
    left: &'a RoundedTile,
    panel: &'a UnpackedPanel,
    has_minima: bool,
    products: &'a mut [StoredTile; 2],
    totals: [S::V; TILE_ROWS],
}

impl<S: Simd> GroupPipeline<S> for Pipeline<'_, S> {
    #[inline(always)]
    fn issue<const TILE: u8>(&self, group: usize) {
        let [high, low] = &self.left.digits[group];
        // SAFETY: a tile has 16 rows of 64 bytes.
        unsafe { self.tiles.load::<4>(high.as_ptr().cast(), TILE_ROW_BYTES) };
        // SAFETY: likewise.
        unsafe { self.tiles.load::<5>(low.as_ptr().cast(), TILE_ROW_BYTES) };
        // SAFETY: likewise.
        unsafe { self.tiles.load::<6>(self.panel.weights[group].as_ptr().cast(), TILE_ROW_BYTES) };
        self.tiles.zero::<TILE>();
        self.tiles.dot_bf16::<TILE, 4, 6>();
        self.tiles.dot_bf16::<TILE, 5, 6>();
    }

    #[inline(always)]
    fn stored(&mut self) -> (&Tiles, &mut [StoredTile; 2]) {
        (self.tiles, self.products)
    }

    /// Accumulates the tile of a group, times the scales of its columns, and the minima times the sums of its rows.
    #[inline(always)]
    fn accumulate(&mut self, s: S, group: usize) {
        let scales = s.load_slice(&self.panel.scales[group]);
        for r in 0..TILE_ROWS {
            let product = self.products[group % 2].row_f32(s, r);
            self.totals[r] = s.fma(product, scales, self.totals[r]);
        }
        if self.has_minima {
            let minima = s.load_slice(&self.panel.minima[group]);
            for r in 0..TILE_ROWS {
                self.totals[r] = s.fma(minima, s.splat(self.left.sums[group][r]), self.totals[r]);
            }
        }
    }
}
