//! Flash attention for the heads of one group, or some of their rows.
//!
//! Keys and values are processed in blocks, packed into GEMM panels. A tile of queries times a block of keys gives
//! scores, which stay in L1 while they become unnormalized probabilities and are multiplied with the values. Outputs
//! are kept relative to the running maximum of the row's scores and rescaled when it grows (online softmax): Milakov
//! and Gimelshein, arXiv:1805.02867; Dao et al., "FlashAttention", arXiv:2205.14135.

use core::marker::PhantomData;
use core::ops::Range;

use super::rows::Rows;
use super::{Attention, Strides};
use crate::Epilogue;
use crate::arch::{Arithmetic, Interleaved, Kernel, LANES, Simd, math};
use crate::element::{Element, ElementPtr, ElementPtrMut};
use crate::epilogue::EpilogueArgs;
use crate::igemm::microkernel::{KStep, Prefetch, TileOperands, TileStack};
use crate::parallel::SharedOutput;
use crate::slice_ops;

/// Maximum keys of a block.
pub(super) const MAX_BLOCK_KEYS: usize = 256;

/// Maximum rows of a register tile.
const MAX_TILE_ROWS: usize = 14;

/// Minimum rows of a group, of all of its heads, for which keys and values are packed; fewer read them in place faster.
const MIN_PACKED_ROWS: usize = 9;

const _: () = assert!(MIN_PACKED_ROWS <= MAX_TILE_ROWS, "rows that are read in place are one tile");

/// Bytes of keys of all heads, as f32, that a block has where they are read in place: with its values, and the next block that is
/// prefetched, it stays in the L2 cache, and prefetching does not run far ahead of reading.
const IN_PLACE_BYTES: usize = 32 * 1024;

/// Keys of such a block.
const IN_PLACE_KEYS: Range<usize> = LANES..4 * LANES + 1;

/// Layout of a task's scratch memory, in floats.
#[derive(Clone, Copy)]
pub(super) struct ScratchLayout {
    /// True if keys and values are packed into panels for the heads of a group; else a task reads those of all groups in place.
    pub(super) is_packed: bool,
    /// Keys of a block, a multiple of 16.
    pub(super) block: usize,
    keys: usize,
    values: usize,
    scores: usize,
    /// Rows of the task; each has a running maximum and a running sum of exponentials.
    rows: usize,
}

impl ScratchLayout {
    pub(super) fn new(attention: &Attention, is_bf16: bool) -> Self {
        if !is_bf16 && attention.rows_of_group() < MIN_PACKED_ROWS {
            return Self::in_place(attention);
        }
        let blocks = attention.keys.div_ceil(MAX_BLOCK_KEYS).max(1);
        Self::packed(attention, attention.keys.div_ceil(blocks))
    }

    /// Floats that suffice for these sizes and all smaller ones, which may have larger blocks, or be read in place.
    pub(super) fn largest(attention: &Attention) -> usize {
        let packed = Self::packed(attention, attention.keys.min(MAX_BLOCK_KEYS)).len();
        let rows = attention.kv_heads.saturating_mul(attention.rows_of_group().min(MIN_PACKED_ROWS - 1));
        packed.max(Self { rows, ..Self::in_place(attention) }.len())
    }

    fn in_place(attention: &Attention) -> Self {
        let key = attention.kv_heads.saturating_mul(attention.depth).saturating_mul(size_of::<f32>()).max(1);
        let block = (IN_PLACE_BYTES / key).clamp(IN_PLACE_KEYS.start, IN_PLACE_KEYS.end - 1) / LANES * LANES;
        let rows = attention.heads.saturating_mul(attention.rows);
        Self { is_packed: false, block, keys: 0, values: 0, scores: MAX_TILE_ROWS * block, rows }
    }

    /// Layout for blocks of `keys` keys in panels.
    fn packed(attention: &Attention, keys: usize) -> Self {
        let block = keys.next_multiple_of(LANES).max(LANES);
        Self {
            is_packed: true,
            block,
            keys: block.saturating_mul(attention.depth),
            values: block.saturating_mul(attention.value_depth.div_ceil(LANES).saturating_mul(LANES)),
            scores: MAX_TILE_ROWS * block,
            rows: attention.rows_of_group(),
        }
    }

    pub(super) fn len(self) -> usize {
        let states = self.rows.saturating_mul(2);
        self.keys.saturating_add(self.values).saturating_add(self.scores).saturating_add(states)
    }
}

/// Destination of the output.
#[derive(Clone, Copy)]
pub(super) enum AttentionOutput<'a> {
    Floats(SharedOutput<'a>),
    /// bf16; all keys are in one block.
    Bf16(SharedOutput<'a, u16>),
}

/// One task: the heads of some groups, or some of their rows.
pub(super) struct AttentionTask<'a, T, Kv> {
    pub(super) attention: &'a Attention,
    pub(super) q: &'a [T],
    pub(super) k: Kv,
    pub(super) v: Kv,
    pub(super) mask: Option<&'a [f32]>,
    pub(super) y: AttentionOutput<'a>,
    pub(super) layout: ScratchLayout,
    pub(super) scratch: &'a mut [f32],
    pub(super) batch: usize,
    /// One group where keys and values are packed.
    pub(super) groups: Range<usize>,
    /// Rows of each of the groups' heads.
    pub(super) rows: Range<usize>,
    /// Keys of the task, from the beginning of a block on.
    pub(super) keys: Range<usize>,
    /// Where the unnormalized output goes if the task has a part of the keys; `None` if it writes final rows.
    pub(super) part: Option<PartialOutput<'a>>,
}

/// Destination of the unnormalized output for a part of the keys, and of its softmax state.
#[derive(Clone, Copy)]
pub(super) struct PartialOutput<'a> {
    /// Offset of the part's rows: in floats of the output, and in rows of `maxima` and `sums`.
    pub(super) output: usize,
    pub(super) row: usize,
    /// Maxima of scores and sums of exponentials, of all rows of a part.
    pub(super) maxima: SharedOutput<'a>,
    pub(super) sums: SharedOutput<'a>,
}

impl<T: Element, Kv: Rows<T>> Kernel for AttentionTask<'_, T, Kv> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, q, k, v, mask, y, layout, scratch, batch, groups, rows, keys: range, part } = self;
        let (keys, scratch) = scratch.split_at_mut(layout.keys);
        let (values, scratch) = scratch.split_at_mut(layout.values);
        let (scores, states) = scratch.split_at_mut(layout.scores);
        let (maxima, sums) = states.split_at_mut(layout.rows);
        let heads = attention.heads / attention.kv_heads;
        let lines_of_group = attention.rows_of_group();
        let epilogue = Epilogue::default().args();
        let output = part.map_or(0, |part| part.output);
        let inputs = |group| AttentionOperands { attention, q, k, v, mask, y, output, batch, group };
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        for first in (range.start..range.end.max(range.start + 1)).step_by(layout.block) {
            let count = (range.end - first).min(layout.block);
            // Later blocks are masked for all rows.
            if attention.causal.is_some_and(|before| first >= before.saturating_add(rows.end)) {
                break;
            }
            for group in groups.clone() {
                let mut block = KeyBlock {
                    inputs: inputs(group),
                    first,
                    is_first: first == range.start,
                    count,
                    keys,
                    values,
                    scores,
                    epilogue: &epilogue,
                    stride: layout.block,
                };
                // Of the group's lines in the states.
                let at = (group - groups.start) * lines_of_group;
                let (maxima, sums) = (&mut maxima[at..][..lines_of_group], &mut sums[at..][..lines_of_group]);
                let line =
                    |index: usize| Line { head: group * heads + index / attention.rows, row: index % attention.rows };
                if !layout.is_packed {
                    block.lines(s, false, line, 0..lines_of_group, (maxima, sums));
                    continue;
                }
                block.pack(s);
                for head in 0..heads {
                    let mut row = rows.start;
                    while row < rows.end {
                        let together = (rows.end - row).min(S::MR);
                        let lines = head * attention.rows + row..head * attention.rows + row + together;
                        let states = (&mut maxima[lines.clone()], &mut sums[lines.clone()]);
                        block.lines(s, true, line, lines, states);
                        row += together;
                    }
                }
            }
        }
        let first_head = groups.start * heads;
        let own = groups.len() * lines_of_group;
        if let Some(PartialOutput { row, maxima: all_maxima, sums: all_sums, .. }) = part {
            let first = row + (batch * attention.heads + first_head) * attention.rows;
            for (all, states) in [(all_maxima, &maxima[..own]), (all_sums, &sums[..own])] {
                // SAFETY: these rows of the part are this task's.
                unsafe { all.slice(first..first + own) }.copy_from_slice(states);
            }
            return;
        }
        let AttentionOutput::Floats(y) = y else { return };
        for head in 0..groups.len() * heads {
            for row in rows.clone() {
                let sum = sums[head * attention.rows + row];
                let y = inputs(groups.start).result(&y, first_head + head, row);
                if attention.keys == 0 || sum == 0.0 {
                    y.fill(0.0);
                } else {
                    slice_ops::scale(s, y, 1.0 / sum);
                }
            }
        }
    }
}

/// A row of a head.
#[derive(Clone, Copy, Default)]
struct Line {
    head: usize,
    row: usize,
}

/// Operands of a task.
#[derive(Clone, Copy)]
struct AttentionOperands<'a, T, Kv> {
    attention: &'a Attention,
    q: &'a [T],
    k: Kv,
    v: Kv,
    mask: Option<&'a [f32]>,
    y: AttentionOutput<'a>,
    /// Where the output begins in `y`.
    output: usize,
    batch: usize,
    group: usize,
}

impl<'a, T: Element, Kv: Rows<T>> AttentionOperands<'a, T, Kv> {
    /// Returns the offset of a row.
    #[inline(always)]
    fn at(&self, strides: Strides, head: usize, row: usize) -> usize {
        self.batch * strides.batch + head * strides.head + row * strides.row
    }

    /// Returns the offset of a row of the output.
    #[inline(always)]
    fn output_at(&self, head: usize, row: usize) -> usize {
        self.output + self.at(self.attention.y, head, row)
    }

    #[inline(always)]
    fn query(&self, head: usize, row: usize) -> &'a [T] {
        &self.q[self.at(self.attention.q, head, row)..][..self.attention.depth]
    }

    #[inline(always)]
    fn key(&self, key: usize) -> Kv::Row {
        self.k.row(self.at(self.attention.k, self.group, key), self.attention.depth)
    }

    #[inline(always)]
    fn value(&self, key: usize) -> Kv::Row {
        self.v.row(self.at(self.attention.v, self.group, key), self.attention.value_depth)
    }

    /// Returns the offset of the row to prefetch while row `key` of the current block is read. The groups partition the next block's
    /// rows in the order of memory: the hardware prefetcher finds no stream in the interleaved rows of one group.
    #[inline(always)]
    fn upcoming(&self, strides: Strides, next: usize, block: usize, key: usize) -> usize {
        let &Attention { kv_heads, keys, .. } = self.attention;
        let rows = if strides.head < strides.row {
            next.wrapping_mul(strides.row).wrapping_add((self.group * block + key).wrapping_mul(strides.head))
        } else {
            self.group.wrapping_mul(strides.head).wrapping_add((next + key).wrapping_mul(strides.row))
        };
        // Strides past the last key may point outside of the tensor.
        let at = rows.wrapping_add(self.batch * strides.batch);
        at.min(self.at(strides, kv_heads - 1, keys - 1))
    }

    /// Dequantizes at most 8 keys from `first` on into columns of a panel.
    #[inline(always)]
    fn dequantize_keys<S: Simd>(&self, s: S, first: usize, keys: usize, panel: &mut [f32]) {
        let depth = self.attention.depth;
        for start in (0..depth).step_by(LANES) {
            let n = (depth - start).min(LANES);
            let mut tile = [[0.0f32; LANES]; 8];
            for (lane, tile) in tile.iter_mut().enumerate().take(keys) {
                let key = self.key(first + lane);
                // SAFETY: a key has `depth` elements.
                let elements = unsafe { Kv::load(s, key, start, n) };
                s.store_slice(tile, s.mul(elements, s.splat(Kv::scale(key))));
            }
            let whole = if keys == 8 { n / 8 * 8 } else { 0 };
            for at in (0..whole).step_by(8) {
                let to = panel[(start + at) * LANES..].as_mut_ptr();
                // SAFETY: there are 8 rows of 16 elements, of which 8 are left, and 8 rows of 16 in the panel.
                unsafe { s.transpose8(tile.as_ptr().cast::<f32>().wrapping_add(at), LANES, to, LANES) };
            }
            for at in whole..n {
                for (lane, tile) in tile.iter().enumerate().take(keys) {
                    panel[(start + at) * LANES + lane] = tile[at];
                }
            }
        }
    }

    /// Returns an output row.
    #[inline(always)]
    fn result<U>(&self, y: &SharedOutput<'a, U>, head: usize, row: usize) -> &'a mut [U] {
        let at = self.output_at(head, row);
        // SAFETY: `Attention::check` made sure that rows of the result are disjoint; each is of one task, which holds
        // one such slice at a time.
        unsafe { y.slice(at..at + self.attention.value_depth) }
    }

    /// Sets an output row to zeros.
    fn zero(&self, head: usize, row: usize) {
        match self.y {
            AttentionOutput::Floats(y) => self.result(&y, head, row).fill(0.0),
            AttentionOutput::Bf16(y) => self.result(&y, head, row).fill(0),
        }
    }
}

/// A block of keys and values.
struct KeyBlock<'a, T, Kv> {
    inputs: AttentionOperands<'a, T, Kv>,
    first: usize,
    /// True if it is the first one of its task.
    is_first: bool,
    count: usize,
    /// Panels of 16 keys, `[ceil(count / 16)][depth][16]`; bf16 in pairs along depth.
    keys: &'a mut [f32],
    /// Panels of 16 columns, `[ceil(value_depth / 16)][count][16]`; bf16 in pairs of keys.
    values: &'a mut [f32],
    /// `[MAX_TILE_ROWS][stride]`.
    scores: &'a mut [f32],
    stride: usize,
    epilogue: &'a EpilogueArgs,
}

/// Rows of a panel that hold `elements` elements of K: one row holds a pair of bf16.
const fn rows_of<T: Element>(elements: usize) -> usize {
    if T::IS_BF16 { elements.div_ceil(2) } else { elements }
}

impl<T: Element, Kv: Rows<T>> KeyBlock<'_, T, Kv> {
    /// Packs the keys and values into panels.
    #[inline(always)]
    fn pack<S: Simd>(&mut self, s: S) {
        let &Attention { depth, value_depth, k, .. } = self.inputs.attention;
        let rows_of_keys = rows_of::<T>(depth);
        // Keys are transposed in units of 32 bits, if their row stride is a multiple of that.
        let per_row = if T::IS_BF16 { 2 } else { 1 };
        let is_whole = k.row.is_multiple_of(per_row);
        if depth > 0 {
            let panels = self.keys.chunks_exact_mut(rows_of_keys * LANES).take(self.count.div_ceil(LANES));
            for (panel, to) in panels.enumerate() {
                if (panel + 1) * LANES > self.count {
                    to.fill(0.0);
                }
                for half in [0, 8] {
                    let first = panel * LANES + half;
                    let keys = self.count.saturating_sub(first).min(8);
                    if keys == 0 {
                        continue;
                    }
                    let first_key = self.inputs.key(self.first + first);
                    let Some(first_key) = Kv::plain(&first_key) else {
                        self.inputs.dequantize_keys(s, self.first + first, keys, &mut to[half..]);
                        continue;
                    };
                    let whole = if keys == 8 && is_whole { rows_of_keys / 8 * 8 } else { 0 };
                    // All keys are read through one pointer, and so not through the slice of the first.
                    let at = self.inputs.at(k, self.inputs.group, self.first + first);
                    debug_assert!(whole == 0 || first_key.len() == depth, "the first of the keys");
                    for panel_row in (0..whole).step_by(8) {
                        let from = self.inputs.k.address().0.cast::<T>().wrapping_add(at + panel_row * per_row).cast();
                        let to = to[panel_row * LANES + half..].as_mut_ptr();
                        // SAFETY: there are 8 more keys of 8 more such elements, and 8 rows of 16 in the panel.
                        unsafe { s.transpose8(from, k.row / per_row, to, LANES) };
                    }
                    for lane in 0..keys {
                        let key = self.inputs.key(self.first + first + lane);
                        let key = Kv::plain(&key).unwrap_or_default();
                        for panel_row in whole..rows_of_keys {
                            to[panel_row * LANES + half + lane] = T::bits(&key[panel_row * per_row..][..per_row]);
                        }
                    }
                }
            }
        }
        let rows_of_values = rows_of::<T>(self.count);
        for panel_row in 0..rows_of_values {
            let first = self.inputs.value(self.first + panel_row * per_row);
            let second = if T::IS_BF16 && panel_row * per_row + 1 < self.count {
                Some(self.inputs.value(self.first + panel_row * per_row + 1))
            } else {
                None
            };
            for column in (0..value_depth).step_by(LANES) {
                let n = (value_depth - column).min(LANES);
                let to = &mut self.values[(column / LANES * rows_of_values + panel_row) * LANES..][..LANES];
                // SAFETY: a value has enough elements from there on.
                let v = unsafe { Kv::load(s, first, column, n) };
                let v = s.mul(v, s.splat(Kv::scale(first)));
                if T::IS_BF16 {
                    let second = match second {
                        // SAFETY: likewise.
                        Some(second) => unsafe { Kv::load(s, second, column, n) },
                        None => s.splat(0.0),
                    };
                    let pairs = s.pack_bf16_pairs(v, second);
                    // SAFETY: 16 floats are as large as 16 pairs.
                    unsafe { s.store_bf16_pairs(to.as_mut_ptr().cast(), pairs) };
                } else {
                    s.store_slice(to, v);
                }
            }
        }
    }

    /// Number of keys of the block that a row sees.
    #[inline(always)]
    fn seen(&self, row: usize) -> usize {
        match self.inputs.attention.causal {
            Some(before) => before.saturating_add(row + 1).saturating_sub(self.first).min(self.count),
            None => self.count,
        }
    }

    /// Processes lines of the group, each with its state: running maximum and running sum. Where keys and values are packed, the
    /// lines are consecutive rows of one head.
    #[inline(always)]
    fn lines<S: Simd>(
        &mut self,
        s: S,
        is_packed: bool,
        line: impl Fn(usize) -> Line,
        indices: Range<usize>,
        states: (&mut [f32], &mut [f32]),
    ) {
        let (maxima, sums) = states;
        let mut lines = [Line::default(); MAX_TILE_ROWS];
        let count = indices.len();
        let mut seen = 0;
        for (at, index) in lines.iter_mut().zip(indices) {
            *at = line(index);
            seen = seen.max(self.seen(at.row));
        }
        let lines = &lines[..count];
        if seen == 0 {
            if self.is_first {
                lines.iter().for_each(|line| self.inputs.zero(line.head, line.row));
            }
            return;
        }
        let Line { head, row } = lines[0];
        if is_packed {
            // Whole panels: keys beyond those that a row sees are masked below.
            self.score(s, head, row, count, seen.next_multiple_of(LANES));
        } else {
            self.score_in_place(s, lines, seen);
        }
        for (i, &Line { head, row }) in lines.iter().enumerate() {
            let visible = self.seen(row).min(seen);
            let scores = &mut self.scores[i * self.stride..][..self.stride];
            let (vectors, _) = scores[..visible.next_multiple_of(LANES)].as_chunks_mut::<LANES>();
            let mask = self
                .inputs
                .attention
                .mask
                .zip(self.inputs.mask)
                .map(|(strides, mask)| &mask[self.inputs.at(strides, head, row) + self.first..][..visible]);
            let max = scale_and_mask(s, vectors, visible, self.inputs.attention.scale, mask);
            let max = max.max(maxima[i]);
            // If all scores are -inf, their exponentials must be 0.
            let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let exponentials = Exponentials { scores: vectors, shift, to: PhantomData::<T> };
            let sum = match const { S::INTERLEAVE } {
                4 => exponentials.run::<S, 4>(s),
                2 => exponentials.run::<S, 2>(s),
                _ => exponentials.run::<S, 1>(s),
            };
            let weights = scores.as_mut_ptr().cast::<T>();
            // The output of a row must not depend on how many keys the other rows of its tile see.
            for hidden in (visible.next_multiple_of(LANES)..seen).step_by(LANES) {
                // SAFETY: a row of scores has `stride` elements, a multiple of 16.
                unsafe { T::store(s, weights.wrapping_add(hidden), LANES, s.splat(0.0)) };
            }
            if maxima[i] == max || self.is_first {
                sums[i] += sum;
            } else {
                let less = s.to_array(math::exp(s, s.splat(maxima[i] - max)))[0];
                sums[i] = sums[i] * less + sum;
                if let AttentionOutput::Floats(y) = self.inputs.y {
                    slice_ops::scale(s, self.inputs.result(&y, head, row), less);
                }
            }
            maxima[i] = max;
        }
        if is_packed {
            self.apply(s, head, row, sums, seen);
        } else {
            self.apply_in_place(s, lines, seen);
        }
    }

    /// Computes `scores = q k^T` for the first `seen` keys of the block, reading them where they are.
    #[inline(always)]
    fn score_in_place<S: Simd>(&mut self, s: S, lines: &[Line], seen: usize) {
        let mut first = 0;
        while first < lines.len() {
            // Each key is loaded once for several lines, and each query for several keys, as registers allow.
            first += match (lines.len() - first, const { S::VECTOR_REGISTERS >= 32 }) {
                (4.., true) => self.score_tile::<S, 4, 4>(s, lines, first, seen),
                (4.., false) => self.score_tile::<S, 4, 1>(s, lines, first, seen),
                (2.., true) => self.score_tile::<S, 2, 4>(s, lines, first, seen),
                (2.., false) => self.score_tile::<S, 2, 2>(s, lines, first, seen),
                _ => self.score_tile::<S, 1, 4>(s, lines, first, seen),
            };
        }
    }

    /// Computes the scores of `R` lines from line `first` on, `K` keys at a time. Returns `R`.
    #[inline(always)]
    fn score_tile<S: Simd, const R: usize, const K: usize>(
        &mut self,
        s: S,
        lines: &[Line],
        first: usize,
        seen: usize,
    ) -> usize {
        let depth = self.inputs.attention.depth;
        let queries: [&[T]; R] =
            core::array::from_fn(|r| self.inputs.query(lines[first + r].head, lines[first + r].row));
        for key in (0..seen).step_by(K) {
            // Behind the last key it is computed again, and not stored.
            let keys: [Kv::Row; K] = core::array::from_fn(|k| self.inputs.key(self.first + (key + k).min(seen - 1)));
            let upcoming: [usize; K] = core::array::from_fn(|k| {
                self.inputs.upcoming(self.inputs.attention.k, self.first + self.stride, self.stride, key + k)
            });
            let mut sums = [[s.splat(0.0); K]; R];
            let whole = depth / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                upcoming.iter().for_each(|row| self.inputs.k.prefetch(s, *row, at));
                add_products::<S, T, Kv, R, K>(s, queries, keys, at, LANES, &mut sums);
            }
            if whole < depth {
                add_products::<S, T, Kv, R, K>(s, queries, keys, whole, depth - whole, &mut sums);
            }
            for r in 0..R {
                let totals = reduce_each(s, sums[r]);
                for k in 0..K.min(seen - key) {
                    self.scores[(first + r) * self.stride + key + k] = totals[k] * Kv::scale(keys[k]);
                }
            }
        }
        R
    }

    /// Accumulates `y += scores v` for the first `seen` values of the block, reading them where they are.
    #[inline(always)]
    fn apply_in_place<S: Simd>(&self, s: S, lines: &[Line], seen: usize) {
        let AttentionOutput::Floats(y) = self.inputs.y else { return };
        let mut first = 0;
        while first < lines.len() {
            // Each value is loaded once for several lines, and each score for several columns, as registers allow.
            first += match (lines.len() - first, const { S::VECTOR_REGISTERS >= 32 }) {
                (4.., true) => self.apply_tile::<S, 4, 4>(s, &y, lines, first, seen),
                (4.., false) => self.apply_tile::<S, 4, 1>(s, &y, lines, first, seen),
                (2.., true) => self.apply_tile::<S, 2, 4>(s, &y, lines, first, seen),
                (2.., false) => self.apply_tile::<S, 2, 2>(s, &y, lines, first, seen),
                _ => self.apply_tile::<S, 1, 4>(s, &y, lines, first, seen),
            };
        }
    }

    /// Accumulates the outputs of `R` lines from line `first` on, `C` vectors of columns at a time. Returns `R`.
    #[inline(always)]
    fn apply_tile<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        y: &SharedOutput<'_>,
        lines: &[Line],
        first: usize,
        seen: usize,
    ) -> usize {
        let value_depth = self.inputs.attention.value_depth;
        let lines = &lines[first..][..R];
        for column in (0..value_depth).step_by(C * LANES) {
            let outputs: [*mut f32; R] =
                core::array::from_fn(|r| y.at(self.inputs.output_at(lines[r].head, lines[r].row)).wrapping_add(column));
            let columns = value_depth - column;
            if columns >= C * LANES {
                self.apply_columns::<S, R, C>(s, outputs, first, seen, column, |_| LANES);
            } else {
                let lanes = |c: usize| columns.saturating_sub(c * LANES).min(LANES);
                self.apply_columns::<S, R, C>(s, outputs, first, seen, column, lanes);
            }
        }
        R
    }

    /// Accumulates `C` vectors of columns from `column` on, of which vector `c` has `lanes(c)`, for the first `seen` values.
    #[inline(always)]
    fn apply_columns<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        outputs: [*mut f32; R],
        first: usize,
        seen: usize,
        column: usize,
        lanes: impl Fn(usize) -> usize,
    ) {
        let mut sums = [[s.splat(0.0); C]; R];
        if !self.is_first {
            for r in 0..R {
                for c in 0..C {
                    // SAFETY: the rows of the result are this task's, and have `value_depth` elements.
                    sums[r][c] = unsafe { s.load_partial(outputs[r].wrapping_add(c * LANES), lanes(c)) };
                }
            }
        }
        let scores: [&[f32]; R] = core::array::from_fn(|r| &self.scores[(first + r) * self.stride..][..self.stride]);
        for key in 0..seen {
            let value = self.inputs.value(self.first + key);
            let upcoming = self.inputs.upcoming(self.inputs.attention.v, self.first + self.stride, self.stride, key);
            let mut elements = [s.splat(0.0); C];
            for c in 0..C {
                self.inputs.v.prefetch(s, upcoming, column + c * LANES);
                // SAFETY: a value has `value_depth` elements.
                elements[c] = unsafe { Kv::load(s, value, column + c * LANES, lanes(c)) };
            }
            for r in 0..R {
                let score = s.splat(scores[r][key] * Kv::scale(value));
                for c in 0..C {
                    sums[r][c] = s.fma(score, elements[c], sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                // SAFETY: as above.
                unsafe { s.store_partial(outputs[r].wrapping_add(c * LANES), lanes(c), sums[r][c]) };
            }
        }
    }

    /// Computes `scores = q k^T` for `columns` keys.
    #[inline(always)]
    fn score<S: Simd>(&mut self, s: S, head: usize, row: usize, rows: usize, columns: usize) {
        let depth = self.inputs.attention.depth;
        let mut pointers = [core::ptr::null(); MAX_TILE_ROWS];
        for (i, pointer) in pointers.iter_mut().enumerate().take(rows) {
            *pointer = self.inputs.query(head, row + i).as_ptr().cast();
        }
        let gemm = BlockGemm {
            left: &pointers,
            rows,
            k: depth,
            right: self.keys.as_ptr(),
            panel_stride: rows_of::<T>(depth) * LANES,
            columns,
            out: ElementPtrMut::f32(self.scores.as_mut_ptr()),
            out_stride: self.stride,
            is_first: true,
            epilogue: self.epilogue,
        };
        // SAFETY: the pointers are to `depth` elements, `pack` has written the panels, and a row of scores has
        // `stride` elements.
        unsafe { gemm.run::<T, S>(s) };
    }

    /// Accumulates `y += scores v`.
    #[inline(always)]
    fn apply<S: Simd>(&mut self, s: S, head: usize, row: usize, sums: &[f32], keys: usize) {
        let mut pointers = [core::ptr::null(); MAX_TILE_ROWS];
        for (i, pointer) in pointers.iter_mut().enumerate().take(sums.len()) {
            *pointer = self.scores[i * self.stride..].as_ptr();
        }
        let Attention { y: strides, value_depth, .. } = *self.inputs.attention;
        let panel_stride = rows_of::<T>(self.count) * LANES;
        let gemm = BlockGemm {
            left: &pointers,
            rows: sums.len(),
            k: keys,
            right: self.values.as_ptr(),
            panel_stride,
            columns: value_depth,
            out: ElementPtrMut::f32(core::ptr::null_mut()),
            out_stride: strides.row,
            is_first: self.is_first,
            epilogue: self.epilogue,
        };
        match self.inputs.y {
            AttentionOutput::Floats(y) => {
                let out = ElementPtrMut::f32(y.at(self.inputs.output_at(head, row)));
                // SAFETY: the pointers are to a score for each key, `pack` has written the panels, and the results are
                // this task's.
                unsafe { BlockGemm { out, ..gemm }.run::<T, S>(s) };
            }
            AttentionOutput::Bf16(y) => {
                let mut floats = [[0.0f32; 2 * LANES]; MAX_TILE_ROWS];
                for first in (0..value_depth).step_by(2 * LANES) {
                    let columns = (value_depth - first).min(2 * LANES);
                    let right = self.values.as_ptr().wrapping_add(first / LANES * panel_stride);
                    let out = ElementPtrMut::f32(floats.as_mut_ptr().cast());
                    let gemm = BlockGemm { right, columns, out, out_stride: 2 * LANES, is_first: true, ..gemm };
                    // SAFETY: likewise, and there are enough floats.
                    unsafe { gemm.run::<T, S>(s) };
                    for (i, (floats, sum)) in floats.iter().zip(sums).enumerate() {
                        let to = &mut self.inputs.result(&y, head, row + i)[first..][..columns];
                        if *sum == 0.0 {
                            to.fill(0);
                            continue;
                        }
                        let factor = s.splat(1.0 / sum);
                        for (to, floats) in to.chunks_mut(LANES).zip(floats.chunks(LANES)) {
                            // SAFETY: the slice has this many elements.
                            unsafe { s.store_bf16(to.as_mut_ptr(), to.len(), s.mul(s.load_slice(floats), factor)) };
                        }
                    }
                }
            }
        }
    }
}

/// A GEMM of one tile of rows: queries times keys, or probabilities times values.
struct BlockGemm<'a> {
    left: &'a [*const f32; MAX_TILE_ROWS],
    rows: usize,
    /// Elements of a row, in units of `T`.
    k: usize,
    /// The first panel, and the floats between panels.
    right: *const f32,
    panel_stride: usize,
    columns: usize,
    out: ElementPtrMut,
    out_stride: usize,
    /// Overwrites the output instead of accumulating on it.
    is_first: bool,
    epilogue: &'a EpilogueArgs,
}

impl BlockGemm<'_> {
    /// Computes it.
    ///
    /// # Safety
    /// There are pointers to `k` elements for each row, and `k` rows in each panel of 16 columns; nobody else accesses
    /// the output's columns.
    #[inline(always)]
    unsafe fn run<T: Element, S: Simd>(&self, s: S) {
        let &Self { k, right, panel_stride, .. } = self;
        if const { T::IS_BF16 } {
            // SAFETY: the caller guarantees all of it.
            unsafe { self.all_panels::<S, u32>(s, rows_of::<T>(k), right.cast(), 2 * panel_stride) };
        } else {
            // SAFETY: likewise.
            unsafe { self.all_panels::<S, f32>(s, k, right, panel_stride) };
        }
    }

    /// Computes all columns in `steps` steps of K.
    ///
    /// # Safety
    /// As for [`run`](Self::run), with rows and panels of this type.
    #[inline(always)]
    unsafe fn all_panels<S: Simd, T: KStep>(&self, s: S, steps: usize, panel: *const T::Weight, panel_stride: usize) {
        let &Self { left, rows, columns, out, out_stride, is_first, epilogue, .. } = self;
        let operands = TileOperands::<T> {
            pointers: left.as_ptr().cast(),
            pointer_stride: rows,
            taps: 1,
            steps,
            has_unpaired: false,
            panel,
            panel_stride,
            prefetch: Prefetch::NONE,
        };
        for first in (0..columns).step_by(S::NR_PANELS * LANES) {
            let columns = (columns - first).min(S::NR_PANELS * LANES);
            let tile = TileStack {
                operands: operands.beside(first / LANES),
                rows,
                repeat: 1,
                panels: columns.div_ceil(LANES),
                columns,
                out: out.add(s, first),
                out_stride,
                bias: core::ptr::null(),
                residual: ElementPtr::NULL,
                residual_stride: 0,
                is_first,
                is_last: true,
                epilogue,
            };
            // SAFETY: the caller guarantees it.
            unsafe { tile.run_on(s) };
        }
    }
}

/// Scales scores, adds the mask, and returns the maximum of the visible ones, which end in the last vector. Scores
/// beyond them become -inf.
#[inline(always)]
fn scale_and_mask<S: Simd>(s: S, scores: &mut [[f32; LANES]], visible: usize, scale: f32, mask: Option<&[f32]>) -> f32 {
    static LANE_INDICES: [f32; LANES] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    let (factor, hidden) = (s.splat(scale), s.splat(f32::NEG_INFINITY));
    let whole = visible / LANES;
    let mut maxima = hidden;
    for (i, scores) in scores.iter_mut().enumerate() {
        let v = match mask {
            None => s.mul(s.load_slice(scores), factor),
            Some(mask) => s.fma(s.load_slice(scores), factor, s.load_slice(&mask[i * LANES..])),
        };
        let v = if i < whole {
            v
        } else {
            s.select_less(s.load_slice(&LANE_INDICES), s.splat((visible - whole * LANES) as f32), v, hidden)
        };
        s.store_slice(scores, v);
        maxima = s.max(maxima, v);
    }
    s.reduce_max(maxima)
}

/// Replaces scores by `exp(score - shift)`, as elements of type `T` in the same memory; `shift` is the maximum.
struct Exponentials<'a, T> {
    scores: &'a mut [[f32; LANES]],
    shift: f32,
    to: PhantomData<T>,
}

impl<T: Element> Exponentials<'_, T> {
    /// Runs in place and returns the sum.
    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, s: S) -> f32 {
        let (vectors, from) = (self.scores.len(), self.scores.as_mut_ptr().cast::<f32>());
        let to = from.cast::<T>();
        let mut sums = [s.splat(0.0); N];
        let whole = vectors / N * N;
        for first in (0..whole).step_by(N) {
            let mut exponentials = sums;
            for i in 0..N {
                // SAFETY: there are enough vectors.
                exponentials[i] = unsafe { s.load(from.wrapping_add((first + i) * LANES)) };
            }
            let exponentials = exp_shifted(Interleaved::<S, N>(s), exponentials, self.shift);
            for i in 0..N {
                // SAFETY: a `T` is no larger than an f32, so that only vectors that have been read are overwritten.
                unsafe { T::store(s, to.wrapping_add((first + i) * LANES), LANES, exponentials[i]) };
                sums[i] = s.add(sums[i], exponentials[i]);
            }
        }
        for i in whole..vectors {
            // SAFETY: as above.
            let exp_shifted = exp_shifted(s, unsafe { s.load(from.wrapping_add(i * LANES)) }, self.shift);
            // SAFETY: as above.
            unsafe { T::store(s, to.wrapping_add(i * LANES), LANES, exp_shifted) };
            sums[0] = s.add(sums[0], exp_shifted);
        }
        let mut sum = sums[0];
        for i in 1..N {
            sum = s.add(sum, sums[i]);
        }
        s.reduce_add(sum)
    }
}

/// Adds the products of `n` elements of queries and keys, from element `at` on.
#[inline(always)]
fn add_products<S: Simd, T: Element, Kv: Rows<T>, const R: usize, const K: usize>(
    s: S,
    queries: [&[T]; R],
    keys: [Kv::Row; K],
    at: usize,
    n: usize,
    sums: &mut [[S::V; K]; R],
) {
    let mut elements = [s.splat(0.0); K];
    for k in 0..K {
        // SAFETY: a key has these elements.
        elements[k] = unsafe { Kv::load(s, keys[k], at, n) };
    }
    for r in 0..R {
        // SAFETY: a query has these elements.
        let query = unsafe { T::load(s, queries[r].as_ptr().wrapping_add(at), n) };
        for k in 0..K {
            sums[r][k] = s.fma(query, elements[k], sums[r][k]);
        }
    }
}

/// The sum of the lanes of each vector.
#[inline(always)]
fn reduce_each<S: Simd, const K: usize>(s: S, vectors: [S::V; K]) -> [f32; K] {
    let mut sums = [0.0; K];
    let (fours, _) = vectors.as_chunks::<4>();
    let (sums_of_fours, rest) = sums.as_chunks_mut::<4>();
    for (sums, vectors) in sums_of_fours.iter_mut().zip(fours) {
        *sums = s.reduce_add4(*vectors);
    }
    for (sum, vector) in rest.iter_mut().zip(&vectors[K / 4 * 4..]) {
        *sum = s.reduce_add(*vector);
    }
    sums
}

/// `exp(x - shift)` for `x <= shift`.
#[inline(always)]
fn exp_shifted<S: Arithmetic>(s: S, x: S::V, shift: f32) -> S::V {
    math::exp2_down(s, s.mul(s.sub(x, s.splat(shift)), s.splat(core::f32::consts::LOG2_E)))
}
