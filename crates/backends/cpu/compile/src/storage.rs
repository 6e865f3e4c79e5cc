//! Storage of tensors between steps: as `f32`, or as `u8` with a scale and a zero point. States may also have 16 bits.

use rushlight_cpu_payload::Affine;
use rushlight_format::ScalarType;

use rushlight_graph::quantization::PerTensor;
use rushlight_graph::{Call, ConstantData, State};

/// True if tensors of a type are stored as `f32` and converted where they enter or leave a part. Truth values are 1 and
/// 0. Floats of 16 bits are rounded where they leave and where a program converts to them, but not in between.
pub(crate) const fn is_stored_as_float(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Float | ScalarType::Half | ScalarType::BFloat16 | ScalarType::Bool)
}

/// True if tensors of a type are stored as `u8`. Signed integers are stored with 128 added.
pub(crate) const fn is_stored_as_byte(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Char | ScalarType::Byte)
}

/// Returns the affine under which the stored bytes stand for the integers themselves.
pub(crate) const fn integral(dtype: ScalarType) -> Affine {
    Affine::new(1.0, if matches!(dtype, ScalarType::Char) { 128 } else { 0 }, [0, 255])
}

/// Returns the 32 bits that fill the memory of a state before the first call. `None` if the state cannot be stored, or
/// its elements differ.
pub(crate) fn initial_bits(state: &State) -> Option<u32> {
    match state.ty.dtype {
        ScalarType::Float => Some(f32::from_le_bytes(state.repeated()?.try_into().ok()?).to_bits()),
        ScalarType::Byte => Some(u32::from_le_bytes([*state.repeated()?.first()?; 4])),
        ScalarType::Half | ScalarType::BFloat16 => {
            let bits = u16::from_le_bytes(state.repeated()?.try_into().ok()?);
            Some(u32::from(bits) << 16 | u32::from(bits))
        }
        // i64 states are stored as floats.
        ScalarType::Long => matches!(state.initial, ConstantData::Zeros).then_some(0),
        ScalarType::Char => Some(u32::from_le_bytes([*state.repeated()?.first()?; 4]) ^ 0x8080_8080),
        _ => None,
    }
}

/// Returns the affine of a node that quantizes or dequantizes; `None` if its parameters do not fit `u8`.
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
