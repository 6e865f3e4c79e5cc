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
    /// How many bytes [`make`](Self::make) gives.
    fn size(&self) -> u64;

    /// The bytes; `None` if that fails.
    fn make(&self) -> Option<Vec<u8>>;
}

impl Blob<'_> {
    /// Number of bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Made(data) => data.size(),
        }
    }

    /// The bytes; `None` if they could not be made, or were not as many as was said.
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Made(data) => data.make().filter(|bytes| bytes.len() as u64 == data.size()).map(Cow::Owned),
        }
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
