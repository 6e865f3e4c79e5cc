//! Softmax of rows.

use crate::Engine;
use crate::error::{Error, at_least, size};

/// `y = exp(x) / sum(exp(x))` of each row, or its logarithm. A row with NaN, with inf, or of -inf alone gives NaN.
///
/// # Errors
/// When a slice is too short.
pub fn softmax(engine: &Engine, rows: usize, columns: usize, log: bool, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    let _ = engine;
    if elements == 0 {
        return Ok(());
    }
    for (x, y) in x[..elements].chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        let max = x.iter().fold(f32::NEG_INFINITY, |a, &b| if a.is_nan() || a > b { a } else { b });
        let sum: f32 = x.iter().map(|x| libm::expf(x - max)).sum();
        for (y, x) in y.iter_mut().zip(x) {
            *y = if log { x - max - libm::logf(sum) } else { libm::expf(x - max) / sum };
        }
    }
    Ok(())
}
