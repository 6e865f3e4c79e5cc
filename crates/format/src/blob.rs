//! Data that a file will hold.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Data of a file: bytes in memory, or bytes that are made when they are written. Large data then need not be in memory all
/// at once.
#[derive(Clone, Debug)]
pub enum Blob<'a> {
    Bytes(Cow<'a, [u8]>),
    Made(Arc<dyn Make>),
}

/// Makes data when it is written, in one piece or several. It may be made several times, and is the same every time.
pub trait Make: fmt::Debug + Send + Sync {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// The bytes, if they are in memory.
    fn in_place(&self) -> Option<&[u8]> {
        None
    }

    /// Number of pieces, at least one.
    fn pieces(&self) -> u64 {
        1
    }

    /// Bytes of a piece. All pieces together have [`size`](Self::size).
    fn piece_size(&self, _piece: u64) -> u64 {
        self.size()
    }

    /// Puts the bytes of a piece into `buffer`, whose content goes; `None` if that fails.
    fn make(&self, piece: u64, buffer: &mut Vec<u8>) -> Option<()>;
}

impl Blob<'_> {
    /// Number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Made(data) => data.size(),
        }
    }

    /// The bytes, if they are in memory.
    pub fn in_place(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Made(data) => data.in_place(),
        }
    }

    /// Number of pieces; empty data has none.
    pub fn pieces(&self) -> u64 {
        match self {
            _ if self.size() == 0 => 0,
            Self::Made(data) if data.in_place().is_none() => data.pieces(),
            _ => 1,
        }
    }

    /// The bytes of a piece, borrowed if they exist, else produced in `buffer`, whose contents are replaced. `None` if
    /// they could not be produced, or their number is not the declared one.
    pub fn piece<'b>(&'b self, piece: u64, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let (Self::Made(data), None) = (self, self.in_place()) else { return self.in_place() };
        data.make(piece, buffer)?;
        // At the last piece, the sum of the sizes must be the declared size.
        let is_last = piece.checked_add(1)? == data.pieces();
        let is_whole = || (0..data.pieces()).map(|piece| data.piece_size(piece)).sum::<u64>() == data.size();
        (buffer.len() as u64 == data.piece_size(piece) && (!is_last || is_whole())).then_some(buffer)
    }

    /// All bytes; `None` if they could not be produced, or their number is not the declared one.
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        if let Some(bytes) = self.in_place() {
            return Some(Cow::Borrowed(bytes));
        }
        let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
        for piece in 0..self.pieces() {
            bytes.extend_from_slice(self.piece(piece, &mut buffer)?);
        }
        Some(Cow::Owned(bytes))
    }
}

impl PartialEq for Blob<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Made(a), Self::Made(b)) if Arc::ptr_eq(a, b) => true,
            _ => self.size() == other.size() && self.bytes() == other.bytes(),
        }
    }
}

impl<'a, T: Into<Cow<'a, [u8]>>> From<T> for Blob<'a> {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}
