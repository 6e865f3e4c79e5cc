//! The library's errors.

use rushlight::{Code, Error};

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

/// The fields of an error that is not the library's, which may get more.
pub fn own_error(code: Code, text: &str) -> Vec<(&'static str, Plain)> {
    vec![
        ("code", (code as u32).into()),
        ("codeName", format!("{code:?}").into()),
        ("message", format!("[{code:?} {:#04x}] {text}", code as u32).into()),
    ]
}
