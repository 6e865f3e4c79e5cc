//! Group-wise quantized GEMM by AMX: the sums of each group leave the tiles to be scaled. Weights are unpacked for many rows at a time.

use core::mem::MaybeUninit;
use core::ops::Range;

use crate::Engine;
use crate::arch::amx::{
    Amx, GroupPipeline, HALF_K, PAIR_BYTES, StoredTile, TILE_ROW_BYTES, TILE_ROWS, Tiles, half_offsets,
};
use crate::arch::{I8Quads, Kernel, LANES, Simd};
use crate::pack::{GROUP_SIZE, GroupwiseMatrix};
use crate::parallel::chunk_range;
use crate::partition::{OutputBlock, OutputPartition, row_blocks};
use crate::task_memory::{AnyBytes, TaskMemory};

use super::epilogue::{ApplyQuantEpilogue, OutPtr};
use super::groupwise::{GroupwiseGemm, GroupwiseTask, NIBBLE_ROWS, scale};

/// Elements of K whose weights are unpacked at a time.
const BLOCK_K: usize = 1024;
const BLOCK_GROUPS: usize = BLOCK_K / GROUP_SIZE;

/// Maximum rows that weights are unpacked for.
const MAX_ROWS: usize = 256;

/// Bytes of the left side's rows that are multiplied by one panel after the other: part of the L2 cache.
const LEFT_BYTES: usize = 1 << 20;

/// Computes a GEMM by tiles; false without AMX, for fewer rows than a tile has, for an odd number of groups, and for weights that do not fit
/// in i8 after their zero points are subtracted.
pub(super) fn run(engine: &Engine, m: usize, gemm: &GroupwiseGemm<'_>) -> bool {
    let GroupwiseMatrix { k, n, is_four_bits, has_zeros, .. } = gemm.matrix;
    let suits = k > 0 && k.is_multiple_of(2 * GROUP_SIZE) && (is_four_bits || !has_zeros);
    let Some((simd, amx)) = engine.dispatch.amx().filter(|_| suits && m >= TILE_ROWS) else { return false };
    let partition = OutputPartition::per_group(1, [1, m], n).for_threads(engine, n, k / 4, (TILE_ROWS, 1));
    engine.pool.run(partition.tasks(), |task| {
        let block = partition.block(task);
        if block.m_inner.len() < TILE_ROWS {
            engine.dispatch.run_int8(GroupwiseTask { gemm, block });
        } else {
            let mut memory = TaskMemory::take();
            simd.vectorize(AmxTask { gemm, block, amx, scratch: memory.get() });
        }
    });
    true
}

/// A task of at least [`TILE_ROWS`] rows.
struct AmxTask<'a> {
    gemm: &'a GroupwiseGemm<'a>,
    block: OutputBlock,
    amx: Amx,
    scratch: &'a mut Scratch,
}

/// Memory of a task.
#[repr(C, align(64))]
struct Scratch {
    /// Weights of a panel, less their zero points, in overlapping tiles.
    weights: [i8; BLOCK_GROUPS / 2 * PAIR_BYTES],
    /// Scales of the groups' columns.
    scales: [MaybeUninit<[f32; LANES]>; BLOCK_GROUPS],
    /// Sums of the blocks of K that are done.
    totals: [MaybeUninit<[f32; LANES]>; MAX_ROWS],
    products: [StoredTile; 2],
}

// SAFETY: arrays of numbers, some of which may be without a value.
unsafe impl AnyBytes for Scratch {}

impl Kernel for AmxTask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, block: OutputBlock { m_inner: rows, panels, .. }, amx, scratch } = self;
        let tiles = amx.configure();
        // Between the weights of two groups are zeros.
        scratch.weights.fill(0);
        let max_rows = (LEFT_BYTES / gemm.matrix.k).clamp(4 * TILE_ROWS, MAX_ROWS) / TILE_ROWS * TILE_ROWS;
        for rows in row_blocks(&rows, TILE_ROWS, max_rows) {
            // Rows of a tile are read without further checks.
            assert!((TILE_ROWS..=MAX_ROWS).contains(&rows.len()));
            for panel in panels.clone() {
                s.vectorize(PanelOfRows { gemm, tiles: &tiles, scratch: &mut *scratch, rows: rows.clone(), panel });
            }
        }
    }
}

/// Multiplies rows by a panel.
struct PanelOfRows<'a> {
    gemm: &'a GroupwiseGemm<'a>,
    tiles: &'a Tiles,
    scratch: &'a mut Scratch,
    rows: Range<usize>,
    panel: usize,
}

impl Kernel for PanelOfRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let groups = self.gemm.matrix.k / GROUP_SIZE;
        for start in (0..groups).step_by(BLOCK_GROUPS) {
            let groups = start..groups.min(start + BLOCK_GROUPS);
            self.unpack(s, groups.clone());
            for tile in 0..self.row_tiles() {
                self.prefetch(s, groups.clone(), tile);
                self.multiply(s, groups.clone(), tile);
            }
        }
        self.finish(s);
    }
}

impl PanelOfRows<'_> {
    /// Tiles of rows.
    #[inline(always)]
    fn row_tiles(&self) -> usize {
        self.rows.len().div_ceil(TILE_ROWS)
    }

    /// The first row of a tile. The last tile overlaps the one before where rows are no multiple.
    #[inline(always)]
    fn row(&self, tile: usize) -> usize {
        self.rows.start + (tile * TILE_ROWS).min(self.rows.len() - TILE_ROWS)
    }

    /// Unpacks groups of weights and scales.
    #[inline(always)]
    fn unpack<S: Simd>(&mut self, s: S, groups: Range<usize>) {
        let GroupwiseGemm { packed, matrix, .. } = *self.gemm;
        let panel = packed.as_ptr().wrapping_add(self.panel * matrix.panel_bytes());
        let all_groups = matrix.k / GROUP_SIZE;
        let all_zeros = packed.as_ptr().wrapping_add(matrix.n.div_ceil(LANES) * matrix.panel_bytes());
        for (index, group) in groups.enumerate() {
            let (scales, weights) = matrix.group(group);
            let (scales, weights) = (panel.wrapping_add(scales), panel.wrapping_add(weights));
            // SAFETY: each group of a panel has 16 scales.
            let scales = unsafe { scale(s, &matrix, scales) };
            // SAFETY: there is room for a vector.
            unsafe { s.store(self.scratch.scales[index].as_mut_ptr().cast(), scales) };
            let to = half_offsets(index).0;
            let to = self.scratch.weights[to..to + HALF_K * LANES].as_mut_ptr();
            let zeros = if matrix.has_zeros {
                let zeros = all_zeros.wrapping_add((self.panel * all_groups + group) * LANES);
                // SAFETY: after all groups each has 16 zeros.
                let zeros = unsafe { s.load_u8(zeros, LANES) };
                s.sub_i8(zeros.repeat_byte(s), s.splat_i8_quads(0x0808_0808))
            } else {
                s.splat_i8_quads(0)
            };
            let store = |at: usize, quads: I8Quads<S>| {
                let quads = s.sub_i8(quads, zeros);
                // SAFETY: a group has eight vectors.
                unsafe { s.store_i32(to.wrapping_add(at * TILE_ROW_BYTES).cast(), quads.into_i32()) };
            };
            for vector in 0..NIBBLE_ROWS {
                let at = weights.wrapping_add(vector * TILE_ROW_BYTES);
                let (low, high) = if matrix.is_four_bits {
                    // SAFETY: each group of a panel has four vectors of weights, or eight.
                    s.unpack_nibbles(unsafe { s.load_u8_quads(at) })
                } else {
                    // SAFETY: likewise.
                    let low = unsafe { s.load_i8_quads(at.cast()) };
                    // SAFETY: likewise.
                    (low, unsafe { s.load_i8_quads(at.wrapping_add(NIBBLE_ROWS * TILE_ROW_BYTES).cast()) })
                };
                store(vector, low);
                store(NIBBLE_ROWS + vector, high);
            }
        }
    }

    /// Prefetches a tile's part of the weights that are unpacked next, and its output before the last block of K.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, groups: Range<usize>, tile: usize) {
        let GroupwiseGemm { packed, matrix, c, .. } = *self.gemm;
        // The next groups, of this panel or the next one, are about where these end.
        let bytes = matrix.panel_bytes() / (matrix.k / GROUP_SIZE) * groups.len();
        let start = self.panel * matrix.panel_bytes() + matrix.group(groups.start).0 + bytes;
        let lines = chunk_range(tile, self.row_tiles(), bytes.div_ceil(TILE_ROW_BYTES));
        for line in lines {
            s.prefetch(packed.as_ptr().wrapping_add(start + line * TILE_ROW_BYTES).cast());
        }
        if groups.end == matrix.k / GROUP_SIZE {
            for row in self.row(tile)..self.row(tile) + TILE_ROWS {
                s.prefetch(c.wrapping_add(row * matrix.n + self.panel * LANES));
            }
        }
    }

    /// Multiplies a tile of rows by the groups that are unpacked.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, s: S, groups: Range<usize>, tile: usize) {
        let GroupwiseGemm { a, matrix, .. } = *self.gemm;
        let left = a.as_ptr().wrapping_add(self.row(tile) * matrix.k + groups.start * GROUP_SIZE);
        let Scratch { weights, scales, totals, products } = &mut *self.scratch;
        let totals = &mut totals[tile * TILE_ROWS..(tile + 1) * TILE_ROWS];
        let mut sums = [s.splat(0.0); TILE_ROWS];
        if groups.start > 0 {
            for r in 0..TILE_ROWS {
                // SAFETY: the first block of K has written them.
                sums[r] = unsafe { s.load(totals[r].as_ptr().cast()) };
            }
        }
        let mut pipeline = Pipeline { tiles: self.tiles, left, stride: matrix.k, weights, scales, products, sums };
        pipeline.run(s, groups.len());
        for r in 0..TILE_ROWS {
            // SAFETY: there is room for a vector.
            unsafe { s.store(totals[r].as_mut_ptr().cast(), pipeline.sums[r]) };
        }
    }

    /// Applies the epilogue.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S) {
        let (n, column) = (self.gemm.matrix.n, self.panel * LANES);
        for tile in 0..self.row_tiles() {
            let apply = ApplyQuantEpilogue::<f32> {
                epilogue: &self.gemm.epilogue,
                sums: self.scratch.totals[tile * TILE_ROWS..].as_ptr().cast(),
                panels: 1,
                rows: TILE_ROWS,
                row: self.row(tile),
                column,
                columns: (n - column).min(LANES),
                out: OutPtr::Floats(self.gemm.c),
                out_stride: n,
            };
            // SAFETY: `gemm_u8_groupwise` has checked the sizes, and only this task accesses these rows and columns.
            unsafe { apply.run_on(s) };
        }
    }
}

/// The groups of a panel.
struct Pipeline<'a, S: Simd> {
    tiles: &'a Tiles,
    left: *const u8,
    stride: usize,
    weights: &'a [i8],
    scales: &'a [MaybeUninit<[f32; LANES]>; BLOCK_GROUPS],
    products: &'a mut [StoredTile; 2],
    sums: [S::V; TILE_ROWS],
}

impl<S: Simd> GroupPipeline<S> for Pipeline<'_, S> {
    #[inline(always)]
    fn issue<const TILE: u8>(&self, group: usize) {
        let weights = self.weights[half_offsets(group).1..].as_ptr().cast();
        let left = self.left.wrapping_add(group / 2 * TILE_ROW_BYTES);
        match TILE {
            // SAFETY: the 16 rows have 64 bytes for each pair of groups.
            0 => unsafe { self.tiles.load::<4>(left, self.stride) },
            // SAFETY: likewise.
            2 => unsafe { self.tiles.load::<5>(left, self.stride) },
            _ => {}
        }
        if const { TILE.is_multiple_of(2) } {
            // SAFETY: each group that is unpacked has a tile.
            unsafe { self.tiles.load::<6>(weights, TILE_ROW_BYTES) };
        } else {
            // SAFETY: likewise.
            unsafe { self.tiles.load::<7>(weights, TILE_ROW_BYTES) };
        }
        self.tiles.zero::<TILE>();
        match TILE {
            0 => self.tiles.dot_u8i8::<0, 4, 6>(),
            1 => self.tiles.dot_u8i8::<1, 4, 7>(),
            2 => self.tiles.dot_u8i8::<2, 5, 6>(),
            _ => self.tiles.dot_u8i8::<3, 5, 7>(),
        }
    }

    #[inline(always)]
    fn stored(&mut self) -> (&Tiles, &mut [StoredTile; 2]) {
        (self.tiles, self.products)
    }

    /// Accumulates the tile of a group, times the scales of its columns.
    #[inline(always)]
    fn accumulate(&mut self, s: S, group: usize) {
        // SAFETY: the scales of all groups are unpacked.
        let scale = unsafe { s.load(self.scales[group].as_ptr().cast()) };
        for r in 0..TILE_ROWS {
            let product = self.products[group % 2].row_i32(s, r);
            self.sums[r] = s.add(self.sums[r], s.mul(s.i32_to_f32(product), scale));
        }
    }
}
