//! Content of tensors and other data: short ones in the text, others by hash.

use std::fmt::Write;

use half::{bf16, f16};
use rushlight_format::ScalarType;

use crate::Bytes;
use crate::Error;
use crate::{Constant, ConstantData};

/// Tensors of up to this many elements stand in the text.
const SHORT: usize = 8;
/// Other data of up to this many bytes stands in the text.
const SHORT_BYTES: usize = 32;

/// The elements of a short tensor as a list, or its bytes where a list would not be exact; `None` for others.
pub(super) fn short(constant: &Constant) -> Result<Option<String>, Error> {
    if matches!(constant.data, ConstantData::Zeros) {
        return Ok(Some("zeros".into()));
    }
    let size = constant.ty.dtype.size();
    if constant.len()? > SHORT * size || matches!(constant.data, ConstantData::Computed(_)) {
        return Ok(None);
    }
    let bytes = constant.read()?;
    let elements = bytes.chunks_exact(size).map(|element| element_text(element, constant.ty.dtype));
    Ok(Some(match elements.collect::<Option<Vec<_>>>() {
        Some(elements) => format!("[{}]", elements.join(", ")),
        None => hex(&bytes),
    }))
}

/// Short data as hexadecimal bytes; `None` for others.
pub(super) fn short_bytes(bytes: &[u8]) -> Option<String> {
    (bytes.len() <= SHORT_BYTES).then(|| hex(bytes))
}

/// Bytes as `x"00ff"`.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("x\"");
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    text
}

/// Decodes hexadecimal digits.
pub(super) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<Vec<_>>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then_some(())?;
    pairs.map(|pair| if let [high, low] = pair { Some(high << 4 | low) } else { None }).collect()
}

fn element_text(element: &[u8], dtype: ScalarType) -> Option<String> {
    let float = |value: f64, text: String| (!value.is_nan()).then_some(text);
    Some(match dtype {
        ScalarType::Bool => match element {
            [0] => "false".into(),
            [1] => "true".into(),
            _ => return None,
        },
        ScalarType::Byte => u8::from_le_bytes(element.try_into().ok()?).to_string(),
        ScalarType::Char => i8::from_le_bytes(element.try_into().ok()?).to_string(),
        ScalarType::Short => i16::from_le_bytes(element.try_into().ok()?).to_string(),
        ScalarType::Int => i32::from_le_bytes(element.try_into().ok()?).to_string(),
        ScalarType::Long => i64::from_le_bytes(element.try_into().ok()?).to_string(),
        ScalarType::Half => {
            let value = f16::from_le_bytes(element.try_into().ok()?).to_f32();
            float(value.into(), format!("{value:?}"))?
        }
        ScalarType::BFloat16 => {
            let value = bf16::from_le_bytes(element.try_into().ok()?).to_f32();
            float(value.into(), format!("{value:?}"))?
        }
        ScalarType::Float => {
            let value = f32::from_le_bytes(element.try_into().ok()?);
            float(value.into(), format!("{value:?}"))?
        }
        ScalarType::Double => {
            let value = f64::from_le_bytes(element.try_into().ok()?);
            float(value, format!("{value:?}"))?
        }
        _ => return None,
    })
}

/// The bytes of an element that a list holds; `None` if the dtype has no such element.
pub(super) fn element_bytes(text: &str, dtype: ScalarType) -> Option<Vec<u8>> {
    Some(match dtype {
        ScalarType::Bool => vec![u8::from(text.parse::<bool>().ok()?)],
        ScalarType::Byte => text.parse::<u8>().ok()?.to_le_bytes().to_vec(),
        ScalarType::Char => text.parse::<i8>().ok()?.to_le_bytes().to_vec(),
        ScalarType::Short => text.parse::<i16>().ok()?.to_le_bytes().to_vec(),
        ScalarType::Int => text.parse::<i32>().ok()?.to_le_bytes().to_vec(),
        ScalarType::Long => text.parse::<i64>().ok()?.to_le_bytes().to_vec(),
        ScalarType::Half => f16::from_f32(text.parse().ok()?).to_le_bytes().to_vec(),
        ScalarType::BFloat16 => bf16::from_f32(text.parse().ok()?).to_le_bytes().to_vec(),
        ScalarType::Float => text.parse::<f32>().ok()?.to_le_bytes().to_vec(),
        ScalarType::Double => text.parse::<f64>().ok()?.to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// A hash of content, the same on every machine: each 8 bytes are mixed in by a multiplication and a rotation, and the
/// length at the end. It tells contents apart that do not come from an adversary.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    for (slot, byte) in last.iter_mut().zip(words.remainder()) {
        *slot = *byte;
    }
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let hash = words.map(word).fold(FACTOR, mix);
    let hash = mix(mix(hash, u64::from_le_bytes(last)), bytes.len() as u64);
    hash ^ (hash >> 31)
}

/// A hash of the content of a tensor, and of its shape: views of other shapes hold the same elements otherwise.
pub(super) fn tensor_hash(constant: &Constant) -> Result<u64, Error> {
    let content = hash(&constant.read()?);
    let sizes: Vec<u8> = constant.sizes()?.into_iter().flat_map(|size| (size as u64).to_le_bytes()).collect();
    Ok(content.rotate_left(17) ^ hash(&sizes))
}

/// The content as bytes in order.
pub(super) fn bytes_of(data: &ConstantData) -> Option<Bytes> {
    match data {
        ConstantData::Dense(bytes) => Some(bytes.clone()),
        _ => None,
    }
}
