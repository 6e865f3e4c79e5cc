//! Indirect int8 GEMM (u8 x i8) and its microkernel.
//!
//! Like the f32 driver ([`igemm`](crate::igemm)), but K is not blocked: accumulators are requantized when they leave
//! the registers, and an i8 panel is small. Each step multiplies four bytes of each row with a 64-byte vector of
//! weights.

use core::mem::MaybeUninit;

use crate::Engine;
use crate::arch::{Aligned, Int8Operands, Int8PanelSums, Kernel, LANES, Simd};
use crate::error::Error;
use crate::igemm::OutputLayout;
use crate::pack::pad_to_4;
use crate::partition::{OutputBlock, OutputPartition};
use crate::task_memory::{AnyBytes, TaskMemory};

use super::MAX_QUANT_K;
use super::epilogue::{ApplyQuantEpilogue, OutPtr, QuantEpilogueArgs, RegisterTile};
use super::lhs::{U8LhsRows, max_rows_by_copies};

/// Pointers for one block of rows.
pub(super) const MAX_POINTERS: usize = 4096;

/// Capacity for copies, in bytes.
pub(super) const MAX_COPIED_BYTES: usize = 64 << 10;

/// Maximum bytes of padding that a tap reads.
pub(super) const MAX_PAD_BYTES: usize = 4096;

/// Bytes of the left side in a block of rows: part of the L2 cache.
const BLOCK_ROWS_BYTES: usize = 192 << 10;

/// Rows and panels of the largest tile.
const MAX_MR: usize = 14;
const MAX_PANELS: usize = 2;

/// Capacity for a panel whose columns are paired, in bytes; only an instruction set of this architecture pairs them.
const MAX_PAIRED_BYTES: usize = if cfg!(target_arch = "aarch64") { 96 << 10 } else { 0 };

/// Rows for which the columns of a panel are paired.
const MIN_PAIRED_ROWS: usize = 12;

/// Checks that a window of `taps` taps of `depth` bytes fits the indirection buffer and the accumulators.
pub(super) fn check_window(taps: usize, depth: usize, is_padded: bool) -> Result<(), Error> {
    let quads = pad_to_4(depth);
    let beyond = taps > MAX_POINTERS / 16 || (is_padded && quads > MAX_PAD_BYTES);
    if beyond || taps.saturating_mul(quads) > MAX_QUANT_K {
        return Err(Error::Size { what: "window of an int8 convolution" });
    }
    Ok(())
}

/// Indirection buffer: pointers into the left side, to copies of parts of it, or to padding.
pub(super) struct U8IndirectionBuffer {
    pub(super) pointers: [MaybeUninit<*const u8>; MAX_POINTERS],
    pub(super) copies: [MaybeUninit<u8>; MAX_COPIED_BYTES],
    pub(super) pad: [MaybeUninit<u8>; MAX_PAD_BYTES],
    paired: [MaybeUninit<i8>; MAX_PAIRED_BYTES],
}

// SAFETY: arrays without a value of their own.
unsafe impl AnyBytes for U8IndirectionBuffer {}

/// A GEMM for each group of columns.
#[derive(Clone, Copy)]
pub(super) struct U8Igemm<'a, R> {
    pub(super) lhs: &'a R,
    pub(super) m_outer: usize,
    pub(super) m_inner: usize,
    /// Position of the rows in the output.
    pub(super) layout: OutputLayout,
    pub(super) groups: usize,
    /// Columns of one group.
    pub(super) columns: usize,
    /// Packed weights of all groups.
    pub(super) packed: &'a [i8],
    pub(super) out: OutPtr,
    /// Elements between pixels of the output.
    pub(super) out_stride: usize,
    pub(super) epilogue: QuantEpilogueArgs,
    /// Zero point of the left side, which pads it.
    pub(super) zero: u8,
}

// SAFETY: tasks write disjoint parts of `out`, which the caller borrows exclusively; the rest is shared reads.
unsafe impl<R: Sync> Sync for U8Igemm<'_, R> {}

impl<R: U8LhsRows> U8Igemm<'_, R> {
    /// Computes the GEMM on all threads.
    ///
    /// # Safety
    /// `packed` has `groups` packed matrices of `taps * depth` rows and `columns` columns; `out` and the operands of
    /// the epilogue cover all output positions, which nobody else accesses meanwhile; `lhs` fulfils the contract of its
    /// trait.
    pub(super) unsafe fn run(&self, engine: &Engine) {
        if self.m_outer == 0 || self.m_inner == 0 || self.groups == 0 || self.columns == 0 {
            return;
        }
        let quads = self.lhs.taps() * self.lhs.depth() / 4;
        let whole = OutputPartition::per_group(self.groups, [self.m_outer, self.m_inner], self.columns);
        let partition = whole.for_threads(engine, self.columns, quads, engine.dispatch.tile());
        engine.pool.run(partition.tasks(), |task| {
            let mut memory = TaskMemory::take();
            let (block, pointers) = (partition.block(task), memory.get());
            engine.dispatch.run_int8(U8IgemmTask { igemm: self, block, pointers });
        });
    }
}

/// One task.
struct U8IgemmTask<'a, R> {
    igemm: &'a U8Igemm<'a, R>,
    block: OutputBlock,
    pointers: &'a mut U8IndirectionBuffer,
}

impl<R: U8LhsRows> Kernel for U8IgemmTask<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { igemm, block: OutputBlock { group, m_outer, m_inner, panels }, pointers } = self;
        let (taps, depth) = (igemm.lhs.taps(), igemm.lhs.depth());
        pointers.pad[..depth.clamp(1, MAX_PAD_BYTES)].fill(MaybeUninit::new(igemm.zero));
        let by_cache = (BLOCK_ROWS_BYTES / (taps * depth).max(1)).max(S::INT8_MR);
        let limit = by_cache.min(MAX_POINTERS / taps.max(1)).min(max_rows_by_copies(igemm.lhs.copies())).max(1);
        let limit = if limit > S::INT8_MR { limit / S::INT8_MR * S::INT8_MR } else { limit };
        let chunk = m_inner.len().div_ceil(m_inner.len().div_ceil(limit)).next_multiple_of(S::INT8_MR).min(limit);
        // All pointers that are read have been filled.
        assert!(chunk.saturating_mul(taps) <= MAX_POINTERS, "the taps of a tile");
        let panel_bytes = taps * depth * LANES;
        let group_panels = igemm.columns.div_ceil(LANES);
        for outer in m_outer {
            let pixel = igemm.layout.pixel(outer, 0);
            let epilogue = igemm.epilogue.at_pixel(pixel, igemm.layout.step);
            let out = igemm.out.at(pixel * igemm.out_stride);
            let out_stride = igemm.out_stride * igemm.layout.step;
            for first in m_inner.clone().step_by(chunk) {
                let count = (m_inner.end - first).min(chunk);
                igemm.lhs.fill_pointers(group, outer * igemm.m_inner + first, count, pointers);
                for panel in panels.clone().step_by(S::NR_PANELS) {
                    let together = (panels.end - panel).min(S::NR_PANELS);
                    let group_column = panel * LANES;
                    let weights = igemm.packed.as_ptr().wrapping_add((group * group_panels + panel) * panel_bytes);
                    // Each tile prefetches a part of the next panels.
                    let is_last = panel + together >= panels.end;
                    let tiles = (count / S::INT8_MR).max(1);
                    let (ahead, ahead_step) = if is_last {
                        (weights, 0)
                    } else {
                        (weights.wrapping_add(together * panel_bytes), (4 * LANES).div_ceil(tiles))
                    };
                    let operands = Int8Operands {
                        pointers: pointers.pointers.as_ptr().cast(),
                        pointer_stride: count,
                        taps,
                        quads: depth / 4,
                        weights,
                        weights_stride: panel_bytes,
                        ahead,
                        ahead_step,
                        may_have_minimum: true,
                        is_paired: false,
                    };
                    let tile = U8TileStack {
                        operands,
                        offsets: core::ptr::null(),
                        paired: &raw mut pointers.paired,
                        epilogue: &epilogue,
                        out,
                        out_stride,
                        row: first,
                        column: group * igemm.columns + group_column,
                        columns: (igemm.columns - group_column).min(together * LANES),
                    };
                    if const { S::NR_PANELS == 2 } && together == 2 {
                        tile.all_rows::<S, 2>(s, count);
                    } else {
                        tile.all_rows::<S, 1>(s, count);
                    }
                }
            }
        }
    }
}

/// A stack of tiles. Independent of how rows are found, so that it is instantiated once.
#[derive(Clone, Copy)]
struct U8TileStack<'a> {
    operands: Int8Operands,
    /// Offsets of the columns of each panel, and what is added to the initial accumulators that they determine; the latter only
    /// with [`Simd::INT8_LEFT_OFFSET`]. It is part of the offsets if all rows start with these.
    offsets: *const [MaybeUninit<Aligned>; 2],
    /// Memory for a panel whose columns are paired.
    paired: *mut [MaybeUninit<i8>],
    epilogue: &'a QuantEpilogueArgs,
    out: OutPtr,
    out_stride: usize,
    /// First row, counted from the start of the outer row, and first column in the output.
    row: usize,
    column: usize,
    columns: usize,
}

impl U8TileStack<'_> {
    /// Computes `count` rows, in the highest tiles that fit.
    #[inline(always)]
    fn all_rows<S: Simd, const P: usize>(mut self, s: S, count: usize) {
        // Rows are covered by the heights below, down to 1; the full height must be one of them.
        const {
            assert!(
                matches!(S::INT8_MR, 14 | 12 | 7 | 6 | 4 | 3 | 2 | 1)
                    && S::INT8_MR <= MAX_MR
                    && S::NR_PANELS <= MAX_PANELS,
                "a register tile without a microkernel"
            );
        }
        let mut offsets = [[MaybeUninit::uninit(); 2]; P];
        self.load_offsets(s, &mut offsets);
        self.offsets = offsets.as_ptr();
        if const { S::PAIRS_INT8_COLUMNS && P == 1 }
            && count >= MIN_PAIRED_ROWS
            && self.operands.paired_bytes() <= self.paired.len()
        {
            // SAFETY: `U8Igemm::run` requires the weights of all panels, and there is room.
            unsafe { s.pair_int8_columns(&self.operands, self.paired.cast()) };
            self.operands = Int8Operands { weights: self.paired.cast(), is_paired: true, ..self.operands };
        }
        let mut left = count;
        macro_rules! by_height {
            ($($rows:literal)*) => {$(
                // Few heights per instruction set, as each is an instantiation.
                if const { $rows == S::INT8_MR || $rows == S::INT8_MR / 2 || $rows == 1 || ($rows == 4 && S::INT8_MR > 4) } {
                    while left >= $rows {
                        let repeat = left / $rows;
                        s.vectorize(U8Microkernel::<$rows, P> { first: self, repeat });
                        self.advance(repeat, $rows);
                        left -= repeat * $rows;
                    }
                }
            )*};
        }
        by_height!(14 12 7 6 4 3 2 1);
    }

    /// Advances by tiles of `rows` rows.
    #[inline(always)]
    fn advance(&mut self, tiles: usize, rows: usize) {
        let Int8Operands { taps, quads, ahead_step, .. } = self.operands;
        self.row += tiles * rows;
        self.operands.ahead = self.operands.ahead.wrapping_add(tiles * taps * quads * ahead_step);
        self.operands.pointers = self.operands.pointers.wrapping_add(tiles * rows);
    }

    /// Loads the initial accumulators.
    #[inline(always)]
    fn load_offsets<S: Simd, const P: usize>(&mut self, s: S, to: &mut [[MaybeUninit<Aligned>; 2]; P]) {
        let Int8Operands { taps, quads, weights, weights_stride, .. } = self.operands;
        self.operands.may_have_minimum = false;
        for p in 0..P {
            let n = (self.columns - p * LANES).min(LANES);
            let from = self.epilogue.offsets.wrapping_add(self.column + p * LANES);
            // SAFETY: there is an offset for each column.
            let mut offsets = unsafe { s.load_partial_i32(from, n) };
            if const { S::INT8_LEFT_OFFSET != 0 } {
                // SAFETY: `U8Igemm::run` requires the weights of all panels.
                let sums = unsafe { s.int8_panel_sums(weights.wrapping_add(p * weights_stride), taps * quads) };
                let Int8PanelSums { sums, may_have_minimum } = sums;
                self.operands.may_have_minimum |= may_have_minimum;
                let subtracted = s.mul_i32(sums, S::INT8_LEFT_OFFSET);
                if self.epilogue.starts_alike() {
                    offsets = s.add_i32(offsets, subtracted);
                }
                // SAFETY: there is room for a vector.
                unsafe { s.store_i32(to[p][1].as_mut_ptr().cast(), subtracted) };
            }
            // SAFETY: likewise.
            unsafe { s.store_i32(to[p][0].as_mut_ptr().cast(), offsets) };
        }
    }
}

/// A microkernel of `N` rows and `P` panels, for `repeat` tiles below each other.
struct U8Microkernel<'a, const N: usize, const P: usize> {
    first: U8TileStack<'a>,
    repeat: usize,
}

impl<const N: usize, const P: usize> Kernel for U8Microkernel<'_, N, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut tile = self.first;
        for _ in 0..self.repeat {
            Self::one(s, &tile);
            tile.advance(1, N);
        }
    }
}

impl<const N: usize, const P: usize> U8Microkernel<'_, N, P> {
    // LLVM keeps the accumulators in registers only if every access is in an unrolled loop over indices.
    #[inline(always)]
    fn one<S: Simd>(s: S, tile: &U8TileStack<'_>) {
        let epilogue = tile.epilogue;
        let mut sums = [[s.splat_i32(0); P]; N];
        for p in 0..P {
            let offsets = tile.offsets.wrapping_add(p).cast::<i32>();
            // SAFETY: the offsets of all panels were loaded.
            let offset = unsafe { s.load_i32(offsets) };
            for r in 0..N {
                // SAFETY: there is a zero for each row.
                sums[r][p] = unsafe { epilogue.start(s, offset, tile.row + r) };
            }
            if const { S::INT8_LEFT_OFFSET != 0 } && !epilogue.starts_alike() {
                // SAFETY: the offsets of all panels were loaded.
                let subtracted = unsafe { s.load_i32(offsets.wrapping_add(LANES)) };
                for r in 0..N {
                    sums[r][p] = s.add_i32(sums[r][p], subtracted);
                }
            }
        }
        // SAFETY: `U8Igemm::run` requires the weights of all panels; the pointers of all rows and taps were written, each to
        // four bytes for each step.
        unsafe { s.multiply_int8(&tile.operands, &mut sums) };
        if const { N == S::INT8_MR || !S::PACKS_U8_TOGETHER } && RegisterTile::<S, N, P>::exists_for(tile.columns) {
            let &U8TileStack { row, column, columns, out_stride, .. } = tile;
            let registers = RegisterTile { sums: &sums, row, column, columns, out_stride };
            // SAFETY: `U8Igemm::run` requires the positions in all tensors, and tasks are disjoint.
            if unsafe { registers.run_on(s, epilogue, tile.out) } {
                return;
            }
        }
        let mut copy = [MaybeUninit::<Aligned>::uninit(); MAX_MR * MAX_PANELS];
        for r in 0..N {
            for p in 0..P {
                // SAFETY: there is room for the largest tile.
                unsafe { s.store_i32(copy.as_mut_ptr().wrapping_add(p * N + r).cast(), sums[r][p]) };
            }
        }
        let finish = ApplyQuantEpilogue::<i32> {
            epilogue,
            sums: copy.as_ptr().cast(),
            panels: P,
            rows: N,
            row: tile.row,
            column: tile.column,
            columns: tile.columns,
            out: tile.out,
            out_stride: tile.out_stride,
        };
        // SAFETY: `U8Igemm::run` requires the positions in all tensors, and tasks are disjoint.
        unsafe { finish.run_on(s) };
    }
}
