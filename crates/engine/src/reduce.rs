//! Sums, means and extremes over a dimension.
#![allow(unsafe_code)]

use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::fold;
use crate::numbers::Number;
use crate::split::Output;
use crate::{Engine, Numbers};

/// What a reduction computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// 0 for none.
    Sum,
    /// NaN for none.
    Mean,
    /// NaN if an element is; -inf for none.
    Max,
    /// NaN if an element is; inf for none.
    Min,
}

/// Folds `x` of `[outer, reduced, inner]` to `y` of `[outer, inner]`.
///
/// # Errors
/// When a slice is too short, or `x` is bf16 and `inner` 1 or the processor does not take them.
pub fn reduce<'x>(
    engine: &Engine,
    fold: Fold,
    outer: usize,
    reduced: usize,
    inner: usize,
    x: impl Into<Numbers<'x>>,
    y: &mut [f32],
) -> Result<(), Error> {
    let x = x.into();
    engine.check_numbers(x.is_bf16())?;
    at_least("x", x.len(), size("x", &[outer, reduced, inner])?)?;
    at_least("y", y.len(), size("y", &[outer, inner])?)?;
    if outer * inner == 0 {
        return Ok(());
    }
    let y = Output::new(y);
    match x {
        Numbers::F32(x) if inner == 1 => engine.for_ranges(outer, LEAST.div_ceil(reduced.max(1)), |rows| {
            // SAFETY: ranges of rows are disjoint.
            let y = unsafe { y.slice(rows.clone()) };
            engine.level.run(Rows { fold, reduced, x: &x[rows.start * reduced..rows.end * reduced], y });
        }),
        Numbers::Bf16(_) if inner == 1 => return Err(Error::Type { what: "x" }),
        Numbers::F32(x) => columns(engine, fold, [outer, reduced, inner], x, y),
        Numbers::Bf16(x) => columns(engine, fold, [outer, reduced, inner], x, y),
    }
    Ok(())
}

/// Folds along a dimension that is not the innermost.
fn columns<T: Number>(engine: &Engine, fold: Fold, [outer, reduced, inner]: [usize; 3], x: &[T], y: Output<'_>) {
    let blocks = inner.div_ceil(BLOCK);
    engine.for_ranges(outer * blocks, LEAST.div_ceil(reduced.max(1) * inner.min(BLOCK)), |range| {
        for index in range {
            let (outer, first) = (index / blocks, index % blocks * BLOCK);
            let last = inner.min(first + BLOCK);
            // SAFETY: blocks are disjoint.
            let y = unsafe { y.slice(outer * inner + first..outer * inner + last) };
            let x = &x[outer * reduced * inner..][..reduced * inner];
            let x = x.get(first..).unwrap_or(&[]);
            engine.level.run_on::<T, _>(Columns { fold, reduced, stride: inner, x, y });
        }
    });
}

/// Elements for which a task is worth handing over.
const LEAST: usize = 16 << 10;

/// Columns that are folded side by side in registers.
const BLOCK: usize = 4 * LANES;

impl Fold {
    /// Of nothing.
    fn start(self) -> f32 {
        match self {
            Fold::Sum | Fold::Mean => 0.0,
            Fold::Max => f32::NEG_INFINITY,
            Fold::Min => f32::INFINITY,
        }
    }

    #[inline(always)]
    fn step<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V {
        match self {
            Fold::Sum | Fold::Mean => s.add(a, b),
            Fold::Max => s.maximum(a, b),
            Fold::Min => s.minimum(a, b),
        }
    }
}

/// Rows, each folded to one number.
struct Rows<'a> {
    fold: Fold,
    reduced: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Job for Rows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, y) in self.y.iter_mut().enumerate() {
            let x = &self.x[row * self.reduced..][..self.reduced];
            *y = match self.fold {
                Fold::Sum => fold::sum(
                    s,
                    x,
                    0.0,
                    #[inline(always)]
                    |x| x,
                ) as f32,
                Fold::Mean => {
                    (fold::sum(
                        s,
                        x,
                        0.0,
                        #[inline(always)]
                        |x| x,
                    ) / self.reduced as f64) as f32
                }
                Fold::Max => extreme(s, x, Fold::Max, |a, b| a > b),
                Fold::Min => extreme(s, x, Fold::Min, |a, b| a < b),
            };
        }
    }
}

#[inline(always)]
fn extreme<S: Simd>(s: S, x: &[f32], fold: Fold, wins: impl Fn(f32, f32) -> bool) -> f32 {
    let extremes = fold::fold(
        s,
        x,
        fold.start(),
        fold::Rest::Again,
        #[inline(always)]
        |a, b| fold.step(s, a, b),
        #[inline(always)]
        |a, b| fold.step(s, a, b),
    );
    let lanes = s.lanes(extremes);
    lanes.into_iter().fold(fold.start(), |a, b| if a.is_nan() || wins(a, b) { a } else { b })
}

/// Up to [`BLOCK`] columns, each folded to one number.
struct Columns<'a, T> {
    fold: Fold,
    reduced: usize,
    /// Numbers between rows.
    stride: usize,
    x: &'a [T],
    y: &'a mut [f32],
}

impl<T: Number> Columns<'_, T> {
    /// `V` vectors of columns, from the first column on.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(&mut self, s: S, fold: Fold, first: usize) {
        /// Rows that are summed in f32 before their sums are.
        const ROWS: usize = 32;
        let width = (self.y.len() - first).min(V * LANES);
        let mut totals = [s.splat(fold.start()); V];
        let mut row = 0;
        while row < self.reduced {
            let end = self.reduced.min(row + ROWS);
            let mut sums = [s.splat(fold.start()); V];
            for row in row..end {
                let x = &self.x[row * self.stride + first..][..width];
                for v in 0..V {
                    let x = &x[v * LANES..];
                    // SAFETY: the slice has so many numbers.
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
            let total = if self.fold == Fold::Mean { s.div(totals[v], count) } else { totals[v] };
            s.write(&mut self.y[first + v * LANES..], total);
        }
    }

    #[inline(always)]
    fn all<S: Simd>(&mut self, s: S, fold: Fold) {
        if self.y.len() == BLOCK {
            return self.vectors::<S, 4>(s, fold, 0);
        }
        for first in (0..self.y.len()).step_by(LANES) {
            self.vectors::<S, 1>(s, fold, first);
        }
    }
}

impl<T: Number> Job for Columns<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        match self.fold {
            Fold::Sum | Fold::Mean => self.all(s, Fold::Sum),
            Fold::Max => self.all(s, Fold::Max),
            Fold::Min => self.all(s, Fold::Min),
        }
    }
}
