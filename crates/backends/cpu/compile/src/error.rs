//! Errors of the backend.

use rushlight_graph::{Error, ErrorKind};

/// An error of the backend itself, which ends the compilation.
pub(crate) fn error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, message)
}
