//! The bytes of a program, from a file or memory.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "pt2")]
use rushlight_format::FileKind;
#[cfg(feature = "pt2")]
use rushlight_graph::Bytes;
use rushlight_runtime::{Code, HeapBlock, StableBytes};

use crate::error::Error;
#[cfg(feature = "pt2")]
use crate::kinds::{Wanted, mistaken};

/// The way to load a file into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMode {
    /// The file is read whole into memory.
    File,
    /// The file is mapped. Pages are read when they are first used, and are shared between processes. The file must not
    /// be changed or shortened while it is loaded.
    #[default]
    Mmap,
    /// The file is mapped and locked into memory. Fails if the system does not allow it.
    MmapMlock,
    /// The file is mapped and, if the system allows it, locked into memory.
    MmapMlockIgnoreErrors,
}

impl LoadMode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::File, Self::Mmap, Self::MmapMlock, Self::MmapMlockIgnoreErrors];

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Mmap => "mmap",
            Self::MmapMlock => "mmap-mlock",
            Self::MmapMlockIgnoreErrors => "mmap-mlock-ignore-errors",
        }
    }
}

impl std::str::FromStr for LoadMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let expected = Self::ALL.map(Self::name).join(", ");
            Error::invalid("files are not loaded so").expected(expected).got(format!("`{name}`"))
        })
    }
}

/// Loads a file into memory, 16-byte aligned or better.
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
    // Pipes have no length to map, and an empty file cannot be mapped.
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
        // SAFETY: the mapping is read-only and private to this process. If another process shortens or changes the file
        // meanwhile, the slice does not stay unchanged as promised. `LoadMode::Mmap` names that condition, and
        // `LoadMode::File` exists for files that may change.
        Ok(Self(unsafe { memmap2::Mmap::map(file)? }))
    }
}

// SAFETY: a mapping stays at its address until it is unmapped by drop, and nothing in this process writes to it.
unsafe impl StableBytes for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A range of other bytes.
struct Part {
    whole: Arc<dyn StableBytes>,
    range: Range<usize>,
}

// SAFETY: the whole is stable, and the range never changes, so the part is stable, too.
unsafe impl StableBytes for Part {
    fn bytes(&self) -> &[u8] {
        self.whole.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

/// Returns a range of a file's bytes: in place if it is aligned, else a copy.
pub(crate) fn part(whole: Arc<dyn StableBytes>, range: Range<usize>) -> Result<Arc<dyn StableBytes>, Error> {
    let bytes = whole.bytes().get(range.clone()).unwrap_or_default();
    if (bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT) { Ok(Arc::new(Part { whole, range })) } else { copy(bytes) }
}

/// Alignment of programs that need no copy.
const ALIGNMENT: usize = 16;

/// The shared bytes of a file, for readers.
#[cfg(any(feature = "pt2", feature = "lower"))]
pub(crate) struct Shared(pub Arc<dyn StableBytes>);

#[cfg(any(feature = "pt2", feature = "lower"))]
impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// Maps the bytes of a file for [`Compiler::method_bytes`](crate::Compiler::method_bytes). The file must not be changed while
/// they are in use.
///
/// # Errors
/// `NotFound` if there is no such file, and `AccessFailed` if it cannot be opened or mapped.
#[cfg(feature = "pt2")]
pub fn open_shared(path: impl AsRef<Path>) -> Result<Bytes, Error> {
    Ok(Bytes::new(Shared(open(path.as_ref(), LoadMode::Mmap)?)))
}

/// As [`open_shared`], for a `.pt2` file.
///
/// # Errors
/// As [`open_shared`], and `InvalidProgram` for a file of another kind. The error names the kind.
#[cfg(feature = "pt2")]
pub fn open_exported(path: impl AsRef<Path>) -> Result<Bytes, Error> {
    let bytes = open_shared(path.as_ref())?;
    check_exported(&bytes, Some(path.as_ref()))?;
    Ok(bytes)
}

/// Refuses bytes that are no `.pt2` file.
///
/// # Errors
/// `InvalidProgram` for a file of another kind. For an archive that may be meant as a program, the front end reports the
/// missing part.
#[cfg(feature = "pt2")]
pub(crate) fn check_exported(bytes: &[u8], path: Option<&Path>) -> Result<(), Error> {
    match mistaken(Wanted::Exported, bytes, path) {
        Some(error) if FileKind::of(bytes) != FileKind::Zip => Err(error),
        _ => Ok(()),
    }
}
