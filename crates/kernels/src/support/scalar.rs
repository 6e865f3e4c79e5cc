//! Scalars as elements.

use rushlight_runtime::{Detail, Error, Result, Scalar, ScalarType};

use super::number::Number;

/// The scalar as an element of type `T`, or an error if it is beyond that type's range, as PyTorch's `fill` has it.
/// Fractions are cut off, and negative numbers wrap in `u8`.
pub(crate) fn checked_element<T: Number>(value: Scalar) -> Result<T> {
    let element = T::from_scalar(value);
    let in_range = match value {
        Scalar::Bool(_) => true,
        _ if T::DTYPE == ScalarType::Bool => true,
        _ if T::IS_FLOAT => !element.to_f64().is_infinite() || value.to_f64().is_infinite(),
        Scalar::Int(v) => element.to_i64() == v || (T::DTYPE == ScalarType::Byte && (-255..0).contains(&v)),
        Scalar::Double(v) => {
            let whole = libm::trunc(v);
            element.to_f64() == whole || (T::DTYPE == ScalarType::Byte && (-255.0..0.0).contains(&whole))
        }
    };
    if in_range {
        return Ok(element);
    }
    let (what, expected) = ("scalar", "a number in the range of the tensor's type");
    Err(Error::from(match value {
        Scalar::Double(got) => Detail::Number { what, expected, got },
        Scalar::Int(got) => Detail::Value { what, expected, got },
        Scalar::Bool(got) => Detail::Value { what, expected, got: i64::from(got) },
    }))
}
