//! Bytes with shared ownership.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

use rushlight_format::{Blob, Make};

/// A range of bytes that somebody keeps alive: part of a mapped file, or a block of memory. Cloning and slicing copy
/// nothing.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Bytes {
    /// All bytes of `owner`.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::shared(Arc::new(owner))
    }

    /// All bytes of an owner that others share.
    pub fn shared(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let len = (*owner).as_ref().len();
        Self { owner, range: 0..len }
    }

    /// Returns the bytes of a blob, shared if they are in memory; `None` if they cannot be made.
    pub fn of_blob(blob: &Blob<'static>) -> Option<Self> {
        match blob {
            Blob::Made(data) if data.in_place().is_some() => Some(Self::new(InPlace(data.clone()))),
            _ => Some(blob.bytes()?.into_owned().into()),
        }
    }

    /// A part of these bytes, or `None` if they are fewer.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start;
        Some(Self { owner: self.owner.clone(), range: start + range.start..start + range.end })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // An owner whose length changes gives no bytes, not a panic.
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

/// The data of a blob in memory.
struct InPlace(Arc<dyn Make>);

impl AsRef<[u8]> for InPlace {
    fn as_ref(&self) -> &[u8] {
        self.0.in_place().unwrap_or_default()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl From<Bytes> for Blob<'static> {
    /// Shares the bytes.
    fn from(bytes: Bytes) -> Self {
        Self::Made(Arc::new(bytes))
    }
}

impl Make for Bytes {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn in_place(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn make(&self, _piece: u64, buffer: &mut Vec<u8>) -> Option<()> {
        buffer.clear();
        buffer.extend_from_slice(self);
        Some(())
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_the_owner_and_stay_inside() {
        let bytes = Bytes::from(vec![1, 2, 3, 4, 5]);
        let middle = bytes.slice(1..4);
        assert_eq!(middle.as_deref(), Some(&[2, 3, 4][..]));
        assert_eq!(middle.as_ref().and_then(|part| part.slice(1..3)).as_deref(), Some(&[3, 4][..]));
        assert!(middle.is_some_and(|part| part.slice(1..4).is_none()));
        assert!(bytes.slice(4..6).is_none());
    }
}
