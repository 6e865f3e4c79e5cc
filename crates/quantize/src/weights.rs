//! Quantization of the weights of convolutions and linear layers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rushlight_engine::{Engine, FiniteRange, finite_range, quantization_errors};

use rushlight_compiler::quantization::WeightSpec;
use rushlight_graph::{Computed, Constant, Error};

use super::report::decibels;
use super::settings::Rounding;

/// Weights as integers with scales.
#[derive(Clone, Debug)]
pub(super) struct Rounded {
    pub integers: Integers,
    /// The scale of each group of elements.
    pub scales: Arc<Vec<f32>>,
    /// Consecutive elements that share a scale.
    pub group: usize,
}

/// The integers of weights.
#[derive(Clone)]
pub(super) enum Integers {
    Held(Arc<Vec<i8>>),
    /// Rounded at each read, because the integers of a large model would need much memory.
    Nearest(Arc<Nearest>),
}

impl Integers {
    pub fn held(integers: Vec<i8>) -> Self {
        Self::Held(Arc::new(integers))
    }

    /// Returns all integers.
    pub fn read(&self) -> Result<Arc<Vec<i8>>, Error> {
        match self {
            Self::Held(integers) => Ok(integers.clone()),
            Self::Nearest(nearest) => {
                let mut bytes = Vec::new();
                nearest.compute(&mut bytes)?;
                Ok(Arc::new(bytemuck::cast_vec(bytes)))
            }
        }
    }
}

impl fmt::Debug for Integers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(integers) => write!(f, "Held({})", integers.len()),
            Self::Nearest(_) => f.write_str("Nearest"),
        }
    }
}

/// Computes the nearest integers of weights `[N, …]` with known scales.
pub(super) struct Nearest {
    pub weights: Constant,
    pub scales: Arc<Vec<f32>>,
    /// The range of `scales` that belongs to these weights.
    pub groups: Range<usize>,
    /// Consecutive weights that share a scale; the length of a row is a multiple of it.
    pub group: usize,
    pub spec: WeightSpec,
}

impl Computed for Nearest {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        to.clear();
        to.reserve(self.groups.len() * self.group);
        let mut scales = self.scales.get(self.groups.clone()).unwrap_or_default();
        self.weights.for_floats(&mut |weights| {
            let count = weights.len() / self.group.max(1);
            let (these, rest) = scales.split_at_checked(count).unwrap_or_default();
            scales = rest;
            round_into(weights, these, self.group, self.spec, to);
        })
    }

    fn rows(&self, rows: Range<usize>) -> Option<Arc<dyn Computed>> {
        let count = *self.weights.sizes().ok()?.first()?;
        let groups = self.groups.len().checked_div(count)?;
        let start = self.groups.start + rows.start * groups;
        let groups = start..start + rows.len() * groups;
        let Self { group, spec, .. } = *self;
        Some(Arc::new(Self { weights: self.weights.rows(rows)?, scales: self.scales.clone(), groups, group, spec }))
    }
}

/// 1.5 * 2^23: adding it rounds to an integer, in code that compilers vectorize.
const WHOLE: f32 = 12_582_912.0;

/// Rounds to the integers of a range.
#[derive(Clone, Copy)]
pub(super) struct ToIntegers {
    low: f32,
    high: f32,
}

impl ToIntegers {
    pub fn of(spec: WeightSpec) -> Self {
        let [low, high] = spec.range.map(f32::from);
        Self { low, high }
    }

    /// The nearest integer within the range; ties go to the even one.
    pub fn nearest(self, weight: f32, inverse: f32) -> f32 {
        self.rounded(weight, inverse) - WHOLE
    }

    /// The nearest integer as a byte: the low bits of the sum.
    fn nearest_byte(self, weight: f32, inverse: f32) -> u8 {
        self.rounded(weight, inverse).to_bits() as u8
    }

    /// The nearest integer plus [`WHOLE`].
    fn rounded(self, weight: f32, inverse: f32) -> f32 {
        (weight * inverse).clamp(self.low, self.high) + WHOLE
    }
}

impl Rounded {
    /// Dequantizes an integer.
    #[cfg(test)]
    pub fn number(&self, at: usize) -> f32 {
        f32::from(self.integers.read().unwrap()[at]) * self.scales[at / self.group]
    }

    /// The signal-to-noise ratio of the quantized weights, in dB.
    pub fn ratio(&self, weights: &[f32]) -> Result<Option<f64>, Error> {
        let integers = self.integers.read()?;
        let (signal, noise) = noise(weights, bytemuck::cast_slice(&integers), &self.scales, self.group);
        Ok(decibels(signal, noise))
    }
}

/// Returns the sums of the squares of the weights and of the errors of their integers.
pub(super) fn noise(weights: &[f32], integers: &[u8], scales: &[f32], group: usize) -> (f64, f64) {
    let (mut signal, mut noise) = (0.0, 0.0);
    let group = group.max(1);
    for ((weights, integers), scale) in weights.chunks(group).zip(integers.chunks(group)).zip(scales) {
        signal += f64::from(sum(weights, weights, |weight, _| weight * weight));
        noise += f64::from(sum(weights, integers, |weight, integer| {
            let away = weight - f32::from(integer.cast_signed()) * scale;
            away * away
        }));
    }
    (signal, noise)
}

/// Sums a function of each pair of elements, in an order that compilers vectorize.
fn sum<T: Copy>(one: &[f32], two: &[T], each: impl Fn(f32, T) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0f32; LANES];
    let ((one, one_rest), (two, two_rest)) = (one.as_chunks::<LANES>(), two.as_chunks::<LANES>());
    for (one, two) in one.iter().zip(two) {
        for ((sum, one), two) in sums.iter_mut().zip(one).zip(two) {
            *sum += each(*one, *two);
        }
    }
    for ((sum, one), two) in sums.iter_mut().zip(one_rest).zip(two_rest) {
        *sum += each(*one, *two);
    }
    sums.iter().sum()
}

/// Scales that are tried for the smallest error, relative to the scale at which the largest weight just fits.
const TRIED: [f32; 13] = [1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.76, 0.73, 0.7, 0.65, 0.6];

/// Rounds weights to the nearest integers. Each `group` of weights has a scale. `importance` is the weight of the
/// squared error of each element of a row.
#[cfg(test)]
pub(super) fn round(
    engine: &Engine,
    weights: &[f32],
    group: usize,
    spec: WeightSpec,
    rounding: Rounding,
    importance: Option<&[f32]>,
) -> Rounded {
    let scales = scales(engine, weights, group, spec, rounding, importance);
    let mut integers = Vec::with_capacity(weights.len());
    round_into(weights, &scales, group, spec, &mut integers);
    Rounded { integers: Integers::held(bytemuck::cast_vec(integers)), scales: Arc::new(scales), group }
}

/// Appends the nearest integers of groups of weights.
pub(super) fn round_into(weights: &[f32], scales: &[f32], group: usize, spec: WeightSpec, to: &mut Vec<u8>) {
    let to_integers = ToIntegers::of(spec);
    for (weights, scale) in weights.chunks(group.max(1)).zip(scales) {
        let inverse = 1.0 / scale;
        to.extend(weights.iter().map(|weight| to_integers.nearest_byte(*weight, inverse)));
    }
}

/// Chooses the scales of groups of weights.
pub(super) fn scales(
    engine: &Engine,
    weights: &[f32],
    group: usize,
    spec: WeightSpec,
    rounding: Rounding,
    importance: Option<&[f32]>,
) -> Vec<f32> {
    let groups = weights.chunks(group.max(1)).enumerate();
    let scale = |(index, weights): (usize, &[f32])| {
        let importance = importance.and_then(|importance| {
            let start = index * group % importance.len().max(1);
            importance.get(start..start + weights.len())
        });
        scale_of(engine, weights, spec, rounding, importance)
    };
    groups.map(scale).collect()
}

fn scale_of(engine: &Engine, weights: &[f32], spec: WeightSpec, rounding: Rounding, importance: Option<&[f32]>) -> f32 {
    let [low, high] = spec.range.map(f32::from);
    let FiniteRange { min, max, .. } = finite_range(engine, weights);
    // The minimum is that of PyTorch's scales of weights; it keeps the inverse finite.
    let fits = |low: f32, high: f32| (min.min(0.0) / low).max(max.max(0.0) / high).max(f32::EPSILON);
    let whole = spec.scale(fits(-high, high));
    if rounding == Rounding::Nearest {
        return whole;
    }
    // The last entry is the scale of the full asymmetric range, which 4-bit integers have.
    let asymmetric = if low < -high { spec.scale(fits(low, high)) } else { whole };
    let mut scales = [asymmetric; TRIED.len() + 1];
    scales.iter_mut().zip(TRIED).for_each(|(scale, share)| *scale = spec.scale(whole * share));
    let errors = quantization_errors(engine, scales, [low, high], weights, importance);
    let tried = errors.into_iter().zip(scales);
    tried.reduce(|best, tried| if tried.0 < best.0 { tried } else { best }).map_or(whole, |(_, scale)| scale)
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;
    use rushlight_graph::TensorType;

    use super::*;

    #[test]
    fn groups_have_scales_of_their_own() {
        let engine = Engine::new(1);
        let weights = [1.0, -0.5, 0.25, 0.0, 100.0, -100.0, 50.0, 3.0];
        let Rounded { integers, scales, .. } = round(&engine, &weights, 4, WeightSpec::INT8, Rounding::Nearest, None);
        assert_eq!(*scales, [1.0 / 127.0, 100.0 / 127.0]);
        assert_eq!(*integers.read().unwrap(), [127, -64, 32, 0, 127, -127, 64, 4]);
        let zeros = round(&engine, &[0.0; 4], 2, WeightSpec::INT4, Rounding::SquaredError, None);
        assert!(*zeros.integers.read().unwrap() == [0; 4] && zeros.scales.iter().all(|scale| *scale > 0.0));
    }

    #[test]
    fn the_least_error_is_no_larger() {
        let engine = Engine::new(1);
        let mut state = 1u32;
        let weights: Vec<f32> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let even = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
                even * even * even
            })
            .collect();
        for spec in [WeightSpec::INT4, WeightSpec::INT8] {
            let error = |rounding| -> f32 {
                let rounded = round(&engine, &weights, 32, spec, rounding, None);
                weights.iter().enumerate().map(|(at, weight)| (rounded.number(at) - weight).powi(2)).sum()
            };
            let (nearest, least) = (error(Rounding::Nearest), error(Rounding::SquaredError));
            assert!(least <= nearest, "{spec:?}: {least} {nearest}");
            assert!(spec == WeightSpec::INT8 || least < nearest * 0.95, "{least} {nearest}");
        }
    }

    #[test]
    fn what_is_important_is_nearer() {
        let engine = Engine::new(1);
        let weights: Vec<f32> = (0..32).map(|at| (at as f32 * 0.7).sin() * if at == 5 { 9.0 } else { 1.0 }).collect();
        let importance: Vec<f32> = (0..32).map(|at| if at == 5 { 0.0 } else { 1.0 }).collect();
        let error = |importance: Option<&[f32]>| -> f32 {
            let rounded = round(&engine, &weights, 32, WeightSpec::INT4, Rounding::SquaredError, importance);
            (0..32).filter(|at| *at != 5).map(|at| (rounded.number(at) - weights[at]).powi(2)).sum()
        };
        assert!(error(Some(&importance)) < error(None) * 0.8);
    }

    #[test]
    fn integers_that_are_rounded_again_are_the_same() {
        let engine = Engine::new(1);
        let (rows, k) = (40, 1024);
        let weights: Vec<f32> = (0..rows * k).map(|at| (at as f32 * 0.37).sin()).collect();
        let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        let constant =
            Constant::dense("w", TensorType::of(ScalarType::Float, &[rows as i64, k as i64]), bytes).unwrap();
        for (spec, group) in [(WeightSpec::INT4, 32), (WeightSpec::INT8, k)] {
            let held = round(&engine, &weights, group, spec, Rounding::SquaredError, None);
            let integers = held.integers.read().unwrap();
            let (scales, groups) = (held.scales, 0..rows * k / group);
            let nearest = Nearest { weights: constant.clone(), scales, groups, group, spec };
            let mut part = Vec::new();
            nearest.rows(7..31).unwrap().compute(&mut part).unwrap();
            assert_eq!(bytemuck::cast_slice::<u8, i8>(&part), &integers[7 * k..31 * k]);
            assert_eq!(Integers::Nearest(Arc::new(nearest)).read().unwrap(), integers);
        }
    }
}
