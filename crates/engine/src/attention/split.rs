//! Splits the keys of few queries between threads and merges the partial outputs ("Flash-Decoding", Dao et al. 2023).
//!
//! The number of parts depends on the shape alone, and parts are merged in the order of keys. The output therefore does
//! not depend on the number of threads.
#![allow(unsafe_code)]

use core::ops::Range;

use super::task::{MAX_BLOCK_KEYS, ScratchLayout};
use super::{Attention, Strides};
use crate::arch::{Kernel, Simd, math};
use crate::parallel::SharedOutput;
use crate::slice_ops;

/// Maximum number of tasks of a split with packed keys. It is a constant, so that results do not depend on the number
/// of threads.
const MAX_PACKED_TASKS: usize = 32;

/// Maximum number of tasks of a split whose keys are read in place. Each of these tasks computes all heads.
const MAX_IN_PLACE_TASKS: usize = 16;

/// Minimum keys of such a task, because merging parts takes time too.
const MIN_IN_PLACE_KEYS: usize = 64;

/// Maximum query rows of a group, over all of its heads. The partial outputs of more rows take too much memory.
const MAX_ROWS: usize = 16;

/// The split of the keys of an attention into parts, and the layout of the parts' results.
#[derive(Clone, Copy)]
pub(super) struct KeySplit {
    pub(super) parts: usize,
    /// Visible keys, in blocks of [`ScratchLayout::block`].
    keys: usize,
    block: usize,
    /// Rows of all heads and batches.
    pub(super) rows: usize,
    value_depth: usize,
}

impl KeySplit {
    /// Decides the number of parts: one if there are many query rows or one block of keys.
    pub(super) fn of(attention: &Attention, layout: ScratchLayout) -> Self {
        let &Attention { batch, heads, kv_heads, rows, value_depth, .. } = attention;
        let keys = attention.causal.map_or(attention.keys, |before| attention.keys.min(before.saturating_add(rows)));
        let blocks = keys.div_ceil(layout.block);
        let limit = match attention.rows_of_group() {
            _ if !layout.is_packed => (MAX_IN_PLACE_TASKS / batch.max(1)).min(keys / MIN_IN_PLACE_KEYS),
            ..=MAX_ROWS => MAX_PACKED_TASKS / batch.saturating_mul(kv_heads).max(1),
            _ => 1,
        };
        let rows = batch.saturating_mul(heads).saturating_mul(rows);
        Self { parts: limit.min(blocks).max(1), keys, block: layout.block, rows, value_depth }
    }

    /// Memory of the parts' results in floats, for these sizes and all smaller ones.
    pub(super) fn largest_scratch(attention: &Attention) -> usize {
        let group = attention.rows_of_group();
        let parts = MAX_IN_PLACE_TASKS.min(attention.batch.saturating_mul(attention.keys / MIN_IN_PLACE_KEYS));
        let in_place = attention.kv_heads.saturating_mul(parts * group.min(MAX_ROWS));
        let packed = if attention.keys <= MAX_BLOCK_KEYS { 0 } else { MAX_PACKED_TASKS * group.min(MAX_ROWS) };
        attention.value_depth.saturating_add(2).saturating_mul(in_place.max(packed))
    }

    /// The keys of a part.
    pub(super) fn keys(self, part: usize) -> Range<usize> {
        let blocks = self.keys.div_ceil(self.block);
        let start = |part: usize| (part * blocks / self.parts * self.block).min(self.keys);
        start(part)..start(part + 1)
    }

    /// The strides of the parts' outputs, and the elements of one.
    pub(super) fn outputs(self, attention: &Attention) -> (Strides, usize) {
        let row = self.value_depth;
        let head = attention.rows * row;
        (Strides { batch: attention.heads * head, head, row }, self.rows * row)
    }
}

/// Merges the partial outputs: rescales each to the common maximum, adds them, and divides by the sum of exponentials.
pub(super) struct Combine<'a> {
    pub(super) attention: &'a Attention,
    pub(super) split: KeySplit,
    /// `[parts][batch][heads][rows][value_depth]`.
    pub(super) outputs: &'a [f32],
    /// Maxima of scores and sums of exponentials: `[parts][batch][heads][rows]`.
    pub(super) maxima: &'a [f32],
    pub(super) sums: &'a [f32],
    pub(super) y: SharedOutput<'a>,
}

impl Kernel for Combine<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, split, outputs, maxima, sums, y } = self;
        let &Attention { heads, rows, value_depth, y: strides, .. } = attention;
        for row in 0..split.rows {
            let (batch, head) = (row / rows / heads, row / rows % heads);
            let at = batch * strides.batch + head * strides.head + row % rows * strides.row;
            // SAFETY: `Attention::check` made sure that the row is there; no other thread is at work.
            let y = unsafe { y.slice(at..at + value_depth) };
            y.fill(0.0);
            let parts = || (0..split.parts).map(|part| part * split.rows + row);
            let max = parts().fold(f32::NEG_INFINITY, |max, part| max.max(maxima[part]));
            let mut sum = 0.0;
            // A part without visible keys has written no output.
            for part in parts().filter(|part| sums[*part] != 0.0) {
                let factor = s.to_array(math::exp(s, s.splat(maxima[part] - max)))[0];
                sum += factor * sums[part];
                slice_ops::add_scaled(s, y, &outputs[part * value_depth..][..value_depth], factor);
            }
            if sum != 0.0 {
                slice_ops::scale(s, y, 1.0 / sum);
            }
        }
    }
}
