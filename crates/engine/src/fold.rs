//! Folds of floats that lie one after the other, in an order that depends on their number alone.
//!
//! Closures that are passed here must be `#[inline(always)]`, like everything that uses vectors.

use crate::arch::{LANES, Simd};

/// Vectors that are folded side by side, so that none waits for the one before.
const SIDE: usize = 4;

/// What is folded with the elements at the end that are no whole vector.
#[derive(Clone, Copy)]
pub(crate) enum Rest {
    /// This.
    Fill(f32),
    /// Elements before them, which change nothing when they are folded again, or where the fold starts if there are too few.
    Again,
}

/// Folds vectors of `x` into `start` with `step`, in four strands that `join` makes one.
#[inline(always)]
pub(crate) fn fold<S: Simd>(
    s: S,
    x: &[f32],
    start: f32,
    at_end: Rest,
    step: impl Fn(S::V, S::V) -> S::V,
    join: impl Fn(S::V, S::V) -> S::V,
) -> S::V {
    let mut strands = [s.splat(start); SIDE];
    let (blocks, rest) = x.as_chunks::<{ SIDE * LANES }>();
    for block in blocks {
        for i in 0..SIDE {
            strands[i] = step(strands[i], s.read(&block[i * LANES..]));
        }
    }
    let (vectors, rest) = rest.as_chunks::<LANES>();
    for vector in vectors {
        strands[0] = step(strands[0], s.read(vector));
    }
    if !rest.is_empty() {
        let rest = match at_end {
            Rest::Fill(0.0) => s.read(rest),
            Rest::Again if x.len() >= LANES => s.read(&x[x.len() - LANES..]),
            Rest::Fill(_) | Rest::Again => {
                let mut lanes = [if let Rest::Fill(fill) = at_end { fill } else { start }; LANES];
                lanes[..rest.len()].copy_from_slice(rest);
                s.read(&lanes)
            }
        };
        strands[1] = step(strands[1], rest);
    }
    join(join(strands[0], strands[1]), join(strands[2], strands[3]))
}

/// The sum of `f(x)`, where `f(fill)` is 0. Blocks are summed in f32, their sums in f64.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32], fill: f32, f: impl Fn(S::V) -> S::V) -> f64 {
    const BLOCK: usize = 2048;
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        let sums = fold(
            s,
            block,
            0.0,
            Rest::Fill(fill),
            #[inline(always)]
            |sum, x| s.add(sum, f(x)),
            #[inline(always)]
            |a, b| s.add(a, b),
        );
        total += f64::from(s.sum(sums));
    }
    total
}

/// The greatest; which of the numbers counts where there is NaN is not said.
#[inline(always)]
pub(crate) fn max<S: Simd>(s: S, x: &[f32]) -> f32 {
    let greatest = fold(
        s,
        x,
        f32::NEG_INFINITY,
        Rest::Again,
        #[inline(always)]
        |a, b| s.max(a, b),
        #[inline(always)]
        |a, b| s.max(a, b),
    );
    s.greatest(greatest)
}

/// Writes `f` of each vector of `x` to `y`, which is as long.
#[inline(always)]
pub(crate) fn map<S: Simd>(s: S, x: &[f32], y: &mut [f32], mut f: impl FnMut(S::V) -> S::V) {
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        s.write(y, f(s.read(x)));
    }
}

/// Multiplies all of `y`.
#[inline(always)]
pub(crate) fn scale<S: Simd>(s: S, y: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    for y in y.chunks_mut(LANES) {
        let v = s.mul(s.read(y), factor);
        s.write(y, v);
    }
}
