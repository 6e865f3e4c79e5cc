//! Checks that both sides compute the same result. If a measured call is wrong, its times mean nothing.

use half::{bf16, f16};
use rushlight::ScalarType;

use crate::ours::Produced;

/// Describes the difference between our outputs and the bytes of theirs; `None` if they agree within a few roundings.
pub fn difference(ours: &[Produced], theirs: &[u8]) -> Option<String> {
    let total: usize = ours.iter().map(|output| output.bytes.len()).sum();
    if total != theirs.len() {
        return Some(format!("{} bytes of outputs beside {total}", theirs.len()));
    }
    let mut rest = theirs;
    for (number, output) in ours.iter().enumerate() {
        let (their, others) = rest.split_at(output.bytes.len());
        rest = others;
        let (our, their) = (doubles(output.dtype, &output.bytes), doubles(output.dtype, their));
        let scale = their.iter().filter(|v| v.is_finite()).fold(1e-30f64, |scale, v| scale.max(v.abs()));
        let allowed = scale * tolerance(output.dtype);
        let close = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= allowed;
        if let Some(at) = our.iter().zip(&their).position(|(&a, &b)| !close(a, b)) {
            return Some(format!("output {number} at {at}: {} beside {}", their[at], our[at]));
        }
    }
    None
}

/// The largest difference of float32 values, relative to the largest expected one. `None` if the lengths differ; NaN if
/// either side has NaN.
pub fn relative_error(expected: &[u8], got: &[u8]) -> Option<f64> {
    if expected.len() != got.len() {
        return None;
    }
    let (expected, got) = (doubles(ScalarType::Float, expected), doubles(ScalarType::Float, got));
    let worse = |worst: f64, error: f64| if error > worst || error.is_nan() { error } else { worst };
    let largest = expected.iter().fold(1e-30f64, |largest, value| largest.max(value.abs()));
    Some(expected.iter().zip(&got).fold(0.0, |worst, (a, b)| worse(worst, (a - b).abs())) / largest)
}

fn tolerance(dtype: ScalarType) -> f64 {
    match dtype {
        ScalarType::Half => 2e-3,
        ScalarType::BFloat16 => 2e-2,
        // Values on the border of two quantization steps may be rounded either way.
        ScalarType::Char | ScalarType::Byte => 1e-2,
        dtype if dtype.is_floating() || dtype.is_complex() => 1e-4,
        _ => 0.0,
    }
}

fn doubles(dtype: ScalarType, bytes: &[u8]) -> Vec<f64> {
    fn of<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&chunk| value(chunk)).collect()
    }
    match dtype {
        ScalarType::Float | ScalarType::ComplexFloat => of(bytes, |b| f64::from(f32::from_le_bytes(b))),
        ScalarType::Double => of(bytes, f64::from_le_bytes),
        ScalarType::Half => of(bytes, |b| f16::from_le_bytes(b).to_f64()),
        ScalarType::BFloat16 => of(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        ScalarType::Long => of(bytes, |b| i64::from_le_bytes(b) as f64),
        ScalarType::Int => of(bytes, |b| f64::from(i32::from_le_bytes(b))),
        ScalarType::Short => of(bytes, |b| f64::from(i16::from_le_bytes(b))),
        ScalarType::Char => of(bytes, |b| f64::from(i8::from_le_bytes(b))),
        _ => of(bytes, |[b]: [u8; 1]| f64::from(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_largest_value() {
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let expected = bytes(&[1.0, -4.0, 0.5]);
        assert_eq!(relative_error(&expected, &bytes(&[1.0, -4.0, 0.5])), Some(0.0));
        assert_eq!(relative_error(&expected, &bytes(&[1.0, -3.0, 0.5])), Some(0.25));
        assert!(relative_error(&expected, &bytes(&[f32::NAN, -4.0, 0.5])).is_some_and(f64::is_nan));
        assert_eq!(relative_error(&expected, &bytes(&[1.0, -4.0])), None);
    }
}
