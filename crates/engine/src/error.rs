//! What can be wrong with a call.

use core::fmt;

use crate::Isa;

/// Why a call did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A slice is too short, or two sizes contradict each other. `what` names the argument.
    Mismatch { what: &'static str, expected: usize, got: usize },
    /// A size is zero where it may not be, or products of sizes do not fit in `usize`.
    Size { what: &'static str },
    /// A number that must be below `size` is not: a row to gather, a register, the position of an operand.
    Index { what: &'static str, index: i64, size: usize },
    /// An argument is of a type of numbers that is not taken in its place.
    Type { what: &'static str },
    /// This machine does not have the instruction set.
    Unavailable(Isa),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Mismatch { what, expected, got } => write!(f, "{what}: expected at least {expected}, got {got}"),
            Error::Size { what } => write!(f, "{what}: not a possible size"),
            Error::Index { what, index, size } => write!(f, "{what}: {index} is not below {size}"),
            Error::Type { what } => write!(f, "{what}: not of a type of numbers that is taken here"),
            Error::Unavailable(isa) => write!(f, "this machine does not have {isa}"),
        }
    }
}

impl core::error::Error for Error {}

/// `a * b * …`, or an error naming `what` when it does not fit.
pub(crate) fn size(what: &'static str, factors: &[usize]) -> Result<usize, Error> {
    factors.iter().try_fold(1usize, |product, &factor| product.checked_mul(factor)).ok_or(Error::Size { what })
}

/// That `got` is at least `expected`.
pub(crate) fn at_least(what: &'static str, got: usize, expected: usize) -> Result<(), Error> {
    if got >= expected { Ok(()) } else { Err(Error::Mismatch { what, expected, got }) }
}

/// That `got` is not zero.
pub(crate) fn positive(what: &'static str, got: usize) -> Result<(), Error> {
    if got > 0 { Ok(()) } else { Err(Error::Size { what }) }
}

/// How many elements `rows` rows of `columns` span when they begin `stride` apart: 0 for no rows.
pub(crate) fn span(what: &'static str, rows: usize, columns: usize, stride: usize) -> Result<usize, Error> {
    if rows == 0 || columns == 0 {
        return Ok(0);
    }
    if rows > 1 {
        at_least(what, stride, columns)?;
    }
    size(what, &[rows - 1, stride])?.checked_add(columns).ok_or(Error::Size { what })
}
