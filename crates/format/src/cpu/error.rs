//! What can be wrong with a payload, and where.

use core::fmt;

use crate::error::ErrorKind;

/// Why a payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadError {
    pub kind: ErrorKind,
    /// The list, such as `step`, and the position in it; or `byte`, and the offset in the payload.
    pub site: Option<(&'static str, usize)>,
}

impl PayloadError {
    pub(super) const fn new(kind: ErrorKind) -> Self {
        Self { kind, site: None }
    }

    pub(super) fn at(self, list: &'static str, index: usize) -> Self {
        Self { site: self.site.or(Some((list, index))), ..self }
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((list, index)) = self.site {
            write!(f, "{list} {index}: ")?;
        }
        fmt::Display::fmt(&self.kind, f)
    }
}

impl core::error::Error for PayloadError {}
