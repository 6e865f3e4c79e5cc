//! The header that ExecuTorch's XNNPACK and Vulkan delegates write: where the flatbuffer and the constants lie.

use crate::error::ErrorKind;
use crate::flatbuf::Context;
use crate::schema::Field;

crate::schema::schema! {
    NAMES
    40 "PayloadHeader": {
        HEADER_LENGTH = 1 "length",
        HEADER_FLATBUFFER_SIZE = 3 "flatbuffer_size",
        HEADER_CONSTANT_OFFSET = 4 "constant_data_offset",
        HEADER_CONSTANT_SIZE = 5 "constant_data_size",
    }
}

/// Bytes of the header that every generation has.
const HEADER_LEN: u32 = 30;

/// The parts of a payload.
pub(super) struct Parts<'a> {
    pub flatbuffer: &'a [u8],
    /// `None` for payloads that have no header.
    pub constants: Option<&'a [u8]>,
    /// All bytes from the first of the constants.
    pub rest: &'a [u8],
}

/// Reads the parts of a payload whose header has this magic number; one without a header is a flatbuffer alone.
pub(super) fn read_header<'a>(ctx: &Context<'a>, magic: [u8; 4]) -> Option<Parts<'a>> {
    let payload = ctx.buf();
    if payload.get(4..8) != Some(&magic[..]) {
        return Some(Parts { flatbuffer: payload, constants: None, rest: &[] });
    }
    let len = u32::from(ctx.number::<u16>(8, HEADER_LENGTH));
    if len < HEADER_LEN {
        let kind = ErrorKind::Truncated { needed: u64::from(HEADER_LEN), available: u64::from(len) };
        ctx.report(HEADER_LENGTH, kind, 8);
        return None;
    }
    let region = |field, start: u64, size: u64, at: u32| {
        let end = start.saturating_add(size);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let bytes = range.and_then(|(start, end)| payload.get(start..end));
        if bytes.is_none() {
            ctx.report(field, ErrorKind::Truncated { needed: end, available: payload.len() as u64 }, at);
        }
        bytes
    };
    let start = u64::from(ctx.number::<u32>(10, HEADER_FLATBUFFER_SIZE));
    let size = u64::from(ctx.number::<u32>(14, HEADER_FLATBUFFER_SIZE));
    let flatbuffer = region(HEADER_FLATBUFFER_SIZE, start, size, 14)?;
    let constants_start = u64::from(ctx.number::<u32>(18, HEADER_CONSTANT_OFFSET));
    let constants_size: u64 = ctx.number(22, HEADER_CONSTANT_SIZE);
    if constants_start < start + size {
        let kind = ErrorKind::OutOfRange { value: constants_start, limit: start + size };
        ctx.report(HEADER_CONSTANT_OFFSET, kind, 18);
        return None;
    }
    let constants = region(HEADER_CONSTANT_SIZE, constants_start, constants_size, 22)?;
    let rest = payload.get(constants_start as usize..).unwrap_or_default();
    Some(Parts { flatbuffer, constants: Some(constants), rest })
}
