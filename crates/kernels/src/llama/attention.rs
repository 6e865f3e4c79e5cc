//! Scaled dot-product attention in one pass over the keys, with a running maximum and sum for each query row (Milakov
//! and Gimelshein, "Online normalizer calculation for softmax", 2018). The score matrix is never stored whole: a tile
//! of it is on the stack.

use half::{bf16, f16};
use rushlight_runtime::Element;

use crate::support::math::exp;
use crate::support::number::Number;

/// Keys in a tile of scores.
const KEYS: usize = 32;
/// Columns of the result, or of a row product, that are computed at a time.
const COLUMNS: usize = 128;
/// Columns of a vector register.
const LANES: usize = 4;

/// The operands of attention over `[batch, head, position, column]`.
pub(super) struct Attention<'a, T> {
    pub(super) query: HeadRows<'a, T>,
    pub(super) key: HeadRows<'a, T>,
    pub(super) value: HeadRows<'a, T>,
    pub(super) shape: AttentionShape<'a>,
}

/// Sizes, and the keys that each query sees.
#[derive(Clone, Copy)]
pub(super) struct AttentionShape<'a> {
    pub(super) batches: usize,
    /// A multiple of `kv_heads`: consecutive query heads share one key and value head.
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) columns: usize,
    pub(super) scale: f32,
    /// `[queries, keys]`, added to the scaled scores.
    pub(super) mask: Option<&'a [f32]>,
    /// The position of the first query; each query then sees the keys up to its own position only.
    pub(super) causal_start: Option<usize>,
}

/// Rows of an operand, each dense in memory.
#[derive(Clone, Copy)]
pub(super) struct HeadRows<'a, T> {
    pub(super) data: &'a [T],
    /// Distance in elements between batches, heads and positions.
    pub(super) strides: [usize; 3],
    pub(super) quantization: Option<RowQuantization<'a>>,
}

/// A scale and a zero point for each row of an int8 operand.
#[derive(Clone, Copy)]
pub(super) struct RowQuantization<'a> {
    pub(super) scales: &'a [f32],
    pub(super) scale_strides: [usize; 3],
    pub(super) zero_points: &'a [i8],
    pub(super) zero_point_strides: [usize; 3],
}

fn offset(strides: [usize; 3], batch: usize, head: usize, position: usize) -> usize {
    batch * strides[0] + head * strides[1] + position * strides[2]
}

impl<'a, T> HeadRows<'a, T> {
    #[inline]
    fn part(&self, start: usize, columns: core::ops::Range<usize>) -> &'a [T] {
        &self.data[start + columns.start..start + columns.end]
    }

    fn affine(&self, batch: usize, head: usize, position: usize) -> (f32, f32) {
        match &self.quantization {
            None => (1.0, 0.0),
            Some(q) => {
                let scale = q.scales[offset(q.scale_strides, batch, head, position)];
                (scale, f32::from(q.zero_points[offset(q.zero_point_strides, batch, head, position)]))
            }
        }
    }
}

/// An element of an operand.
pub(super) trait AttentionElement: Element {
    /// Type of the results.
    type Output: Number;
    /// The values of several elements, less the zero point of int8 operands.
    fn load<const N: usize>(elements: &[Self; N], zero_point: f32) -> [f32; N];
}

impl AttentionElement for f32 {
    type Output = f32;
    #[inline(always)]
    fn load<const N: usize>(elements: &[Self; N], _: f32) -> [f32; N] {
        *elements
    }
}

impl AttentionElement for bf16 {
    type Output = bf16;
    #[inline(always)]
    fn load<const N: usize>(elements: &[Self; N], _: f32) -> [f32; N] {
        elements.map(|x| f32::from_bits(u32::from(x.to_bits()) << 16))
    }
}

impl AttentionElement for f16 {
    type Output = f16;
    #[inline(always)]
    fn load<const N: usize>(elements: &[Self; N], _: f32) -> [f32; N] {
        elements.map(|x| {
            let bits = u32::from(x.to_bits());
            // Multiplication rebiases the exponent and also normalizes subnormal numbers.
            let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
            let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
            f32::from_bits(magnitude.to_bits() | special | (bits & 0x8000) << 16)
        })
    }
}

impl AttentionElement for i8 {
    type Output = f32;
    #[inline(always)]
    fn load<const N: usize>(elements: &[Self; N], zero_point: f32) -> [f32; N] {
        elements.map(|x| f32::from(x) - zero_point)
    }
}

impl<T: AttentionElement> Attention<'_, T> {
    /// Writes `softmax(query @ key^T * scale + mask) @ value`. Rows without a key to attend to are zero.
    pub(super) fn attend(&self, out: &mut [T::Output], strides: [usize; 3]) {
        let group = self.shape.heads / self.shape.kv_heads.max(1);
        for batch in 0..self.shape.batches {
            for kv_head in 0..self.shape.kv_heads {
                // Rows of neighbouring positions and of the heads that share the keys.
                let rows = self.shape.queries * group;
                let place = |row: usize| Place { batch, head: kv_head * group + row % group, position: row / group };
                let mut row = 0;
                while rows - row >= 4 {
                    self.block::<4, 2, 8>(kv_head, [0, 1, 2, 3].map(|i| place(row + i)), out, strides);
                    row += 4;
                }
                while row < rows {
                    self.block::<1, 8, 32>(kv_head, [place(row)], out, strides);
                    row += 1;
                }
            }
        }
    }

    /// Computes `R` rows of the result. `K` keys and `L` columns of values are multiplied at a time.
    fn block<const R: usize, const K: usize, const L: usize>(
        &self,
        kv_head: usize,
        places: [Place; R],
        out: &mut [T::Output],
        strides: [usize; 3],
    ) {
        let batch = places[0].batch;
        let visible = places.map(|place| match self.shape.causal_start {
            Some(start) => start.saturating_add(place.position).saturating_add(1).min(self.shape.keys),
            None => self.shape.keys,
        });
        let last = visible.into_iter().max().unwrap_or(0);
        let mut query = QueryTile { values: [[0.0; COLUMNS]; R], start: usize::MAX };
        for first_column in (0..self.shape.columns).step_by(COLUMNS) {
            let columns = first_column..self.shape.columns.min(first_column + COLUMNS);
            let mut sums = [[0.0; COLUMNS]; R];
            let mut softmax = [Softmax { max: f32::NEG_INFINITY, sum: 0.0 }; R];
            for first in (0..last).step_by(KEYS) {
                let keys = first..last.min(first + KEYS);
                let mut scores = self.scores::<R, K>(&mut query, places, kv_head, keys.clone());
                for (row, scores) in scores.iter_mut().enumerate() {
                    if let Some(mask) = self.shape.mask {
                        let start = places[row].position * self.shape.keys;
                        for (score, &bias) in scores.iter_mut().zip(&mask[start + keys.start..start + keys.end]) {
                            *score += bias;
                        }
                    }
                    let seen = visible[row].saturating_sub(first).min(keys.len());
                    scores[seen..].fill(f32::NEG_INFINITY);
                    let factor = softmax[row].update(scores);
                    if factor != 1.0 {
                        for sum in &mut sums[row] {
                            *sum *= factor;
                        }
                    }
                }
                self.add_values::<R, L>(&mut scores, batch, kv_head, keys, columns.clone(), &mut sums);
            }
            for ((place, softmax), sums) in places.iter().zip(&softmax).zip(&sums) {
                let start = offset(strides, place.batch, place.head, place.position);
                let factor = if softmax.sum == 0.0 { 0.0 } else { 1.0 / softmax.sum };
                for (x, &sum) in out[start + columns.start..start + columns.end].iter_mut().zip(sums) {
                    *x = Number::from_f32(sum * factor);
                }
            }
        }
    }

    /// The scaled products of the query rows with a tile of keys.
    fn scores<const R: usize, const K: usize>(
        &self,
        query: &mut QueryTile<R>,
        places: [Place; R],
        kv_head: usize,
        keys: core::ops::Range<usize>,
    ) -> [[f32; KEYS]; R] {
        let batch = places[0].batch;
        let mut scores = [[0.0; KEYS]; R];
        for first_column in (0..self.shape.columns).step_by(COLUMNS) {
            let columns = first_column..self.shape.columns.min(first_column + COLUMNS);
            if query.start != first_column {
                query.load(&self.query, places, columns.clone());
            }
            let row = |index: usize| {
                let start = offset(self.key.strides, batch, kv_head, keys.start + index);
                self.key.part(start, columns.clone())
            };
            let zero_point = |index: usize| self.key.affine(batch, kv_head, keys.start + index).1;
            let mut index = 0;
            while index + K <= keys.len() {
                let rows = core::array::from_fn(|k| row(index + k));
                let zero_points = core::array::from_fn(|k| zero_point(index + k));
                let products = multiply::<T, R, K>(&query.values, rows, zero_points);
                for (scores, products) in scores.iter_mut().zip(&products) {
                    for (score, &product) in scores[index..index + K].iter_mut().zip(products) {
                        *score += product;
                    }
                }
                index += K;
            }
            while index < keys.len() {
                let products = multiply::<T, R, 1>(&query.values, [row(index)], [zero_point(index)]);
                for (scores, [product]) in scores.iter_mut().zip(products) {
                    scores[index] += product;
                }
                index += 1;
            }
        }
        for scores in &mut scores {
            for score in scores.iter_mut() {
                *score *= self.shape.scale;
            }
        }
        if self.key.quantization.is_some() {
            for index in 0..keys.len() {
                let scale = self.key.affine(batch, kv_head, keys.start + index).0;
                for scores in &mut scores {
                    scores[index] *= scale;
                }
            }
        }
        scores
    }

    /// Adds the rows of values, weighted with the scores, to the sums.
    fn add_values<const R: usize, const L: usize>(
        &self,
        scores: &mut [[f32; KEYS]; R],
        batch: usize,
        kv_head: usize,
        keys: core::ops::Range<usize>,
        columns: core::ops::Range<usize>,
        sums: &mut [[f32; COLUMNS]; R],
    ) {
        let mut zero_points = [0.0; KEYS];
        if self.value.quantization.is_some() {
            for index in 0..keys.len() {
                let (scale, zero_point) = self.value.affine(batch, kv_head, keys.start + index);
                zero_points[index] = zero_point;
                for scores in &mut *scores {
                    scores[index] *= scale;
                }
            }
        }
        let tile = ValueTile {
            data: &self.value.data[offset(self.value.strides, batch, kv_head, keys.start) + columns.start..],
            stride: self.value.strides[2],
            count: keys.len(),
            zero_points,
        };
        let mut column = 0;
        while column + L <= columns.len() {
            tile.add::<R, L>(scores, column, sums);
            column += L;
        }
        while column + 8 <= columns.len() {
            tile.add::<R, 8>(scores, column, sums);
            column += 8;
        }
        while column < columns.len() {
            tile.add::<R, 1>(scores, column, sums);
            column += 1;
        }
    }
}

/// A row of the result.
#[derive(Clone, Copy)]
struct Place {
    batch: usize,
    head: usize,
    position: usize,
}

/// Columns of some query rows as f32, padded with zeros.
struct QueryTile<const R: usize> {
    values: [[f32; COLUMNS]; R],
    start: usize,
}

impl<const R: usize> QueryTile<R> {
    fn load<T: AttentionElement>(
        &mut self,
        query: &HeadRows<'_, T>,
        places: [Place; R],
        columns: core::ops::Range<usize>,
    ) {
        self.start = columns.start;
        for (values, place) in self.values.iter_mut().zip(places) {
            let start = offset(query.strides, place.batch, place.head, place.position);
            let (scale, zero_point) = query.affine(place.batch, place.head, place.position);
            values.fill(0.0);
            for (value, x) in values.iter_mut().zip(query.part(start, columns.clone())) {
                *value = T::load(&[*x], zero_point)[0] * scale;
            }
        }
    }
}

/// The products of `R` rows of f32 with `K` rows of an operand.
#[inline(always)]
fn multiply<T: AttentionElement, const R: usize, const K: usize>(
    query: &[[f32; COLUMNS]; R],
    rows: [&[T]; K],
    zero_points: [f32; K],
) -> [[f32; K]; R] {
    let mut sums = [[[0.0; LANES]; K]; R];
    lane_products(query, rows.map(|row| row.as_chunks().0), zero_points, &mut sums);
    let mut products = sums.map(|sums| sums.map(|[a, b, c, d]| (a + b) + (c + d)));
    let width = rows[0].len().min(COLUMNS);
    for column in width / LANES * LANES..width {
        for k in 0..K {
            let [x] = T::load(&[rows[k][column]], zero_points[k]);
            for r in 0..R {
                products[r][k] += query[r][column] * x;
            }
        }
    }
    products
}

/// Computes the partial sums of the products, one per lane. It is a separate function, because the compiler otherwise
/// spreads the rows over vector registers instead of the lanes.
#[inline(never)]
fn lane_products<T: AttentionElement, const R: usize, const K: usize>(
    query: &[[f32; COLUMNS]; R],
    rows: [&[[T; LANES]]; K],
    zero_points: [f32; K],
    sums: &mut [[[f32; LANES]; K]; R],
) {
    let count = rows.iter().fold(COLUMNS / LANES, |count, row| count.min(row.len()));
    let query = query.each_ref().map(|row| &row.as_chunks::<LANES>().0[..count]);
    let rows = rows.map(|row| &row[..count]);
    let mut local = [[[0.0; LANES]; K]; R];
    for i in 0..count {
        for k in 0..K {
            let x = T::load(&rows[k][i], zero_points[k]);
            for r in 0..R {
                for lane in 0..LANES {
                    local[r][k][lane] += query[r][i][lane] * x[lane];
                }
            }
        }
    }
    *sums = local;
}

/// Rows of values for a tile of keys.
struct ValueTile<'a, T> {
    data: &'a [T],
    stride: usize,
    count: usize,
    zero_points: [f32; KEYS],
}

impl<T: AttentionElement> ValueTile<'_, T> {
    fn add<const R: usize, const L: usize>(
        &self,
        weights: &[[f32; KEYS]; R],
        column: usize,
        sums: &mut [[f32; COLUMNS]; R],
    ) {
        let mut products = [[0.0; L]; R];
        self.weighted(weights, column, &mut products);
        for (sums, products) in sums.iter_mut().zip(&products) {
            for (sum, &x) in sums[column..column + L].iter_mut().zip(products) {
                *sum += x;
            }
        }
    }

    /// Returns the weighted sums of `L` columns. It is a separate function for the same reason as [`lane_products`].
    #[inline(never)]
    fn weighted<const R: usize, const L: usize>(
        &self,
        weights: &[[f32; KEYS]; R],
        column: usize,
        sums: &mut [[f32; L]; R],
    ) {
        let mut local = [[0.0; L]; R];
        for key in 0..self.count.min(KEYS) {
            let Some(chunk) = self.data.get(key * self.stride + column..).and_then(<[T]>::first_chunk::<L>) else {
                break;
            };
            let x = T::load(chunk, self.zero_points[key]);
            for r in 0..R {
                let weight = weights[r][key];
                for lane in 0..L {
                    local[r][lane] += weight * x[lane];
                }
            }
        }
        *sums = local;
    }
}

/// The running softmax normalizer of one row.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    sum: f32,
}

impl Softmax {
    /// Replaces the scores by `exp(score - max)`. Returns the factor for the sums so far.
    #[inline]
    fn update(&mut self, scores: &mut [f32; KEYS]) -> f32 {
        let mut max = self.max;
        for &score in &*scores {
            max = if score > max { score } else { max };
        }
        if max == f32::NEG_INFINITY && !scores.iter().any(|score| score.is_nan()) {
            scores.fill(0.0);
            return 1.0;
        }
        for score in scores.iter_mut() {
            *score = exp(*score - max);
        }
        let factor = exp(self.max - max);
        let (mut lanes, (chunks, _)) = ([0.0f32; 8], scores.as_chunks::<8>());
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += x;
            }
        }
        self.sum = self.sum * factor + lanes.iter().sum::<f32>();
        self.max = max;
        factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_load_exactly() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let ([a], [b]) = (f16::load(&[half], 0.0), bf16::load(&[brain], 0.0));
            assert!(a == f32::from(half) || a.is_nan() && half.is_nan(), "{bits:x}");
            assert!(b == f32::from(brain) || b.is_nan() && brain.is_nan(), "{bits:x}");
        }
    }

    /// Small pseudo-random integers.
    fn values<const N: usize>(seed: u32) -> [f32; N] {
        core::array::from_fn(|i| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as f32 % 7.0 - 3.0)
    }

    #[test]
    fn equals_softmax_of_the_whole_matrix() {
        // 2 query heads on 1 key head, 5 queries that see 40 to 44 keys of 150 columns.
        const Q: usize = 5;
        const K: usize = 44;
        const D: usize = 150;
        let (query, key, value) = (values::<{ 2 * Q * D }>(1), values::<{ K * D }>(2), values::<{ K * D }>(3));
        let rows = |data, strides| HeadRows { data, strides, quantization: None };
        let attention = Attention {
            query: rows(&query[..], [0, Q * D, D]),
            key: rows(&key[..], [0, 0, D]),
            value: rows(&value[..], [0, 0, D]),
            shape: AttentionShape {
                batches: 1,
                heads: 2,
                kv_heads: 1,
                queries: Q,
                keys: K,
                columns: D,
                scale: 0.05,
                mask: None,
                causal_start: Some(39),
            },
        };
        let mut out = [0.0f32; 2 * Q * D];
        attention.attend(&mut out, [0, Q * D, D]);
        for row in 0..2 * Q {
            let seen = 40 + row % Q;
            let score = |k: usize| {
                let dot: f32 = (0..D).map(|d| query[row * D + d] * key[k * D + d]).sum();
                libm::exp(f64::from(dot) * 0.05)
            };
            let total: f64 = (0..seen).map(score).sum();
            for d in 0..D {
                let expected: f64 = (0..seen).map(|k| score(k) / total * f64::from(value[k * D + d])).sum();
                let got = f64::from(out[row * D + d]);
                assert!((got - expected).abs() < 1e-5, "row {row} column {d}: {got} instead of {expected}");
            }
        }
    }
}
