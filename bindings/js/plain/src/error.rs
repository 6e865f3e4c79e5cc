//! The library's errors.

use rushlight::{Code, Error, MissingOperator};
use rushlight_bindings_common::ErrorParts;

use crate::Plain;

/// The instruction for a missing operator.
pub fn register(_: &MissingOperator) -> String {
    "JavaScript cannot register operators yet".to_owned()
}

/// The fields of a `RushlightError`.
pub fn error(error: &Error) -> Plain {
    fields(ErrorParts::of(error, register))
}

/// The fields of an error that the binding finds itself.
pub fn own_error(code: Code, text: &str) -> Plain {
    fields(ErrorParts::new(code, text))
}

/// The fields of an error in parts.
pub fn fields(parts: ErrorParts) -> Plain {
    Plain::Object(vec![
        ("code", (parts.code as u32).into()),
        ("codeName", format!("{:?}", parts.code).into()),
        ("message", parts.text.into()),
        ("site", parts.site.into()),
        ("expected", parts.expected.into()),
        ("got", parts.got.into()),
        ("hint", parts.hint.into()),
        ("missingOperators", parts.missing_operators.into_iter().collect()),
    ])
}
