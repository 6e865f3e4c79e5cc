//! Layer norm and RMS norm of rows.

use crate::Engine;
use crate::error::{Error, at_least, size};

/// Rows of `columns`, each normalised by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalise {
    pub rows: usize,
    pub columns: usize,
    pub eps: f32,
    /// Layer norm, `(x - mean) / sqrt(variance + eps)`, rather than RMS norm, `x / sqrt(mean(x^2) + eps)`. The variance is
    /// the biased one.
    pub centred: bool,
}

/// `y = normalised(x) * weight + bias`, with a weight and a bias for each column.
///
/// # Errors
/// When a slice is too short.
pub fn normalise(
    engine: &Engine,
    normalise: &Normalise,
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    y: &mut [f32],
) -> Result<(), Error> {
    let &Normalise { rows, columns, eps, centred } = normalise;
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    for (what, parameter) in [("weight", weight), ("bias", bias)] {
        if let Some(parameter) = parameter {
            at_least(what, parameter.len(), columns)?;
        }
    }
    let _ = engine;
    if elements == 0 {
        return Ok(());
    }
    for (x, y) in x[..elements].chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        let n = columns as f32;
        let mean = if centred { x.iter().sum::<f32>() / n } else { 0.0 };
        let square = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
        let scale = 1.0 / libm::sqrtf(square + eps);
        for (i, (y, x)) in y.iter_mut().zip(x).enumerate() {
            let scaled = (x - mean) * scale * weight.map_or(1.0, |weight| weight[i]);
            *y = scaled + bias.map_or(0.0, |bias| bias[i]);
        }
    }
    Ok(())
}
