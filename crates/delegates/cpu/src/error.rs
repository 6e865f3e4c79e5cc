//! Errors of the engine as the runtime's.

use rushlight_runtime::{Code, Detail, Error};

/// A step whose tensors contradict each other: the compiler writes none, so that the payload is damaged.
pub(crate) fn damaged() -> Error {
    Error::new(Code::DelegateInvalidCompatibility, Detail::Text("a step of the CPU program does not fit its tensors"))
}

pub(crate) fn of_engine(error: rushlight_engine::Error) -> Error {
    match error {
        rushlight_engine::Error::Mismatch { what, .. } | rushlight_engine::Error::Size { what } => {
            Error::new(Code::DelegateInvalidCompatibility, Detail::Text(what))
        }
        _ => damaged(),
    }
}
