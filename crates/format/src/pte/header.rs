//! The file identifier and the extended header before the flatbuffer.

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::Context;
use crate::header::check_identifier;
use crate::schema::*;

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
    /// Offset of the first segment; 0 when there are none.
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
        let ctx = Context::new(file);
        let header = Self::read(&ctx);
        ctx.explain(Some(header))
    }

    pub(crate) fn read(ctx: &Context<'_>) -> Option<Self> {
        check_identifier(ctx, IDENTIFIER);
        if ctx.buf().get(8..12) != Some(&EXTENDED_MAGIC) {
            return None;
        }
        let len: u32 = ctx.number(12, HEADER_LENGTH);
        if len < MIN_HEADER_LEN {
            let kind = ErrorKind::Truncated { needed: u64::from(MIN_HEADER_LEN), available: u64::from(len) };
            ctx.report(HEADER_LENGTH, kind, 12);
        }
        let header = Self {
            program_size: ctx.number(16, HEADER_PROGRAM_SIZE),
            segment_base_offset: ctx.number(24, HEADER_SEGMENT_BASE),
            segment_data_size: if len >= 32 { Some(ctx.number(32, HEADER_SEGMENT_SIZE)) } else { None },
        };
        let available = ctx.buf().len() as u64;
        if header.program_size > available {
            let kind = ErrorKind::Truncated { needed: header.program_size, available };
            ctx.report(HEADER_PROGRAM_SIZE, kind, 16);
        }
        let needed = header.segment_base_offset.saturating_add(header.segment_data_size.unwrap_or(0));
        if needed > available {
            ctx.report(HEADER_SEGMENT_SIZE, ErrorKind::Truncated { needed, available }, 32);
        }
        Some(header)
    }
}
