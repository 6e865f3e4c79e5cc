//! Named data that the compiler made, as run-time halves take it.

use std::sync::Arc;

use rushlight_format::Blob;
use rushlight_graph::Bytes;
use rushlight_runtime::Code;

use super::Blobs;
use crate::error::Error;

/// Named data that the compiler made.
///
/// # Errors
/// `InvalidProgram` for data that could not be made.
pub(crate) fn shared_blobs(named: Vec<(String, Blob<'static>)>) -> Result<Arc<Blobs>, Error> {
    let shared = |(key, blob): (String, Blob<'static>)| match Bytes::of_blob(&blob) {
        Some(bytes) => Ok((key, Arc::new(View(bytes)) as _)),
        None => Err(Error::new(Code::InvalidProgram, format!("the data `{key}` could not be made"))),
    };
    named.into_iter().map(shared).collect::<Result<_, Error>>().map(Arc::new)
}

/// Bytes as run-time halves take them.
struct View(Bytes);

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
