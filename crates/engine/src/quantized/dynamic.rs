//! Dynamic quantization: scales and zero points are computed from the values at run time, per row or per tensor.

use crate::arch::{Kernel, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;
use crate::{Engine, Reduction, reduce};

use super::Affine;
use super::epilogue::U8Quantizer;

/// Rule for the scale and zero point of a row, given its range extended to contain 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ZeroPointRule {
    /// Zero point from the minimum; the scale is at least `eps`.
    FromMin { eps: f32 },
    /// Zero point from the end of the range with the smaller rounding error; the scale is at least 2^-23.
    MinError,
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
    /// Number of elements of the scales and zero points.
    fn qparams(&self) -> Result<usize, Error> {
        size("scales", &[2, if self.per_tensor { 1 } else { self.rows }])
    }
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 16 << 10;

/// Computes quantization parameters. `to` becomes `[2][rows]`, the scales and then the zero points, which are integral
/// values in 0..=255, or `[2][1]` with `per_tensor`.
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
    let (minima, maxima) = to[..2 * outer].split_at_mut(outer);
    reduce(engine, Reduction::Min, outer, each, 1, x, minima)?;
    reduce(engine, Reduction::Max, outer, each, 1, x, maxima)?;
    let [min, max] = range.map(f32::from);
    for (low, high) in minima.iter_mut().zip(maxima) {
        (*low, *high) = parameters(low.min(0.0), high.max(0.0), min, max, rule);
    }
    Ok(())
}

/// Returns the scale and zero point that map `low..=high` to `min..=max`.
fn parameters(low: f32, high: f32, min: f32, max: f32, rule: ZeroPointRule) -> (f32, f32) {
    let eps = match rule {
        ZeroPointRule::FromMin { eps } => eps,
        ZeroPointRule::MinError => f32::EPSILON,
    };
    let scale = (high - low) / (max - min);
    // NaN becomes `eps` as well.
    let scale = if scale > eps && scale.is_finite() { scale } else { eps };
    // PyTorch computes with signed integers, 128 lower; rounding ties to even can differ by parity.
    let (low, high) = (low / scale, high / scale);
    let zero = match rule {
        ZeroPointRule::FromMin { .. } => min - libm::rintf(low),
        ZeroPointRule::MinError => {
            let [min, max] = [min - 128.0, max - 128.0];
            let error = (min + low) + (max + high);
            libm::rintf((if error > 0.0 { min - low } else { max - high }).max(min).min(max)) + 128.0
        }
    };
    (scale, zero.max(min).min(max))
}

/// Quantizes each row to u8 with the parameters from [`choose_qparams`].
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
    let &DynamicQuantization { rows, columns, range: [min, max], .. } = shape;
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    at_least("scales", qparams.len(), shape.qparams()?)?;
    let y = SharedOutput::new(y);
    if shape.per_tensor {
        let quantizer = U8Quantizer::of(Affine { scale: qparams[0], zero_point: qparams[1] as u8, min, max });
        engine.parallel_for(elements, MIN_TASK_ELEMENTS, |range| {
            // SAFETY: ranges are disjoint.
            let y = unsafe { y.slice(range.clone()) };
            engine.dispatch.run(QuantizeRow { x: &x[range], y, quantizer });
        });
        return Ok(());
    }
    engine.parallel_for(rows, MIN_TASK_ELEMENTS.div_ceil(columns.max(1)), |range| {
        for row in range {
            let affine = Affine { scale: qparams[row], zero_point: qparams[rows + row] as u8, min, max };
            // SAFETY: rows are disjoint.
            let y = unsafe { y.slice(row * columns..(row + 1) * columns) };
            engine.dispatch.run(QuantizeRow {
                x: &x[row * columns..][..columns],
                y,
                quantizer: U8Quantizer::of(affine),
            });
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
