//! The elements of tensors as numbers.

use rushlight_format::ScalarType;

use crate::cases::TensorData;

/// The type of the numbers in an element, such as the parts of a complex number.
pub(crate) fn part_type(dtype: ScalarType) -> ScalarType {
    match dtype {
        ScalarType::ComplexHalf => ScalarType::Half,
        ScalarType::ComplexFloat => ScalarType::Float,
        ScalarType::ComplexDouble => ScalarType::Double,
        other => other,
    }
}

/// All numbers of a tensor, in memory order.
pub fn numbers(t: &TensorData) -> Vec<f64> {
    let part = part_type(t.dtype);
    t.bytes.chunks_exact(part.size()).map(|bytes| number(bytes, part)).collect()
}

/// The largest magnitude of a finite number.
pub fn largest(t: &TensorData) -> f64 {
    numbers(t).into_iter().map(f64::abs).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// The value of an element.
pub(crate) fn number(bytes: &[u8], dtype: ScalarType) -> f64 {
    match dtype {
        ScalarType::Half => half::f16::from_bits(unsigned(bytes) as u16).to_f64(),
        ScalarType::BFloat16 => half::bf16::from_bits(unsigned(bytes) as u16).to_f64(),
        ScalarType::Float => f64::from(f32::from_bits(unsigned(bytes) as u32)),
        ScalarType::Double => f64::from_bits(unsigned(bytes)),
        ScalarType::Char | ScalarType::Short | ScalarType::Int | ScalarType::Long => signed(bytes) as f64,
        _ => unsigned(bytes) as f64,
    }
}

/// The bits of an element.
pub(crate) fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b))
}

/// The value of a signed integer.
pub(crate) fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len() as u32;
    (unsigned(bytes) << unused) as i64 >> unused
}
