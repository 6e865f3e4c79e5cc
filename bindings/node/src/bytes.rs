//! The bytes of a file, until the library takes them.

use std::path::PathBuf;

use napi::bindgen_prelude::{ClassInstance, Env};
use napi_derive::napi;
use rushlight::Code;
use rushlight::runtime::HeapBlock;

use crate::error::{Problem, Result};
use crate::job::call;

/// The source of a file's bytes.
#[derive(Debug)]
pub enum Content {
    /// In memory of the library, to which JavaScript copied them.
    Block(HeapBlock),
    /// In a file, which the library maps.
    Path(PathBuf),
}

/// The bytes of a file; empty after the library has taken them.
#[napi]
#[derive(Debug)]
pub struct Bytes(Option<Content>);

#[napi]
impl Bytes {
    /// Allocates `len` zeros, for [`write`](Self::write).
    #[napi(constructor, catch_unwind)]
    pub fn new(env: Env, len: f64) -> napi::Result<Self> {
        call(env, || Ok(Self(Some(Content::Block(HeapBlock::new(len as usize)?)))))
    }

    /// Makes the bytes of the file at `path`, which the library maps.
    #[napi(catch_unwind)]
    pub fn map(path: String) -> Self {
        Self(Some(Content::Path(path.into())))
    }

    /// Copies a part to the offset `at`. Fails if it exceeds the length.
    #[napi(catch_unwind)]
    pub fn write(&mut self, env: Env, part: &[u8], at: f64) -> napi::Result<()> {
        call(env, || {
            let Some(Content::Block(block)) = &mut self.0 else { return Err(gone()) };
            let target = block.bytes_mut().get_mut(at as usize..).and_then(|rest| rest.get_mut(..part.len()));
            let target =
                target.ok_or(Problem::Own(Code::InvalidArgument, "the part exceeds the length of the file"))?;
            target.copy_from_slice(part);
            Ok(())
        })
    }

    #[napi(catch_unwind)]
    pub fn free(&mut self) {
        self.0 = None;
    }
}

fn gone() -> Problem {
    Problem::Own(Code::InvalidState, "the bytes have been handed over")
}

/// Takes the content. Fails if it was taken before.
pub fn take(bytes: &mut ClassInstance<'_, Bytes>) -> Result<Content> {
    bytes.0.take().ok_or_else(gone)
}
