//! Compares a tensor with the expected one.

use std::fmt::Write as _;

use rushlight_format::ScalarType;

use crate::cases::{Check, TensorData};
use crate::elements::{number, part_type, signed, unsigned};
use crate::reconstruct::decomposition;
use crate::tolerance::{Tolerance, epsilon};

pub use crate::elements::{largest, numbers};

/// The tolerance of an operator's results, with its scale.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub tolerance: Tolerance,
    /// The machine epsilon of the lowest precision that the result passed through.
    pub epsilon: f64,
    /// The largest sum of magnitudes that an element accumulates, or 0.
    pub magnitude: f64,
}

/// Fails if elements are out of tolerance, with the first such element and their count.
pub fn values(got: &TensorData, expected: &TensorData, limit: Limit) -> Result<(), String> {
    if got.bytes.len() != expected.bytes.len() {
        return Err(format!("{} bytes for {}", got.bytes.len(), expected.bytes.len()));
    }
    let part = part_type(expected.dtype);
    let pairs = got.bytes.chunks_exact(part.size()).zip(expected.bytes.chunks_exact(part.size()));
    let (mut wrong, mut first, mut total) = (0, None, 0);
    for (i, (g, e)) in pairs.enumerate() {
        total += 1;
        if !matches(g, e, part, limit) {
            wrong += 1;
            first.get_or_insert((i, g, e));
        }
    }
    let Some((i, g, e)) = first else { return Ok(()) };
    Err(format!("{wrong} of {total} elements differ, first at {i}: got {}, expected {}", show(g, part), show(e, part)))
}

/// Fails unless the samples look like the distribution that `check` names.
pub fn statistics(got: &[TensorData], case_input: Option<&TensorData>, check: Check) -> Result<(), String> {
    let Some(first) = got.first() else { return Ok(()) };
    let samples = numbers(first);
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let deviation = (samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    // Six standard errors of the mean.
    let near = |value: f64, target: f64, spread: f64| (value - target).abs() <= 6.0 * spread / n.sqrt();
    let fine = match check {
        Check::Values | Check::Shape => true,
        Check::Svd | Check::Eigh | Check::Eig => return decomposition(got, case_input, check),
        Check::Uniform => {
            samples.iter().all(|x| (0.0..=1.0).contains(x)) && near(mean, 0.5, 0.29) && near(deviation, 0.289, 0.2)
        }
        Check::Normal => near(mean, 0.0, 1.0) && near(deviation, 1.0, 0.8),
        Check::Dropout => return dropout(&samples, got.get(1), case_input),
        Check::Permutation => {
            let mut sorted = samples.clone();
            sorted.sort_by(f64::total_cmp);
            sorted.iter().enumerate().all(|(i, x)| *x == i as f64)
        }
    };
    if fine { Ok(()) } else { Err(format!("not {check:?}: mean {mean:.3}, standard deviation {deviation:.3}")) }
}

/// Checks dropout: every element is zero where the mask is, and the input times one factor elsewhere. The mask must be
/// neither empty nor full.
fn dropout(samples: &[f64], mask: Option<&TensorData>, input: Option<&TensorData>) -> Result<(), String> {
    let (Some(mask), Some(input)) = (mask, input) else { return Err("no mask or no input".into()) };
    let input = numbers(input);
    let kept: Vec<bool> = mask.bytes.iter().map(|&b| b != 0).collect();
    let share = kept.iter().filter(|&&k| k).count() as f64 / kept.len() as f64;
    if !(0.1..=0.95).contains(&share) {
        return Err(format!("{share:.2} of the elements are kept"));
    }
    let factor = samples.iter().zip(&input).zip(&kept).find(|(_, k)| **k).map_or(1.0, |((s, x), _)| s / x);
    if (share * factor - 1.0).abs() > 0.2 {
        return Err(format!("{share:.2} of the elements are kept but scaled by {factor:.2}"));
    }
    let wrong = samples
        .iter()
        .zip(&input)
        .zip(&kept)
        .position(|((s, x), &k)| if k { (s - x * factor).abs() > 0.02 * x.abs() * factor } else { *s != 0.0 });
    wrong.map_or(Ok(()), |i| Err(format!("element {i} is {}, of input {} (kept: {})", samples[i], input[i], kept[i])))
}

fn matches(g: &[u8], e: &[u8], dtype: ScalarType, limit: Limit) -> bool {
    if g == e {
        return true;
    }
    if !dtype.is_floating() {
        return false;
    }
    let (got, expected) = (number(g, dtype), number(e, dtype));
    if got.is_nan() || expected.is_nan() {
        return got.is_nan() && expected.is_nan();
    }
    let apart = ordered(g, dtype).abs_diff(ordered(e, dtype));
    let error = (got - expected).abs();
    let allowed = match limit.tolerance {
        Tolerance::Exact => return false,
        _ if got.is_infinite() || expected.is_infinite() => return apart <= 1,
        Tolerance::Ulp(n) if limit.epsilon <= epsilon(dtype) => return apart <= n,
        Tolerance::Ulp(n) => n as f64 * expected.abs(),
        Tolerance::Close { rel, abs } => abs + rel * expected.abs(),
        Tolerance::Accumulated(n) => n * limit.magnitude.max(expected.abs()),
    };
    apart <= 1 || error <= allowed * limit.epsilon
}

/// The bits of a float as an integer that grows with its value; both zeros are 0.
fn ordered(bytes: &[u8], dtype: ScalarType) -> i64 {
    let bits = unsigned(bytes);
    let top = 8 * dtype.size() as u32 - 1;
    let magnitude = (bits & !(1 << top)) as i64;
    if bits >> top == 1 { -magnitude } else { magnitude }
}

fn show(bytes: &[u8], dtype: ScalarType) -> String {
    let mut text = String::new();
    let value = number(bytes, dtype);
    let _ = match dtype {
        ScalarType::Long | ScalarType::Int | ScalarType::Short | ScalarType::Char => write!(text, "{}", signed(bytes)),
        _ => write!(text, "{value:?}"),
    };
    text
}
