//! The library's errors.

use rushlight::Error;

use crate::Plain;

/// The fields of a `RushlightError`.
pub fn error(error: &Error) -> Plain {
    Plain::Object(vec![
        ("code", (error.code() as u32).into()),
        ("codeName", format!("{:?}", error.code()).into()),
        ("message", error.to_text(|_| "JavaScript cannot register operators yet".to_owned()).into()),
        ("site", error.location().into()),
        ("expected", error.what_was_expected().into()),
        ("got", error.what_came().into()),
        ("hint", error.hint().into()),
        ("missingOperators", error.missing_operators().iter().map(|op| op.name.as_str()).collect()),
    ])
}
