//! Scaled dot-product attention without a matrix of scores.
#![allow(unsafe_code)]

mod task;

use crate::arch::LANES;
use crate::error::{Error, at_least, size};
use crate::numbers::Number;
use crate::split::Output;
use crate::{Engine, Numbers, NumbersMut};

use task::{BLOCK, Results, Room, Task};

/// `y = softmax(q k^T * scale + mask) v` for each batch and head.
///
/// Each head of `q` and `y` has `rows` queries, each of `k` and `v` has `keys`; queries and keys have `depth` floats,
/// values and results `value_depth`. The `heads` of `q` share the `groups` of `k` and `v`: head h reads group
/// `h / (heads / groups)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    pub batch: usize,
    pub heads: usize,
    /// Heads of keys and values, of which `heads` is a multiple.
    pub groups: usize,
    pub rows: usize,
    pub keys: usize,
    pub depth: usize,
    pub value_depth: usize,
    pub scale: f32,
    /// Whether query m sees the keys 0 to m only.
    pub causal: bool,
    pub q: Strides,
    pub k: Strides,
    pub v: Strides,
    pub y: Strides,
    /// Of what is added to the scores, if anything is.
    pub mask: Option<MaskStrides>,
}

/// Floats between batches, heads and rows; the floats of a row are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    pub batch: usize,
    pub head: usize,
    pub row: usize,
}

/// Floats between batches, heads and queries of a mask, 0 where it is broadcast; the keys are contiguous.
pub type MaskStrides = Strides;

/// Floats that [`attention`] needs for scratch.
pub fn attention_scratch(engine: &Engine, attention: &Attention) -> usize {
    Room::new(attention).len().saturating_mul(engine.threads())
}

impl Attention {
    /// Floats of scratch for each thread that suffice for these sizes and all smaller ones.
    pub fn scratch_each(&self) -> usize {
        Room::largest(self).len()
    }
}

/// Whether queries, keys and values of so many numbers each may be bf16, all three: pairs of them are multiplied, and
/// probabilities are rounded for that.
pub fn attends_bf16(depth: usize) -> bool {
    depth.is_multiple_of(2)
}

/// Whether results for so many keys may be bf16, where what they are computed from is.
pub fn attends_to_bf16(keys: usize) -> bool {
    keys <= BLOCK
}

/// Computes attention. A query all of whose scores are -inf, or that sees no key, gives zeros.
///
/// # Errors
/// When a slice is too short, the heads are not a multiple of the groups, rows of the result would overlap, or there are bf16
/// that [`attends_bf16`] and [`attends_to_bf16`] do not allow.
pub fn attention<'a>(
    engine: &Engine,
    attention: &Attention,
    q: impl Into<Numbers<'a>>,
    k: impl Into<Numbers<'a>>,
    v: impl Into<Numbers<'a>>,
    mask: Option<&[f32]>,
    y: impl Into<NumbersMut<'a>>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let (q, k, v, y) = (q.into(), k.into(), v.into(), y.into());
    if !attention.check(engine, [q, k, v], mask, &y, scratch)? {
        return Ok(());
    }
    let y = match y {
        NumbersMut::F32(y) => Results::Floats(Output::new(y)),
        NumbersMut::Bf16(y) => Results::Bf16(Output::new(y)),
    };
    match (q, k, v) {
        (Numbers::F32(q), Numbers::F32(k), Numbers::F32(v)) => run(engine, attention, [q, k, v], mask, y, scratch),
        (Numbers::Bf16(q), Numbers::Bf16(k), Numbers::Bf16(v)) => run(engine, attention, [q, k, v], mask, y, scratch),
        _ => return Err(Error::Type { what: "q, k and v" }),
    }
    Ok(())
}

/// Attention of numbers of one type. All was checked.
fn run<T: Number>(
    engine: &Engine,
    a: &Attention,
    [q, k, v]: [&[T]; 3],
    mask: Option<&[f32]>,
    y: Results<'_>,
    scratch: &mut [f32],
) {
    let room = Room::new(a);
    let pairs = a.batch * a.groups;
    // With fewer pairs of batch and group than threads like, their rows are shared.
    let most = a.rows.div_ceil(LEAST_ROWS);
    let parts = if engine.threads() == 1 { 1 } else { (2 * engine.threads()).div_ceil(pairs).min(most) };
    let scratch = Output::new(scratch);
    engine.pool.run_with_slot(pairs * parts, |slot, task| {
        let (pair, part) = (task / parts, task % parts);
        let rows = part * a.rows / parts..(part + 1) * a.rows / parts;
        // SAFETY: no two tasks have a slot at the same time.
        let scratch = unsafe { scratch.slice(slot * room.len()..(slot + 1) * room.len()) };
        let (batch, group) = (pair / a.groups, pair % a.groups);
        engine.level.run_on::<T, _>(Task { attention: a, q, k, v, mask, y, room, scratch, batch, group, rows });
    });
}

/// Rows for which a task is worth packing the keys and values again.
const LEAST_ROWS: usize = 64;

impl Attention {
    /// Whether there is anything to do.
    fn check(
        &self,
        engine: &Engine,
        [q, k, v]: [Numbers<'_>; 3],
        mask: Option<&[f32]>,
        y: &NumbersMut<'_>,
        scratch: &[f32],
    ) -> Result<bool, Error> {
        let inputs = [q, k, v];
        let are_bf16 = inputs.iter().all(Numbers::is_bf16);
        engine.check_numbers(y.is_bf16() || inputs.iter().any(Numbers::is_bf16))?;
        if inputs.iter().any(Numbers::is_bf16) && !(are_bf16 && attends_bf16(self.depth)) {
            return Err(Error::Type { what: "q, k and v" });
        }
        if y.is_bf16() && !(are_bf16 && attends_to_bf16(self.keys)) {
            return Err(Error::Type { what: "y" });
        }
        if self.batch == 0 || self.heads == 0 || self.rows == 0 || self.value_depth == 0 {
            return Ok(false);
        }
        if self.groups == 0 || !self.heads.is_multiple_of(self.groups) {
            return Err(Error::Mismatch { what: "heads", expected: self.groups, got: self.heads });
        }
        let reach = |what, strides: Strides, heads: usize, rows: usize, width: usize| {
            if rows == 0 || width == 0 {
                return Ok(0);
            }
            let sizes = [self.batch, heads, rows];
            let last = crate::elementwise::reach(what, &sizes, &[strides.batch, strides.head, strides.row])?;
            last.checked_add(width - 1).ok_or(Error::Size { what })
        };
        at_least("q", q.len(), reach("q strides", self.q, self.heads, self.rows, self.depth)?)?;
        at_least("k", k.len(), reach("k strides", self.k, self.groups, self.keys, self.depth)?)?;
        at_least("v", v.len(), reach("v strides", self.v, self.groups, self.keys, self.value_depth)?)?;
        at_least("y", y.len(), reach("y strides", self.y, self.heads, self.rows, self.value_depth)?)?;
        match (self.mask, mask) {
            (None, None) => {}
            (Some(strides), Some(mask)) => {
                at_least("mask", mask.len(), reach("mask strides", strides, self.heads, self.rows, self.keys)?)?;
            }
            (strides, _) => {
                let got = usize::from(strides.is_none());
                return Err(Error::Mismatch { what: "mask", expected: 1 - got, got });
            }
        }
        // Rows of the result are written by several threads.
        let y = self.y;
        let mut dims = [(y.batch, self.batch), (y.head, self.heads), (y.row, self.rows)];
        dims.sort_unstable();
        let mut inside = self.value_depth;
        for (stride, size) in dims.into_iter().filter(|(_, size)| *size > 1) {
            at_least("y strides", stride, inside)?;
            inside += (size - 1) * stride;
        }
        let rows = size("rows", &[self.heads / self.groups, self.rows, 2])?;
        let widths = self.depth.checked_add(self.value_depth).and_then(|sum| sum.checked_add(LANES));
        size("depth", &[widths.ok_or(Error::Size { what: "depth" })?, 2 * BLOCK, engine.threads()])?;
        size("rows", &[rows, 2 * engine.threads()])?;
        at_least("scratch", scratch.len(), attention_scratch(engine, self))?;
        Ok(true)
    }
}
