//! GEMV: fewer than [`MIN_GEMM_ROWS`] rows on the left, bound by the bandwidth of the weights.
//!
//! Each panel is streamed once, from end to end. A row has several accumulators, one for every second or fourth k, to
//! hide the latency of the additions. Their number depends only on the number of rows, so that results do not depend on
//! threads.
#![allow(unsafe_code)]

use core::ops::Range;

use super::{Gemm, Matrix};
use crate::arch::{Kernel, LANES, Simd};
use crate::epilogue::{ApplyEpilogue, EpilogueArgs};
use crate::pack::{Bits, padded_rows};
use crate::parallel::chunk_range;
use crate::weights::{Bf16Panels, F16Panels, F32Panels, PanelRows, QuantizedGroup, QuantizedWeights};
use crate::{Engine, Half, Weights};

/// Number of rows from which the GEMM is used; fewer rows run as GEMV, in f32.
pub const MIN_GEMM_ROWS: usize = 4;

/// Minimum multiply-adds of a task.
const MIN_TASK_MACS: usize = 50_000;

/// `c = epilogue(a b)` for fewer than [`MIN_GEMM_ROWS`] rows.
pub(super) struct Gemv<'a> {
    pub(super) gemm: &'a Gemm,
    pub(super) a: Matrix<'a>,
    pub(super) packed: Weights<'a>,
    pub(super) c: *mut f32,
    pub(super) epilogue: EpilogueArgs,
}

// SAFETY: tasks write disjoint columns of `c`, which `gemm` borrows exclusively.
unsafe impl Sync for Gemv<'_> {}

impl Gemv<'_> {
    /// Computes it on all threads.
    ///
    /// # Safety
    /// The slices and `c` have the sizes that the shape and the epilogue need, and nobody else accesses `c` meanwhile.
    pub(super) unsafe fn run(&self, engine: &Engine) {
        let panels = self.gemm.n.div_ceil(LANES);
        let work = self.gemm.m as f64 * self.gemm.n as f64 * self.gemm.k as f64;
        let tasks = engine.task_count((work / MIN_TASK_MACS as f64) as usize).min(panels);
        engine.pool.run(tasks, |index| {
            engine.dispatch.run(GemvTask { gemv: self, panels: chunk_range(index, tasks, panels) });
        });
    }
}

/// One task: a range of panels.
struct GemvTask<'a> {
    gemv: &'a Gemv<'a>,
    panels: Range<usize>,
}

impl Kernel for GemvTask<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { gemv, panels } = self;
        let all = panels.clone();
        match gemv.packed {
            Weights::F32(packed) => gemv.panels(s, panels, F32Panels(packed.as_ptr())),
            Weights::Half(Half::F16, packed) => gemv.panels(s, panels, F16Panels(packed.as_ptr())),
            Weights::Half(Half::Bf16, packed) => gemv.panels(s, panels, Bf16Panels(packed.as_ptr())),
            Weights::Quantized(integers) => gemv.groups(s, panels, integers),
        }
        gemv.finish(s, all);
    }
}

impl Gemv<'_> {
    /// Multiplies panels of f32 or 16-bit weights.
    #[inline(always)]
    fn panels<S: Simd>(&self, s: S, panels: Range<usize>, packed: impl PanelRows) {
        for panel in panels {
            match self.gemm.m {
                1 => s.vectorize(PanelKernel::<_, 1, 4> { gemv: self, packed, panel }),
                2 => s.vectorize(PanelKernel::<_, 2, 2> { gemv: self, packed, panel }),
                _ => s.vectorize(PanelKernel::<_, 3, 2> { gemv: self, packed, panel }),
            }
        }
    }

    /// Multiplies panels of quantized weights.
    #[inline(always)]
    fn groups<S: Simd>(&self, s: S, panels: Range<usize>, integers: QuantizedWeights<'_>) {
        for panel in panels {
            match self.gemm.m {
                1 => s.vectorize(QuantizedPanelKernel::<1> { gemv: self, integers, panel }),
                2 => s.vectorize(QuantizedPanelKernel::<2> { gemv: self, integers, panel }),
                _ => s.vectorize(QuantizedPanelKernel::<3> { gemv: self, integers, panel }),
            }
        }
    }

    /// Stores the sums of a panel, after the epilogue if it is fused.
    #[inline(always)]
    fn store<S: Simd, const R: usize>(&self, s: S, panel: usize, sums: [S::V; R]) {
        let Self { gemm, c, epilogue, .. } = self;
        let column = panel * LANES;
        let lanes = (gemm.n - column).min(LANES);
        for (r, &sum) in sums.iter().enumerate() {
            let mut v = sum;
            if epilogue.is_fused {
                if !epilogue.residual.is_null() {
                    let residual = epilogue.residual.add(s, r * epilogue.residual_stride + column);
                    // SAFETY: the residual has the output's shape.
                    v = s.add(v, unsafe { residual.load(s, lanes) });
                }
                v = epilogue.fused_activation(s, v);
            }
            // SAFETY: `Gemv::run` requires the output, and only this task accesses these columns.
            unsafe { s.store_partial(c.wrapping_add(r * gemm.c_stride + column), lanes, v) };
        }
    }

    /// Applies an epilogue that is not fused to panels whose sums were stored.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, panels: Range<usize>) {
        let Self { gemm, c, epilogue, .. } = self;
        if epilogue.is_fused {
            return;
        }
        let (column, end) = (panels.start * LANES, gemm.n.min(panels.end * LANES));
        let finish = ApplyEpilogue {
            epilogue,
            sums: c.wrapping_add(column),
            stride: gemm.c_stride,
            rounded: None,
            residual: epilogue.residual.add(s, column),
            residual_stride: epilogue.residual_stride,
            rows: gemm.m,
            columns: end - column,
        };
        // SAFETY: as above.
        unsafe { finish.run_on(s) };
    }

    /// Initial accumulator of a panel: its bias.
    #[inline(always)]
    fn bias<S: Simd>(&self, s: S, panel: usize) -> S::V {
        let column = panel * LANES;
        if self.epilogue.bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each column.
        unsafe { s.load_partial(self.epilogue.bias.wrapping_add(column), (self.gemm.n - column).min(LANES)) }
    }
}

/// One panel of quantized weights times `R` rows. Each group accumulates integer weights in f32 and is scaled once.
struct QuantizedPanelKernel<'a, const R: usize> {
    gemv: &'a Gemv<'a>,
    integers: QuantizedWeights<'a>,
    panel: usize,
}

impl<const R: usize> Kernel for QuantizedPanelKernel<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut totals = [self.gemv.bias(s, self.panel); R];
        for group in self.integers.groups(self.panel, 0, self.gemv.gemm.k) {
            totals = match group.bits() {
                Bits::Four => self.add_group::<S, 4, 2>(s, &group, totals),
                Bits::Six => self.add_group::<S, 6, 4>(s, &group, totals),
                Bits::Eight => self.add_group::<S, 8, 2>(s, &group, totals),
            };
        }
        self.gemv.store(s, self.panel, totals);
    }
}

impl<const R: usize> QuantizedPanelKernel<'_, R> {
    /// Adds a group of `BITS` bits, which are loaded `ROWS` rows at a time.
    #[inline(always)]
    fn add_group<S: Simd, const BITS: u32, const ROWS: usize>(
        &self,
        s: S,
        group: &QuantizedGroup<'_>,
        mut totals: [S::V; R],
    ) -> [S::V; R] {
        let (data, stride) = (self.gemv.a.data.as_ptr(), self.gemv.a.stride);
        let left = |r: usize, k: usize| data.wrapping_add(r * stride + k);
        let (scales, zeros, minima) = (group.scales(s), group.zeros(s), group.minima(s));
        let mut sums = [[s.splat(0.0); ROWS]; R];
        let whole = group.to - (group.to - group.from) % ROWS;
        for k in (group.from..whole).step_by(ROWS) {
            // SAFETY: the group has these rows.
            let rows = unsafe { group.load_rows::<S, BITS, ROWS>(s, k) };
            for r in 0..R {
                for at in 0..ROWS {
                    // SAFETY: each row has k floats.
                    let x = s.splat(unsafe { *left(r, k + at) });
                    sums[r][at] = s.fma(x, s.sub(rows[at], zeros), sums[r][at]);
                }
            }
        }
        if whole < group.to {
            // SAFETY: an odd number of rows is padded.
            let last = s.sub(unsafe { group.load_rows::<S, BITS, ROWS>(s, whole) }[0], zeros);
            for r in 0..R {
                // SAFETY: each row has k floats.
                let x = s.splat(unsafe { *left(r, whole) });
                sums[r][0] = s.fma(x, last, sums[r][0]);
            }
        }
        for r in 0..R {
            let mut sum = sums[r][0];
            for at in 1..ROWS {
                sum = s.add(sum, sums[r][at]);
            }
            totals[r] = s.fma(sum, scales, totals[r]);
            if let Some(minima) = minima {
                // SAFETY: each row has k floats.
                let x = unsafe { core::slice::from_raw_parts(left(r, group.from), group.to - group.from) };
                totals[r] = s.fma(s.splat(sum_of(s, x)), minima, totals[r]);
            }
        }
        totals
    }
}

/// Sum of a row's elements.
#[inline(always)]
fn sum_of<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut sums = s.load_slice(rest);
    for x in whole {
        sums = s.add(sums, s.load_slice(x));
    }
    s.reduce_add(sums)
}

/// One panel times `R` rows, with `P` accumulators per row.
struct PanelKernel<'a, L, const R: usize, const P: usize> {
    gemv: &'a Gemv<'a>,
    packed: L,
    panel: usize,
}

impl<L: PanelRows, const R: usize, const P: usize> Kernel for PanelKernel<'_, L, R, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gemv { gemm, a, .. } = self.gemv;
        let k = gemm.k;
        let packed = self.panel * padded_rows(k) * LANES;
        let left = |r: usize, k: usize| a.data.as_ptr().wrapping_add(r * a.stride + k);
        let mut sums = [[s.splat(0.0); P]; R];
        let whole = k - k % P;
        for first in (0..whole).step_by(P) {
            // `P` is even.
            for pair in 0..P / 2 {
                // SAFETY: the panel has 16 elements for each k.
                let right = unsafe { self.packed.load_row_pair(s, packed + (first + 2 * pair) * LANES) };
                for one in 0..2 {
                    let p = 2 * pair + one;
                    for r in 0..R {
                        // SAFETY: each row has k floats.
                        let x = s.splat(unsafe { *left(r, first + p) });
                        sums[r][p] = s.fma(x, right[one], sums[r][p]);
                    }
                }
            }
        }
        for k in whole..k {
            // SAFETY: as above.
            let right = unsafe { self.packed.load_row(s, packed + k * LANES) };
            for r in 0..R {
                // SAFETY: as above.
                let x = s.splat(unsafe { *left(r, k) });
                sums[r][0] = s.fma(x, right, sums[r][0]);
            }
        }
        let mut totals = [self.gemv.bias(s, self.panel); R];
        for r in 0..R {
            for p in 0..P {
                totals[r] = s.add(totals[r], sums[r][p]);
            }
        }
        self.gemv.store(s, self.panel, totals);
    }
}
