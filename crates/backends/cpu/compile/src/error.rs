//! Errors of the back end.

use rushlight_graph::{Error, ErrorKind};

/// An error of the back end itself, which ends the compilation.
pub(crate) fn error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, message)
}
