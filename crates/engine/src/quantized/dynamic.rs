//! Dynamic quantization: scales and zero points are computed from the values at run time, per row or per tensor.

use crate::arch::{Kernel, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::float16::{from_bf16, from_f16, to_bf16, to_f16};
use crate::parallel::SharedOutput;
use crate::{Engine, Half, Reduction, reduce};

use super::Affine;
use super::epilogue::U8Quantizer;

/// Rule for the scale and zero point of a row, given its range extended to contain 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ZeroPointRule {
    /// Zero point from the minimum; the scale is at least `eps`.
    FromMin { eps: f32 },
    /// Zero point from the end of the range with the smaller rounding error; the scale is at least 2^-23.
    MinError,
    /// Chooses as XNNPACK does: the inverse scale is `(max - min) / (high - low)`, or 1 for a row of zeros, the zero point is as
    /// for `MinError`, and values are multiplied by the inverse scale. `half` is the format that it is then rounded to first.
    Inverse { half: Option<Half> },
}

impl ZeroPointRule {
    /// Parameters of a row: its scale and zero point, and the factor of its values where the rule has one.
    const fn parameters(self) -> usize {
        match self {
            Self::FromMin { .. } | Self::MinError => 2,
            Self::Inverse { .. } => 3,
        }
    }
}

/// Shape and parameters of a dynamic quantization.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DynamicQuantization {
    pub rows: usize,
    pub columns: usize,
    pub rule: ZeroPointRule,
    /// Per-tensor quantization: all rows share one scale and zero point.
    pub per_tensor: bool,
    /// Smallest and largest quantized value.
    pub range: [u8; 2],
}

impl DynamicQuantization {
    /// Number of elements of the scales, zero points and factors.
    fn qparams(&self) -> Result<usize, Error> {
        size("scales", &[self.rule.parameters(), if self.per_tensor { 1 } else { self.rows }])
    }
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 16 << 10;

/// Computes quantization parameters. `to` becomes `[2][rows]`, the scales and then the zero points, which are integral
/// values in 0..=255, or `[2][1]` with `per_tensor`. [`ZeroPointRule::Inverse`] gives `[3][rows]`, the last being the factors that
/// values are multiplied by.
///
/// # Errors
/// If a slice is too short, or `columns` is 0.
pub fn choose_qparams(engine: &Engine, shape: &DynamicQuantization, x: &[f32], to: &mut [f32]) -> Result<(), Error> {
    let &DynamicQuantization { rows, columns, rule, per_tensor, range } = shape;
    at_least("x", x.len(), size("x", &[rows, columns])?)?;
    at_least("scales", to.len(), shape.qparams()?)?;
    if rows == 0 {
        return Ok(());
    }
    if columns == 0 {
        return Err(Error::Size { what: "columns of a dynamic quantization" });
    }
    let (outer, each) = if per_tensor { (1, rows * columns) } else { (rows, columns) };
    let (minima, others) = to.split_at_mut(outer);
    let (maxima, factors) = others.split_at_mut(outer);
    reduce(engine, Reduction::Min, outer, each, 1, x, minima)?;
    reduce(engine, Reduction::Max, outer, each, 1, x, maxima)?;
    let [min, max] = range.map(f32::from);
    for (row, (low, high)) in minima.iter_mut().zip(maxima).enumerate() {
        let row_range = [low.min(0.0), high.max(0.0)];
        match rule {
            ZeroPointRule::FromMin { eps } => (*low, *high) = from_min(row_range, [min, max], eps),
            ZeroPointRule::MinError => (*low, *high) = min_error(row_range, [min, max]),
            ZeroPointRule::Inverse { half } => {
                (*low, *high, factors[row]) = inverse(row_range, [min, max], half);
            }
        }
    }
    Ok(())
}

/// Returns the scale and zero point that map a range to `min..=max`, the zero point from the minimum.
fn from_min([low, high]: [f32; 2], [min, max]: [f32; 2], eps: f32) -> (f32, f32) {
    let scale = scale([low, high], [min, max], eps);
    (scale, (min - libm::rintf(low / scale)).max(min).min(max))
}

/// Returns the scale and zero point that map a range to `min..=max`, the zero point from the end with the smaller error.
fn min_error([low, high]: [f32; 2], [min, max]: [f32; 2]) -> (f32, f32) {
    let scale = scale([low, high], [min, max], f32::EPSILON);
    (scale, zero_of_min_error([low / scale, high / scale], [min, max]))
}

fn scale([low, high]: [f32; 2], [min, max]: [f32; 2], eps: f32) -> f32 {
    let scale = (high - low) / (max - min);
    // NaN becomes `eps` as well.
    if scale > eps && scale.is_finite() { scale } else { eps }
}

/// Returns the scale, the zero point and the factor of values that map a range to `min..=max`, all from the inverse scale.
fn inverse([low, high]: [f32; 2], [min, max]: [f32; 2], half: Option<Half>) -> (f32, f32, f32) {
    let inverse = if low == high { 1.0 } else { (max - min) / (high - low) };
    let factor = match half {
        None => inverse,
        Some(Half::F16) => from_f16(to_f16(inverse)),
        Some(Half::Bf16) => from_bf16(to_bf16(inverse)),
    };
    (1.0 / inverse, zero_of_min_error([low * inverse, high * inverse], [min, max]), factor)
}

/// Returns the zero point of a range in units of the scale, from the end with the smaller rounding error.
fn zero_of_min_error([low, high]: [f32; 2], [min, max]: [f32; 2]) -> f32 {
    // PyTorch and XNNPACK compute with signed integers, 128 lower; rounding ties to even can differ by parity.
    let [lowest, highest] = [min - 128.0, max - 128.0];
    let error = (lowest + low) + (highest + high);
    let zero = if error > 0.0 { lowest - low } else { highest - high };
    (libm::rintf(zero.max(lowest).min(highest)) + 128.0).max(min).min(max)
}

/// Quantizes each row to u8 with the parameters from [`choose_qparams`] by the same rule.
///
/// # Errors
/// When a slice is too short.
pub fn quantize_rows(
    engine: &Engine,
    shape: &DynamicQuantization,
    x: &[f32],
    qparams: &[f32],
    y: &mut [u8],
) -> Result<(), Error> {
    let &DynamicQuantization { rows, columns, rule, range: [min, max], .. } = shape;
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    at_least("scales", qparams.len(), shape.qparams()?)?;
    let y = SharedOutput::new(y);
    let outer = if shape.per_tensor { 1 } else { rows };
    let quantizer = |row: usize| {
        let affine = Affine { scale: qparams[row], zero_point: qparams[outer + row] as u8, min, max };
        match rule {
            ZeroPointRule::FromMin { .. } | ZeroPointRule::MinError => U8Quantizer::of(affine),
            ZeroPointRule::Inverse { .. } => U8Quantizer::with_factor(affine, qparams[2 * outer + row]),
        }
    };
    if shape.per_tensor {
        let quantizer = quantizer(0);
        engine.parallel_for(elements, MIN_TASK_ELEMENTS, |range| {
            // SAFETY: ranges are disjoint.
            let y = unsafe { y.slice(range.clone()) };
            engine.dispatch.run(QuantizeRow { x: &x[range], y, quantizer });
        });
        return Ok(());
    }
    engine.parallel_for(rows, MIN_TASK_ELEMENTS.div_ceil(columns.max(1)), |range| {
        for row in range {
            // SAFETY: rows are disjoint.
            let y = unsafe { y.slice(row * columns..(row + 1) * columns) };
            engine.dispatch.run(QuantizeRow { x: &x[row * columns..][..columns], y, quantizer: quantizer(row) });
        }
    });
    Ok(())
}

/// A row, or a part of a tensor, to quantize.
struct QuantizeRow<'a> {
    x: &'a [f32],
    y: &'a mut [u8],
    quantizer: U8Quantizer,
}

impl Kernel for QuantizeRow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.chunks(LANES).zip(self.y.chunks_mut(LANES)) {
            // SAFETY: `y` has the length of `x`.
            unsafe { s.store_as_u8(y.as_mut_ptr(), x.len(), self.quantizer.round(s, s.load_slice(x))) };
        }
    }
}
