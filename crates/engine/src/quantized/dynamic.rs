//! Rows of numbers as bytes whose scales are chosen when they are seen.

use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::split::Output;
use crate::{Engine, Fold, reduce};

use super::Affine;
use super::tail::Levels;

/// How the scale and the zero of a row follow from its range, which zero is part of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// The zero from the lower end; the scale is `eps` at least.
    Lower { eps: f32 },
    /// The zero from the end of the range where rounding errs less; the scale is 2^-23 at least.
    Nearer,
}

/// Rows whose scales are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DynamicRows {
    pub rows: usize,
    pub columns: usize,
    pub choice: Choice,
    /// Whether all rows have the same scale and zero.
    pub is_shared: bool,
    /// The least and the greatest byte in use.
    pub range: [u8; 2],
}

impl DynamicRows {
    /// How many numbers are chosen.
    fn chosen(&self) -> Result<usize, Error> {
        size("scales", &[2, if self.is_shared { 1 } else { self.rows }])
    }
}

/// Elements for which a task is worth handing over.
const LEAST: usize = 16 << 10;

/// Chooses scales and zeros: `to` becomes `[2][rows]`, the scales and then the zeros, which are whole numbers from 0 to 255.
/// Rows that share them have one of each.
///
/// # Errors
/// When a slice is too short, or rows are empty.
pub fn choose_rows(engine: &Engine, shape: &DynamicRows, x: &[f32], to: &mut [f32]) -> Result<(), Error> {
    let &DynamicRows { rows, columns, choice, is_shared, range } = shape;
    at_least("x", x.len(), size("x", &[rows, columns])?)?;
    at_least("scales", to.len(), shape.chosen()?)?;
    if rows == 0 {
        return Ok(());
    }
    if columns == 0 {
        return Err(Error::Size { what: "a row of a product of bytes" });
    }
    let (outer, each) = if is_shared { (1, rows * columns) } else { (rows, columns) };
    let (least, greatest) = to[..2 * outer].split_at_mut(outer);
    reduce(engine, Fold::Min, outer, each, 1, x, least)?;
    reduce(engine, Fold::Max, outer, each, 1, x, greatest)?;
    let [min, max] = range.map(f32::from);
    for (low, high) in least.iter_mut().zip(greatest) {
        (*low, *high) = parameters(low.min(0.0), high.max(0.0), min, max, choice);
    }
    Ok(())
}

/// The scale and the zero of numbers from `low` to `high`, for bytes from `min` to `max`.
fn parameters(low: f32, high: f32, min: f32, max: f32, choice: Choice) -> (f32, f32) {
    let eps = match choice {
        Choice::Lower { eps } => eps,
        Choice::Nearer => f32::EPSILON,
    };
    let scale = (high - low) / (max - min);
    // Which is what NaN becomes, too.
    let scale = if scale > eps && scale.is_finite() { scale } else { eps };
    // Signed integers are 128 below bytes, which rounding to even can tell.
    let (low, high) = (low / scale, high / scale);
    let zero = match choice {
        Choice::Lower { .. } => min - libm::rintf(low),
        Choice::Nearer => {
            let [min, max] = [min - 128.0, max - 128.0];
            let error = (min + low) + (max + high);
            libm::rintf((if error > 0.0 { min - low } else { max - high }).max(min).min(max)) + 128.0
        }
    };
    (scale, zero.max(min).min(max))
}

/// Rounds each row to bytes with the scale and the zero that [`choose_rows`] chose.
///
/// # Errors
/// When a slice is too short.
pub fn quantize_rows(
    engine: &Engine,
    shape: &DynamicRows,
    x: &[f32],
    chosen: &[f32],
    y: &mut [u8],
) -> Result<(), Error> {
    let &DynamicRows { rows, columns, range: [min, max], .. } = shape;
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    at_least("scales", chosen.len(), shape.chosen()?)?;
    let y = Output::new(y);
    if shape.is_shared {
        let levels = Levels::of(Affine { scale: chosen[0], zero: chosen[1] as u8, min, max });
        engine.for_ranges(elements, LEAST, |range| {
            // SAFETY: ranges are disjoint.
            let y = unsafe { y.slice(range.clone()) };
            engine.level.run(Row { x: &x[range], y, levels });
        });
        return Ok(());
    }
    engine.for_ranges(rows, LEAST.div_ceil(columns.max(1)), |range| {
        for row in range {
            let affine = Affine { scale: chosen[row], zero: chosen[rows + row] as u8, min, max };
            // SAFETY: rows are disjoint.
            let y = unsafe { y.slice(row * columns..(row + 1) * columns) };
            engine.level.run(Row { x: &x[row * columns..][..columns], y, levels: Levels::of(affine) });
        }
    });
    Ok(())
}

/// Numbers to round.
struct Row<'a> {
    x: &'a [f32],
    y: &'a mut [u8],
    levels: Levels,
}

impl Job for Row<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.chunks(LANES).zip(self.y.chunks_mut(LANES)) {
            // SAFETY: there are as many bytes as numbers.
            unsafe { s.store_bytes(y.as_mut_ptr(), x.len(), self.levels.round(s, s.read(x))) };
        }
    }
}
