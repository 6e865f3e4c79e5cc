//! Indirect GEMM: the driver of all f32 and bf16 GEMMs and convolutions.
//!
//! The left side is read through an indirection buffer, a pointer per row and kernel position (tap). Convolutions of
//! any kernel, stride, dilation, group count and dimension therefore run without an im2col copy: Dukhan, "The Indirect
//! Convolution Algorithm", 2019, arXiv:1907.02129. A plain GEMM has one tap.
//!
//! Blocking follows Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008. Tasks are blocks
//! of the output. A task loops over blocks of rows whose left side fits in the L2 cache, then over blocks of K whose
//! panel of weights fits in L1. Inside these, it loops over panels and register tiles. Sums are accumulated in the
//! output from one block of K to the next.
#![allow(unsafe_code)]

pub(crate) mod microkernel;
mod narrow_weights;

use core::mem::MaybeUninit;

use crate::arch::{Dispatch, Kernel, LANES, Simd};
use crate::element::ElementPtrMut;
use crate::epilogue::EpilogueArgs;
use crate::error::Error;
use crate::pack::padded_rows;
use crate::partition::{OutputBlock, OutputPartition};
use crate::task_memory::{AnyBytes, TaskMemory};
use crate::{Engine, Epilogue, FloatSlice, FloatSliceMut, Half, Weights};

use microkernel::{KStep, Prefetch, TileOperands, TileStack};
use narrow_weights::{NarrowMemory, NarrowPass};

/// The left side of the GEMM: the layout of the elements of each row.
pub(crate) trait LhsRows: Sync {
    /// Taps per row; K is taps times depth.
    fn taps(&self) -> usize;
    /// Elements per tap.
    fn depth(&self) -> usize;

    /// Largest number of rows whose tap pointers and copies fit in the buffer; at least one tile.
    fn max_rows(&self) -> usize {
        usize::MAX
    }

    /// True if the elements are bf16. [`fill_pointers`](Self::fill_pointers) then writes pointers to them, and K is not
    /// blocked. If the depth is odd, all taps together must have at most [`MAX_REPACKED_PAIRS`] pairs.
    const IS_BF16: bool = false;

    /// Writes the pointers for rows `first..first + count` and taps `tap..tap + taps`, from element `offset` of each
    /// tap on, as `[taps][count]`. Each points to at least `depth - offset` elements, at most [`MAX_DEPTH`] of which
    /// are read.
    fn fill_pointers(
        &self,
        group: usize,
        first: usize,
        count: usize,
        taps: (usize, usize),
        offset: usize,
        to: &mut IndirectionBuffer,
    );
}

/// Memory of a task.
struct Memory {
    pointers: IndirectionBuffer,
    narrow: NarrowMemory,
}

// SAFETY: arrays without a value of their own.
unsafe impl AnyBytes for Memory {}

/// Indirection buffer: pointers into the left side, and storage for the parts of it that must be copied.
pub(crate) struct IndirectionBuffer {
    pub(crate) pointers: [MaybeUninit<*const f32>; MAX_POINTERS],
    pub(crate) copies: [MaybeUninit<f32>; MAX_COPIES],
    /// Storage for copies as bf16.
    pub(crate) bf16_copies: [MaybeUninit<u16>; MAX_BF16_COPIES],
}

/// Pointers for one block of rows and taps.
pub(crate) const MAX_POINTERS: usize = 2048;

/// Capacity for f32 copies, in elements.
pub(crate) const MAX_COPIES: usize = 4096;

/// Capacity for bf16 copies, in elements.
pub(crate) const MAX_BF16_COPIES: usize = 8192;

/// Maximum elements of a tap that are read through one pointer.
pub(crate) const MAX_DEPTH: usize = 512;

/// Target size of a block of K: a panel of 16 columns of it takes half of a typical L1 cache.
const TARGET_BLOCK_K: usize = 256;

/// Maximum size of a block of K: slightly more than the target is not split.
const MAX_BLOCK_K: usize = TARGET_BLOCK_K * 3 / 2;

/// Bytes of the left side in a block of rows: part of the L2 cache.
const BLOCK_ROWS_BYTES: usize = 224 << 10;

/// Largest weights, in bytes, that are kept in the L2 cache. Also the bytes of the rows on both sides that are
/// processed at a time beside them.
const L2_WEIGHTS_BYTES: usize = 160 << 10;
const L2_ROWS_BYTES: usize = 128 << 10;

/// Maximum pairs of K whose weights are repacked when the rows are bf16 of odd depth.
pub(crate) const MAX_REPACKED_PAIRS: usize = 192;

/// Target of the pointers of padding.
pub(crate) static ZEROS: [f32; MAX_DEPTH] = [0.0; MAX_DEPTH];

/// Returns true if a GEMM with `taps` taps of `depth` elements accepts bf16 input: elements are multiplied in pairs.
pub fn gemm_supports_bf16_input(taps: usize, depth: usize) -> bool {
    // Padding is read through the zero buffer, which bounds the depth.
    depth.is_multiple_of(2) && taps <= MAX_TAPS && (taps == 1 || depth <= 2 * MAX_DEPTH)
}

/// Returns true if a GEMM of this shape can write bf16 output: K is not blocked, so no partial sums are stored.
pub fn gemm_supports_bf16_output(taps: usize, depth: usize, from_bf16: bool) -> bool {
    from_bf16 && gemm_supports_bf16_input(taps, depth) || KBlocking::new(taps, depth).is_one()
}

/// Returns true if a GEMM of this shape accepts a bf16 residual: all blocks of K consist of pairs.
pub fn gemm_supports_bf16_residual(taps: usize, depth: usize) -> bool {
    KBlocking::new(taps, depth).are_pairs()
}

/// Maximum taps of a block.
pub(crate) const MAX_TAPS: usize = 64;

/// Checks that a GEMM with these taps and depth supports the element types of its operands.
pub(crate) fn check_bf16(
    engine: &Engine,
    [taps, depth]: [usize; 2],
    input: FloatSlice<'_>,
    packed: Weights<'_>,
    out: &FloatSliceMut<'_>,
    epilogue: &Epilogue<'_>,
) -> Result<(), Error> {
    let residual = epilogue.residual.is_some_and(|residual| residual.data.is_bf16());
    if !input.is_bf16() && !out.is_bf16() && !residual {
        return Ok(());
    }
    engine.check_bf16_support(true)?;
    if !matches!(packed, Weights::Half(Half::Bf16, _)) {
        return Err(Error::Type { what: "packed weights" });
    }
    if input.is_bf16() && !gemm_supports_bf16_input(taps, depth) {
        return Err(Error::Type { what: "input" });
    }
    if out.is_bf16() && !gemm_supports_bf16_output(taps, depth, input.is_bf16()) {
        return Err(Error::Type { what: "output" });
    }
    if residual && !gemm_supports_bf16_residual(taps, depth) {
        return Err(Error::Type { what: "residual" });
    }
    Ok(())
}

/// Position of each row in the output, in pixels of `out_stride` elements. Inner rows are `step` pixels apart; outer
/// rows are `outer_stride` apart within an image, and images `image_stride`.
#[derive(Clone, Copy)]
pub(crate) struct OutputLayout {
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) outer_stride: usize,
    pub(crate) outer_per_image: usize,
    pub(crate) image_stride: usize,
}

impl OutputLayout {
    /// All rows contiguous.
    pub(crate) const DENSE: OutputLayout =
        OutputLayout { first: 0, step: 1, outer_stride: 0, outer_per_image: 1, image_stride: 0 };

    /// Returns the position of a row.
    pub(crate) fn pixel(&self, outer: usize, row: usize) -> usize {
        let (image, outer) = (outer / self.outer_per_image, outer % self.outer_per_image);
        self.first + image * self.image_stride + outer * self.outer_stride + row * self.step
    }
}

/// A GEMM for each group of columns.
#[derive(Clone, Copy)]
pub(crate) struct Igemm<'a, R> {
    pub(crate) lhs: &'a R,
    pub(crate) m_outer: usize,
    pub(crate) m_inner: usize,
    pub(crate) groups: usize,
    /// Columns of one group.
    pub(crate) columns: usize,
    /// Packed weights of all groups.
    pub(crate) packed: Weights<'a>,
    pub(crate) out: ElementPtrMut,
    /// Elements between pixels of the output. Output in bf16 is written once, because the rows are bf16 too or K is one
    /// block.
    pub(crate) out_stride: usize,
    pub(crate) layout: OutputLayout,
    pub(crate) epilogue: EpilogueArgs,
}

// SAFETY: tasks write disjoint parts of `out`, which the caller borrows exclusively; the rest is shared reads.
unsafe impl<R: Sync> Sync for Igemm<'_, R> {}

impl<R: LhsRows> Igemm<'_, R> {
    /// Computes the GEMM on all threads.
    ///
    /// # Safety
    /// `packed` has `groups` packed matrices of `taps * depth` rows and `columns` columns. `out`, the bias and the
    /// residual cover all output positions, which nobody else accesses meanwhile. `lhs` fulfils the contract of its
    /// trait.
    pub(crate) unsafe fn run(&self, engine: &Engine) {
        if self.m_outer == 0 || self.m_inner == 0 || self.groups == 0 || self.columns == 0 {
            return;
        }
        let partition = self.partition(engine);
        engine.pool.run(partition.tasks(), |task| {
            self.run_task(engine.dispatch, partition, task);
        });
    }

    /// Computes the GEMM on the calling thread.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub(crate) unsafe fn run_here(&self, dispatch: Dispatch) {
        if self.m_outer == 0 || self.m_inner == 0 || self.groups == 0 || self.columns == 0 {
            return;
        }
        // One task per group.
        for task in 0..self.groups {
            self.run_task(dispatch, self.whole(), task);
        }
    }

    fn run_task(&self, dispatch: Dispatch, partition: OutputPartition, task: usize) {
        let mut memory = TaskMemory::take();
        dispatch.run(IgemmTask { igemm: self, block: partition.block(task), memory: memory.get() });
    }

    /// One task per group.
    fn whole(&self) -> OutputPartition {
        OutputPartition::per_group(self.groups, [self.m_outer, self.m_inner], self.columns)
    }

    /// Partitions the output for all threads.
    fn partition(&self, engine: &Engine) -> OutputPartition {
        let k = self.lhs.taps() * self.lhs.depth();
        self.whole().for_threads(engine, self.columns, k, engine.dispatch.tile())
    }
}

/// One task.
struct IgemmTask<'a, R> {
    igemm: &'a Igemm<'a, R>,
    block: OutputBlock,
    memory: &'a mut Memory,
}

impl<R: LhsRows> Kernel for IgemmTask<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { igemm, block, memory: Memory { pointers, narrow } } = self;
        let OutputBlock { group, m_outer, m_inner, panels } = block;
        let (taps, depth) = (igemm.lhs.taps(), igemm.lhs.depth());
        let k_blocks = if R::IS_BF16 { KBlocking::whole(taps, depth) } else { KBlocking::new(taps, depth) };
        let max_rows = k_blocks.max_rows::<R>(S::MR, igemm.lhs.max_rows(), panels.len() * LANES, igemm.out.is_bf16());
        // All pointers that are read have been filled.
        assert!(max_rows.saturating_mul(k_blocks.block_taps) <= MAX_POINTERS, "the taps of a tile");
        for outer in m_outer {
            let row_blocks = m_inner.len().div_ceil(max_rows);
            let row_block = m_inner.len().div_ceil(row_blocks).next_multiple_of(S::MR).min(max_rows);
            for first in m_inner.clone().step_by(row_block) {
                let count = (m_inner.end - first).min(row_block);
                // At least one pass, because the epilogue must run even if K is empty.
                for tap in (0..k_blocks.taps.max(1)).step_by(k_blocks.block_taps) {
                    let taps = k_blocks.taps.saturating_sub(tap).min(k_blocks.block_taps);
                    for offset in (0..k_blocks.depth.max(1)).step_by(k_blocks.block_depth) {
                        let depth = (k_blocks.depth - offset).min(k_blocks.block_depth);
                        let is_last = tap + taps == k_blocks.taps && offset + depth == k_blocks.depth;
                        let whole_row = outer * igemm.m_inner + first;
                        igemm.lhs.fill_pointers(group, whole_row, count, (tap, taps), offset, pointers);
                        let block = MacroKernel { group, outer, first, count, tap, taps, offset, depth, is_last };
                        let panels = panels.clone();
                        match igemm.packed {
                            Weights::F32(packed) if const { !R::IS_BF16 } => {
                                let right = InPlacePanels(packed.as_ptr());
                                block.run(s, igemm, &k_blocks, panels, &mut IndirectOperands { pointers, right });
                            }
                            packed => {
                                let (k_blocks, pointers, memory) = (&k_blocks, &mut *pointers, &mut *narrow);
                                NarrowPass { packed, block, igemm, k_blocks, panels, pointers, memory }.run(s);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Blocking of K: several whole taps, or a part of one.
struct KBlocking {
    taps: usize,
    depth: usize,
    block_taps: usize,
    block_depth: usize,
}

impl KBlocking {
    fn new(taps: usize, depth: usize) -> Self {
        if depth > MAX_BLOCK_K {
            let k_blocks = depth.div_ceil(TARGET_BLOCK_K);
            return Self { taps, depth, block_taps: 1, block_depth: depth.div_ceil(k_blocks).next_multiple_of(8) };
        }
        let together = (MAX_BLOCK_K / depth.max(1)).clamp(1, MAX_TAPS);
        let k_blocks = taps.div_ceil(together);
        Self { taps, depth, block_taps: taps.div_ceil(k_blocks.max(1)).max(1), block_depth: depth.max(1) }
    }

    /// All of K in one block.
    fn whole(taps: usize, depth: usize) -> Self {
        Self { taps, depth, block_taps: taps.max(1), block_depth: depth.max(1) }
    }

    /// Returns true if each block starts at an even k, and each but the last has an even size.
    fn are_pairs(&self) -> bool {
        self.depth.is_multiple_of(2) || self.is_one()
    }

    /// Returns true if K is not split.
    fn is_one(&self) -> bool {
        self.block_taps >= self.taps && self.block_depth >= self.depth
    }

    /// Returns the number of rows of a block, a multiple of `tile_rows`, limited by the indirection buffer and the
    /// caches.
    ///
    /// Weights that fit in L2 are read again for every few rows, whose outputs stay in L2 until all `columns` are
    /// written.
    fn max_rows<R: LhsRows>(&self, tile_rows: usize, left_rows: usize, columns: usize, to_bf16: bool) -> usize {
        let depth = self.block_taps * self.block_depth;
        let size = |is_bf16| if is_bf16 { size_of::<u16>() } else { size_of::<f32>() };
        let row = size(R::IS_BF16) * depth;
        let (weights, both) = (row.saturating_mul(columns), row + size(to_bf16) * columns);
        let by_cache = if weights <= L2_WEIGHTS_BYTES { L2_ROWS_BYTES / both } else { BLOCK_ROWS_BYTES / row };
        let limit = by_cache.min(MAX_POINTERS / self.block_taps).min(left_rows);
        (limit / tile_rows * tile_rows).max(tile_rows)
    }
}

/// A block of rows times a block of K (the macrokernel).
#[derive(Clone, Copy)]
struct MacroKernel {
    group: usize,
    outer: usize,
    first: usize,
    count: usize,
    tap: usize,
    taps: usize,
    offset: usize,
    depth: usize,
    is_last: bool,
}

impl MacroKernel {
    /// Computes all tiles of the block.
    #[inline(always)]
    fn run<S: Simd, R: LhsRows>(
        &self,
        s: S,
        igemm: &Igemm<'_, R>,
        k_blocks: &KBlocking,
        panels: core::ops::Range<usize>,
        operands: &mut impl Operands,
    ) {
        let panel_stride = padded_rows(k_blocks.taps * k_blocks.depth) * LANES;
        let group_panels = igemm.columns.div_ceil(LANES);
        let k = self.tap * k_blocks.depth + self.offset;
        let tiles = self.count.div_ceil(S::MR);
        let (height, taller) = (self.count / tiles, self.count % tiles);
        let epilogue = &igemm.epilogue;
        let pixel = igemm.layout.pixel(self.outer, self.first);
        for panel in panels.clone().step_by(S::NR_PANELS) {
            let together = (panels.end - panel).min(S::NR_PANELS);
            let group_column = panel * LANES;
            let column = self.group * igemm.columns + group_column;
            let first = (self.group * group_panels + panel) * panel_stride + k * LANES;
            // If the weights exceed the caches, the first tile of the next panel would wait for memory.
            let prefetch = match panels.end.saturating_sub(panel + together) {
                0 => Prefetch::NONE,
                others => Prefetch {
                    from: core::ptr::null(),
                    stride: if others == 1 { 0 } else { panel_stride },
                    lines: (self.taps * self.depth).div_ceil(tiles),
                    tiles,
                },
            };
            let right = PanelGroup { first, count: together, stride: panel_stride, prefetch };
            operands.prepare(s, self, &right);
            let bias = if epilogue.bias.is_null() { epilogue.bias } else { epilogue.bias.wrapping_add(column) };
            let mut row = 0;
            for (rows, first_tile, repeat) in [(height + 1, 0, taller), (height, taller, tiles - taller)] {
                if repeat == 0 {
                    continue;
                }
                let pixel = pixel + row * igemm.layout.step;
                let tile = TileStack {
                    operands: operands.tile_operands(self, &right, row, first_tile),
                    rows,
                    repeat,
                    panels: together,
                    columns: (igemm.columns - group_column).min(together * LANES),
                    out: igemm.out.add(s, pixel * igemm.out_stride + column),
                    out_stride: igemm.out_stride * igemm.layout.step,
                    bias,
                    residual: epilogue.residual.add(s, pixel * epilogue.residual_stride + column),
                    residual_stride: epilogue.residual_stride * igemm.layout.step,
                    is_first: k == 0,
                    is_last: self.is_last,
                    epilogue,
                };
                // SAFETY: `Igemm::run` requires the positions in all tensors; `fill_pointers` has written a pointer for
                // each tap and row; tasks are disjoint.
                unsafe { tile.run_on(s) };
                row += rows * repeat;
            }
        }
    }
}

/// Adjacent panels of packed weights that one register tile covers.
struct PanelGroup {
    /// Offset of the first panel at the first k of the block.
    first: usize,
    count: usize,
    /// Elements between panels.
    stride: usize,
    /// The data to prefetch after these panels. The address depends on the element type and is set by
    /// [`Operands::tile_operands`].
    prefetch: Prefetch,
}

/// Both operands of a macrokernel.
trait Operands {
    type Step: KStep;

    /// Prepares panels for the microkernel, for example by widening them.
    fn prepare<S: Simd>(&mut self, s: S, block: &MacroKernel, panels: &PanelGroup);

    /// Returns the operands of the tiles from row `row` on, the first of which is tile number `tile` of the block.
    fn tile_operands(
        &self,
        block: &MacroKernel,
        panels: &PanelGroup,
        row: usize,
        tile: usize,
    ) -> TileOperands<Self::Step>;
}

/// Rows read through the indirection buffer, and f32 panels.
struct IndirectOperands<'a, W> {
    pointers: &'a IndirectionBuffer,
    right: W,
}

/// A source of f32 panels.
trait PanelSource {
    fn prepare<S: Simd>(&mut self, s: S, block: &MacroKernel, panels: &PanelGroup);

    /// Returns the first panel, the stride between panels, and the data to prefetch after them.
    fn panels(&self, block: &MacroKernel, panels: &PanelGroup, tile: usize) -> (*const f32, usize, Prefetch);
}

impl<W: PanelSource> Operands for IndirectOperands<'_, W> {
    type Step = f32;

    #[inline(always)]
    fn prepare<S: Simd>(&mut self, s: S, block: &MacroKernel, panels: &PanelGroup) {
        self.right.prepare(s, block, panels);
    }

    #[inline(always)]
    fn tile_operands(&self, block: &MacroKernel, panels: &PanelGroup, row: usize, tile: usize) -> TileOperands<f32> {
        let (panel, panel_stride, prefetch) = self.right.panels(block, panels, tile);
        TileOperands {
            pointers: self.pointers.pointers.as_ptr().cast::<*const f32>().wrapping_add(row),
            pointer_stride: block.count,
            taps: block.taps,
            steps: block.depth,
            has_unpaired: false,
            panel,
            panel_stride,
            prefetch,
        }
    }
}

/// Panels of f32 weights, read in place.
struct InPlacePanels(*const f32);

impl PanelSource for InPlacePanels {
    #[inline(always)]
    fn prepare<S: Simd>(&mut self, _: S, _: &MacroKernel, _: &PanelGroup) {}

    #[inline(always)]
    fn panels(&self, _: &MacroKernel, panels: &PanelGroup, tile: usize) -> (*const f32, usize, Prefetch) {
        let panel = self.0.wrapping_add(panels.first);
        let skipped = panels.count * panels.stride + tile * panels.prefetch.lines * LANES;
        (panel, panels.stride, Prefetch { from: panel.wrapping_add(skipped), ..panels.prefetch })
    }
}
