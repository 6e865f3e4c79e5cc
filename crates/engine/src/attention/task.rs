//! A task: the heads of one group, or some of their rows.
//!
//! Keys and values go by in blocks, which are packed as the products like them. A tile of queries times a block of keys
//! gives scores, which stay in the first-level cache while they become probabilities, up to a factor, and are multiplied
//! with the values. The results of a row are in proportion to the greatest of its scores so far; when a block has a
//! greater one, they are scaled down to it.

use core::ops::Range;

use super::{Attention, Strides};
use crate::Tail;
use crate::arch::{Job, LANES, Simd, math};
use crate::fold;
use crate::numbers::{Readable, Writable};
use crate::product::tile::{Floats, Tile, Upcoming};
use crate::split::Output;
use crate::tail::Steps;

/// The most keys of a block.
pub(super) const BLOCK: usize = 256;

/// The most rows of a tile.
const ROWS: usize = 14;

/// Rows of a group for which its keys are packed: for fewer, that takes longer than to read them in place.
const PACKED_ROWS: usize = 4;

/// The parts of a task's scratch, in floats.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Keys of a block: a multiple of 16.
    block: usize,
    keys: usize,
    values: usize,
    scores: usize,
    /// For each row of the group, the greatest score so far and the sum of what is in proportion to it.
    rows: usize,
}

impl Room {
    pub(super) fn new(attention: &Attention) -> Self {
        let blocks = attention.keys.div_ceil(BLOCK).max(1);
        Self::of(attention, attention.keys.div_ceil(blocks))
    }

    /// Room for these sizes and all smaller ones, which may have larger blocks.
    pub(super) fn largest(attention: &Attention) -> Self {
        Self::of(attention, attention.keys.min(BLOCK))
    }

    fn of(attention: &Attention, keys: usize) -> Self {
        let block = keys.next_multiple_of(LANES).max(LANES);
        let heads = attention.heads / attention.groups.max(1);
        Self {
            block,
            keys: block.saturating_mul(attention.depth),
            values: block.saturating_mul(attention.value_depth.div_ceil(LANES).saturating_mul(LANES)),
            scores: ROWS * block,
            rows: heads.saturating_mul(attention.rows),
        }
    }

    pub(super) fn len(self) -> usize {
        let states = self.rows.saturating_mul(2);
        self.keys.saturating_add(self.values).saturating_add(self.scores).saturating_add(states)
    }
}

pub(super) struct Task<'a> {
    pub(super) attention: &'a Attention,
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) mask: Option<&'a [f32]>,
    pub(super) y: Output<'a>,
    pub(super) room: Room,
    pub(super) scratch: &'a mut [f32],
    pub(super) batch: usize,
    pub(super) group: usize,
    /// Of each of the group's heads.
    pub(super) rows: Range<usize>,
}

impl Job for Task<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, q, k, v, mask, y, room, scratch, batch, group, rows } = self;
        let (keys, scratch) = scratch.split_at_mut(room.keys);
        let (values, scratch) = scratch.split_at_mut(room.values);
        let (scores, states) = scratch.split_at_mut(room.scores);
        let (greatest, sums) = states.split_at_mut(room.rows);
        let heads = attention.heads / attention.groups;
        let is_packed = attention.rows * heads >= PACKED_ROWS;
        let steps = Tail::default().steps();
        let inputs = Inputs { attention, q, k, v, mask, y, batch, group };
        for first in (0..attention.keys.max(1)).step_by(room.block) {
            let count = (attention.keys - first).min(room.block);
            // Later blocks are beyond all rows.
            if attention.causal && first >= rows.end {
                break;
            }
            let mut block = Block { inputs, first, count, keys, values, scores, steps: &steps, stride: room.block };
            if is_packed {
                block.pack(s);
            }
            for head in 0..heads {
                let mut row = rows.start;
                while row < rows.end {
                    let together = if is_packed { (rows.end - row).min(S::ROWS) } else { 1 };
                    let state = head * attention.rows + row..head * attention.rows + row + together;
                    let states = (&mut greatest[state.clone()], &mut sums[state]);
                    block.rows(s, is_packed, group * heads + head, row, states);
                    row += together;
                }
            }
        }
        for head in 0..heads {
            for row in rows.clone() {
                let sum = sums[head * attention.rows + row];
                let y = inputs.result(group * heads + head, row);
                if attention.keys == 0 || sum == 0.0 {
                    y.fill(0.0);
                } else {
                    fold::scale(s, y, 1.0 / sum);
                }
            }
        }
    }
}

/// What a task reads and writes.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    attention: &'a Attention,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    mask: Option<&'a [f32]>,
    y: Output<'a>,
    batch: usize,
    group: usize,
}

impl<'a> Inputs<'a> {
    #[inline(always)]
    fn at(&self, strides: Strides, head: usize, row: usize) -> usize {
        self.batch * strides.batch + head * strides.head + row * strides.row
    }

    #[inline(always)]
    fn query(&self, head: usize, row: usize) -> &'a [f32] {
        &self.q[self.at(self.attention.q, head, row)..][..self.attention.depth]
    }

    #[inline(always)]
    fn key(&self, key: usize) -> &'a [f32] {
        &self.k[self.at(self.attention.k, self.group, key)..][..self.attention.depth]
    }

    #[inline(always)]
    fn value(&self, key: usize) -> &'a [f32] {
        &self.v[self.at(self.attention.v, self.group, key)..][..self.attention.value_depth]
    }

    #[inline(always)]
    fn result(&self, head: usize, row: usize) -> &'a mut [f32] {
        let at = self.at(self.attention.y, head, row);
        // SAFETY: `Attention::check` made sure that rows of the result are disjoint; each is of one task, which holds one
        // such slice at a time.
        unsafe { self.y.slice(at..at + self.attention.value_depth) }
    }
}

/// Some keys and values.
struct Block<'a> {
    inputs: Inputs<'a>,
    first: usize,
    count: usize,
    /// Panels of 16 keys, `[ceil(count / 16)][depth][16]`.
    keys: &'a mut [f32],
    /// Panels of 16 columns, `[ceil(value_depth / 16)][count][16]`.
    values: &'a mut [f32],
    /// `[ROWS][stride]`.
    scores: &'a mut [f32],
    stride: usize,
    steps: &'a Steps,
}

impl Block<'_> {
    #[inline(always)]
    fn pack<S: Simd>(&mut self, s: S) {
        let &Attention { depth, value_depth, k, .. } = self.inputs.attention;
        if depth > 0 {
            for (panel, to) in self.keys.chunks_exact_mut(depth * LANES).take(self.count.div_ceil(LANES)).enumerate() {
                if (panel + 1) * LANES > self.count {
                    to.fill(0.0);
                }
                for half in [0, 8] {
                    let first = panel * LANES + half;
                    let keys = self.count.saturating_sub(first).min(8);
                    let whole = if keys == 8 { depth / 8 * 8 } else { 0 };
                    for d in (0..whole).step_by(8) {
                        let from = self.inputs.key(self.first + first)[d..].as_ptr();
                        let to = to[d * LANES + half..].as_mut_ptr();
                        // SAFETY: there are 8 more keys of 8 more floats, and 8 rows of 16 floats in the panel.
                        unsafe { s.transpose8(from, k.row, to, LANES) };
                    }
                    for lane in 0..keys {
                        let key = self.inputs.key(self.first + first + lane);
                        for d in whole..depth {
                            to[d * LANES + half + lane] = key[d];
                        }
                    }
                }
            }
        }
        for key in 0..self.count {
            let value = self.inputs.value(self.first + key);
            for (panel, value) in value.chunks(LANES).enumerate() {
                let to = &mut self.values[(panel * self.count + key) * LANES..][..LANES];
                s.write(to, s.read(value));
            }
        }
        debug_assert!(value_depth.div_ceil(LANES) * self.count * LANES <= self.values.len());
    }

    /// How many of the block's keys a row sees.
    #[inline(always)]
    fn seen(&self, row: usize) -> usize {
        if self.inputs.attention.causal { (row + 1).saturating_sub(self.first).min(self.count) } else { self.count }
    }

    /// Rows from `row` on, as many as there are states: the greatest score and the sum of each.
    #[inline(always)]
    fn rows<S: Simd>(&mut self, s: S, is_packed: bool, head: usize, row: usize, states: (&mut [f32], &mut [f32])) {
        let (greatest, sums) = states;
        let rows = greatest.len();
        let seen = self.seen(row + rows - 1);
        if self.first == 0 {
            greatest.fill(f32::NEG_INFINITY);
            sums.fill(0.0);
        }
        if seen == 0 {
            if self.first == 0 {
                (row..row + rows).for_each(|row| self.inputs.result(head, row).fill(0.0));
            }
            return;
        }
        if is_packed {
            // Whole panels: what is beyond the keys that a row sees never counts.
            self.score(s, head, row, rows, seen.next_multiple_of(LANES));
        } else {
            for key in 0..seen {
                let (query, key_row) = (self.inputs.query(head, row), self.inputs.key(self.first + key));
                self.scores[key] = dot(s, query, key_row);
            }
        }
        for i in 0..rows {
            let visible = self.seen(row + i).min(seen);
            let (scores, hidden) =
                self.scores[i * self.stride..][..self.stride].split_at_mut(visible.next_multiple_of(LANES));
            // A row's result must not show how far the others of its tile see.
            hidden[..seen.saturating_sub(scores.len())].fill(0.0);
            let (scores, _) = scores.as_chunks_mut::<LANES>();
            let mask = self
                .inputs
                .attention
                .mask
                .zip(self.inputs.mask)
                .map(|(strides, mask)| &mask[self.inputs.at(strides, head, row + i) + self.first..][..visible]);
            let max = weigh(s, scores, visible, self.inputs.attention.scale, mask);
            let max = max.max(greatest[i]);
            // Where all scores are -inf, their powers shall be 0.
            let sum = powers(s, scores, if max == f32::NEG_INFINITY { 0.0 } else { max });
            if greatest[i] == max || self.first == 0 {
                sums[i] += sum;
            } else {
                let less = s.lanes(math::exp(s, s.splat(greatest[i] - max)))[0];
                sums[i] = sums[i] * less + sum;
                fold::scale(s, self.inputs.result(head, row + i), less);
            }
            greatest[i] = max;
        }
        if is_packed {
            self.apply(s, head, row, rows, seen);
        } else {
            let y = self.inputs.result(head, row);
            if self.first == 0 {
                y.fill(0.0);
            }
            for key in 0..seen {
                let factor = s.splat(self.scores[key]);
                let value = self.inputs.value(self.first + key);
                for (y, value) in y.chunks_mut(LANES).zip(value.chunks(LANES)) {
                    let sum = s.fma(factor, s.read(value), s.read(y));
                    s.write(y, sum);
                }
            }
        }
    }

    /// `scores = queries times keys`, of `columns` keys.
    #[inline(always)]
    fn score<S: Simd>(&mut self, s: S, head: usize, row: usize, rows: usize, columns: usize) {
        let depth = self.inputs.attention.depth;
        let mut pointers = [core::ptr::null(); ROWS];
        for (i, pointer) in pointers.iter_mut().enumerate().take(rows) {
            *pointer = self.inputs.query(head, row + i).as_ptr();
        }
        let keys = Floats { depth, panel: self.keys.as_ptr(), panel_stride: depth * LANES, ..factors(&pointers, rows) };
        let tile = Tile {
            out: Writable::floats(self.scores.as_mut_ptr()),
            out_stride: self.stride,
            is_first: true,
            ..self.tile(keys, rows)
        };
        // SAFETY: the pointers are to `depth` floats, `pack` has written the panels, and the scores have as many columns as a
        // block has keys.
        unsafe { by_panels(s, tile, columns) };
    }

    /// `results += scores times values`.
    #[inline(always)]
    fn apply<S: Simd>(&mut self, s: S, head: usize, row: usize, rows: usize, keys: usize) {
        let mut pointers = [core::ptr::null(); ROWS];
        for (i, pointer) in pointers.iter_mut().enumerate().take(rows) {
            *pointer = self.scores[i * self.stride..].as_ptr();
        }
        let strides = self.inputs.attention.y;
        let values = Floats {
            depth: keys,
            panel: self.values.as_ptr(),
            panel_stride: self.count * LANES,
            ..factors(&pointers, rows)
        };
        let tile = Tile {
            out: Writable::floats(self.inputs.y.at(self.inputs.at(strides, head, row))),
            out_stride: strides.row,
            is_first: self.first == 0,
            ..self.tile(values, rows)
        };
        // SAFETY: the pointers are to a score for each key, `pack` has written the panels, and the results are this task's.
        unsafe { by_panels(s, tile, self.inputs.attention.value_depth) };
    }

    fn tile(&self, factors: Floats, rows: usize) -> Tile<'_, Floats> {
        Tile {
            factors,
            rows,
            repeat: 1,
            panels: 0,
            columns: 0,
            out: Writable::NOWHERE,
            out_stride: 0,
            bias: core::ptr::null(),
            residual: Readable::NOWHERE,
            residual_stride: 0,
            is_first: true,
            is_last: true,
            steps: self.steps,
        }
    }
}

/// A row for each pointer, without panels.
fn factors(pointers: &[*const f32; ROWS], rows: usize) -> Floats {
    Floats {
        pointers: pointers.as_ptr(),
        pointer_stride: rows,
        taps: 1,
        depth: 0,
        panel: core::ptr::null(),
        panel_stride: 0,
        upcoming: Upcoming::NOTHING,
    }
}

/// All of `columns`, from a tile that has all but them.
///
/// # Safety
/// As for [`Tile::run_on`].
#[inline(always)]
unsafe fn by_panels<S: Simd>(s: S, tile: Tile<'_, Floats>, columns: usize) {
    for first in (0..columns).step_by(S::PANELS * LANES) {
        let columns = (columns - first).min(S::PANELS * LANES);
        let panel = tile.factors.panel.wrapping_add(first / LANES * tile.factors.panel_stride);
        let tile = Tile {
            factors: Floats { panel, ..tile.factors },
            panels: columns.div_ceil(LANES),
            columns,
            out: tile.out.plus(s, first),
            ..tile
        };
        // SAFETY: the caller vouches for it.
        unsafe { tile.run_on(s) };
    }
}

/// Scales scores, adds the mask, and returns the greatest of those that are visible, which end in the last vector. What
/// is beyond them becomes -inf.
#[inline(always)]
fn weigh<S: Simd>(s: S, scores: &mut [[f32; LANES]], visible: usize, scale: f32, mask: Option<&[f32]>) -> f32 {
    static PLACES: [f32; LANES] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    let (factor, hidden) = (s.splat(scale), s.splat(f32::NEG_INFINITY));
    let whole = visible / LANES;
    let mut greatest = hidden;
    for (i, scores) in scores.iter_mut().enumerate() {
        let v = match mask {
            None => s.mul(s.read(scores), factor),
            Some(mask) => s.fma(s.read(scores), factor, s.read(&mask[i * LANES..])),
        };
        let v = if i < whole {
            v
        } else {
            s.select_less(s.read(&PLACES), s.splat((visible - whole * LANES) as f32), v, hidden)
        };
        s.write(scores, v);
        greatest = s.max(greatest, v);
    }
    s.greatest(greatest)
}

/// Replaces scores by e to the power of what is between them and `shift`, and returns the sum.
#[inline(always)]
fn powers<S: Simd>(s: S, scores: &mut [[f32; LANES]], shift: f32) -> f32 {
    let (mut sum, shift) = (s.splat(0.0), s.splat(shift));
    for scores in scores {
        let power = math::exp(s, s.sub(s.read(scores), shift));
        s.write(scores, power);
        sum = s.add(sum, power);
    }
    s.sum(sum)
}

#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sum = s.fma(s.read(a), s.read(b), sum);
    }
    s.sum(sum)
}
