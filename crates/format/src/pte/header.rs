//! The file identifier and the extended header before the flatbuffer.

use crate::error::{ErrorKind, FormatError};

/// Identifier of the one generation of the format that exists.
pub(crate) const IDENTIFIER: [u8; 4] = *b"ET12";
/// Marks an extended header, which follows the root offset and the identifier.
pub(crate) const EXTENDED_MAGIC: [u8; 4] = *b"eh00";
/// The first extended header ended before `segment_data_size`.
const MIN_HEADER_LEN: u32 = 24;

/// Sizes of the parts of a file with segments. All offsets count from the first byte of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedHeader {
    /// Bytes of the flatbuffer, this header included.
    pub program_size: u64,
    /// Where segments start; 0 when there are none.
    pub segment_base_offset: u64,
    /// Bytes from there to the end of the last segment. Files from before this field lack it.
    pub segment_data_size: Option<u64>,
}

impl ExtendedHeader {
    /// Reads the identifier and the header that follows it, if one does.
    ///
    /// # Errors
    /// `BadMagic` or `IncompatibleVersion` for another identifier; `Truncated` when the flatbuffer or
    /// the segments would reach past the end of `file`.
    pub fn parse(file: &[u8]) -> Result<Option<Self>, FormatError> {
        let Some(got) = word(file, 4) else {
            return Err(error("identifier", 4, ErrorKind::Truncated { needed: 8, available: file.len() as u64 }));
        };
        if got != IDENTIFIER {
            let kind = match got {
                [b'E', b'T', _, _] => ErrorKind::IncompatibleVersion { expected: IDENTIFIER, got },
                _ => ErrorKind::BadMagic { expected: IDENTIFIER, got },
            };
            return Err(error("identifier", 4, kind));
        }
        if word(file, 8) != Some(EXTENDED_MAGIC) {
            return Ok(None);
        }
        let len = number::<4>(file, 12, "length")? as u32;
        if len < MIN_HEADER_LEN {
            let kind = ErrorKind::Truncated { needed: u64::from(MIN_HEADER_LEN), available: u64::from(len) };
            return Err(error("length", 12, kind));
        }
        let header = Self {
            program_size: number::<8>(file, 16, "program_size")?,
            segment_base_offset: number::<8>(file, 24, "segment_base_offset")?,
            segment_data_size: if len >= 32 { Some(number::<8>(file, 32, "segment_data_size")?) } else { None },
        };
        let available = file.len() as u64;
        if header.program_size > available {
            let kind = ErrorKind::Truncated { needed: header.program_size, available };
            return Err(error("program_size", 16, kind));
        }
        let needed = header.segment_base_offset.saturating_add(header.segment_data_size.unwrap_or(0));
        if needed > available {
            return Err(error("segment_data_size", 32, ErrorKind::Truncated { needed, available }));
        }
        Ok(Some(header))
    }
}

fn word(file: &[u8], at: usize) -> Option<[u8; 4]> {
    file.get(at..)?.first_chunk().copied()
}

/// The little-endian number of `N` bytes at `at`.
fn number<const N: usize>(file: &[u8], at: usize, field: &'static str) -> Result<u64, FormatError> {
    let Some(bytes) = file.get(at..).and_then(|b| b.first_chunk::<N>()) else {
        let kind = ErrorKind::Truncated { needed: (at + N) as u64, available: file.len() as u64 };
        return Err(error(field, at, kind));
    };
    Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

#[cold]
fn error(field: &'static str, at: usize, kind: ErrorKind) -> FormatError {
    FormatError { kind, table: "header", field, index: None, offset: at as u64 }
}
