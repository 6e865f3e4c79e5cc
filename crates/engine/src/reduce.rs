//! Sums, means and extremes over a dimension.

use crate::Engine;
use crate::error::{Error, at_least, size};

/// What a reduction computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// 0 for none.
    Sum,
    /// NaN for none.
    Mean,
    /// NaN if an element is; -inf for none.
    Max,
    /// NaN if an element is; inf for none.
    Min,
}

/// Folds `x` of `[outer, reduced, inner]` to `y` of `[outer, inner]`.
///
/// # Errors
/// When a slice is too short.
pub fn reduce(
    engine: &Engine,
    fold: Fold,
    outer: usize,
    reduced: usize,
    inner: usize,
    x: &[f32],
    y: &mut [f32],
) -> Result<(), Error> {
    at_least("x", x.len(), size("x", &[outer, reduced, inner])?)?;
    at_least("y", y.len(), size("y", &[outer, inner])?)?;
    let _ = engine;
    for o in 0..outer {
        for i in 0..inner {
            let elements = (0..reduced).map(|r| x[(o * reduced + r) * inner + i]);
            y[o * inner + i] = match fold {
                Fold::Sum => elements.map(f64::from).sum::<f64>() as f32,
                Fold::Mean => (elements.map(f64::from).sum::<f64>() / reduced as f64) as f32,
                Fold::Max => elements.fold(f32::NEG_INFINITY, |a, b| if a.is_nan() || a > b { a } else { b }),
                Fold::Min => elements.fold(f32::INFINITY, |a, b| if a.is_nan() || a < b { a } else { b }),
            };
        }
    }
    Ok(())
}
