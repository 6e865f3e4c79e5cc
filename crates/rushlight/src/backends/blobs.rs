//! Named data of lowered programs that stays in memory.

use std::collections::HashMap;
use std::sync::Arc;

#[cfg(any(feature = "lower", feature = "pt2"))]
use rushlight_format::Blob;
#[cfg(any(feature = "lower", feature = "pt2"))]
use rushlight_graph::Bytes;
#[cfg(any(feature = "lower", feature = "pt2"))]
use rushlight_runtime::Code;

#[cfg(any(feature = "lower", feature = "pt2"))]
use crate::error::Error;

/// Named data by key, for run-time halves to use where it is.
pub(crate) type Blobs = HashMap<String, Arc<dyn AsRef<[u8]> + Send + Sync>>;

/// Named data that the compiler made.
///
/// # Errors
/// `InvalidProgram` for data that could not be made.
#[cfg(any(feature = "lower", feature = "pt2"))]
pub(crate) fn blobs(named: Vec<(String, Blob<'static>)>) -> Result<Arc<Blobs>, Error> {
    let shared = |(key, blob): (String, Blob<'static>)| match Bytes::of_blob(&blob) {
        Some(bytes) => Ok((key, Arc::new(View(bytes)) as _)),
        None => Err(Error::new(Code::InvalidProgram, format!("the data `{key}` could not be made"))),
    };
    named.into_iter().map(shared).collect::<Result<_, Error>>().map(Arc::new)
}

/// Bytes as run-time halves take them.
#[cfg(any(feature = "lower", feature = "pt2"))]
struct View(Bytes);

#[cfg(any(feature = "lower", feature = "pt2"))]
impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
