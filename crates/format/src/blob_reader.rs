//! Reading blobs of the named data: little-endian numbers, and texts after their lengths.

/// The bytes are not a well-formed blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Reads a blob, from front to back.
pub(crate) struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (piece, rest) = self.rest.split_at_checked(len).ok_or(Damaged)?;
        self.rest = rest;
        Ok(piece)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (piece, rest) = self.rest.split_first_chunk().ok_or(Damaged)?;
        self.rest = rest;
        Ok(*piece)
    }

    pub fn byte(&mut self) -> Result<u8, Damaged> {
        self.array().map(|[byte]| byte)
    }

    /// A text of at most 65,535 bytes.
    pub fn text(&mut self) -> Result<&'a str, Damaged> {
        let len = u16::from_le_bytes(self.array()?);
        core::str::from_utf8(self.take(usize::from(len))?).map_err(|_| Damaged)
    }
}
