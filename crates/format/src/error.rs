//! Errors of files: the fault and its site.

use core::fmt;

#[cfg(feature = "payload")]
use crate::payload::SCHEMAS as PAYLOADS;
use crate::schema::{Field, NAMES};

/// Why a file was refused: the kind of fault, and the field it was found in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FormatError {
    pub kind: ErrorKind,
    field: Field,
    /// Index of the value, instruction, segment or key in the enclosing list, where there is one.
    pub index: Option<u32>,
    /// Byte offset in the file at which the faulty field or table stands.
    pub offset: u64,
}

/// The fault, with expected and actual values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something reaches past the end: it needs `needed` bytes of the `available` ones.
    Truncated { needed: u64, available: u64 },
    /// Not a file of this format at all.
    BadMagic { expected: [u8; 4], got: [u8; 4] },
    /// The format is right, but a generation of it that this reader does not know.
    IncompatibleVersion { expected: [u8; 4], got: [u8; 4] },
    /// An index, offset or size that must be at most, or below, `limit`.
    OutOfRange { value: u64, limit: u64 },
    /// A number that must not be negative.
    Negative { value: i64 },
    /// A product or sum of numbers in the file exceeds what this machine can address.
    Overflow,
    /// More bytes than this machine, or the format, can address.
    TooLarge { size: u64 },
    /// A string that is not UTF-8.
    InvalidUtf8,
    /// A union or enum code that the schema does not define.
    UnknownTag { tag: u32 },
    /// A vtable that is too short or of odd length.
    BadVtable,
    /// A required field is absent.
    Missing,
    /// A method has the name of an earlier one.
    Duplicate,
    /// The dim order is not a permutation of the tensor's dimensions.
    InvalidDimOrder,
    /// Legal by the schema, but no runtime executes it.
    Unsupported { what: Feature },
    /// Constants are both in the flatbuffer and in a segment.
    Conflict,
    /// So much of the file is referenced again and again that reading it is an attack.
    TooComplex,
}

/// Features that the schemas allow, and this crate or every runtime does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// A plan with more than one chain of instructions.
    Chains,
    /// An offset into the storage of a tensor.
    StorageOffset,
    /// A segment in a file without an extended header.
    SegmentWithoutHeader,
    /// Writing data that only segments can hold into a file without them.
    DataWithoutSegments,
    /// Writing data whose maker gave none.
    UnmadeData,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chains => "more than one chain",
            Self::StorageOffset => "an offset into a tensor's storage",
            Self::SegmentWithoutHeader => "a segment without an extended header",
            Self::DataWithoutSegments => "data of this kind without segments",
            Self::UnmadeData => "data that could not be made",
        })
    }
}

impl FormatError {
    pub(crate) fn new(field: Field, kind: ErrorKind, offset: u64) -> Self {
        Self { kind, field, index: None, offset }
    }

    /// Schema table (`Tensor`, `ExecutionPlan`) or container part (`header`) that holds the fault.
    pub fn table(&self) -> &'static str {
        names(self.field).0
    }

    /// Field of that table.
    pub fn field(&self) -> &'static str {
        names(self.field).1
    }
}

impl fmt::Debug for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, field) = names(self.field);
        write!(f, "{table}.{field}")?;
        if let Some(index) = self.index {
            write!(f, " of entry {index}")?;
        }
        write!(f, " at byte {}: {}", self.offset, self.kind)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { needed, available } => {
                write!(f, "needs {needed} bytes, but there are only {available}")
            }
            Self::BadMagic { expected, got } => {
                write!(f, "expected the identifier \"{}\", got \"{}\"", expected.escape_ascii(), got.escape_ascii())
            }
            Self::IncompatibleVersion { expected, got } => write!(
                f,
                "format generation \"{}\" is not supported, expected \"{}\"",
                got.escape_ascii(),
                expected.escape_ascii()
            ),
            Self::OutOfRange { value, limit } => write!(f, "{value} is out of range, the limit is {limit}"),
            Self::Negative { value } => write!(f, "expected a number that is not negative, got {value}"),
            Self::Overflow => f.write_str("the size overflows what this machine can address"),
            Self::TooLarge { size } => {
                write!(f, "{size} bytes are more than can be addressed")
            }
            Self::InvalidUtf8 => f.write_str("expected UTF-8 text"),
            Self::UnknownTag { tag } => write!(f, "{tag} is not a known code"),
            Self::BadVtable => f.write_str("malformed table"),
            Self::Missing => f.write_str("required, but absent"),
            Self::Duplicate => f.write_str("another method has the same name"),
            Self::InvalidDimOrder => f.write_str("expected a permutation of the tensor's dimensions"),
            Self::Unsupported { what } => write!(f, "{what} is not supported"),
            Self::Conflict => f.write_str("must be empty when constant_segment is present"),
            Self::TooComplex => f.write_str("the file refers to the same data too often"),
        }
    }
}

impl core::error::Error for FormatError {}

/// The names of the fields of payloads, which no microcontroller reads.
#[cfg(not(feature = "payload"))]
const PAYLOADS: &[&[(Field, &str, &str)]] = &[];

impl Field {
    /// An error of this field, found at byte `offset`.
    pub(crate) fn error(self, kind: ErrorKind, offset: u64) -> FormatError {
        FormatError::new(self, kind, offset)
    }
}

/// Every field, with the names of its table and of itself.
fn fields() -> impl Iterator<Item = &'static (Field, &'static str, &'static str)> {
    NAMES.iter().chain(PAYLOADS.iter().copied().flatten())
}

/// The names of a field's table and of the field.
pub(crate) fn names(field: Field) -> (&'static str, &'static str) {
    fields().find(|(known, ..)| *known == field).map_or(("", ""), |(_, table, name)| (*table, *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_fields_share_a_number() {
        for (i, (field, table, name)) in fields().enumerate() {
            assert_eq!(names(*field), (*table, *name), "entry {i}");
        }
    }
}
