//! The common part of the headers of all formats.

use crate::error::ErrorKind;
use crate::flatbuf::Context;
use crate::schema::HEADER_IDENTIFIER;

/// Compares the identifier after the root offset. The first two letters name the format, the rest its generation.
pub(crate) fn check_identifier(ctx: &Context<'_>, expected: [u8; 4]) {
    let got = ctx.number::<u32>(4, HEADER_IDENTIFIER).to_le_bytes();
    if got == expected {
        return;
    }
    let kind = if got[..2] == expected[..2] {
        ErrorKind::IncompatibleVersion { expected, got }
    } else {
        ErrorKind::BadMagic { expected, got }
    };
    ctx.report(HEADER_IDENTIFIER, kind, 4);
}
