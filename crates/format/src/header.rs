//! What the headers of all formats have in common.

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::Field;
use crate::schema::HEADER_IDENTIFIER;

/// Compares the identifier behind the root offset. The first two letters name the format, the rest its generation.
pub(crate) fn check_identifier(file: &[u8], expected: [u8; 4]) -> Result<(), FormatError> {
    let Some(got) = word(file, 4) else {
        return Err(error(HEADER_IDENTIFIER, 4, ErrorKind::Truncated { needed: 8, available: file.len() as u64 }));
    };
    if got == expected {
        return Ok(());
    }
    let kind = if got[..2] == expected[..2] {
        ErrorKind::IncompatibleVersion { expected, got }
    } else {
        ErrorKind::BadMagic { expected, got }
    };
    Err(error(HEADER_IDENTIFIER, 4, kind))
}

/// The four bytes at `at`.
pub(crate) fn word(file: &[u8], at: usize) -> Option<[u8; 4]> {
    file.get(at..)?.first_chunk().copied()
}

/// The little-endian number of `N` bytes at `at`.
pub(crate) fn number<const N: usize>(file: &[u8], at: usize, field: Field) -> Result<u64, FormatError> {
    let Some(bytes) = file.get(at..).and_then(|b| b.first_chunk::<N>()) else {
        let kind = ErrorKind::Truncated { needed: (at + N) as u64, available: file.len() as u64 };
        return Err(error(field, at, kind));
    };
    Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

#[cold]
pub(crate) fn error(field: Field, at: usize, kind: ErrorKind) -> FormatError {
    field.error(kind, at as u64)
}
