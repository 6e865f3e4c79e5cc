//! Products with one to three rows on the left, which are as fast as the weights can be read.
//!
//! Panels are read from end to end, each once. A row has several sums, of every second or fourth K, so that additions do
//! not wait for one another. Which sums there are depends on the number of rows alone, never on threads.
#![allow(unsafe_code)]

use core::ops::Range;

use super::{Gemm, Matrix};
use crate::arch::{Job, LANES, Simd};
use crate::pack::rows;
use crate::split::piece;
use crate::tail::{Finish, Steps};
use crate::weights::{Bf16, F16, Floats, Integers, Lines};
use crate::{Engine, Half, Weights};

/// Rows from which on the tiles of products take over. Fewer are multiplied as floats, which is as fast as weights are read.
pub const FEW_ROWS: usize = 4;

/// Multiplications below which a task is not worth handing over.
const MIN_TASK: usize = 50_000;

/// `c = tail(a b)` for fewer than [`FEW_ROWS`] rows.
pub(super) struct FewRows<'a> {
    pub(super) gemm: &'a Gemm,
    pub(super) a: Matrix<'a>,
    pub(super) packed: Weights<'a>,
    pub(super) c: *mut f32,
    pub(super) steps: Steps,
}

// SAFETY: tasks write disjoint columns of `c`, which `gemm` borrows exclusively.
unsafe impl Sync for FewRows<'_> {}

impl FewRows<'_> {
    /// # Safety
    /// The slices and `c` have the sizes that the shape and the steps need, and nobody else touches `c` meanwhile.
    pub(super) unsafe fn run(&self, engine: &Engine) {
        let panels = self.gemm.n.div_ceil(LANES);
        let work = self.gemm.m as f64 * self.gemm.n as f64 * self.gemm.k as f64;
        let pieces = engine.pieces((work / MIN_TASK as f64) as usize).min(panels);
        engine.pool.run(pieces, |index| {
            engine.level.run(Panels { few: self, panels: piece(index, pieces, panels) });
        });
    }
}

/// One task.
struct Panels<'a> {
    few: &'a FewRows<'a>,
    panels: Range<usize>,
}

impl Job for Panels<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { few, panels } = self;
        let all = panels.clone();
        match few.packed {
            Weights::F32(packed) => few.panels(s, panels, Floats(packed.as_ptr())),
            Weights::Half(Half::F16, packed) => few.panels(s, panels, F16(packed.as_ptr())),
            Weights::Half(Half::Bf16, packed) => few.panels(s, panels, Bf16(packed.as_ptr())),
            Weights::Integers(integers) => few.groups(s, panels, integers),
        }
        few.finish(s, all);
    }
}

impl FewRows<'_> {
    #[inline(always)]
    fn panels<S: Simd>(&self, s: S, panels: Range<usize>, packed: impl Lines) {
        for panel in panels {
            match self.gemm.m {
                1 => s.vectorize(Panel::<_, 1, 4> { few: self, packed, panel }),
                2 => s.vectorize(Panel::<_, 2, 2> { few: self, packed, panel }),
                _ => s.vectorize(Panel::<_, 3, 2> { few: self, packed, panel }),
            }
        }
    }
}

impl FewRows<'_> {
    #[inline(always)]
    fn groups<S: Simd>(&self, s: S, panels: Range<usize>, integers: Integers<'_>) {
        for panel in panels {
            match self.gemm.m {
                1 => s.vectorize(Groups::<1> { few: self, integers, panel }),
                2 => s.vectorize(Groups::<2> { few: self, integers, panel }),
                _ => s.vectorize(Groups::<3> { few: self, integers, panel }),
            }
        }
    }

    /// Stores the sums of a panel, after what follows them if that is plain.
    #[inline(always)]
    fn store<S: Simd, const R: usize>(&self, s: S, panel: usize, sums: [S::V; R]) {
        let Self { gemm, c, steps, .. } = self;
        let column = panel * LANES;
        let lanes = (gemm.n - column).min(LANES);
        for (r, &sum) in sums.iter().enumerate() {
            let mut v = sum;
            if steps.is_plain {
                if !steps.residual.is_null() {
                    let residual = steps.residual.plus(s, r * steps.residual_stride + column);
                    // SAFETY: the residual has the output's shape.
                    v = s.add(v, unsafe { residual.load(s, lanes) });
                }
                v = steps.short(s, v);
            }
            // SAFETY: `FewRows::run` asks for the output, and this task alone has these columns.
            unsafe { s.store_part(c.wrapping_add(r * gemm.c_stride + column), lanes, v) };
        }
    }

    /// What follows the sums of panels that were stored, if that is not plain.
    #[inline(always)]
    fn finish<S: Simd>(&self, s: S, panels: Range<usize>) {
        let Self { gemm, c, steps, .. } = self;
        if steps.is_plain {
            return;
        }
        let (column, end) = (panels.start * LANES, gemm.n.min(panels.end * LANES));
        let finish = Finish {
            steps,
            sums: c.wrapping_add(column),
            stride: gemm.c_stride,
            rounded: None,
            residual: steps.residual.plus(s, column),
            residual_stride: steps.residual_stride,
            rows: gemm.m,
            columns: end - column,
        };
        // SAFETY: as above.
        unsafe { finish.run_on(s) };
    }

    /// What the sums of a panel begin with.
    #[inline(always)]
    fn bias<S: Simd>(&self, s: S, panel: usize) -> S::V {
        let column = panel * LANES;
        if self.steps.bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each column.
        unsafe { s.load_part(self.steps.bias.wrapping_add(column), (self.gemm.n - column).min(LANES)) }
    }
}

/// One panel of integers times `R` rows: the sums of a group are of whole numbers, and are scaled once.
struct Groups<'a, const R: usize> {
    few: &'a FewRows<'a>,
    integers: Integers<'a>,
    panel: usize,
}

impl<const R: usize> Job for Groups<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FewRows { gemm, a, .. } = self.few;
        let left = |r: usize, k: usize| a.data.as_ptr().wrapping_add(r * a.stride + k);
        let mut totals = [self.few.bias(s, self.panel); R];
        let mut line = 0;
        while line < gemm.k {
            let Some(group) = self.integers.group(self.panel, line, gemm.k) else { break };
            line = group.to;
            let (scales, whole) = (group.scales(s), group.lines(s));
            let mut sums = [[s.splat(0.0); 2]; R];
            let pairs = group.to - (group.to - group.from) % 2;
            for k in (group.from..pairs).step_by(2) {
                // SAFETY: groups have an even number of lines.
                let two = unsafe { whole.two(s, k) };
                for r in 0..R {
                    for (next, right) in two.into_iter().enumerate() {
                        // SAFETY: each row has k floats.
                        let x = s.splat(unsafe { *left(r, k + next) });
                        sums[r][next] = s.fma(x, right, sums[r][next]);
                    }
                }
            }
            if pairs < group.to {
                // SAFETY: likewise; the line behind the last is there, too.
                let [last, _] = unsafe { whole.two(s, pairs) };
                for r in 0..R {
                    // SAFETY: each row has k floats.
                    let x = s.splat(unsafe { *left(r, pairs) });
                    sums[r][0] = s.fma(x, last, sums[r][0]);
                }
            }
            for r in 0..R {
                totals[r] = s.fma(s.add(sums[r][0], sums[r][1]), scales, totals[r]);
            }
        }
        self.few.store(s, self.panel, totals);
    }
}

/// One panel times `R` rows, with `P` sums for each.
struct Panel<'a, L, const R: usize, const P: usize> {
    few: &'a FewRows<'a>,
    packed: L,
    panel: usize,
}

impl<L: Lines, const R: usize, const P: usize> Job for Panel<'_, L, R, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let FewRows { gemm, a, .. } = self.few;
        let k = gemm.k;
        let packed = self.panel * rows(k) * LANES;
        let left = |r: usize, k: usize| a.data.as_ptr().wrapping_add(r * a.stride + k);
        let mut sums = [[s.splat(0.0); P]; R];
        let whole = k - k % P;
        for first in (0..whole).step_by(P) {
            // `P` is even.
            for pair in 0..P / 2 {
                // SAFETY: the panel has 16 numbers for each k.
                let right = unsafe { self.packed.two(s, packed + (first + 2 * pair) * LANES) };
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
            let right = unsafe { self.packed.line(s, packed + k * LANES) };
            for r in 0..R {
                // SAFETY: as above.
                let x = s.splat(unsafe { *left(r, k) });
                sums[r][0] = s.fma(x, right, sums[r][0]);
            }
        }
        let mut totals = [self.few.bias(s, self.panel); R];
        for r in 0..R {
            for p in 0..P {
                totals[r] = s.add(totals[r], sums[r][p]);
            }
        }
        self.few.store(s, self.panel, totals);
    }
}
