//! The gated delta rule, a linear attention with a state that decays (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024).
//!
//! Columns of a state do not depend on each other. A task has some columns of one head, which stay in the cache while the tokens come
//! one after the other.
#![allow(unsafe_code)]

use core::ops::Range;

use crate::Engine;
use crate::arch::{Kernel, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;

/// Sizes of a gated delta rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaRule {
    pub batch: usize,
    pub tokens: usize,
    /// Heads of queries, a multiple of `groups`.
    pub heads: usize,
    /// Heads of keys, values and states.
    pub groups: usize,
    /// Columns of queries and keys.
    pub key_dim: usize,
    /// Columns of values and results.
    pub value_dim: usize,
    /// Decays of a token and a head: 1, or `key_dim`.
    pub decays: usize,
}

/// The inputs of a gated delta rule, all row-major.
#[derive(Debug, Clone, Copy)]
pub struct DeltaRuleInputs<'a> {
    /// `[batch, tokens, heads, key_dim]`.
    pub q: &'a [f32],
    /// `[batch, tokens, groups, key_dim]`.
    pub k: &'a [f32],
    /// `[batch, tokens, groups, value_dim]`.
    pub v: &'a [f32],
    /// `[batch, tokens, groups, decays]`.
    pub decay: &'a [f32],
    /// `[batch, tokens, groups]`.
    pub beta: &'a [f32],
    /// `[batch, groups, key_dim, value_dim]`.
    pub state: &'a [f32],
}

/// Computes for each token and head, with the state S: `S = decay S; S = S + k (beta (v - k' S)); y = q' S`. `y` becomes
/// `[batch, tokens, heads, value_dim]`, and `state` the last S.
///
/// # Errors
/// If a slice is too short, or the sizes contradict each other.
pub fn delta_rule(
    engine: &Engine,
    rule: &DeltaRule,
    inputs: DeltaRuleInputs<'_>,
    y: &mut [f32],
    state: &mut [f32],
) -> Result<(), Error> {
    let &DeltaRule { batch, tokens, heads, groups, key_dim, value_dim, decays } = rule;
    if heads < groups || heads.checked_rem(groups).unwrap_or(heads) != 0 {
        return Err(Error::Mismatch { what: "heads", expected: groups, got: heads });
    }
    if decays != 1 && decays != key_dim {
        return Err(Error::Mismatch { what: "decays", expected: key_dim, got: decays });
    }
    let all_states = size("state", &[batch, groups, key_dim, value_dim])?;
    let results = size("y", &[batch, tokens, heads, value_dim])?;
    let DeltaRuleInputs { q, k, v, decay, beta, state: initial } = inputs;
    for (what, got, expected) in [
        ("q", q.len(), size("q", &[batch, tokens, heads, key_dim])?),
        ("k", k.len(), size("k", &[batch, tokens, groups, key_dim])?),
        ("v", v.len(), size("v", &[batch, tokens, groups, value_dim])?),
        ("decay", decay.len(), size("decay", &[batch, tokens, groups, decays])?),
        ("beta", beta.len(), size("beta", &[batch, tokens, groups])?),
        ("initial state", initial.len(), all_states),
        ("state", state.len(), all_states),
        ("y", y.len(), results),
    ] {
        at_least(what, got, expected)?;
    }
    let (y, state) = (&mut y[..results], &mut state[..all_states]);
    if results == 0 || all_states == 0 {
        y.fill(0.0);
        state.copy_from_slice(&initial[..all_states]);
        return Ok(());
    }
    let per_group = heads / groups;
    let blocks = value_dim.div_ceil(COLUMNS);
    let (y, state) = (SharedOutput::new(y), SharedOutput::new(state));
    let block_flops =
        (2 * (2 + per_group)).saturating_mul(tokens).saturating_mul(key_dim).saturating_mul(COLUMNS.min(value_dim));
    engine.parallel_for(batch * groups * blocks, MIN_TASK_FLOPS.div_ceil(block_flops), |tasks| {
        for task in tasks {
            let first = task % blocks * COLUMNS;
            let columns = first..value_dim.min(first + COLUMNS);
            engine.dispatch.run(Head { rule, inputs: &inputs, index: task / blocks, columns, y, state });
        }
    });
    Ok(())
}

/// Columns of a state that are updated together: with 128 rows they are 32 KiB.
const COLUMNS: usize = 4 * LANES;

/// Minimum floating-point operations of a task.
const MIN_TASK_FLOPS: usize = 100_000;

/// Some columns of one head.
struct Head<'a> {
    rule: &'a DeltaRule,
    inputs: &'a DeltaRuleInputs<'a>,
    /// The batch and the group.
    index: usize,
    columns: Range<usize>,
    y: SharedOutput<'a>,
    state: SharedOutput<'a>,
}

impl Kernel for Head<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Range { start: mut first, end } = self.columns;
        while first < end {
            let count = end - first;
            first += match count {
                COLUMNS.. => self.block::<S, 4>(s, first, COLUMNS),
                LANES.. => self.block::<S, 1>(s, first, LANES),
                _ => self.block::<S, 1>(s, first, count),
            };
        }
    }
}

impl Head<'_> {
    /// All tokens for the `count` columns from `first` on, which are `N` vectors, or a part of one. Returns `count`.
    #[inline(always)]
    fn block<S: Simd, const N: usize>(&self, s: S, first: usize, count: usize) -> usize {
        let &DeltaRule { tokens, heads, groups, key_dim, value_dim, decays, .. } = self.rule;
        let &DeltaRuleInputs { q, k, v, decay, beta, state: initial } = self.inputs;
        let (batch, group, per_group) = (self.index / groups, self.index % groups, heads / groups);
        let vectors = Vectors { s, is_whole: count == N * LANES, count };
        let start = self.index * key_dim * value_dim + first;
        let state = self.state.at(start);
        // A head's factors of the decays are next to each other, or one for all.
        let step = usize::from(decays > 1);
        let mut from = initial[start..].as_ptr();
        for token in 0..tokens {
            let at = (batch * tokens + token) * groups + group;
            let (k, decay) = (&k[at * key_dim..][..key_dim], &decay[at * decays..][..decays]);
            let v = &v[at * value_dim + first..][..count];
            let mut predicted = [s.splat(0.0); N];
            for row in 0..key_dim {
                let factor = s.splat(decay[row * step] * k[row]);
                // SAFETY: the columns of this row are in the state, old or new.
                let x: [S::V; N] = unsafe { vectors.load(from.wrapping_add(row * value_dim)) };
                for i in 0..N {
                    predicted[i] = s.fma(x[i], factor, predicted[i]);
                }
            }
            let beta = s.splat(beta[at]);
            // SAFETY: there are `count` values.
            let mut delta: [S::V; N] = unsafe { vectors.load(v.as_ptr()) };
            for i in 0..N {
                delta[i] = s.mul(s.sub(delta[i], predicted[i]), beta);
            }
            let head = (batch * tokens + token) * heads + group * per_group;
            let queries = &q[head * key_dim..][..per_group * key_dim];
            let mut sums = [s.splat(0.0); N];
            for row in 0..key_dim {
                let (decay, k, q) = (s.splat(decay[row * step]), s.splat(k[row]), s.splat(queries[row]));
                // SAFETY: as above.
                let mut x: [S::V; N] = unsafe { vectors.load(from.wrapping_add(row * value_dim)) };
                for i in 0..N {
                    x[i] = s.fma(k, delta[i], s.mul(x[i], decay));
                    sums[i] = s.fma(x[i], q, sums[i]);
                }
                // SAFETY: no other task has these columns of this head.
                unsafe { vectors.store(state.wrapping_add(row * value_dim), x) };
            }
            // SAFETY: no other task has these columns of these heads' results.
            unsafe { vectors.store(self.y.at(head * value_dim + first), sums) };
            from = state;
            for other in 1..per_group {
                let query = &queries[other * key_dim..][..key_dim];
                let mut sums = [s.splat(0.0); N];
                for row in 0..key_dim {
                    let q = s.splat(query[row]);
                    // SAFETY: the columns of this row were written above.
                    let x: [S::V; N] = unsafe { vectors.load(from.wrapping_add(row * value_dim)) };
                    for i in 0..N {
                        sums[i] = s.fma(x[i], q, sums[i]);
                    }
                }
                // SAFETY: as above.
                unsafe { vectors.store(self.y.at((head + other) * value_dim + first), sums) };
            }
        }
        count
    }
}

/// Columns of a row: whole vectors, or the first elements of one.
#[derive(Clone, Copy)]
struct Vectors<S> {
    s: S,
    is_whole: bool,
    count: usize,
}

impl<S: Simd> Vectors<S> {
    /// # Safety
    /// `count` floats are readable at `from`.
    #[inline(always)]
    unsafe fn load<const N: usize>(self, from: *const f32) -> [S::V; N] {
        let mut x = [self.s.splat(0.0); N];
        if self.is_whole {
            for i in 0..N {
                // SAFETY: there are 16 floats for each vector.
                x[i] = unsafe { self.s.load(from.wrapping_add(i * LANES)) };
            }
        } else {
            // SAFETY: the caller guarantees as many.
            x[0] = unsafe { self.s.load_partial(from, self.count) };
        }
        x
    }

    /// # Safety
    /// `count` floats are writable at `to`.
    #[inline(always)]
    unsafe fn store<const N: usize>(self, to: *mut f32, x: [S::V; N]) {
        if self.is_whole {
            for i in 0..N {
                // SAFETY: there is room for 16 floats for each vector.
                unsafe { self.s.store(to.wrapping_add(i * LANES), x[i]) };
            }
        } else {
            // SAFETY: the caller guarantees as many.
            unsafe { self.s.store_partial(to, self.count, x[0]) };
        }
    }
}
