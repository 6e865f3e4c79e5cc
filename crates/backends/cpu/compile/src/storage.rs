//! How tensors are stored between steps: as `f32`, or as `u8` with a scale and a zero point.

use rushlight_cpu_payload::Affine;
use rushlight_format::ScalarType;

use rushlight_graph::quantization::PerTensor;
use rushlight_graph::{ConstantData, State};

use crate::call::Call;

/// True if tensors of a type are stored as `f32`, from which they are converted where they enter or leave. Truth is 1
/// and 0, and floats of 16 bits are rounded where a program converts to them and where they leave, but not in between.
pub(crate) const fn is_stored_as_float(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Float | ScalarType::Half | ScalarType::BFloat16 | ScalarType::Bool)
}

/// True if tensors of a type are stored as `u8`. Signed integers are stored 128 above themselves.
pub(crate) const fn is_stored_as_byte(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Char | ScalarType::Byte)
}

/// The affine of the integers of a type themselves.
pub(crate) const fn integral(dtype: ScalarType) -> Affine {
    Affine::new(1.0, if matches!(dtype, ScalarType::Char) { 128 } else { 0 }, [0, 255])
}

/// The 32 bits that the memory of a state repeats before the first call; `None` of states that are not stored, or have other
/// contents.
pub(crate) fn initial_bits(state: &State) -> Option<u32> {
    let bits = match &state.initial {
        ConstantData::Zeros => 0,
        ConstantData::Dense(bytes) => repeated(bytes, state.ty.dtype.size())?,
        _ => return None,
    };
    match state.ty.dtype {
        ScalarType::Float => Some(bits),
        // Stored as floats.
        ScalarType::Long => (bits == 0).then_some(0),
        ScalarType::Char => Some(bits ^ 0x8080_8080),
        _ => None,
    }
}

/// The 32 bits that elements of `size` bytes repeat, if all are the same.
fn repeated(bytes: &[u8], size: usize) -> Option<u32> {
    let first = bytes.get(..size)?;
    let is_same = bytes.chunks_exact(size).all(|element| element == first);
    let bits = match *first {
        [byte] => u32::from_ne_bytes([byte; 4]),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => (first.iter().all(|byte| *byte == 0)).then_some(0)?,
    };
    is_same.then_some(bits)
}

/// The affine of the integers that a node quantizes to or dequantizes; `None` if its parameters are not those of `u8`.
pub(crate) fn affine_of(call: &Call<'_>) -> Option<Affine> {
    let PerTensor { scale, zero_point, range, dtype } = PerTensor::of(call.node)?;
    let above = match dtype {
        ScalarType::Char => 128,
        ScalarType::Byte => 0,
        _ => return None,
    };
    let byte = |integer: i64| u8::try_from(integer.checked_add(above)?).ok();
    Some(Affine::new(scale, byte(zero_point)?, [byte(range.0)?, byte(range.1)?]))
}
