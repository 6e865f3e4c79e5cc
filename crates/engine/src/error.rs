//! Errors of the engine's functions.

use core::fmt;

use crate::Isa;

/// Why a call was rejected; nothing was computed or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A slice is too short, or two sizes contradict each other. `what` names the argument.
    Mismatch { what: &'static str, expected: usize, got: usize },
    /// A size is zero where it must not be, or a product of sizes overflows `usize`.
    Size { what: &'static str },
    /// An index is out of range: of a row to gather, a register, an operand or a dimension.
    Index { what: &'static str, index: i64, size: usize },
    /// An argument has an element type that the function does not support in this combination.
    Type { what: &'static str },
    /// This machine does not support the instruction set.
    Unavailable(Isa),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Mismatch { what, expected, got } => write!(f, "{what}: expected at least {expected}, got {got}"),
            Error::Size { what } => write!(f, "{what}: not a possible size"),
            Error::Index { what, index, size } => write!(f, "{what}: {index} is not below {size}"),
            Error::Type { what } => write!(f, "{what}: unsupported element type"),
            Error::Unavailable(isa) => write!(f, "this machine does not have {isa}"),
        }
    }
}

impl core::error::Error for Error {}

/// Multiplies sizes, or returns an error naming `what` if the product overflows.
pub(crate) fn size(what: &'static str, factors: &[usize]) -> Result<usize, Error> {
    factors.iter().try_fold(1usize, |product, &factor| product.checked_mul(factor)).ok_or(Error::Size { what })
}

/// Checks that `got` is at least `expected`.
pub(crate) fn at_least(what: &'static str, got: usize, expected: usize) -> Result<(), Error> {
    if got >= expected { Ok(()) } else { Err(Error::Mismatch { what, expected, got }) }
}

/// Checks that `got` is not zero.
pub(crate) fn positive(what: &'static str, got: usize) -> Result<(), Error> {
    if got > 0 { Ok(()) } else { Err(Error::Size { what }) }
}

/// Returns the number of elements that `rows` rows of `columns` span when they begin `stride` elements apart; 0 for an
/// empty matrix.
pub(crate) fn span(what: &'static str, rows: usize, columns: usize, stride: usize) -> Result<usize, Error> {
    if rows == 0 || columns == 0 {
        return Ok(0);
    }
    if rows > 1 {
        at_least(what, stride, columns)?;
    }
    size(what, &[rows - 1, stride])?.checked_add(columns).ok_or(Error::Size { what })
}
