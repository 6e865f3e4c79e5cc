//! Reductions over one dimension: sum, mean, maximum, minimum.
#![allow(unsafe_code)]

use crate::arch::{Kernel, LANES, Simd};
use crate::element::Element;
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;
use crate::slice_ops;
use crate::{Engine, FloatSlice};

/// The operator of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// 0 for an empty dimension.
    Sum,
    /// NaN for an empty dimension.
    Mean,
    /// Propagates NaN; -inf for an empty dimension.
    Max,
    /// Propagates NaN; inf for an empty dimension.
    Min,
}

/// Reduces `x` `[outer, reduced, inner]` to `y` `[outer, inner]`.
///
/// # Errors
/// If a slice is too short, or `x` is bf16 and `inner` is 1 or the processor does not support bf16.
pub fn reduce<'x>(
    engine: &Engine,
    fold: Reduction,
    outer: usize,
    reduced: usize,
    inner: usize,
    x: impl Into<FloatSlice<'x>>,
    y: &mut [f32],
) -> Result<(), Error> {
    reduce_impl(engine, fold, [outer, reduced, inner], x.into(), y)
}

fn reduce_impl(
    engine: &Engine,
    fold: Reduction,
    [outer, reduced, inner]: [usize; 3],
    x: FloatSlice<'_>,
    y: &mut [f32],
) -> Result<(), Error> {
    engine.check_bf16_support(x.is_bf16())?;
    at_least("x", x.len(), size("x", &[outer, reduced, inner])?)?;
    at_least("y", y.len(), size("y", &[outer, inner])?)?;
    if outer * inner == 0 {
        return Ok(());
    }
    let y = SharedOutput::new(y);
    match x {
        FloatSlice::F32(x) if inner == 1 => {
            engine.parallel_for(outer, MIN_TASK_ELEMENTS.div_ceil(reduced.max(1)), |rows| {
                // SAFETY: ranges of rows are disjoint.
                let y = unsafe { y.slice(rows.clone()) };
                engine.dispatch.run(ReduceRows { fold, reduced, x: &x[rows.start * reduced..rows.end * reduced], y });
            });
        }
        FloatSlice::Bf16(_) if inner == 1 => return Err(Error::Type { what: "x" }),
        FloatSlice::F32(x) => columns(engine, fold, [outer, reduced, inner], x, y),
        FloatSlice::Bf16(x) => columns(engine, fold, [outer, reduced, inner], x, y),
    }
    Ok(())
}

/// Reduces along a dimension that is not the innermost.
fn columns<T: Element>(
    engine: &Engine,
    fold: Reduction,
    [outer, reduced, inner]: [usize; 3],
    x: &[T],
    y: SharedOutput<'_>,
) {
    let blocks = inner.div_ceil(BLOCK_COLUMNS);
    engine.parallel_for(
        outer * blocks,
        MIN_TASK_ELEMENTS.div_ceil(reduced.max(1) * inner.min(BLOCK_COLUMNS)),
        |range| {
            for index in range {
                let (outer, first) = (index / blocks, index % blocks * BLOCK_COLUMNS);
                let last = inner.min(first + BLOCK_COLUMNS);
                // SAFETY: blocks are disjoint.
                let y = unsafe { y.slice(outer * inner + first..outer * inner + last) };
                let x = &x[outer * reduced * inner..][..reduced * inner];
                let x = x.get(first..).unwrap_or(&[]);
                engine.dispatch.run_for::<T, _>(ReduceColumns { fold, reduced, stride: inner, x, y });
            }
        },
    );
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 16 << 10;

/// Columns that are accumulated side by side in registers.
const BLOCK_COLUMNS: usize = 4 * LANES;

impl Reduction {
    /// The identity element.
    fn start(self) -> f32 {
        match self {
            Reduction::Sum | Reduction::Mean => 0.0,
            Reduction::Max => f32::NEG_INFINITY,
            Reduction::Min => f32::INFINITY,
        }
    }

    #[inline(always)]
    fn step<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        match self {
            Reduction::Sum | Reduction::Mean => s.add(a, b),
            Reduction::Max => s.maximum(a, b),
            Reduction::Min => s.minimum(a, b),
        }
    }
}

/// Rows, each reduced to one element.
struct ReduceRows<'a> {
    fold: Reduction,
    reduced: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for ReduceRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, y) in self.y.iter_mut().enumerate() {
            let x = &self.x[row * self.reduced..][..self.reduced];
            *y = match self.fold {
                Reduction::Sum => slice_ops::sum(
                    s,
                    x,
                    0.0,
                    #[inline(always)]
                    |x| x,
                ) as f32,
                Reduction::Mean => {
                    (slice_ops::sum(
                        s,
                        x,
                        0.0,
                        #[inline(always)]
                        |x| x,
                    ) / self.reduced as f64) as f32
                }
                Reduction::Max => extreme(s, x, Reduction::Max, |a, b| a > b),
                Reduction::Min => extreme(s, x, Reduction::Min, |a, b| a < b),
            };
        }
    }
}

#[inline(always)]
fn extreme<S: Simd>(s: S, x: &[f32], fold: Reduction, wins: impl Fn(f32, f32) -> bool) -> f32 {
    let extremes = slice_ops::fold(
        s,
        x,
        fold.start(),
        slice_ops::Remainder::Overlap,
        #[inline(always)]
        |a, b| fold.step(s, a, b),
        #[inline(always)]
        |a, b| fold.step(s, a, b),
    );
    let lanes = s.to_array(extremes);
    lanes.into_iter().fold(fold.start(), |a, b| if a.is_nan() || wins(a, b) { a } else { b })
}

/// Up to [`BLOCK_COLUMNS`] columns, each reduced to one element.
struct ReduceColumns<'a, T> {
    fold: Reduction,
    reduced: usize,
    /// Elements between rows.
    stride: usize,
    x: &'a [T],
    y: &'a mut [f32],
}

impl<T: Element> ReduceColumns<'_, T> {
    /// Reduces `V` vectors of columns, from column `first` on.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(&mut self, s: S, fold: Reduction, first: usize) {
        /// Rows that are summed before they are added to the total, for accuracy.
        const BLOCK_ROWS: usize = 32;
        let width = (self.y.len() - first).min(V * LANES);
        let mut totals = [s.splat(fold.start()); V];
        let mut row = 0;
        while row < self.reduced {
            let end = self.reduced.min(row + BLOCK_ROWS);
            let mut sums = [s.splat(fold.start()); V];
            for row in row..end {
                let x = &self.x[row * self.stride + first..][..width];
                for v in 0..V {
                    let x = &x[v * LANES..];
                    // SAFETY: the slice has enough elements.
                    sums[v] = fold.step(s, sums[v], unsafe { T::load(s, x.as_ptr(), x.len().min(LANES)) });
                }
            }
            for v in 0..V {
                totals[v] = fold.step(s, totals[v], sums[v]);
            }
            row = end;
        }
        let count = s.splat(self.reduced as f32);
        for v in 0..V {
            let total = if self.fold == Reduction::Mean { s.div(totals[v], count) } else { totals[v] };
            s.store_slice(&mut self.y[first + v * LANES..], total);
        }
    }

    #[inline(always)]
    fn all<S: Simd>(&mut self, s: S, fold: Reduction) {
        if self.y.len() == BLOCK_COLUMNS {
            return self.vectors::<S, 4>(s, fold, 0);
        }
        for first in (0..self.y.len()).step_by(LANES) {
            self.vectors::<S, 1>(s, fold, first);
        }
    }
}

impl<T: Element> Kernel for ReduceColumns<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        match self.fold {
            Reduction::Sum | Reduction::Mean => self.all(s, Reduction::Sum),
            Reduction::Max => self.all(s, Reduction::Max),
            Reduction::Min => self.all(s, Reduction::Min),
        }
    }
}
