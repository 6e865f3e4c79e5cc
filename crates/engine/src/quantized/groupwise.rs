//! Int8 GEMM with group-wise quantized weights of 4 or 8 bits: a scale for every 32 elements of K.
//!
//! Each group is accumulated exactly in i32, dequantized, and added to an f32 accumulator.

use core::mem::MaybeUninit;

use crate::Engine;
use crate::arch::{Aligned, GroupMemory, Kernel, LANES, PackedGroup, Simd};
use crate::epilogue::Activation;
use crate::error::{Error, at_least, size};
use crate::pack::{GROUP_SIZE, GroupwiseMatrix};
use crate::partition::{OutputBlock, OutputPartition};
use crate::task_memory::TaskMemory;

use super::RowQparams;
use super::epilogue::{ApplyQuantEpilogue, OutPtr, QuantEpilogueArgs};
#[cfg(target_arch = "x86_64")]
use super::groupwise_amx;

/// Epilogue of [`gemm_u8_groupwise`]: dequantization of the left side, bias, activation.
#[derive(Debug, Clone, Copy)]
pub struct GroupwiseEpilogue<'a> {
    pub rows: RowQparams<'a>,
    /// For each column, the sum of its dequantized weights, which multiplies the rows' zero points.
    pub sums: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub activation: Activation,
}

/// Prefetch distance in bytes for tiles that wait for the weights, of one panel and of two: hardware prefetchers stop at the end of a page.
const PREFETCH_BYTES: [usize; 2] = [8192, 4096];
/// Rows of 64 bytes (vectors) that the 4-bit weights of a group occupy.
pub(super) const NIBBLE_ROWS: usize = 4;

/// Rows of the largest tile, which has two panels.
const MAX_MR: usize = 6;

/// Rows from which on it saves time to unpack the weights once, where the instruction set multiplies unpacked groups.
const MIN_UNPACKED_ROWS: usize = 8;

/// Computes `c = epilogue(a b)` with `a` dense `[m, k]`, `b` packed by
/// [`pack::groupwise_into`](crate::pack::groupwise_into) and `c` dense.
///
/// # Errors
/// If a slice is too short, or `k` is not a multiple of 32.
pub fn gemm_u8_groupwise(
    engine: &Engine,
    m: usize,
    a: &[u8],
    (matrix, packed): (GroupwiseMatrix, &[u8]),
    c: &mut [f32],
    epilogue: &GroupwiseEpilogue,
) -> Result<(), Error> {
    let GroupwiseMatrix { k, n, .. } = matrix;
    at_least("a", a.len(), size("a", &[m, k])?)?;
    at_least("c", c.len(), size("c", &[m, n])?)?;
    let bytes = matrix.len().ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), bytes)?;
    at_least("sums", epilogue.sums.len(), n)?;
    epilogue.rows.check(m)?;
    if let Some(bias) = epilogue.bias {
        at_least("bias", bias.len(), n)?;
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    let gemm = GroupwiseGemm { a, packed, c: c.as_mut_ptr(), matrix, epilogue: epilogue.args() };
    #[cfg(target_arch = "x86_64")]
    if groupwise_amx::run(engine, m, &gemm) {
        return Ok(());
    }
    let partition = OutputPartition::per_group(1, [1, m], n).for_threads(engine, n, k / 4, (MAX_MR, 2));
    engine.pool.run(partition.tasks(), |task| {
        engine.dispatch.run_int8(GroupwiseTask { gemm: &gemm, block: partition.block(task) });
    });
    Ok(())
}

/// Operands of all tasks.
#[derive(Clone, Copy)]
pub(super) struct GroupwiseGemm<'a> {
    pub(super) a: &'a [u8],
    pub(super) packed: &'a [u8],
    pub(super) c: *mut f32,
    pub(super) matrix: GroupwiseMatrix,
    pub(super) epilogue: QuantEpilogueArgs,
}

// SAFETY: tasks write disjoint parts of `c`, which `gemm_u8_groupwise` borrows exclusively.
unsafe impl Sync for GroupwiseGemm<'_> {}

impl GroupwiseGemm<'_> {
    /// Applies the epilogue to the totals of the rows of a panel, from the first row on and as many, `[rows][16]`.
    #[inline(always)]
    pub(super) fn finish<S: Simd>(&self, s: S, sums: *const f32, [row, rows]: [usize; 2], panel: usize) {
        let (n, column) = (self.matrix.n, panel * LANES);
        let apply = ApplyQuantEpilogue::<f32> {
            epilogue: &self.epilogue,
            sums,
            panels: 1,
            rows,
            row,
            column,
            columns: (n - column).min(LANES),
            out: OutPtr::Floats(self.c),
            out_stride: n,
        };
        // SAFETY: `gemm_u8_groupwise` has checked the sizes, and only this task accesses these rows and columns.
        unsafe { apply.run_on(s) };
    }
}

/// One task.
pub(super) struct GroupwiseTask<'a> {
    pub(super) gemm: &'a GroupwiseGemm<'a>,
    pub(super) block: OutputBlock,
}

impl Kernel for GroupwiseTask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if multiply_rows(s, self.gemm, &self.block) {
            return;
        }
        let GroupwiseMatrix { is_four_bits, has_zeros, .. } = self.gemm.matrix;
        match (is_four_bits, has_zeros) {
            (true, true) => self.tiles::<S, FOUR_WITH_ZEROS>(s),
            (true, false) => self.tiles::<S, FOUR>(s),
            (false, _) => self.tiles::<S, EIGHT>(s),
        }
    }
}

/// Instantiations of a tile: 4-bit weights without and with zero points, and 8-bit weights, where zero points are a
/// run-time option because they make little difference.
const FOUR: u8 = 0;
const FOUR_WITH_ZEROS: u8 = 1;
const EIGHT: u8 = 2;

impl GroupwiseTask<'_> {
    #[inline(always)]
    fn tiles<S: Simd, const KIND: u8>(self, s: S) {
        let Self { gemm, block: OutputBlock { m_inner: rows, panels, .. } } = self;
        let mut panel = panels.start;
        if const { S::VECTOR_REGISTERS >= 32 } && rows.len() == 1 {
            // GEMV is bound by memory: two streams, one from each half of the panels, are faster than one. The last panel of an odd
            // number is left.
            let apart = panels.len() / 2;
            while panel < panels.start + apart {
                s.vectorize(GroupwiseTile::<1, 2, KIND> { gemm, panel, apart, row: rows.start });
                panel += 1;
            }
            panel += apart;
        }
        while panel < panels.end {
            let mut row = rows.start;
            // With few rows the weights are the bottleneck: stream one panel after the other.
            let is_pair = const { S::VECTOR_REGISTERS >= 32 } && panels.end - panel >= 2 && rows.len() >= MAX_MR;
            if is_pair {
                while rows.end - row >= MAX_MR {
                    s.vectorize(GroupwiseTile::<MAX_MR, 2, KIND> { gemm, panel, apart: 1, row });
                    row += MAX_MR;
                }
            }
            for panel in panel..panel + if is_pair { 2 } else { 1 } {
                let mut row = row;
                while rows.end - row >= 4 {
                    s.vectorize(GroupwiseTile::<4, 1, KIND> { gemm, panel, apart: 0, row });
                    row += 4;
                }
                while row < rows.end {
                    s.vectorize(GroupwiseTile::<1, 1, KIND> { gemm, panel, apart: 0, row });
                    row += 1;
                }
            }
            panel += if is_pair { 2 } else { 1 };
        }
    }
}

/// Computes a block of the output if the instruction set multiplies unpacked groups like these, and there are enough rows; returns
/// false otherwise.
#[inline(always)]
fn multiply_rows<S: Simd>(s: S, gemm: &GroupwiseGemm<'_>, block: &OutputBlock) -> bool {
    let GroupwiseMatrix { is_four_bits, has_zeros, .. } = gemm.matrix;
    let is_possible = block.m_inner.len() >= MIN_UNPACKED_ROWS && (is_four_bits || !has_zeros);
    if const { S::GROUP_ROWS > 0 } && is_possible {
        let mut memory = TaskMemory::take();
        for panel in block.panels.clone() {
            for row in block.m_inner.clone().step_by(GroupMemory::ROWS) {
                let rows = (block.m_inner.end - row).min(GroupMemory::ROWS);
                s.vectorize(UnpackedRows { gemm, panel, row, rows, memory: memory.get() });
            }
        }
        return true;
    }
    false
}

/// Rows of a panel, which is unpacked.
struct UnpackedRows<'a> {
    gemm: &'a GroupwiseGemm<'a>,
    panel: usize,
    row: usize,
    rows: usize,
    memory: &'a mut GroupMemory,
}

impl Kernel for UnpackedRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemm, panel, row, rows, memory } = self;
        let k = gemm.matrix.k;
        let groups = k / GROUP_SIZE;
        memory.clear(s, rows);
        for first in (0..groups).step_by(GroupMemory::GROUPS) {
            let count = (groups - first).min(GroupMemory::GROUPS);
            for at in 0..count {
                memory.unpack(s, at, &packed_group(gemm, panel, first + at));
            }
            memory.multiply(s, &gemm.a[row * k + first * GROUP_SIZE..], k, rows, count);
        }
        gemm.finish(s, memory.totals(s, rows), [row, rows], panel);
    }
}

/// Returns a group of a panel.
#[inline(always)]
fn packed_group<'a>(gemm: &GroupwiseGemm<'a>, panel: usize, group: usize) -> PackedGroup<'a> {
    let GroupwiseGemm { packed, matrix, .. } = *gemm;
    let GroupwiseMatrix { n, k, is_four_bits, has_zeros, has_half_scales } = matrix;
    let mut zeros = [8; LANES];
    if has_zeros {
        let at = n.div_ceil(LANES) * matrix.panel_bytes() + (panel * (k / GROUP_SIZE) + group) * LANES;
        zeros.copy_from_slice(&packed[at..at + LANES]);
    }
    let (scales, weights) = matrix.group(group);
    let panel = &packed[panel * matrix.panel_bytes()..];
    PackedGroup { weights: &panel[weights..], is_four_bits, scales: &panel[scales..], has_half_scales, zeros }
}

/// A microkernel of `R` rows and `P` panels.
struct GroupwiseTile<'a, const R: usize, const P: usize, const KIND: u8> {
    gemm: &'a GroupwiseGemm<'a>,
    panel: usize,
    /// Distance between the panels, in panels.
    apart: usize,
    row: usize,
}

impl<const R: usize, const P: usize, const KIND: u8> Kernel for GroupwiseTile<'_, R, P, KIND> {
    type Out = ();

    // LLVM keeps the accumulators in registers only if every access is in an unrolled loop over indices.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let GroupwiseGemm { a, packed, matrix, .. } = *self.gemm;
        // Makes the width a compile-time constant.
        let matrix = GroupwiseMatrix { is_four_bits: const { KIND != EIGHT }, ..matrix };
        let GroupwiseMatrix { n, k, .. } = matrix;
        let groups = k / GROUP_SIZE;
        let has_zeros = const { KIND == FOUR_WITH_ZEROS } || (const { KIND == EIGHT } && matrix.has_zeros);
        let lowest = s.splat(if const { KIND == EIGHT } { 128.0 } else { 8.0 });
        let panel = packed.as_ptr().wrapping_add(self.panel * matrix.panel_bytes());
        let stride = self.apart * matrix.panel_bytes();
        let mut left = a.as_ptr().wrapping_add(self.row * k);
        let zeros_at = n.div_ceil(LANES) * matrix.panel_bytes() + self.panel * groups * LANES;
        let mut zeros = packed.as_ptr().wrapping_add(zeros_at);
        let ones = s.splat_i8_quads(0x0101_0101);
        let mut totals = [[s.splat(0.0); P]; R];
        for group in 0..groups {
            let (scales, weights) = matrix.group(group);
            let (scales, weights) = (panel.wrapping_add(scales), panel.wrapping_add(weights));
            // One of the two is used.
            let (mut sums, mut i4_sums) = ([[s.splat_i32(0); P]; R], [[s.zero_i4_sums(); P]; R]);
            let mut bytes = [s.zero_i4_sums(); R];
            if const { S::MULTIPLIES_GROUPS } {
                for p in 0..P {
                    let weights = weights.wrapping_add(p * stride);
                    // SAFETY: each group of a panel has 32 weights for each column, and of a row 32 bytes.
                    let dots = unsafe { s.dot_group::<R>(left, k, weights, const { KIND != EIGHT }) };
                    for r in 0..R {
                        sums[r][p] = dots[r];
                    }
                }
            } else {
                for vector in 0..NIBBLE_ROWS {
                    let (mut low, mut high) = ([s.splat_i8_quads(0); P], [s.splat_i8_quads(0); P]);
                    for p in 0..P {
                        let at = weights.wrapping_add(p * stride + vector * 4 * LANES);
                        if const { KIND == EIGHT } {
                            // SAFETY: each group of a panel has 16 scales and four vectors of weights, or eight.
                            low[p] = unsafe { s.load_i8_quads(at.cast()) };
                            // SAFETY: likewise.
                            high[p] = unsafe { s.load_i8_quads(at.wrapping_add(NIBBLE_ROWS * 4 * LANES).cast()) };
                        } else {
                            // SAFETY: likewise.
                            (low[p], high[p]) = s.unpack_nibbles(unsafe { s.load_u8_quads(at) });
                        }
                    }
                    for r in 0..R {
                        let at = left.wrapping_add(r * k + 4 * vector);
                        // SAFETY: each row has 32 bytes for each group.
                        let first = unsafe { at.cast::<u32>().read_unaligned() };
                        // SAFETY: likewise.
                        let second = unsafe { at.wrapping_add(GROUP_SIZE / 2).cast::<u32>().read_unaligned() };
                        let first = s.splat_u8_quads(u32::from_le(first));
                        let second = s.splat_u8_quads(u32::from_le(second));
                        if const { R == 1 } && has_zeros {
                            bytes[r] = s.dot_u8i4(first, ones, bytes[r]);
                            bytes[r] = s.dot_u8i4(second, ones, bytes[r]);
                        }
                        for p in 0..P {
                            if const { KIND == EIGHT } {
                                sums[r][p] = s.dot_u8i8(first, low[p], sums[r][p]);
                                sums[r][p] = s.dot_u8i8(second, high[p], sums[r][p]);
                            } else {
                                i4_sums[r][p] = s.dot_u8i4(first, low[p], i4_sums[r][p]);
                                i4_sums[r][p] = s.dot_u8i4(second, high[p], i4_sums[r][p]);
                            }
                        }
                    }
                }
                if const { KIND != EIGHT } {
                    for r in 0..R {
                        for p in 0..P {
                            sums[r][p] = s.i4_sums_to_i32(i4_sums[r][p]);
                        }
                    }
                }
            }
            if has_zeros {
                let mut byte_sums = [s.splat_i32(0); R];
                // Sums of bytes times zero points are integers that f32 represents exactly.
                for r in 0..R {
                    byte_sums[r] = if const { R > 1 || S::MULTIPLIES_GROUPS } {
                        // SAFETY: each row has 32 bytes for each group.
                        let row = unsafe { left.wrapping_add(r * k).cast::<[u8; GROUP_SIZE]>().read_unaligned() };
                        s.splat_i32(row.iter().map(|byte| i32::from(*byte)).sum())
                    } else {
                        s.i4_sums_to_i32(bytes[r])
                    };
                }
                for p in 0..P {
                    // SAFETY: after all groups each has 16 zeros.
                    let zero = unsafe { s.load_u8(zeros.wrapping_add(p * self.apart * groups * LANES), LANES) };
                    let zero = s.sub(s.i32_to_f32(zero), lowest);
                    // SAFETY: as above.
                    let scale = unsafe { scale(s, &matrix, scales.wrapping_add(p * stride)) };
                    for r in 0..R {
                        let sum = s.sub(s.i32_to_f32(sums[r][p]), s.mul(s.i32_to_f32(byte_sums[r]), zero));
                        totals[r][p] = s.add(totals[r][p], s.mul(sum, scale));
                    }
                }
                zeros = zeros.wrapping_add(LANES);
            } else {
                for p in 0..P {
                    // SAFETY: as above.
                    let scale = unsafe { scale(s, &matrix, scales.wrapping_add(p * stride)) };
                    for r in 0..R {
                        totals[r][p] = s.add(totals[r][p], s.mul(s.i32_to_f32(sums[r][p]), scale));
                    }
                }
            }
            left = left.wrapping_add(GROUP_SIZE);
            if const { P == 1 || R == 1 } {
                let vectors = 1 + if const { KIND == EIGHT } { 2 * NIBBLE_ROWS } else { NIBBLE_ROWS };
                let ahead = const { PREFETCH_BYTES[P - 1] };
                for at in (0..P).flat_map(|p| (0..vectors).map(move |vector| p * stride + vector * 64)) {
                    s.prefetch(weights.wrapping_add(ahead + at).cast());
                }
            }
        }
        let mut copy = [[MaybeUninit::<Aligned>::uninit(); R]; P];
        for r in 0..R {
            for p in 0..P {
                // SAFETY: there is room for a vector.
                unsafe { s.store(copy[p][r].as_mut_ptr().cast(), totals[r][p]) };
            }
        }
        for (p, sums) in copy.iter().enumerate() {
            self.gemm.finish(s, sums.as_ptr().cast(), [self.row, R], self.panel + p * self.apart);
        }
    }
}

/// Loads the scales of a group's columns.
///
/// # Safety
/// 16 scales are readable at `at`.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(s: S, matrix: &GroupwiseMatrix, at: *const u8) -> S::V {
    if matrix.has_half_scales {
        // SAFETY: the caller guarantees 16 elements.
        unsafe { s.load_f16(at.cast()) }
    } else {
        // SAFETY: likewise.
        unsafe { s.load(at.cast()) }
    }
}
