//! Data that a file will hold.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Data of a file being written: bytes that are there, or bytes that are made when their turn comes, so that large data
/// need not be in memory all at once.
#[derive(Clone, Debug)]
pub enum Blob<'a> {
    Bytes(Cow<'a, [u8]>),
    Made(Arc<dyn Make>),
}

/// Makes data when it is written. It may be made several times, and is the same every time.
pub trait Make: fmt::Debug + Send + Sync {
    /// How many bytes there are.
    fn size(&self) -> u64;

    /// The bytes, if they are there already.
    fn in_place(&self) -> Option<&[u8]> {
        None
    }

    /// Puts the bytes into `buffer`, whose content goes; `None` if that fails.
    fn make(&self, buffer: &mut Vec<u8>) -> Option<()>;
}

impl Blob<'_> {
    /// Number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Made(data) => data.size(),
        }
    }

    /// The bytes, if they are there already.
    pub fn in_place(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Made(data) => data.in_place(),
        }
    }

    /// The bytes, where they are already or else made in `buffer`, whose content goes; `None` if they could not be made, or
    /// are not as many as was said.
    pub fn bytes<'b>(&'b self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let bytes = match (self, self.in_place()) {
            (Self::Made(data), None) => {
                data.make(buffer)?;
                buffer
            }
            (_, in_place) => in_place?,
        };
        (bytes.len() as u64 == self.size()).then_some(bytes)
    }
}

impl PartialEq for Blob<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Made(a), Self::Made(b)) if Arc::ptr_eq(a, b) => true,
            _ => self.size() == other.size() && self.bytes(&mut Vec::new()) == other.bytes(&mut Vec::new()),
        }
    }
}

impl<'a, T: Into<Cow<'a, [u8]>>> From<T> for Blob<'a> {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}
