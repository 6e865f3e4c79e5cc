//! Reductions and maps over contiguous f32 slices, in an order that depends only on their length.
//!
//! Closures passed to these functions must be `#[inline(always)]`, like everything that uses vectors.

use crate::arch::{LANES, Simd};

/// Independent accumulators, to hide latency.
const ACCUMULATORS: usize = 4;

/// The folding of the elements after the last whole vector.
#[derive(Clone, Copy)]
pub(crate) enum Remainder {
    /// The vector is padded with this value.
    Fill(f32),
    /// The last vector overlaps the one before, for idempotent folds. With fewer than 16 elements, it is padded with
    /// the initial value.
    Overlap,
}

/// Folds the vectors of `x` with `step`, in four accumulators initialized to `start`, which `join` combines.
#[inline(always)]
pub(crate) fn fold<S: Simd>(
    s: S,
    x: &[f32],
    start: f32,
    remainder: Remainder,
    step: impl Fn(S::V, S::V) -> S::V,
    join: impl Fn(S::V, S::V) -> S::V,
) -> S::V {
    let mut accumulators = [s.splat(start); ACCUMULATORS];
    let (blocks, rest) = x.as_chunks::<{ ACCUMULATORS * LANES }>();
    for block in blocks {
        for i in 0..ACCUMULATORS {
            accumulators[i] = step(accumulators[i], s.load_slice(&block[i * LANES..]));
        }
    }
    let (vectors, rest) = rest.as_chunks::<LANES>();
    for vector in vectors {
        accumulators[0] = step(accumulators[0], s.load_slice(vector));
    }
    if !rest.is_empty() {
        let rest = match remainder {
            Remainder::Fill(0.0) => s.load_slice(rest),
            Remainder::Overlap if x.len() >= LANES => s.load_slice(&x[x.len() - LANES..]),
            Remainder::Fill(_) | Remainder::Overlap => {
                let mut lanes = [if let Remainder::Fill(fill) = remainder { fill } else { start }; LANES];
                lanes[..rest.len()].copy_from_slice(rest);
                s.load_slice(&lanes)
            }
        };
        accumulators[1] = step(accumulators[1], rest);
    }
    join(join(accumulators[0], accumulators[1]), join(accumulators[2], accumulators[3]))
}

/// Sum of `f(x)`, where `f(fill)` is 0. Blocks are summed in f32, their sums in f64.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32], fill: f32, f: impl Fn(S::V) -> S::V) -> f64 {
    const BLOCK: usize = 2048;
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        let sums = fold(
            s,
            block,
            0.0,
            Remainder::Fill(fill),
            #[inline(always)]
            |sum, x| s.add(sum, f(x)),
            #[inline(always)]
            |a, b| s.add(a, b),
        );
        total += f64::from(s.reduce_add(sums));
    }
    total
}

/// Maximum; unspecified if an element is NaN.
#[inline(always)]
pub(crate) fn max<S: Simd>(s: S, x: &[f32]) -> f32 {
    let max = fold(
        s,
        x,
        f32::NEG_INFINITY,
        Remainder::Overlap,
        #[inline(always)]
        |a, b| s.max(a, b),
        #[inline(always)]
        |a, b| s.max(a, b),
    );
    s.reduce_max(max)
}

/// Stores `f` of each vector of `x` to `y`, which has the same length.
#[inline(always)]
pub(crate) fn map<S: Simd>(s: S, x: &[f32], y: &mut [f32], mut f: impl FnMut(S::V) -> S::V) {
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        s.store_slice(y, f(s.load_slice(x)));
    }
}

/// Multiplies `y` by a factor, in place.
#[inline(always)]
pub(crate) fn scale<S: Simd>(s: S, y: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    for y in y.chunks_mut(LANES) {
        let v = s.mul(s.load_slice(y), factor);
        s.store_slice(y, v);
    }
}

/// Adds `x` times a factor to `y`, which has the same length.
#[inline(always)]
pub(crate) fn add_scaled<S: Simd>(s: S, y: &mut [f32], x: &[f32], factor: f32) {
    let factor = s.splat(factor);
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        let v = s.fma(s.load_slice(x), factor, s.load_slice(y));
        s.store_slice(y, v);
    }
}
