//! A task: the heads of one group, or some of their rows.
//!
//! Keys and values go by in blocks, which are packed as the products like them. A tile of queries times a block of keys
//! gives scores, which stay in the first-level cache while they become probabilities, up to a factor, and are multiplied
//! with the values. The results of a row are in proportion to the greatest of its scores so far; when a block has a
//! greater one, they are scaled down to it.

use core::marker::PhantomData;
use core::ops::Range;

use super::{Attention, Strides};
use crate::Tail;
use crate::arch::{Arithmetic, Job, LANES, Several, Simd, math};
use crate::fold;
use crate::numbers::{Number, Readable, Writable};
use crate::product::tile::{Bf16, Factors, Floats, Tile, Upcoming};
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

/// Where results go.
#[derive(Clone, Copy)]
pub(super) enum Results<'a> {
    Floats(Output<'a>),
    /// Of all keys in one block.
    Bf16(Output<'a, u16>),
}

pub(super) struct Task<'a, T> {
    pub(super) attention: &'a Attention,
    pub(super) q: &'a [T],
    pub(super) k: &'a [T],
    pub(super) v: &'a [T],
    pub(super) mask: Option<&'a [f32]>,
    pub(super) y: Results<'a>,
    pub(super) room: Room,
    pub(super) scratch: &'a mut [f32],
    pub(super) batch: usize,
    pub(super) group: usize,
    /// Of each of the group's heads.
    pub(super) rows: Range<usize>,
}

impl<T: Number> Job for Task<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { attention, q, k, v, mask, y, room, scratch, batch, group, rows } = self;
        let (keys, scratch) = scratch.split_at_mut(room.keys);
        let (values, scratch) = scratch.split_at_mut(room.values);
        let (scores, states) = scratch.split_at_mut(room.scores);
        let (greatest, sums) = states.split_at_mut(room.rows);
        let heads = attention.heads / attention.groups;
        let is_packed = T::IS_BF16 || attention.rows * heads >= PACKED_ROWS;
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
        let Results::Floats(y) = y else { return };
        for head in 0..heads {
            for row in rows.clone() {
                let sum = sums[head * attention.rows + row];
                let y = inputs.result(&y, group * heads + head, row);
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
struct Inputs<'a, T> {
    attention: &'a Attention,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    mask: Option<&'a [f32]>,
    y: Results<'a>,
    batch: usize,
    group: usize,
}

impl<'a, T: Number> Inputs<'a, T> {
    #[inline(always)]
    fn at(&self, strides: Strides, head: usize, row: usize) -> usize {
        self.batch * strides.batch + head * strides.head + row * strides.row
    }

    #[inline(always)]
    fn query(&self, head: usize, row: usize) -> &'a [T] {
        &self.q[self.at(self.attention.q, head, row)..][..self.attention.depth]
    }

    #[inline(always)]
    fn key(&self, key: usize) -> &'a [T] {
        &self.k[self.at(self.attention.k, self.group, key)..][..self.attention.depth]
    }

    #[inline(always)]
    fn value(&self, key: usize) -> &'a [T] {
        &self.v[self.at(self.attention.v, self.group, key)..][..self.attention.value_depth]
    }

    #[inline(always)]
    fn result<U>(&self, y: &Output<'a, U>, head: usize, row: usize) -> &'a mut [U] {
        let at = self.at(self.attention.y, head, row);
        // SAFETY: `Attention::check` made sure that rows of the result are disjoint; each is of one task, which holds one
        // such slice at a time.
        unsafe { y.slice(at..at + self.attention.value_depth) }
    }

    fn zero(&self, head: usize, row: usize) {
        match self.y {
            Results::Floats(y) => self.result(&y, head, row).fill(0.0),
            Results::Bf16(y) => self.result(&y, head, row).fill(0),
        }
    }
}

/// Some keys and values.
struct Block<'a, T> {
    inputs: Inputs<'a, T>,
    first: usize,
    count: usize,
    /// Panels of 16 keys, `[ceil(count / 16)][depth][16]`; of pairs in depth, if they are bf16.
    keys: &'a mut [f32],
    /// Panels of 16 columns, `[ceil(value_depth / 16)][count][16]`; of pairs of keys, if they are bf16.
    values: &'a mut [f32],
    /// `[ROWS][stride]`.
    scores: &'a mut [f32],
    stride: usize,
    steps: &'a Steps,
}

/// Lines of 16 that so many numbers of a panel take: pairs of bf16 lie in one.
const fn lines<T: Number>(numbers: usize) -> usize {
    if T::IS_BF16 { numbers.div_ceil(2) } else { numbers }
}

impl<T: Number> Block<'_, T> {
    #[inline(always)]
    fn pack<S: Simd>(&mut self, s: S) {
        let &Attention { depth, value_depth, k, .. } = self.inputs.attention;
        let lines_of_key = lines::<T>(depth);
        // Keys are transposed by numbers of 32 bits, or pairs, of which neighbouring keys are a whole number apart.
        let numbers = if T::IS_BF16 { 2 } else { 1 };
        let is_whole = k.row.is_multiple_of(numbers);
        if depth > 0 {
            let panels = self.keys.chunks_exact_mut(lines_of_key * LANES).take(self.count.div_ceil(LANES));
            for (panel, to) in panels.enumerate() {
                if (panel + 1) * LANES > self.count {
                    to.fill(0.0);
                }
                for half in [0, 8] {
                    let first = panel * LANES + half;
                    let keys = self.count.saturating_sub(first).min(8);
                    let whole = if keys == 8 && is_whole { lines_of_key / 8 * 8 } else { 0 };
                    for line in (0..whole).step_by(8) {
                        let from = self.inputs.key(self.first + first)[line * numbers..].as_ptr().cast::<f32>();
                        let to = to[line * LANES + half..].as_mut_ptr();
                        // SAFETY: there are 8 more keys of 8 more such numbers, and 8 rows of 16 in the panel.
                        unsafe { s.transpose8(from, k.row / numbers, to, LANES) };
                    }
                    for lane in 0..keys {
                        let key = self.inputs.key(self.first + first + lane);
                        for line in whole..lines_of_key {
                            to[line * LANES + half + lane] = T::bits(&key[line * numbers..][..numbers]);
                        }
                    }
                }
            }
        }
        let lines_of_values = lines::<T>(self.count);
        for line in 0..lines_of_values {
            let first = self.inputs.value(self.first + line * numbers);
            let second = if T::IS_BF16 && line * numbers + 1 < self.count {
                Some(self.inputs.value(self.first + line * numbers + 1))
            } else {
                None
            };
            for column in (0..value_depth).step_by(LANES) {
                let n = (value_depth - column).min(LANES);
                let to = &mut self.values[(column / LANES * lines_of_values + line) * LANES..][..LANES];
                // SAFETY: a value has so many numbers from there on.
                let mut v = unsafe { T::load(s, first[column..].as_ptr(), n) };
                if T::IS_BF16 {
                    let second = match second {
                        // SAFETY: likewise.
                        Some(second) => unsafe { T::load(s, second[column..].as_ptr(), n) },
                        None => s.splat(0.0),
                    };
                    v = s.pair_bf16(v, second);
                }
                s.write(to, v);
            }
        }
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
                (row..row + rows).for_each(|row| self.inputs.zero(head, row));
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
            let scores = &mut self.scores[i * self.stride..][..self.stride];
            let (vectors, _) = scores[..visible.next_multiple_of(LANES)].as_chunks_mut::<LANES>();
            let mask = self
                .inputs
                .attention
                .mask
                .zip(self.inputs.mask)
                .map(|(strides, mask)| &mask[self.inputs.at(strides, head, row + i) + self.first..][..visible]);
            let max = weigh(s, vectors, visible, self.inputs.attention.scale, mask);
            let max = max.max(greatest[i]);
            // Where all scores are -inf, their powers shall be 0.
            let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let powers = Powers { scores: vectors, shift, to: PhantomData::<T> };
            let sum = match const { S::SIDE_BY_SIDE } {
                4 => powers.run::<S, 4>(s),
                2 => powers.run::<S, 2>(s),
                _ => powers.run::<S, 1>(s),
            };
            let weights = scores.as_mut_ptr().cast::<T>();
            // A row's result must not show how far the others of its tile see.
            for hidden in (visible.next_multiple_of(LANES)..seen).step_by(LANES) {
                // SAFETY: a row has as many scores as a block has keys, which are whole vectors.
                unsafe { T::store(s, weights.wrapping_add(hidden), LANES, s.splat(0.0)) };
            }
            if greatest[i] == max || self.first == 0 {
                sums[i] += sum;
            } else {
                let less = s.lanes(math::exp(s, s.splat(greatest[i] - max)))[0];
                sums[i] = sums[i] * less + sum;
                if let Results::Floats(y) = self.inputs.y {
                    fold::scale(s, self.inputs.result(&y, head, row + i), less);
                }
            }
            greatest[i] = max;
        }
        if is_packed {
            self.apply(s, head, row, sums, seen);
        } else if let Results::Floats(y) = self.inputs.y {
            let y = self.inputs.result(&y, head, row);
            if self.first == 0 {
                y.fill(0.0);
            }
            for key in 0..seen {
                let factor = s.splat(self.scores[key]);
                let value = self.inputs.value(self.first + key);
                for (y, value) in y.chunks_mut(LANES).zip(value.chunks(LANES)) {
                    // SAFETY: the slice has so many.
                    let value = unsafe { T::load(s, value.as_ptr(), value.len()) };
                    let sum = s.fma(factor, value, s.read(y));
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
            *pointer = self.inputs.query(head, row + i).as_ptr().cast();
        }
        let (stride, out) = (self.stride, Writable::floats(self.scores.as_mut_ptr()));
        let product = Products { left: &pointers, rows, k: depth, right: self.keys.as_ptr(), steps: self.steps };
        // SAFETY: the pointers are to `depth` numbers, `pack` has written the panels, and the scores have as many columns as
        // a block has keys.
        unsafe { product.run::<T, S>(s, lines::<T>(depth) * LANES, columns, out, stride, true) };
    }

    /// `results += scores times values`.
    #[inline(always)]
    fn apply<S: Simd>(&mut self, s: S, head: usize, row: usize, sums: &[f32], keys: usize) {
        let mut pointers = [core::ptr::null(); ROWS];
        for (i, pointer) in pointers.iter_mut().enumerate().take(sums.len()) {
            *pointer = self.scores[i * self.stride..].as_ptr();
        }
        let Attention { y: strides, value_depth, .. } = *self.inputs.attention;
        let whole = lines::<T>(self.count) * LANES;
        let mut product =
            Products { left: &pointers, rows: sums.len(), k: keys, right: self.values.as_ptr(), steps: self.steps };
        match self.inputs.y {
            Results::Floats(y) => {
                let out = Writable::floats(y.at(self.inputs.at(strides, head, row)));
                // SAFETY: the pointers are to a score for each key, `pack` has written the panels, and the results are this
                // task's.
                unsafe { product.run::<T, S>(s, whole, value_depth, out, strides.row, self.first == 0) };
            }
            Results::Bf16(y) => {
                let mut floats = [[0.0f32; 2 * LANES]; ROWS];
                for first in (0..value_depth).step_by(2 * LANES) {
                    let columns = (value_depth - first).min(2 * LANES);
                    product.right = self.values.as_ptr().wrapping_add(first / LANES * whole);
                    let out = Writable::floats(floats.as_mut_ptr().cast());
                    // SAFETY: likewise, and there are so many floats.
                    unsafe { product.run::<T, S>(s, whole, columns, out, 2 * LANES, true) };
                    for (i, (floats, sum)) in floats.iter().zip(sums).enumerate() {
                        let to = &mut self.inputs.result(&y, head, row + i)[first..][..columns];
                        if *sum == 0.0 {
                            to.fill(0);
                            continue;
                        }
                        let factor = s.splat(1.0 / sum);
                        for (to, floats) in to.chunks_mut(LANES).zip(floats.chunks(LANES)) {
                            // SAFETY: the slice has so many.
                            unsafe { s.store_bf16(to.as_mut_ptr(), to.len(), s.mul(s.read(floats), factor)) };
                        }
                    }
                }
            }
        }
    }
}

/// A few rows times panels.
struct Products<'a> {
    left: &'a [*const f32; ROWS],
    rows: usize,
    /// Numbers of a row, as of `T`.
    k: usize,
    right: *const f32,
    steps: &'a Steps,
}

impl Products<'_> {
    /// Panels begin `panel` floats apart. What `out` has is added unless this comes first.
    ///
    /// # Safety
    /// The pointers are to `k` numbers for each row, and to so many lines in the panel of each 16 columns; nobody else has
    /// the output's columns.
    #[inline(always)]
    unsafe fn run<T: Number, S: Simd>(
        &self,
        s: S,
        panel: usize,
        columns: usize,
        out: Writable,
        out_stride: usize,
        is_first: bool,
    ) {
        let &Self { left, rows, k, right, steps } = self;
        let (pointers, panel_stride) = (left.as_ptr(), panel);
        if const { T::IS_BF16 } {
            let factors = Bf16 {
                pointers: pointers.cast(),
                pointer_stride: rows,
                taps: 1,
                pairs: lines::<T>(k),
                has_single: false,
                panel: right.cast(),
                panel_stride: 2 * panel_stride,
                upcoming: Upcoming::NOTHING,
            };
            // SAFETY: the caller vouches for all of it.
            unsafe { by_panels(s, factors, rows, columns, out, out_stride, is_first, steps) };
        } else {
            let factors = Floats {
                pointers,
                pointer_stride: rows,
                taps: 1,
                depth: k,
                panel: right,
                panel_stride,
                upcoming: Upcoming::NOTHING,
            };
            // SAFETY: likewise.
            unsafe { by_panels(s, factors, rows, columns, out, out_stride, is_first, steps) };
        }
    }
}

/// All of `columns`, from the factors of the first.
///
/// # Safety
/// As for [`Tile::run_on`].
#[inline(always)]
unsafe fn by_panels<S: Simd, F: Factors>(
    s: S,
    factors: F,
    rows: usize,
    columns: usize,
    out: Writable,
    out_stride: usize,
    is_first: bool,
    steps: &Steps,
) {
    for first in (0..columns).step_by(S::PANELS * LANES) {
        let columns = (columns - first).min(S::PANELS * LANES);
        let tile = Tile {
            factors: factors.beside(first / LANES),
            rows,
            repeat: 1,
            panels: columns.div_ceil(LANES),
            columns,
            out: out.plus(s, first),
            out_stride,
            bias: core::ptr::null(),
            residual: Readable::NOWHERE,
            residual_stride: 0,
            is_first,
            is_last: true,
            steps,
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

/// Replaces scores by e to the power of what is between them and `shift`, the greatest, as numbers of type `T` from the same
/// place on.
struct Powers<'a, T> {
    scores: &'a mut [[f32; LANES]],
    shift: f32,
    to: PhantomData<T>,
}

impl<T: Number> Powers<'_, T> {
    /// Returns the sum.
    #[inline(always)]
    fn run<S: Simd, const N: usize>(self, s: S) -> f32 {
        let (vectors, from) = (self.scores.len(), self.scores.as_mut_ptr().cast::<f32>());
        let to = from.cast::<T>();
        let mut sums = [s.splat(0.0); N];
        let whole = vectors / N * N;
        for first in (0..whole).step_by(N) {
            let mut powers = sums;
            for i in 0..N {
                // SAFETY: there are so many vectors.
                powers[i] = unsafe { s.load(from.wrapping_add((first + i) * LANES)) };
            }
            let powers = power(Several::<S, N>(s), powers, self.shift);
            for i in 0..N {
                // SAFETY: numbers are no larger than floats, of which there are as many; those that are overwritten have
                // been read.
                unsafe { T::store(s, to.wrapping_add((first + i) * LANES), LANES, powers[i]) };
                sums[i] = s.add(sums[i], powers[i]);
            }
        }
        for i in whole..vectors {
            // SAFETY: as above.
            let power = power(s, unsafe { s.load(from.wrapping_add(i * LANES)) }, self.shift);
            // SAFETY: as above.
            unsafe { T::store(s, to.wrapping_add(i * LANES), LANES, power) };
            sums[0] = s.add(sums[0], power);
        }
        let mut sum = sums[0];
        for i in 1..N {
            sum = s.add(sum, sums[i]);
        }
        s.sum(sum)
    }
}

/// exp(x - shift), where `x` is no greater.
#[inline(always)]
fn power<S: Arithmetic>(s: S, x: S::V, shift: f32) -> S::V {
    math::exp2_down(s, s.mul(s.sub(x, s.splat(shift)), s.splat(core::f32::consts::LOG2_E)))
}

#[inline(always)]
fn dot<T: Number, S: Simd>(s: S, a: &[T], b: &[T]) -> f32 {
    let mut sum = s.splat(0.0);
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        // SAFETY: the slice has so many.
        let a = unsafe { T::load(s, a.as_ptr(), a.len()) };
        // SAFETY: likewise.
        let b = unsafe { T::load(s, b.as_ptr(), b.len()) };
        sum = s.fma(a, b, sum);
    }
    s.sum(sum)
}
