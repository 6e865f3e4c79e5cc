//! Scaled dot-product attention without materializing the score matrix.
#![allow(unsafe_code)]

mod rows;
mod split;
mod task;

use core::ops::Range;

use crate::arch::LANES;
use crate::element::Element;
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;
use crate::{Engine, FloatSlice, FloatSliceMut};

use rows::{PlainRows, Rows};
use split::{Combine, KeySplit};
use task::{AttentionOutput, AttentionTask, MAX_BLOCK_KEYS, PartialOutput, ScratchLayout};

pub use rows::{HalfRows, KeyValueSlice, NibbleRows, QuantizedRows};

/// Shape of `y = softmax(q k^T * scale + mask) v` for each batch and head.
///
/// Each head of `q` and `y` has `rows` queries, each head of `k` and `v` has `keys` keys; queries and keys have `depth`
/// elements, values and outputs `value_depth`. With grouped-query attention, the `heads` of `q` share `kv_heads` heads
/// of `k` and `v`: head h reads head `h / (heads / kv_heads)` of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    pub batch: usize,
    pub heads: usize,
    /// Heads of keys and values, a divisor of `heads`.
    pub kv_heads: usize,
    pub rows: usize,
    pub keys: usize,
    pub depth: usize,
    pub value_depth: usize,
    pub scale: f32,
    /// Causal mask: query m sees keys 0 to `first + m` only, where this is `Some(first)`, the keys before the first query.
    pub causal: Option<usize>,
    pub q: Strides,
    pub k: Strides,
    pub v: Strides,
    pub y: Strides,
    /// Strides of the additive mask, if there is one.
    pub mask: Option<MaskStrides>,
}

/// Elements between batches, heads and rows; the elements of a row are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    pub batch: usize,
    pub head: usize,
    pub row: usize,
}

impl Strides {
    const NONE: Self = Self { batch: 0, head: 0, row: 0 };
}

/// Elements between batches, heads and queries of a mask, 0 where it is broadcast; the keys are contiguous.
pub type MaskStrides = Strides;

/// Returns the scratch memory that [`attention`] needs, in floats. It is enough for every mask.
pub fn attention_scratch(engine: &Engine, attention: &Attention) -> usize {
    let of_threads = ScratchLayout::largest(attention).saturating_mul(engine.threads());
    of_threads.saturating_add(KeySplit::largest_scratch(attention))
}

impl Attention {
    /// Scratch memory per thread, in floats, that suffices for these sizes and all smaller ones.
    pub fn scratch_per_thread(&self) -> usize {
        ScratchLayout::largest(self).saturating_add(KeySplit::largest_scratch(self))
    }
}

/// Returns true if queries, keys and values of `depth` elements can be bf16, all three. Probabilities are rounded to
/// bf16 then.
pub fn attention_supports_bf16_input(depth: usize) -> bool {
    depth.is_multiple_of(2)
}

/// Returns true if the output for `keys` keys can be bf16, given bf16 inputs.
pub fn attention_supports_bf16_output(keys: usize) -> bool {
    keys <= MAX_BLOCK_KEYS
}

/// Operands of [`attention`].
#[derive(Debug, Clone, Copy)]
pub struct AttentionInputs<'a> {
    pub q: FloatSlice<'a>,
    pub k: KeyValueSlice<'a>,
    pub v: KeyValueSlice<'a>,
    /// Added to the scaled scores; present if [`Attention::mask`] has strides for it.
    pub mask: Option<&'a [f32]>,
}

impl<'a> AttentionInputs<'a> {
    /// Operands without a mask.
    pub fn new(q: impl Into<FloatSlice<'a>>, k: impl Into<KeyValueSlice<'a>>, v: impl Into<KeyValueSlice<'a>>) -> Self {
        Self { q: q.into(), k: k.into(), v: v.into(), mask: None }
    }
}

/// Computes attention. A query whose scores are all -inf, or that sees no key, gives zeros.
///
/// # Errors
/// If a slice is too short, `heads` is not a multiple of `kv_heads`, rows of the output overlap, only one of `k` and `v` is
/// quantized, or an operand is bf16 where [`attention_supports_bf16_input`] and [`attention_supports_bf16_output`] do not
/// allow it.
pub fn attention<'y>(
    engine: &Engine,
    attention: &Attention,
    inputs: AttentionInputs<'_>,
    y: impl Into<FloatSliceMut<'y>>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    attention_impl(engine, attention, inputs, y.into(), scratch)
}

fn attention_impl(
    engine: &Engine,
    attention: &Attention,
    inputs: AttentionInputs<'_>,
    y: FloatSliceMut<'_>,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let AttentionInputs { q, k, v, mask } = inputs;
    if !attention.check(engine, q, [k, v], mask, &y, scratch)? {
        return Ok(());
    }
    let seen = attention.seen_keys(mask);
    // The strides of rows without elements are not used. PyTorch's are not 0.
    let (q_strides, k_strides) =
        if attention.depth == 0 { (Strides::NONE, Strides::NONE) } else { (attention.q, attention.k) };
    let attention = &Attention { keys: seen.len(), q: q_strides, k: k_strides, ..*attention };
    let mask = mask.map(|mask| mask.get(seen.start..).unwrap_or_default());
    let widths = [attention.depth, attention.value_depth];
    let k = k.after(seen.start * attention.k.row, widths[0]);
    let v = v.after(seen.start * attention.v.row, widths[1]);
    let y = match y {
        FloatSliceMut::F32(y) => AttentionOutput::Floats(SharedOutput::new(y)),
        FloatSliceMut::Bf16(y) => AttentionOutput::Bf16(SharedOutput::new(y)),
    };
    use {FloatSlice as Float, KeyValueSlice as KeyValue};
    match (q, k, v) {
        (Float::F32(q), KeyValue::Floats(Float::F32(k)), KeyValue::Floats(Float::F32(v))) => {
            run(engine, attention, q, [PlainRows(k), PlainRows(v)], mask, y, scratch);
        }
        (Float::Bf16(q), KeyValue::Floats(Float::Bf16(k)), KeyValue::Floats(Float::Bf16(v))) => {
            run(engine, attention, q, [PlainRows(k), PlainRows(v)], mask, y, scratch);
        }
        (Float::F32(q), KeyValue::Half(k), KeyValue::Half(v)) => run(engine, attention, q, [k, v], mask, y, scratch),
        (Float::F32(q), KeyValue::Quantized(k), KeyValue::Quantized(v)) => {
            run(engine, attention, q, [k, v], mask, y, scratch);
        }
        (Float::F32(q), KeyValue::Nibbles(k), KeyValue::Nibbles(v)) => {
            run(engine, attention, q, [k, v], mask, y, scratch);
        }
        _ => return Err(Error::Type { what: "q, k and v" }),
    }
    Ok(())
}

/// Runs all tasks for one type of queries, and one of keys and values. Everything was checked.
fn run<T: Element, R: Rows<T>>(
    engine: &Engine,
    a: &Attention,
    q: &[T],
    [k, v]: [R; 2],
    mask: Option<&[f32]>,
    y: AttentionOutput<'_>,
    scratch: &mut [f32],
) {
    let layout = ScratchLayout::new(a, T::IS_BF16);
    // Without packing a task covers all groups, so that it reads keys and values in the order of memory.
    let groups = if layout.is_packed { 1 } else { a.kv_heads };
    let pairs = a.batch * a.kv_heads / groups;
    let split = KeySplit::of(a, layout);
    let (scratch, partial) = scratch.split_at_mut(layout.len() * engine.threads());
    let scratch = SharedOutput::new(scratch);
    // SAFETY: no two tasks have a slot at the same time.
    let scratch = |slot: usize| unsafe { scratch.slice(slot * layout.len()..(slot + 1) * layout.len()) };
    let task = |attention, y, pair: usize, scratch, rows, keys, part| {
        let (batch, group) = (pair * groups / a.kv_heads, pair * groups % a.kv_heads);
        let groups = group..group + groups;
        AttentionTask { attention, q, k, v, mask, y, layout, scratch, batch, groups, rows, keys, part }
    };
    if let (AttentionOutput::Floats(y), 2..) = (y, split.parts) {
        let (strides, len) = split.outputs(a);
        let rows = split.rows;
        let (outputs, states) = partial.split_at_mut(split.parts * len);
        let (maxima, sums) = states.split_at_mut(split.parts * rows);
        {
            let (outputs, maxima, sums) =
                (SharedOutput::new(outputs), SharedOutput::new(maxima), SharedOutput::new(sums));
            let of_part = &Attention { y: strides, ..*a };
            engine.pool.run_with_slot(pairs * split.parts, |slot, index| {
                let (pair, part) = (index / split.parts, index % split.parts);
                let output = PartialOutput { output: part * len, row: part * rows, maxima, sums };
                let y = AttentionOutput::Floats(outputs);
                let task = task(of_part, y, pair, scratch(slot), 0..a.rows, split.keys(part), Some(output));
                engine.dispatch.run_for::<T, _>(task);
            });
        }
        engine.dispatch.run_for::<f32, _>(Combine { attention: a, split, outputs, maxima, sums, y });
        return;
    }
    // With fewer (batch, group) pairs than tasks, split their rows.
    let limit = if layout.is_packed { a.rows.div_ceil(MIN_TASK_ROWS) } else { 1 };
    let parts = if engine.threads() == 1 { 1 } else { (2 * engine.threads()).div_ceil(pairs).min(limit) };
    engine.pool.run_with_slot(pairs * parts, |slot, index| {
        let (pair, part) = (index / parts, index % parts);
        let rows = part * a.rows / parts..(part + 1) * a.rows / parts;
        engine.dispatch.run_for::<T, _>(task(a, y, pair, scratch(slot), rows, 0..a.keys, None));
    });
}

/// Minimum rows for which a task packs keys and values again.
const MIN_TASK_ROWS: usize = 64;

/// A mask below this is one of keys that are not seen: -inf, or the lowest number of a float type.
const UNSEEN: f32 = -1e30;

impl Attention {
    /// Query rows of a group, of all of its heads.
    fn rows_of_group(&self) -> usize {
        (self.heads / self.kv_heads.max(1)).saturating_mul(self.rows)
    }

    /// Returns the keys outside of which the mask hides all from all queries: those of a cache that were not written yet, or
    /// are out of a window. They would count for exactly nothing.
    fn seen_keys(&self, mask: Option<&[f32]>) -> Range<usize> {
        let (Some(mask), Some(strides), None) = (mask, self.mask, self.causal) else { return 0..self.keys };
        // Where a mask is broadcast, it is looked at once.
        let distinct = |size: usize, stride: usize| if stride == 0 { size.min(1) } else { size };
        let mut seen = self.keys..0;
        for batch in 0..distinct(self.batch, strides.batch) {
            for head in 0..distinct(self.heads, strides.head) {
                for row in 0..distinct(self.rows, strides.row) {
                    let start = batch * strides.batch + head * strides.head + row * strides.row;
                    let row = mask.get(start..).and_then(|mask| mask.get(..self.keys)).unwrap_or_default();
                    let is_seen = |mask: &f32| *mask >= UNSEEN || mask.is_nan();
                    match row.iter().position(is_seen) {
                        Some(first) => {
                            let last = row.iter().rposition(is_seen).unwrap_or(first);
                            seen = seen.start.min(first)..seen.end.max(last + 1);
                        }
                        None if row.iter().all(|mask| *mask == f32::NEG_INFINITY) => {}
                        // All keys are as low: they count alike.
                        None => return 0..self.keys,
                    }
                }
            }
        }
        if seen.is_empty() { 0..0 } else { seen }
    }

    /// Validates the call; returns false if there is nothing to compute.
    fn check(
        &self,
        engine: &Engine,
        q: FloatSlice<'_>,
        [k, v]: [KeyValueSlice<'_>; 2],
        mask: Option<&[f32]>,
        y: &FloatSliceMut<'_>,
        scratch: &[f32],
    ) -> Result<bool, Error> {
        let inputs = [q.is_bf16(), k.is_bf16(), v.is_bf16()];
        let (are_bf16, any_bf16) = (inputs == [true; 3], inputs.contains(&true));
        engine.check_bf16_support(y.is_bf16() || any_bf16)?;
        if any_bf16 && !(are_bf16 && attention_supports_bf16_input(self.depth)) {
            return Err(Error::Type { what: "q, k and v" });
        }
        if y.is_bf16() && !(are_bf16 && attention_supports_bf16_output(self.keys)) {
            return Err(Error::Type { what: "y" });
        }
        if self.batch == 0 || self.heads == 0 || self.rows == 0 || self.value_depth == 0 {
            return Ok(false);
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::Mismatch { what: "heads", expected: self.kv_heads, got: self.heads });
        }
        let min_len = |what, strides: Strides, heads: usize, rows: usize, width: usize| {
            if rows == 0 || width == 0 {
                return Ok(0);
            }
            let sizes = [self.batch, heads, rows];
            let last = crate::elementwise::min_len(what, &sizes, &[strides.batch, strides.head, strides.row])?;
            last.checked_add(width - 1).ok_or(Error::Size { what })
        };
        at_least("q", q.len(), min_len("q strides", self.q, self.heads, self.rows, self.depth)?)?;
        for (names, rows, strides, width) in [
            (["k", "k strides", "k scales", "k zero points"], k, self.k, self.depth),
            (["v", "v strides", "v scales", "v zero points"], v, self.v, self.value_depth),
        ] {
            let [name, name_of_strides, scales, zeros] = names;
            let len = min_len(name_of_strides, strides, self.kv_heads, self.keys, width)?;
            at_least(name, rows.len(), len)?;
            let names = [name_of_strides, scales, zeros];
            match rows {
                KeyValueSlice::Quantized(rows) => rows.check(names, strides, width, len)?,
                KeyValueSlice::Nibbles(rows) => rows.check(names, strides, width, len)?,
                KeyValueSlice::Floats(_) | KeyValueSlice::Half(_) => {}
            }
        }
        at_least("y", y.len(), min_len("y strides", self.y, self.heads, self.rows, self.value_depth)?)?;
        match (self.mask, mask) {
            (None, None) => {}
            (Some(strides), Some(mask)) => {
                at_least("mask", mask.len(), min_len("mask strides", strides, self.heads, self.rows, self.keys)?)?;
            }
            (strides, _) => {
                let got = usize::from(strides.is_none());
                return Err(Error::Mismatch { what: "mask", expected: 1 - got, got });
            }
        }
        // Rows of the output must not overlap: several threads write them.
        let y = self.y;
        let mut dims = [(y.batch, self.batch), (y.head, self.heads), (y.row, self.rows)];
        dims.sort_unstable();
        let mut inside = self.value_depth;
        for (stride, size) in dims.into_iter().filter(|(_, size)| *size > 1) {
            at_least("y strides", stride, inside)?;
            inside += (size - 1) * stride;
        }
        let rows = size("rows", &[self.heads / self.kv_heads, self.rows, 2])?;
        let widths = self.depth.checked_add(self.value_depth).and_then(|sum| sum.checked_add(LANES));
        size("depth", &[widths.ok_or(Error::Size { what: "depth" })?, 2 * MAX_BLOCK_KEYS, engine.threads()])?;
        size("rows", &[rows, 2 * engine.threads()])?;
        at_least("scratch", scratch.len(), attention_scratch(engine, self))?;
        Ok(true)
    }
}
