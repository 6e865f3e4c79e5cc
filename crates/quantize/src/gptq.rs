//! GPTQ: rounds weights to integers that compensate for each other's errors.
//!
//! The error depends on the layer's inputs `x` only through `H = xᵀx`: rounding weights `w` to `q` makes a squared
//! error of `(w - q) H (w - q)ᵀ` in each output. With `H = U Uᵀ`, `U` upper triangular, this is the sum of the squares
//! of `(w - q) U`. Element `l` of that row depends on the first `l + 1` weights alone. Each integer in turn is
//! therefore chosen so that its element is nearest to zero. This is GPTQ (Frantar et al. 2022) in the form of Babai's
//! nearest plane (Chen et al. 2025), without an inverse.

use std::sync::Arc;

use rushlight_compiler::quantization::WeightSpec;
use rushlight_engine::{Engine, parallel_map};

use super::settings::Rounding;
use super::weights::{Integers, Rounded, ToIntegers, scales};

/// Fraction of the diagonal's mean that is added to the diagonal, so that inputs that were always zero have no effect.
const DAMPING: f32 = 0.01;
/// Rows of weights that are rounded together, one per lane.
const LANES: usize = 32;
/// Rows of `U` that are computed together.
const BLOCK: usize = 64;

/// `xᵀx`, summed over a calibration: row-major, `[k, k]`.
#[derive(Clone, Debug)]
pub(super) struct Gram {
    pub k: usize,
    pub sums: Vec<f32>,
}

impl Gram {
    pub fn new(k: usize) -> Self {
        Self { k, sums: vec![0.0; k * k] }
    }

    /// Adds the sums of more inputs.
    pub fn add(&mut self, sums: &[f32]) {
        self.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
    }

    fn diagonal(&self) -> Vec<f32> {
        (0..self.k).map(|at| self.sums[at * self.k + at]).collect()
    }

    /// Returns the factor `U`; the elements below its diagonal are undefined. `None` if the sums are not finite.
    fn upper(&self) -> Option<Vec<f32>> {
        let diagonal = self.diagonal();
        let mean = diagonal.iter().sum::<f32>() / self.k.max(1) as f32;
        if !mean.is_finite() {
            return None;
        }
        let mut damping = DAMPING;
        loop {
            let mut factor = self.sums.clone();
            let more = (mean * damping).max(f32::MIN_POSITIVE);
            (0..self.k).for_each(|at| factor[at * self.k + at] += more);
            if factorise(&mut factor, self.k) {
                return Some(factor);
            }
            damping *= 10.0;
            if damping > 1.0 {
                return None;
            }
        }
    }
}

/// Replaces the upper triangle of a symmetric matrix, diagonal included, by its upper triangular factor. Returns
/// `false` if the matrix is not positive definite.
fn factorise(h: &mut [f32], k: usize) -> bool {
    let mut end = k;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        // Copies the columns behind this block, because the rows of the block are read again and again.
        let block: Vec<f32> = (start..end).flat_map(|j| h[j * k + end..(j + 1) * k].to_vec()).collect();
        let width = k - end;
        for i in 0..end {
            let (row, tail) = h[i * k..(i + 1) * k].split_at_mut(end);
            for j in start.max(i)..end {
                // By symmetry, only the upper triangle is needed.
                row[j] -= dot(tail, &block[(j - start) * width..(j - start + 1) * width]);
            }
        }
        for j in (start..end).rev() {
            let pivot = h[j * k + j] - dot(&h[j * k + j + 1..j * k + end], &h[j * k + j + 1..j * k + end]);
            if pivot <= 0.0 || !pivot.is_finite() {
                return false;
            }
            let root = pivot.sqrt();
            h[j * k + j] = root;
            let inverse = 1.0 / root;
            let own: Vec<f32> = h[j * k + j + 1..j * k + end].to_vec();
            for i in 0..j {
                let row = &mut h[i * k..i * k + end];
                row[j] = (row[j] - dot(&row[j + 1..], &own)) * inverse;
            }
        }
        end = start;
    }
    true
}

/// The dot product of two rows of equal length.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (a_chunks, a_rest) = a.as_chunks::<16>();
    let (b_chunks, b_rest) = b.as_chunks::<16>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Rounds a matrix of weights `[n, k]` for the inputs of a calibration. Each `group` of weights in a row has a scale.
/// `None` if the inputs were not finite.
pub(super) fn round(
    engine: &Engine,
    weights: &[f32],
    gram: &Gram,
    group: usize,
    spec: WeightSpec,
    threads: usize,
) -> Option<Rounded> {
    let k = gram.k;
    let upper = gram.upper()?;
    let scales = scales(engine, weights, group, spec, Rounding::SquaredError, Some(&gram.diagonal()));
    let tiles: Vec<(usize, &[f32])> = weights.chunks(k * LANES).enumerate().collect();
    let tile = |(index, weights): (usize, &[f32])| {
        let per_row = k / group;
        let scales = &scales[index * LANES * per_row..];
        round_rows(weights, &upper, k, group, spec, scales)
    };
    let integers = parallel_map(tiles, threads, tile).concat();
    Some(Rounded { integers: Integers::held(integers), scales: Arc::new(scales), group })
}

/// Rounds up to [`LANES`] rows of weights.
fn round_rows(weights: &[f32], upper: &[f32], k: usize, group: usize, spec: WeightSpec, scales: &[f32]) -> Vec<i8> {
    let (rows, to_integers) = (weights.len() / k, ToIntegers::of(spec));
    let per_row = k / group;
    let mut integers = vec![0i8; weights.len()];
    // The sums that the errors of the integers so far add to each element of `(w - q) U`.
    let mut carried = vec![[0.0f32; LANES]; k];
    for column in 0..k {
        let pivot = upper[column * k + column];
        let mut errors = [0.0f32; LANES];
        for row in 0..rows {
            let weight = weights[row * k + column];
            let scale = scales[row * per_row + column / group];
            let integer = to_integers.nearest(weight + carried[column][row] / pivot, 1.0 / scale);
            integers[row * k + column] = integer as i8;
            errors[row] = weight - integer * scale;
        }
        for (carried, factor) in carried[column + 1..].iter_mut().zip(&upper[column * k + column + 1..]) {
            for lane in 0..LANES {
                carried[lane] += errors[lane] * factor;
            }
        }
    }
    integers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers between -1 and 1.
    fn random(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// Correlated inputs: sums of a few others.
    fn gram(k: usize, samples: usize) -> (Vec<f32>, Gram) {
        let mixing = random(7, k * 8);
        let mut inputs = random(3, samples * k).iter().map(|x| x * 0.1).collect::<Vec<_>>();
        for (row, hidden) in inputs.chunks_mut(k).zip(random(5, samples * 8).chunks(8)) {
            for (at, x) in row.iter_mut().enumerate() {
                *x += (0..8).map(|h| hidden[h] * mixing[at * 8 + h]).sum::<f32>();
            }
        }
        let mut gram = Gram::new(k);
        for row in inputs.chunks(k) {
            let outer: Vec<f32> = row.iter().flat_map(|a| row.iter().map(move |b| a * b)).collect();
            gram.add(&outer);
        }
        (inputs, gram)
    }

    #[test]
    fn the_factor_makes_the_matrix_again() {
        for k in [1, 5, 64, 65, 150] {
            let (_, gram) = gram(k, 2 * k + 10);
            let upper = gram.upper().unwrap();
            let mean = gram.diagonal().iter().sum::<f32>() / k as f32;
            for i in 0..k {
                for j in i..k {
                    let product: f32 = (j..k).map(|l| upper[i * k + l] * upper[j * k + l]).sum();
                    let wanted = gram.sums[i * k + j] + if i == j { mean * DAMPING } else { 0.0 };
                    assert!((product - wanted).abs() < 1e-3 * mean, "{k}: {i} {j} {product} {wanted}");
                }
            }
        }
    }

    #[test]
    fn outputs_are_nearer_than_with_the_nearest_integers() {
        let engine = Engine::new(1);
        let (k, n) = (96, 40);
        let (inputs, gram) = gram(k, 400);
        let weights = random(11, n * k);
        let error = |rounded: &Rounded| -> f32 {
            let mut sum = 0.0;
            for x in inputs.chunks(k) {
                for row in 0..n {
                    let off: f32 =
                        (0..k).map(|at| x[at] * (weights[row * k + at] - rounded.number(row * k + at))).sum();
                    sum += off * off;
                }
            }
            sum
        };
        let nearest =
            super::super::weights::round(&engine, &weights, 32, WeightSpec::INT4, Rounding::SquaredError, None);
        let chosen = round(&engine, &weights, &gram, 32, WeightSpec::INT4, 2).unwrap();
        let (nearest, chosen) = (error(&nearest), error(&chosen));
        assert!(chosen < nearest * 0.5, "{chosen} {nearest}");
    }

    #[test]
    fn inputs_that_are_always_zero_or_not_finite_do_no_harm() {
        let engine = Engine::new(1);
        let weights = random(1, 64);
        let zeros = round(&engine, &weights, &Gram::new(32), 32, WeightSpec::INT8, 1).unwrap();
        let nearest =
            super::super::weights::round(&engine, &weights, 32, WeightSpec::INT8, Rounding::SquaredError, None);
        assert_eq!(zeros.integers.read().unwrap().len(), nearest.integers.read().unwrap().len());
        let mut wild = Gram::new(32);
        wild.sums[0] = f32::NAN;
        assert!(round(&engine, &weights, &wild, 32, WeightSpec::INT8, 1).is_none());
    }
}
