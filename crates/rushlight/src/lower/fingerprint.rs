//! The fingerprint of a program.

use std::fmt;
use std::sync::{Arc, OnceLock};

use blake3::Hasher;
use rushlight_runtime::StableBytes;

use super::Source;
use super::cache::content;
use crate::backends::default_threads;

/// Identifies a program: a cryptographic hash of its file and of its files of external data, in order. It is computed on first use, in
/// time proportional to the size of the files.
#[derive(Clone)]
pub struct Fingerprint(Arc<Files>);

struct Files {
    files: Vec<Arc<dyn StableBytes>>,
    hash: OnceLock<[u8; 32]>,
}

impl Fingerprint {
    pub(crate) fn of(source: &Source) -> Self {
        let files = std::iter::once(&source.program).chain(&source.external).cloned().collect();
        Self(Arc::new(Files { files, hash: OnceLock::new() }))
    }

    /// The hash.
    pub fn bytes(&self) -> [u8; 32] {
        *self.0.hash.get_or_init(|| {
            let mut hasher = Hasher::new();
            hasher.update(b"a program of Rushlight");
            for file in &self.0.files {
                let bytes = file.bytes();
                hasher.update(&(bytes.len() as u64).to_le_bytes());
                hasher.update(content(bytes, default_threads()).as_bytes());
            }
            *hasher.finalize().as_bytes()
        })
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint").finish_non_exhaustive()
    }
}
