//! Errors of reading and rendering a template.

/// An error, with its line of the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) line: Option<u32>,
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), line: None }
    }

    pub(super) fn at(line: u32, message: impl Into<String>) -> Self {
        Self { message: message.into(), line: Some(line) }
    }
}

/// Returns a failure with a formatted message.
macro_rules! fail {
    ($($arg:tt)*) => {
        return Err($crate::jinja::failure::Failure::new(format!($($arg)*)))
    };
}

pub(super) use fail;
