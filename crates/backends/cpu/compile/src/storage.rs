//! How tensors are stored between steps: as `f32`, or as `u8` with a scale and a zero point; states also in 16 bits.

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
    match state.ty.dtype {
        ScalarType::Float => Some(f32::from_le_bytes(state.repeated()?.try_into().ok()?).to_bits()),
        ScalarType::Byte => Some(u32::from_le_bytes([*state.repeated()?.first()?; 4])),
        ScalarType::Half | ScalarType::BFloat16 => {
            let bits = u16::from_le_bytes(state.repeated()?.try_into().ok()?);
            Some(u32::from(bits) << 16 | u32::from(bits))
        }
        // Stored as floats.
        ScalarType::Long => matches!(state.initial, ConstantData::Zeros).then_some(0),
        ScalarType::Char => Some(u32::from_le_bytes([*state.repeated()?.first()?; 4]) ^ 0x8080_8080),
        _ => None,
    }
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
