//! GEMM by AMX tiles. A row of 16-bit integers is two rows of bytes: the low ones (u8) and the high ones (i8). Each is multiplied by the i8
//! weights, and `high * 256 + low` is the exact result of 16 bits.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::lhs::{Lhs, RoundRows, SplitForTiles};
use super::{BLOCK_K, BLOCK_ROWS, Block, GroupPart, Int16Gemm, MAX_GROUPS};
use crate::Engine;
use crate::arch::amx::{Amx, HALF_K, PAIR_BYTES, StoredTile, TILE_K, TILE_ROW_BYTES, TILE_ROWS, Tiles, half_offsets};
use crate::arch::{I8Quads, Kernel, LANES, Simd};
use crate::pack::Bits;
use crate::partition::{OutputBlock, OutputPartition, row_blocks};
use crate::task_memory::{AnyBytes, TaskMemory};
use crate::weights::QuantizedGroup;

/// Panels whose weights are unpacked at a time: a tile of rows is multiplied by them while it is in the L1 cache.
const PANELS: usize = 2;

/// Groups of a block of K, the smallest of which have half a tile.
const MAX_TILED_GROUPS: usize = BLOCK_K / HALF_K;

/// Bytes of a row of a block: the low ones, and the high ones.
const ROW_BYTES: usize = 2 * BLOCK_K;

/// Computes a GEMM by tiles; false without AMX, for fewer rows than a tile has, for a K that is not a multiple of 64, and for weights that do
/// not fit in i8 or whose groups are neither half tiles nor whole ones.
///
/// # Safety
/// See [`Int16Gemm::run`].
pub(super) unsafe fn run(engine: &Engine, gemm: &Int16Gemm<'_>) -> bool {
    let (m, n, k, group) = (gemm.gemm.m, gemm.gemm.n, gemm.gemm.k, gemm.weights.group());
    // The groups of a block of K have the same size: half a tile, or whole ones.
    let has_tiles = group >= HALF_K && (BLOCK_K.is_multiple_of(group) || group.is_multiple_of(BLOCK_K) || group >= k);
    let suits = m >= TILE_ROWS && k > 0 && k.is_multiple_of(TILE_K) && has_tiles && gemm.weights.fits_i8();
    let Some((simd, amx)) = engine.dispatch.amx().filter(|_| suits) else { return false };
    let partition = OutputPartition::per_group(1, [1, m], n).for_threads(engine, n, k / 2, (TILE_ROWS, PANELS));
    engine.pool.run(partition.tasks(), |task| {
        let block = partition.block(task);
        if block.m_inner.len() < TILE_ROWS {
            gemm.run_block(engine, block);
        } else {
            let mut memory = TaskMemory::take();
            simd.vectorize(AmxTask { gemm, block, amx, memory: memory.get() });
        }
    });
    true
}

/// A task of at least [`TILE_ROWS`] rows.
struct AmxTask<'a> {
    gemm: &'a Int16Gemm<'a>,
    block: OutputBlock,
    amx: Amx,
    memory: &'a mut Memory,
}

/// Memory of a task.
#[repr(C)]
struct Memory {
    left: Lhs,
    scratch: Scratch,
}

// SAFETY: arrays of numbers, some of which may be without a value.
unsafe impl AnyBytes for Memory {}

/// Weights of a block of K and a panel, less their zero points.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct UnpackedPanel {
    /// Tiles, which overlap if groups are half ones. The quads are the elements 0, 2, 1 and 3 of four.
    weights: [i8; BLOCK_K / TILE_K * PAIR_BYTES],
    scales: [MaybeUninit<[f32; LANES]>; MAX_TILED_GROUPS],
    minima: [MaybeUninit<[f32; LANES]>; MAX_TILED_GROUPS],
    /// 1 if there are minima, else 0.
    has_minima: u32,
    groups: usize,
}

/// Some panels, and what tiles are stored to.
#[repr(C)]
struct Scratch {
    panels: [UnpackedPanel; PANELS],
    /// Products of two groups, by the low bytes of rows and by the high ones.
    products: [[StoredTile; 2]; 2],
    totals: [MaybeUninit<[f32; LANES]>; TILE_ROWS],
}

impl Kernel for AmxTask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, block: OutputBlock { m_inner, panels, .. }, amx, memory: Memory { left, scratch } } = self;
        let k = gemm.gemm.k;
        let tiles = amx.configure();
        // Between the weights of two groups are zeros.
        scratch.panels.iter_mut().for_each(|panel| panel.weights.fill(0));
        for rows in row_blocks(&m_inner, TILE_ROWS, BLOCK_ROWS) {
            // Rows of a tile are read without further checks.
            assert!((TILE_ROWS..=BLOCK_ROWS).contains(&rows.len()));
            for from in (0..k).step_by(BLOCK_K) {
                let ks = from..k.min(from + BLOCK_K);
                let block = Block { gemm, rows: rows.clone(), ks };
                s.vectorize(RoundRows { block: &block, left: &mut *left });
                s.vectorize(SplitForTiles { block: &block, left: &mut *left });
                for first in panels.clone().step_by(PANELS) {
                    let (tiles, left, scratch) = (&tiles, &*left, &mut *scratch);
                    let panels = first..panels.end.min(first + PANELS);
                    s.vectorize(PanelsOfRows { block: &block, tiles, left, scratch, panels });
                }
            }
            gemm.finish(s, rows, &panels);
        }
    }
}

/// Multiplies the rows of a block by some panels.
struct PanelsOfRows<'a> {
    block: &'a Block<'a>,
    tiles: &'a Tiles,
    left: &'a Lhs,
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
            panel.has_minima = u32::from(minima.is_some());
            if let Some(minima) = minima {
                // SAFETY: likewise.
                unsafe { s.store(panel.minima[*index].as_mut_ptr().cast(), minima) };
            }
            let to = &mut panel.weights[place..];
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
        if self.has_halves() { half_offsets(k / HALF_K).0 } else { k * LANES }
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
        let mut pipeline = Pipeline {
            tiles: self.tiles,
            left: self.left.pairs[start..].as_ptr().cast(),
            sums: &self.left.sums[start..],
            weights: weights.as_ptr().cast(),
            scales,
            minima: (*has_minima != 0).then_some(minima),
            groups,
            group: block.gemm.weights.group().min(depth),
            depth,
            has_halves,
            products,
            totals: [s.splat(0.0); TILE_ROWS],
        };
        pipeline.issue::<0>(0);
        let mut group = 0;
        while group < groups {
            pipeline.step::<0>(s, group);
            if group + 1 < groups {
                pipeline.step::<1>(s, group + 1);
            }
            group += 2;
        }
        pipeline.accumulate(s, groups - 1);
        for r in 0..TILE_ROWS {
            // SAFETY: there is room for a vector.
            unsafe { s.store(totals[r].as_mut_ptr().cast(), pipeline.totals[r]) };
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
fn unpack_group<S: Simd, const BITS: u32>(s: S, group: &QuantizedGroup<'_>, rows: &Range<usize>, to: &mut [i8]) {
    let zeros = group.zeros_i32(s).repeat_byte(s);
    for (row, to) in rows.clone().step_by(4).zip(to.as_chunks_mut::<TILE_ROW_BYTES>().0) {
        let [first, second] = if const { BITS == 6 } {
            // SAFETY: groups have a multiple of four rows.
            unsafe { group.load_pairs::<S, BITS, 2>(s, row) }
        } else {
            // SAFETY: likewise.
            [row, row + 2].map(|row| unsafe { group.load_pairs::<S, BITS, 1>(s, row) }[0])
        };
        let quads = I8Quads::of(s.join_bits::<8>(second.into_i32(), first.into_i32()));
        // SAFETY: there is room for a vector.
        unsafe { s.store_i32(to.as_mut_ptr().cast(), s.sub_i8(quads, zeros).into_i32()) };
    }
}

/// Software pipeline over the groups of a panel: while the matmuls of the next group run, the tiles of this one are stored, and those of the
/// one before are scaled and accumulated.
struct Pipeline<'a, S: Simd> {
    tiles: &'a Tiles,
    /// The low bytes of rows, which the high ones follow.
    left: *const u8,
    /// The sums of the groups of rows.
    sums: &'a [[MaybeUninit<i32>; MAX_GROUPS]],
    weights: *const u8,
    scales: &'a [MaybeUninit<[f32; LANES]>; MAX_TILED_GROUPS],
    minima: Option<&'a [MaybeUninit<[f32; LANES]>; MAX_TILED_GROUPS]>,
    groups: usize,
    /// Elements of K of a group and of the block.
    group: usize,
    depth: usize,
    has_halves: bool,
    products: &'a mut [[StoredTile; 2]; 2],
    totals: [S::V; TILE_ROWS],
}

impl<S: Simd> Pipeline<'_, S> {
    /// Issues the matmuls of a group. `PARITY` is its number modulo 2, which determines their tiles.
    #[inline(always)]
    fn issue<const PARITY: u8>(&self, group: usize) {
        if const { PARITY == 0 } {
            self.tiles.zero::<0>();
            self.tiles.zero::<1>();
        } else {
            self.tiles.zero::<2>();
            self.tiles.zero::<3>();
        }
        if self.has_halves {
            // The second half of a tile of rows is there already.
            self.accumulate_tile::<PARITY>(group / 2, half_offsets(group).1, PARITY == 0);
        } else {
            let from = group * self.group;
            for tile in from / TILE_K..(from + self.group).min(self.depth) / TILE_K {
                self.accumulate_tile::<PARITY>(tile, tile * TILE_K * LANES, true);
            }
        }
    }

    /// Accumulates the matmuls of a tile of rows, which is loaded if `is_new`, and the weights at `weights`.
    #[inline(always)]
    fn accumulate_tile<const PARITY: u8>(&self, tile: usize, weights: usize, is_new: bool) {
        if is_new {
            let left = self.left.wrapping_add(tile * TILE_ROW_BYTES);
            // SAFETY: the rows have both bytes of all elements.
            unsafe { self.tiles.load::<4>(left, ROW_BYTES) };
            // SAFETY: likewise.
            unsafe { self.tiles.load::<5>(left.wrapping_add(BLOCK_K), ROW_BYTES) };
        }
        let weights = self.weights.wrapping_add(weights);
        // SAFETY: the weights of the block's groups are unpacked.
        unsafe { self.tiles.load::<6>(weights, TILE_ROW_BYTES) };
        if const { PARITY == 0 } {
            self.tiles.dot_u8i8::<0, 4, 6>();
            self.tiles.dot_i8i8::<1, 5, 6>();
        } else {
            self.tiles.dot_u8i8::<2, 4, 6>();
            self.tiles.dot_i8i8::<3, 5, 6>();
        }
    }

    /// Issues the matmuls of the next group, stores the tiles of this one, and accumulates those of the group before.
    #[inline(always)]
    fn step<const PARITY: u8>(&mut self, s: S, group: usize) {
        let has_next = group + 1 < self.groups;
        if const { PARITY == 0 } {
            if has_next {
                self.issue::<1>(group + 1);
            }
            let [low, high] = &mut self.products[0];
            self.tiles.store::<0>(low);
            self.tiles.store::<1>(high);
        } else {
            if has_next {
                self.issue::<0>(group + 1);
            }
            let [low, high] = &mut self.products[1];
            self.tiles.store::<2>(low);
            self.tiles.store::<3>(high);
        }
        if group > 0 {
            self.accumulate(s, group - 1);
        }
    }

    /// Accumulates the tiles of a group, times the scales of its columns, and the minima times the sums of its rows.
    #[inline(always)]
    fn accumulate(&mut self, s: S, group: usize) {
        let [low, high] = &self.products[group % 2];
        // SAFETY: the scales of all groups are unpacked.
        let scales = unsafe { s.load(self.scales[group].as_ptr().cast()) };
        for r in 0..TILE_ROWS {
            let (low, high) = (low.row_i32(s, r), high.row_i32(s, r));
            let product = s.add_i32(s.mul_i32(high, 1 << 8), low);
            self.totals[r] = s.fma(s.i32_to_f32(product), scales, self.totals[r]);
        }
        if let Some(minima) = self.minima {
            // SAFETY: the minima of all groups are unpacked.
            let minima = unsafe { s.load(minima[group].as_ptr().cast()) };
            for r in 0..TILE_ROWS {
                // SAFETY: each group has the sum of a row.
                let sum = unsafe { self.sums[r][group].assume_init() };
                self.totals[r] = s.fma(minima, s.splat(sum as f32), self.totals[r]);
            }
        }
    }
}
