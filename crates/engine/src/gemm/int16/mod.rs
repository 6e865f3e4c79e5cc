//! GEMM of f32 rows by weight-only quantized matrices, in integers.
//!
//! A row is rounded to 16-bit integers, with one scale for each 256 elements. The error of an element is at most 2^-16 of
//! the largest of its 256. Dot products of integers are exact. If one of the 256 is infinite or NaN, the results are NaN;
//! if all are below 2^-111, they count as zeros.
//!
//! A 16-bit dot product does two multiply-adds where f32 does one, and weights need no conversion to floats.
//!
//! Tasks are blocks of the output. The loops of a task, from the outermost: blocks of rows, blocks of K, panels. The
//! weights of a block of K, as 16-bit pairs, fit in the L1 cache. With few rows, a block of K is longer. The output keeps
//! the sums between blocks. Their order depends on K alone, so that results depend neither on threads nor on the number of
//! rows.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_bf16;
mod gemv;
mod lhs;
mod tile;

use core::ops::Range;

use super::operands::{Gemm, Matrix};
use crate::Engine;
use crate::arch::{I16Pairs, Kernel, LANES, Simd};
use crate::epilogue::{ApplyEpilogue, EpilogueArgs};
use crate::pack::QuantizedMatrix;
use crate::partition::{OutputBlock, OutputPartition};
use crate::task_memory::{AnyBytes, TaskMemory};
use crate::weights::{PanelGroups, QuantizedGroup, QuantizedWeights};

use gemv::{Gemv, Panel};
use lhs::{Lhs, RoundRows, SplitForInt8};
use tile::{Rows, Unpack, UnpackedPanels};

/// Rows of weights in a block: the largest power of two for which a dot product of 8-bit weights fits in i32, `256 * 255 * 32767`.
const BLOCK_K: usize = 256;
const BLOCK_PAIRS: usize = BLOCK_K / 2;

/// Maximum rows of the left side in a block. For fewer than [`MIN_UNPACKED_ROWS`], the same memory holds several blocks of K.
const BLOCK_ROWS: usize = 96;

/// Minimum rows of a group of weights. Below this, scaling the sums costs more than the dot products.
const MIN_GROUP: usize = 16;
/// Maximum groups in a block of K; the first and the last may be parts of one.
const MAX_GROUPS: usize = BLOCK_K / MIN_GROUP;

/// Panels whose weights are unpacked at a time.
const PANELS: usize = 2;

/// Minimum rows for which weights are unpacked to memory. For fewer, unpacking them in registers each time costs less.
const MIN_UNPACKED_ROWS: usize = 12;

/// Maximum rows that share weights unpacked in registers.
const GEMV_ROWS: usize = 4;

/// Rows of the largest tile of one panel, and of two.
const TILE_ROWS: [usize; PANELS] = [4, 6];

/// `c = epilogue(a b)` for weights that [`suit`](suits) it.
pub(super) struct Int16Gemm<'a> {
    pub(super) gemm: &'a Gemm,
    pub(super) a: Matrix<'a>,
    pub(super) weights: QuantizedWeights<'a>,
    pub(super) c: *mut f32,
    pub(super) epilogue: EpilogueArgs,
}

// SAFETY: tasks write disjoint blocks of `c`, which `gemm` borrows exclusively.
unsafe impl Sync for Int16Gemm<'_> {}

/// True if the processor multiplies 16-bit integers faster than floats, and groups of weights are not too small.
pub(super) fn suits(engine: &Engine, weights: &QuantizedWeights<'_>) -> bool {
    struct HasDot;
    impl Kernel for HasDot {
        type Out = bool;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> bool {
            S::HAS_I16_DOT
        }
    }
    weights.group() >= MIN_GROUP && engine.dispatch.run(HasDot)
}

/// Returns the scratch size, in floats, with which [`Int16Gemm::run`] is fastest for `matrix`.
pub(super) fn scratch(engine: &Engine, matrix: &QuantizedMatrix) -> usize {
    #[cfg(target_arch = "x86_64")]
    return amx_bf16::scratch(engine, matrix);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (engine, matrix);
        0
    }
}

impl Int16Gemm<'_> {
    /// Computes the GEMM on all threads. `scratch` may have any size.
    ///
    /// # Safety
    /// The slices and `c` have the sizes that the shape and the epilogue need, and nobody else accesses `c` meanwhile.
    pub(super) unsafe fn run(&self, engine: &Engine, scratch: &mut [f32]) {
        let &Gemm { m, n, k, .. } = self.gemm;
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: the caller guarantees the slices and the output.
            if unsafe { amx_bf16::run(engine, self, scratch) } {
                return;
            }
            // SAFETY: likewise.
            if unsafe { amx::run(engine, self) } {
                return;
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = scratch;
        let [rows, panels] = [TILE_ROWS[PANELS - 1], PANELS];
        let partition = OutputPartition::per_group(1, [1, m], n).for_threads(engine, n, k / 2, (rows, panels));
        engine.pool.run(partition.tasks(), |task| {
            self.run_block(engine, partition.block(task));
        });
    }

    /// Computes a block of the output on the calling thread.
    fn run_block(&self, engine: &Engine, block: OutputBlock) {
        let mut memory = TaskMemory::take();
        engine.dispatch.run_int8(Task { gemm: self, block, memory: memory.get() });
    }
}

/// One task.
struct Task<'a> {
    gemm: &'a Int16Gemm<'a>,
    block: OutputBlock,
    memory: &'a mut Memory,
}

/// Memory of a task.
struct Memory {
    left: Lhs,
    right: UnpackedPanels,
}

// SAFETY: arrays of numbers, some of which may be without a value.
unsafe impl AnyBytes for Memory {}

impl Kernel for Task<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, block: OutputBlock { m_inner, panels, .. }, memory: Memory { left, right } } = self;
        let k = gemm.gemm.k;
        let is_int8 = const { S::MULTIPLIES_NIBBLES } && k.is_multiple_of(8) && gemm.weights.has_nibbles_in_eights();
        // Blocks have about the same number of rows, a multiple of a tile's.
        let blocks = m_inner.len().div_ceil(BLOCK_ROWS);
        let block_rows = m_inner.len().div_ceil(blocks).next_multiple_of(TILE_ROWS[1]);
        for row in m_inner.clone().step_by(block_rows) {
            let rows = row..m_inner.end.min(row + block_rows);
            let is_gemv = rows.len() < MIN_UNPACKED_ROWS;
            let depth = if is_gemv { BLOCK_ROWS / rows.len() * BLOCK_K } else { BLOCK_K };
            let mut from = 0;
            loop {
                let ks = from..k.min(from + depth);
                let block = Block { gemm, rows: rows.clone(), ks: ks.clone() };
                s.vectorize_int8(RoundRows { block: &block, left: &mut *left });
                if is_gemv && is_int8 {
                    s.vectorize_int8(SplitForInt8 { block: &block, left: &mut *left });
                    block.gemv::<S, true>(s, left, panels.clone());
                } else if is_gemv {
                    block.gemv::<S, false>(s, left, panels.clone());
                } else {
                    for panel in panels.clone().step_by(PANELS) {
                        block.run(s, left, right, panel..panels.end.min(panel + PANELS));
                    }
                }
                from = ks.end;
                if from >= k {
                    break;
                }
            }
            gemm.finish(s, rows, &panels);
        }
    }
}

impl Int16Gemm<'_> {
    /// Applies the epilogue without the bias, which the sums contain already.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, rows: Range<usize>, panels: &Range<usize>) {
        let Self { gemm, c, epilogue, .. } = self;
        if epilogue.is_bias_alone() {
            return;
        }
        let (column, end) = (panels.start * LANES, gemm.n.min(panels.end * LANES));
        let finish = ApplyEpilogue {
            epilogue,
            sums: c.wrapping_add(rows.start * gemm.c_stride + column),
            stride: gemm.c_stride,
            rounded: None,
            residual: epilogue.residual.add(s, rows.start * epilogue.residual_stride + column),
            residual_stride: epilogue.residual_stride,
            rows: rows.len(),
            columns: end - column,
        };
        // SAFETY: `run` requires the output and the residual, and only this task accesses these elements.
        unsafe { finish.run_on(s) };
    }
}

/// Some rows, and one or several blocks of K.
struct Block<'a> {
    gemm: &'a Int16Gemm<'a>,
    rows: Range<usize>,
    ks: Range<usize>,
}

/// Rows of weights that are in one group and in one block of K.
struct GroupPart<'a> {
    group: QuantizedGroup<'a>,
    rows: Range<usize>,
    /// The block of K.
    block: usize,
    /// Index of this part in the block.
    index: usize,
}

/// Iterates over the groups of a panel, divided where a block of K ends.
struct GroupParts<'a> {
    groups: PanelGroups<'a>,
    /// The group whose rows from `from` on are left.
    group: Option<QuantizedGroup<'a>>,
    from: usize,
    block: usize,
    index: usize,
}

impl<'a> Iterator for GroupParts<'a> {
    type Item = GroupPart<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<GroupPart<'a>> {
        let (group, from) = match self.group {
            Some(group) => (group, self.from),
            None => {
                let group = self.groups.next()?;
                (group, group.from)
            }
        };
        let to = group.to.min((from / BLOCK_K + 1) * BLOCK_K);
        let part = GroupPart { group, rows: from..to, block: self.block, index: self.index };
        self.index += 1;
        if to.is_multiple_of(BLOCK_K) {
            (self.block, self.index) = (self.block + 1, 0);
        }
        (self.group, self.from) = ((to < group.to).then_some(group), to);
        Some(part)
    }
}

impl Block<'_> {
    /// The groups of a panel in these blocks of K.
    #[inline(always)]
    fn parts(&self, panel: usize) -> GroupParts<'_> {
        let groups = self.gemm.weights.groups(panel, self.ks.start, self.ks.end);
        GroupParts { groups, group: None, from: 0, block: 0, index: 0 }
    }

    /// Multiplies fewer than [`MIN_UNPACKED_ROWS`] by panels, one after the other.
    #[inline(always)]
    fn gemv<S: Simd, const INT8: bool>(&self, s: S, left: &Lhs, panels: Range<usize>) {
        for panel in panels {
            for row in (0..self.rows.len()).step_by(GEMV_ROWS) {
                let columns = Panel { block: self, left, row, panel };
                match self.rows.len() - row {
                    1 => s.vectorize_int8(Gemv::<1, INT8>(columns)),
                    2 => s.vectorize_int8(Gemv::<2, INT8>(columns)),
                    3 => s.vectorize_int8(Gemv::<3, INT8>(columns)),
                    _ => s.vectorize_int8(Gemv::<GEMV_ROWS, INT8>(columns)),
                }
            }
        }
    }

    /// Multiplies a block of rows by one or two panels.
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, left: &Lhs, right: &mut UnpackedPanels, panels: Range<usize>) {
        s.vectorize_int8(Unpack { block: self, panels: panels.clone(), right: &mut *right });
        let rows = Rows { block: self, left, right, first: panels.start, panel: 0 };
        if const { S::VECTOR_REGISTERS >= 32 } && panels.len() == PANELS {
            rows.tiles::<S, { TILE_ROWS[1] }, PANELS>(s);
        } else {
            for panel in 0..panels.len() {
                Rows { panel, ..rows }.tiles::<S, { TILE_ROWS[0] }, 1>(s);
            }
        }
    }

    /// Address and count of the sums of a row in a panel.
    #[inline(always)]
    fn output(&self, row: usize, panel: usize) -> (*mut f32, usize) {
        let Int16Gemm { gemm, c, .. } = self.gemm;
        let column = panel * LANES;
        (c.wrapping_add((self.rows.start + row) * gemm.c_stride + column), (gemm.n - column).min(LANES))
    }

    /// The sums so far: the bias before the first block of K.
    #[inline(always)]
    fn sums<S: Simd>(&self, s: S, row: usize, panel: usize) -> S::V {
        let (from, lanes) = self.output(row, panel);
        if self.ks.start > 0 {
            // SAFETY: `run` requires the output, and this task has stored these sums.
            return unsafe { s.load_partial(from, lanes) };
        }
        let bias = self.gemm.epilogue.bias;
        if bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each column.
        unsafe { s.load_partial(bias.wrapping_add(panel * LANES), lanes) }
    }

    #[inline(always)]
    fn store<S: Simd>(&self, s: S, row: usize, panel: usize, sums: S::V) {
        let (to, lanes) = self.output(row, panel);
        // SAFETY: `run` requires the output, and only this task accesses these elements.
        unsafe { s.store_partial(to, lanes, sums) };
    }
}

#[inline(always)]
fn splat_pair<S: Simd>(s: S, pair: u32) -> I16Pairs<S> {
    I16Pairs::of(s.splat_i32(pair.cast_signed()))
}
