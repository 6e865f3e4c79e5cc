//! Where the bytes of a program come from.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rushlight_runtime::{Code, HeapBlock, StableBytes};

use crate::error::Error;

/// How a file is brought into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMode {
    /// Read whole into memory.
    File,
    /// Mapped: pages are read when they are first used, and shared between processes. The file must not be changed
    /// or shortened while it is loaded.
    #[default]
    Mmap,
    /// Mapped and locked into memory. Fails where the system does not allow it.
    MmapMlock,
    /// Mapped and, where the system allows it, locked into memory.
    MmapMlockIgnoreErrors,
}

/// Brings a file into memory, 16-byte aligned or better.
pub(crate) fn open(path: &Path, mode: LoadMode) -> Result<Arc<dyn StableBytes>, Error> {
    let fail = |what: &str, error: &std::io::Error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::AccessFailed };
        Error::new(code, format!("cannot {what} `{}`", path.display())).of_file(path, error)
    };
    let mut file = File::open(path).map_err(|e| fail("open", &e))?;
    let metadata = file.metadata().map_err(|e| fail("open", &e))?;
    if metadata.is_dir() {
        return Err(Error::new(Code::AccessFailed, format!("cannot open `{}`", path.display()))
            .expected("a file".into())
            .got_folder(path));
    }
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_char_device(&metadata.file_type()) {
        return Err(Error::new(Code::AccessFailed, format!("cannot open `{}`", path.display()))
            .expected("a file or a pipe".into())
            .got("a device, which may never end".into()));
    }
    // Pipes have no length to map, and nothing can be mapped of an empty file.
    if mode == LoadMode::File || !metadata.is_file() || metadata.len() == 0 {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| fail("read", &e))?;
        return copy(&bytes);
    }
    let map = Mapped::new(&file).map_err(|e| fail("map", &e))?;
    #[cfg(unix)]
    if matches!(mode, LoadMode::MmapMlock | LoadMode::MmapMlockIgnoreErrors)
        && let Err(e) = map.0.lock()
        && mode == LoadMode::MmapMlock
    {
        return Err(fail("lock the mapping of", &e));
    }
    Ok(Arc::new(map))
}

/// Copies bytes into aligned memory.
pub(crate) fn copy(bytes: &[u8]) -> Result<Arc<dyn StableBytes>, Error> {
    let mut block = HeapBlock::new(bytes.len())?;
    block.bytes_mut().copy_from_slice(bytes);
    Ok(Arc::new(block))
}

struct Mapped(memmap2::Mmap);

impl Mapped {
    fn new(file: &File) -> std::io::Result<Self> {
        // SAFETY: the mapping is read-only and private to this process. A file that another process shortens or
        // changes meanwhile breaks the promise of an unchanging slice; `LoadMode::Mmap` names that condition, and
        // `LoadMode::File` is there for files that may change.
        Ok(Self(unsafe { memmap2::Mmap::map(file)? }))
    }
}

// SAFETY: a mapping stays at its address until it is unmapped by drop, and nothing in this process writes to it.
unsafe impl StableBytes for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A part of other bytes.
struct Part {
    whole: Arc<dyn StableBytes>,
    range: Range<usize>,
}

// SAFETY: the whole is stable, so that a part of it, whose range never changes, is as well.
unsafe impl StableBytes for Part {
    fn bytes(&self) -> &[u8] {
        self.whole.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

/// A part of the bytes of a file: in place where it is aligned, else a copy.
pub(crate) fn part(whole: Arc<dyn StableBytes>, range: Range<usize>) -> Result<Arc<dyn StableBytes>, Error> {
    let bytes = whole.bytes().get(range.clone()).unwrap_or_default();
    if (bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) { Ok(Arc::new(Part { whole, range })) } else { copy(bytes) }
}

/// Alignment of programs that need no copy.
const ALIGNMENT: usize = 16;

/// The bytes of a file, shared, for who only reads them.
#[cfg(any(feature = "pt2", feature = "lower"))]
pub(crate) struct Shared(pub Arc<dyn StableBytes>);

#[cfg(any(feature = "pt2", feature = "lower"))]
impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}
