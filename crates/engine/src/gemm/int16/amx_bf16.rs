//! GEMM of 4-bit weights in groups of 32 by AMX tiles of bf16, which take as long as tiles of int8 and add both bytes of 16-bit rows in one.
//!
//! A 16-bit integer is the sum of two digits that bf16 has exactly: its high byte times 256, and its low byte. So are weights of 4 bits less
//! their zero points. Sums of 32 products are below `(32768 + 255) * 15 * 32 < 2^24`, so that f32 has them exactly, in any order.
//!
//! All rows are rounded once, to tiles. A task then goes through blocks of rows, through some panels at a time, and through K in blocks
//! whose weights are unpacked for all rows of the block.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ops::Range;

use super::lhs::Rounding;
use super::{BLOCK_K, Int16Gemm};
use crate::Engine;
use crate::arch::amx::{Amx, StoredTile, TILE_ROW_BYTES, TILE_ROWS, Tiles};
use crate::arch::{I16Pairs, Kernel, LANES, Simd};
use crate::parallel::SharedOutput;
use crate::partition::{OutputBlock, OutputPartition, row_blocks};

/// Rows of a group of weights, and elements of K in a tile.
const GROUP: usize = 32;
/// Groups of a block of K.
const GROUPS: usize = BLOCK_K / GROUP;

/// Panels whose weights are unpacked at a time: a tile of rows is multiplied by them while it is in the L1 cache.
const PANELS: usize = 4;

/// Maximum rows that weights are unpacked for.
const MAX_ROWS: usize = 128;

/// Bytes of rounded rows that are multiplied by one panel after the other: part of the L2 cache.
const BLOCK_BYTES: usize = 9 << 17;

/// Bytes of rounded rows at a time.
const LEFT_BYTES: usize = 8 << 20;

/// Minimum rows. Fewer than a tile has take as long as a full one, but a few rows without tiles take longer from here on.
const MIN_ROWS: usize = 8;

/// Digits of an element.
const DIGITS: usize = 2;

/// Computes a GEMM by tiles; false without AMX, for few rows, for other weights, and without memory for rounded rows.
///
/// # Safety
/// See [`Int16Gemm::run`].
pub(super) unsafe fn run(engine: &Engine, gemm: &Int16Gemm<'_>) -> bool {
    let (m, n, k) = (gemm.gemm.m, gemm.gemm.n, gemm.gemm.k);
    let has_tiles = gemm.weights.has_nibbles_in_groups_of(GROUP) && k.is_multiple_of(GROUP);
    let suits = m >= MIN_ROWS && k > 0 && has_tiles;
    let Some((simd, amx)) = engine.dispatch.amx().filter(|_| suits) else { return false };
    let blocks = k.div_ceil(BLOCK_K);
    let tiles_at_a_time = (LEFT_BYTES / (blocks * size_of::<RoundedTile>())).max(MAX_ROWS / TILE_ROWS);
    let mut left = Vec::new();
    if left.try_reserve_exact(tiles_at_a_time.min(m.div_ceil(TILE_ROWS)) * blocks).is_err() {
        return false;
    }
    for rows in row_blocks(&(0..m), TILE_ROWS, tiles_at_a_time * TILE_ROWS) {
        let tiles_of_rows = rows.len().div_ceil(TILE_ROWS);
        let left = &mut left.spare_capacity_mut()[..tiles_of_rows * blocks];
        let to = SharedOutput::new(&mut *left);
        engine.parallel_for(tiles_of_rows * blocks, 1, |parts| {
            for part in parts {
                let (block, tile) = (part / tiles_of_rows, part % tiles_of_rows);
                let first = rows.start + tile * TILE_ROWS;
                let rows = first..rows.end.min(first + TILE_ROWS);
                let ks = block * BLOCK_K..k.min((block + 1) * BLOCK_K);
                // SAFETY: each tile is rounded by one thread.
                let to = unsafe { to.slice(part..part + 1) };
                simd.vectorize(RoundTile { gemm, rows, ks, to: &mut to[0] });
            }
        });
        let left = &RoundedRows { tiles: left, tiles_of_rows, first_row: rows.start };
        let partition =
            OutputPartition::per_group(1, [1, rows.len()], n).for_threads(engine, n, k / 2, (TILE_ROWS, PANELS));
        engine.pool.run(partition.tasks(), |task| {
            let OutputBlock { m_inner: rows, panels, .. } = partition.block(task);
            simd.vectorize(AmxTask { gemm, left, rows, panels, amx });
        });
    }
    true
}

/// A tile of rows in a block of K, as digits.
#[repr(C, align(64))]
struct RoundedTile {
    /// Tiles of the high digits of groups and of the low ones. Pairs are elements `i` and `i + 16` of a group.
    digits: [[[MaybeUninit<[f32; LANES]>; TILE_ROWS]; DIGITS]; GROUPS],
    /// Sums of the integers of groups, if weights have minima.
    sums: [[MaybeUninit<f32>; TILE_ROWS]; GROUPS],
    scales: [MaybeUninit<f32>; TILE_ROWS],
}

/// Rounds a tile of rows in a block of K.
struct RoundTile<'a> {
    gemm: &'a Int16Gemm<'a>,
    rows: Range<usize>,
    ks: Range<usize>,
    to: &'a mut MaybeUninit<RoundedTile>,
}

impl Kernel for RoundTile<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, rows, ks, to } = self;
        let has_minima = gemm.weights.has_minima();
        // SAFETY: all of its fields may be uninitialized.
        let to = unsafe { to.assume_init_mut() };
        for at in 0..TILE_ROWS {
            // Rows beyond the last are zeros.
            let start = (rows.start + at) * gemm.a.stride;
            let row = if at < rows.len() { &gemm.a.data[start + ks.start..start + ks.end] } else { &[] };
            let Rounding { inverse, scale } = Rounding::of(row);
            to.scales[at].write(scale);
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
                    to.sums[group][at].write(s.reduce_add(s.add(integers[0], integers[1])));
                }
            }
        }
    }
}

/// Rows as tiles.
struct RoundedRows<'a> {
    /// `[blocks of K][tiles_of_rows]`, all of which are written.
    tiles: &'a [MaybeUninit<RoundedTile>],
    tiles_of_rows: usize,
    /// The row of the output that these begin with.
    first_row: usize,
}

/// A block of the output.
struct AmxTask<'a> {
    gemm: &'a Int16Gemm<'a>,
    left: &'a RoundedRows<'a>,
    /// Rows of `left`.
    rows: Range<usize>,
    panels: Range<usize>,
    amx: Amx,
}

/// Weights of a block of K and a panel, less their zero points.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct UnpackedPanel {
    /// Tiles of bf16.
    weights: [[MaybeUninit<[f32; LANES]>; TILE_ROWS]; GROUPS],
    scales: [MaybeUninit<[f32; LANES]>; GROUPS],
    minima: [MaybeUninit<[f32; LANES]>; GROUPS],
}

/// Some panels, and what tiles are stored to.
struct Scratch {
    panels: [UnpackedPanel; PANELS],
    /// Products of two groups.
    products: [StoredTile; 2],
    /// Sums of the blocks of K that are done.
    sums: [[[f32; LANES]; MAX_ROWS]; PANELS],
}

impl Kernel for AmxTask<'_> {
    type Out = ();

    #[inline(always)]
    #[expect(
        clippy::large_stack_arrays,
        reason = "72 KB, in the stacks of threads of our own or of a caller with threads"
    )]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, left, rows: all_rows, panels, amx } = self;
        let tiles = amx.configure();
        let panel = UnpackedPanel {
            weights: [[MaybeUninit::uninit(); _]; _],
            scales: [MaybeUninit::uninit(); _],
            minima: [MaybeUninit::uninit(); _],
        };
        let mut scratch =
            Scratch { panels: [panel; _], products: [StoredTile::ZERO; _], sums: [[[0.0; LANES]; MAX_ROWS]; PANELS] };
        let k = gemm.gemm.k;
        for rows in row_blocks(&all_rows, TILE_ROWS, MAX_ROWS) {
            let row_tiles = rows.start / TILE_ROWS..rows.end.div_ceil(TILE_ROWS);
            let rows = left.first_row + rows.start..left.first_row + rows.end;
            let depth = (BLOCK_BYTES / (row_tiles.len() * size_of::<RoundedTile>())).max(1) * BLOCK_K;
            for from in (0..k).step_by(depth) {
                let ks = from..k.min(from + depth);
                for first in panels.clone().step_by(PANELS) {
                    let (tiles, scratch, rows, ks) = (&tiles, &mut scratch, rows.clone(), ks.clone());
                    let (row_tiles, panels) = (row_tiles.clone(), first..panels.end.min(first + PANELS));
                    s.vectorize(PanelsOfRows { gemm, tiles, left, scratch, row_tiles, rows, ks, panels });
                }
            }
            gemm.finish(s, rows, &panels);
        }
    }
}

/// Multiplies rows by some panels.
struct PanelsOfRows<'a> {
    gemm: &'a Int16Gemm<'a>,
    tiles: &'a Tiles,
    left: &'a RoundedRows<'a>,
    scratch: &'a mut Scratch,
    /// Tiles of `left`, and their rows of the output.
    row_tiles: Range<usize>,
    rows: Range<usize>,
    ks: Range<usize>,
    panels: Range<usize>,
}

impl Kernel for PanelsOfRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.start(s);
        for from in self.ks.clone().step_by(BLOCK_K) {
            let ks = from..self.ks.end.min(from + BLOCK_K);
            for index in 0..self.panels.len() {
                self.unpack(s, index, ks.clone());
            }
            let left = &self.left.tiles[from / BLOCK_K * self.left.tiles_of_rows..][self.row_tiles.clone()];
            for (tile, left) in left.iter().enumerate() {
                // SAFETY: all tiles are written.
                let left = unsafe { left.assume_init_ref() };
                for index in 0..self.panels.len() {
                    self.prefetch(s, index, ks.end, tile);
                    self.multiply(s, index, (tile, left), ks.len() / GROUP);
                }
            }
        }
        self.store(s);
    }
}

impl PanelsOfRows<'_> {
    /// The first of a panel's columns in a row of the output, and their number.
    #[inline(always)]
    fn output(&self, row: usize, panel: usize) -> (*mut f32, usize) {
        let Int16Gemm { gemm, c, .. } = self.gemm;
        let column = panel * LANES;
        (c.wrapping_add(row * gemm.c_stride + column), (gemm.n - column).min(LANES))
    }

    /// Begins with the sums so far: the bias before the first block of K.
    #[inline(always)]
    fn start<S: Simd>(&mut self, s: S) {
        let bias = self.gemm.epilogue.bias;
        for (row, at) in self.rows.clone().zip(0..) {
            for (index, panel) in self.panels.clone().enumerate() {
                let (from, lanes) = self.output(row, panel);
                let sums = if self.ks.start > 0 {
                    // SAFETY: `run` requires the output, and this task has stored these sums.
                    unsafe { s.load_partial(from, lanes) }
                } else if bias.is_null() {
                    s.splat(0.0)
                } else {
                    // SAFETY: there is a bias for each column.
                    unsafe { s.load_partial(bias.wrapping_add(panel * LANES), lanes) }
                };
                s.store_slice(&mut self.scratch.sums[index][at], sums);
            }
        }
    }

    /// Stores the sums.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S) {
        for (row, at) in self.rows.clone().zip(0..) {
            for (index, panel) in self.panels.clone().enumerate() {
                let (to, lanes) = self.output(row, panel);
                let sums = s.load_slice(&self.scratch.sums[index][at]);
                // SAFETY: `run` requires the output, and only this task accesses these elements.
                unsafe { s.store_partial(to, lanes, sums) };
            }
        }
    }

    /// Unpacks the weights of a block of K.
    #[inline(always)]
    fn unpack<S: Simd>(&mut self, s: S, index: usize, ks: Range<usize>) {
        let panel = &mut self.scratch.panels[index];
        for (index, group) in self.gemm.weights.groups(self.panels.start + index, ks.start, ks.end).enumerate() {
            // SAFETY: there is room for a vector.
            unsafe { s.store(panel.scales[index].as_mut_ptr().cast(), group.scales(s)) };
            if let Some(minima) = group.minima(s) {
                // SAFETY: likewise.
                unsafe { s.store(panel.minima[index].as_mut_ptr().cast(), minima) };
            }
            let zeros = group.zeros_i32(s);
            let zeros = I16Pairs::of(s.join_bits::<16>(zeros, zeros));
            for pair in (0..GROUP / 2).step_by(2) {
                // SAFETY: the group has 32 rows of 4 bits.
                let pairs = unsafe { group.load_nibble_pairs(s, group.from + pair, GROUP / 2) };
                let weights = [s.nibbles_to_bf16::<0>(pairs, zeros), s.nibbles_to_bf16::<4>(pairs, zeros)];
                for row in 0..2 {
                    // SAFETY: there is room for a vector.
                    unsafe { s.store_bf16_pairs(panel.weights[index][pair + row].as_mut_ptr().cast(), weights[row]) };
                }
            }
        }
    }

    /// Prefetches a tile's part of the weights that are unpacked next: those of the panel from row `k` on, or of the next panels.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, index: usize, k: usize, tile: usize) {
        let panel = self.panels.start + index;
        let (panel, k) = if k < self.ks.end { (panel, k) } else { (panel + PANELS, self.ks.start) };
        self.gemm.weights.prefetch_rows(s, panel, k..self.ks.end.min(k + BLOCK_K), tile, self.row_tiles.len());
    }

    /// Multiplies a tile of rows by a panel.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S, index: usize, (tile, left): (usize, &RoundedTile), groups: usize) {
        let Scratch { panels, products, sums } = &mut *self.scratch;
        let has_minima = self.gemm.weights.has_minima();
        let totals = [s.splat(0.0); TILE_ROWS];
        let mut pipeline =
            Pipeline { tiles: self.tiles, left, panel: &panels[index], has_minima, groups, products, totals };
        pipeline.issue::<0>(0);
        if groups > 1 {
            pipeline.issue::<1>(1);
        }
        let mut group = 0;
        while group < groups {
            pipeline.step::<0>(s, group);
            if group + 1 < groups {
                pipeline.step::<1>(s, group + 1);
            }
            if group + 2 < groups {
                pipeline.step::<2>(s, group + 2);
            }
            if group + 3 < groups {
                pipeline.step::<3>(s, group + 3);
            }
            group += 4;
        }
        pipeline.accumulate(s, groups - 1);
        let sums = &mut sums[index][tile * TILE_ROWS..][..TILE_ROWS];
        for r in 0..TILE_ROWS {
            // SAFETY: each row has its scale.
            let scale = s.splat(unsafe { left.scales[r].assume_init() });
            let sum = s.fma(pipeline.totals[r], scale, s.load_slice(&sums[r]));
            s.store_slice(&mut sums[r], sum);
        }
    }
}

/// Software pipeline over the groups of a panel: while the matmuls of the next two groups run, the tile of this one is stored, and that of
/// the one before is scaled and accumulated.
struct Pipeline<'a, S: Simd> {
    tiles: &'a Tiles,
    left: &'a RoundedTile,
    panel: &'a UnpackedPanel,
    has_minima: bool,
    groups: usize,
    products: &'a mut [StoredTile; 2],
    totals: [S::V; TILE_ROWS],
}

impl<S: Simd> Pipeline<'_, S> {
    /// Issues the matmuls of a group. `QUARTER` is its number modulo 4, its tile.
    #[inline(always)]
    fn issue<const QUARTER: u8>(&self, group: usize) {
        let [high, low] = &self.left.digits[group];
        // SAFETY: the digits of all groups are written.
        unsafe { self.tiles.load::<4>(high.as_ptr().cast(), TILE_ROW_BYTES) };
        // SAFETY: likewise.
        unsafe { self.tiles.load::<5>(low.as_ptr().cast(), TILE_ROW_BYTES) };
        // SAFETY: the weights of all groups are unpacked.
        unsafe { self.tiles.load::<6>(self.panel.weights[group].as_ptr().cast(), TILE_ROW_BYTES) };
        self.tiles.zero::<QUARTER>();
        self.tiles.dot_bf16::<QUARTER, 4, 6>();
        self.tiles.dot_bf16::<QUARTER, 5, 6>();
    }

    /// Issues the matmuls of the group after the next, stores the tile of this group, and accumulates that of the group before.
    #[inline(always)]
    fn step<const QUARTER: u8>(&mut self, s: S, group: usize) {
        if group + 2 < self.groups {
            match QUARTER {
                0 => self.issue::<2>(group + 2),
                1 => self.issue::<3>(group + 2),
                2 => self.issue::<0>(group + 2),
                _ => self.issue::<1>(group + 2),
            }
        }
        self.tiles.store::<QUARTER>(&mut self.products[usize::from(QUARTER % 2)]);
        if group > 0 {
            self.accumulate(s, group - 1);
        }
    }

    /// Accumulates the tile of a group, times the scales of its columns, and the minima times the sums of its rows.
    #[inline(always)]
    fn accumulate(&mut self, s: S, group: usize) {
        // SAFETY: the scales of all groups are unpacked.
        let scales = unsafe { s.load(self.panel.scales[group].as_ptr().cast()) };
        for r in 0..TILE_ROWS {
            let product = self.products[group % 2].row_f32(s, r);
            self.totals[r] = s.fma(product, scales, self.totals[r]);
        }
        if self.has_minima {
            // SAFETY: the minima of all groups are unpacked.
            let minima = unsafe { s.load(self.panel.minima[group].as_ptr().cast()) };
            for r in 0..TILE_ROWS {
                // SAFETY: each group has the sum of a row.
                let sum = unsafe { self.left.sums[group][r].assume_init() };
                self.totals[r] = s.fma(minima, s.splat(sum), self.totals[r]);
            }
        }
    }
}
