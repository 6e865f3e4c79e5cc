//! Numbers as elements of tensors.

use half::{bf16, f16};
use rushlight_format::ScalarType;

use crate::Error;
use crate::{Constant, TensorType};

/// Converts a number to an element of a type as PyTorch does, to 16 bits from `f32`, and returns its bytes.
pub fn number_bytes(value: f64, dtype: ScalarType) -> Result<Vec<u8>, Error> {
    Ok(match dtype {
        ScalarType::Float => (value as f32).to_le_bytes().to_vec(),
        ScalarType::Double => value.to_le_bytes().to_vec(),
        ScalarType::Half => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        ScalarType::BFloat16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        ScalarType::Bool => vec![u8::from(value != 0.0)],
        ScalarType::Byte => vec![value as i64 as u8],
        ScalarType::Char => vec![value as i64 as u8],
        ScalarType::Short => (value as i64 as i16).to_le_bytes().to_vec(),
        ScalarType::Int => (value as i64 as i32).to_le_bytes().to_vec(),
        ScalarType::Long => (value as i64).to_le_bytes().to_vec(),
        other => return Err(Error::unsupported(format!("a constant of dtype {}", other.name()))),
    })
}

/// Maximum elements of a constant that a decomposition computes. More could exhaust memory.
pub(crate) const MAX_COMPUTED: i64 = 1 << 24;

/// Fails for more elements than [`MAX_COMPUTED`]. Call it before computing them.
pub(crate) fn check_computed(name: &str, elements: i64) -> Result<(), Error> {
    if elements <= MAX_COMPUTED {
        return Ok(());
    }
    Err(Error::unsupported(format!("`{name}` makes a constant of too many elements"))
        .expected(format!("at most {MAX_COMPUTED}"))
        .got(elements.to_string())
        .help("make the tensor in the model's constructor and register it as a buffer, or compute it from an input"))
}

/// Makes an i64 constant of one dimension.
pub(crate) fn longs(name: &str, values: &[i64]) -> Result<Constant, Error> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Constant::dense(name, TensorType::of(ScalarType::Long, &[values.len() as i64]), bytes)
}
