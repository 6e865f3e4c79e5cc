//! A cache of lowered programs on disk, so that large programs are lowered once.
//!
//! An entry is an ordinary `.pte` file. Its name is a hash of everything that it was made from: the files, the
//! settings, the version. It is written under another name and renamed, so readers see either all of it or nothing. Two
//! writers of the same entry write the same bytes. An entry is read like any untrusted file, and must declare the same
//! inputs and outputs as the program. A faulty entry is ignored and written again.

mod checksum;
mod folder;
mod key;
#[cfg(feature = "llm")]
mod language_model;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use blake3::Hash;
use rushlight_compiler::debug_map::{self, DEBUG_MAP_KEY};
use rushlight_compiler::emit::MethodMap;
use rushlight_compiler::partition::Report;
use rushlight_format::Blob;
use rushlight_format::pte::{ProgramModel, WriteOptions};
use rushlight_runtime::{Code, Program, StableBytes};

use crate::atomic::{Files, Unwritten, fill, unwritable, write_image};
use crate::error::Error;
use crate::source::{self, LoadMode};

use checksum::{Checksum, Summed};

pub(super) use key::{Made, content};
#[cfg(feature = "llm")]
pub use language_model::CachedModel;

/// The environment variable with the folder of the cache, if nothing else sets it.
const VARIABLE: &str = "RUSHLIGHT_CACHE";

/// Keys of an entry's own named data, which the program itself does not have.
const KEY: &str = "rushlight.cache.key";
const REPORT: &str = "rushlight.cache.report";

/// A folder with lowered programs, from which later loads of the same program take them.
///
/// The folder should be the user's own. A process that can write to it can change the results of models, but not make
/// them access other memory. A missing folder is made, readable and writable by the user alone. A folder that everybody
/// may write to is not used.
///
/// Processes and threads may share a folder. If an entry cannot be written, loading works without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
    smallest: u64,
}

impl Cache {
    /// Creates a cache of at most 8 GiB, for programs of at least 1 MiB.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), limit: 8 << 30, smallest: 1 << 20 }
    }

    /// Sets the maximum size of all entries in bytes. The least recently used entries are removed when another one is
    /// written.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Sets the minimum size in bytes of a program with its external data. Lowering a smaller program takes about as
    /// long as finding it in the cache.
    #[must_use]
    pub fn smallest(mut self, bytes: u64) -> Self {
        self.smallest = bytes;
        self
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the cache of the environment variable `RUSHLIGHT_CACHE`, if that names a folder.
    pub(crate) fn of_environment() -> Option<Self> {
        std::env::var_os(VARIABLE).map(Self::new).filter(Self::is_on)
    }

    /// True if the cache has a folder.
    pub(crate) fn is_on(&self) -> bool {
        !self.folder.as_os_str().is_empty()
    }
}

impl<P: Into<PathBuf>> From<P> for Cache {
    fn from(folder: P) -> Self {
        Self::new(folder)
    }
}

/// The use of a [`Cache`] for a program that was lowered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CacheUse {
    /// The lowered program was loaded from this file.
    Loaded { file: PathBuf },
    /// The program was lowered and written to this file. `ignored` is the reason why an existing file was not used.
    Written { file: PathBuf, ignored: Option<Error> },
    /// The program was lowered but not written, for this reason. `ignored` is as above.
    NotWritten { reason: Error, ignored: Option<Error> },
}

/// Writes one line.
impl fmt::Display for CacheUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brief = |error: &Error| match error.what_came() {
            Some(got) => format!("{}: {got}", error.message()),
            None => error.message().to_owned(),
        };
        let ignored = match self {
            Self::Loaded { file } => return write!(f, "loaded from `{}`", file.display()),
            Self::Written { file, ignored } => {
                write!(f, "written to `{}`", file.display())?;
                ignored
            }
            Self::NotWritten { reason, ignored } => {
                write!(f, "not written: {}", brief(reason))?;
                ignored
            }
        };
        match ignored {
            Some(ignored) => write!(f, "; the file that was there is of no use: {}", brief(ignored)),
            None => Ok(()),
        }
    }
}

/// The place in a cache for one program.
pub(super) struct Entry<'a> {
    cache: &'a Cache,
    key: Hash,
    pub file: PathBuf,
}

/// The content of an entry.
pub(super) struct Kept {
    pub program: Program<'static>,
    pub maps: Vec<MethodMap>,
    pub report: Report,
}

impl<'a> Entry<'a> {
    /// Returns the entry for a program. Reads all files.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn of(cache: &'a Cache, made: &Made<'_>, threads: usize) -> Result<Self, Error> {
        let size: u64 = made.files.iter().map(|file| file.len() as u64).sum();
        if size < cache.smallest {
            return Err(Error::new(Code::NotSupported, "so small a program is lowered as quickly as it is found"));
        }
        folder::check(&cache.folder)?;
        let key = made.key(threads);
        let file = folder::file_of(&cache.folder, &key);
        Ok(Self { cache, key, file })
    }

    /// Loads the entry, if there is one.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn load(&self, mode: LoadMode) -> Result<Option<Kept>, Error> {
        match fs::metadata(&self.file) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(useless("it is not a file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(useless("it cannot be opened").got(error.to_string())),
        }
        let bytes = match source::open(&self.file, mode) {
            // Another process has just removed it.
            Err(error) if error.code() == Code::NotFound => return Ok(None),
            bytes => bytes?,
        };
        check_sum(&*bytes)?;
        let program = Program::from_owned(bytes)?;
        let parsed = program.parsed();
        if parsed.named(KEY) != Some(self.key.as_bytes().as_slice()) {
            return Err(useless("it was made of something else"));
        }
        let report = parsed.named(REPORT).and_then(Report::from_bytes);
        let report = report.ok_or_else(|| useless("it does not say who runs the nodes"))?;
        let maps = debug_map::of_program(&parsed);
        folder::touch(&self.file);
        Ok(Some(Kept { program, maps, report }))
    }

    /// Writes a program, with the blobs that its backend handed over in memory. Returns the file.
    ///
    /// # Errors
    /// The reason why that is impossible. An old file is then unchanged.
    pub fn save<'b>(
        self,
        mut program: ProgramModel<'b>,
        blobs: &'b [(String, Blob<'static>)],
        maps: &[MethodMap],
        report: &Report,
    ) -> Result<PathBuf, Error> {
        program.named_data.extend(blobs.iter().cloned());
        let records = [
            (KEY, self.key.as_bytes().to_vec()),
            (REPORT, report.to_bytes()),
            (DEBUG_MAP_KEY, debug_map::to_bytes(maps)),
        ];
        program.named_data.extend(records.map(|(key, data)| (key.to_owned(), data.into())));
        let image = program.write(&WriteOptions::default()).map_err(unwritable)?;
        if image.size() > self.cache.limit {
            let message = format!("the lowered program has more than the {} bytes of the cache", self.cache.limit);
            return Err(Error::new(Code::NotSupported, message).got(format!("{} bytes", image.size())));
        }
        let folder = &self.cache.folder;
        folder::create(folder)?;
        folder::check(folder)?;
        let mut files = Files::replacing();
        let file = files.create(&self.file)?;
        write_summed(file, &self.file, |summed| write_image(&image, &mut |piece| Ok(summed.write_all(piece)?)))?;
        files.finish()?;
        folder::sweep(folder, self.cache.limit, &self.file);
        Ok(self.file)
    }
}

/// Writes the content of an entry, and its checksum after it.
fn write_summed(
    file: BufWriter<File>,
    path: &Path,
    write: impl FnOnce(&mut Summed<'_, BufWriter<File>>) -> Result<(), Unwritten>,
) -> Result<(), Error> {
    fill(file, path, |file| {
        let mut summed = Summed { to: file, sum: Checksum::new() };
        write(&mut summed)?;
        let Summed { to, sum } = summed;
        Ok(to.write_all(&sum.finish())?)
    })
}

/// Checks the checksum. It is after the end of the program, where readers of programs do not look. If the system
/// failed before all bytes were on disk, the checksum differs.
fn check_sum(bytes: &(impl StableBytes + ?Sized)) -> Result<(), Error> {
    let mut sum = Checksum::new();
    let split = bytes.bytes().split_last_chunk::<{ Checksum::LEN }>();
    let (content, expected) = split.ok_or_else(|| useless("it is damaged"))?;
    sum.update(content);
    if sum.finish() == *expected { Ok(()) } else { Err(useless("it is damaged")) }
}

fn useless(reason: &str) -> Error {
    Error::new(Code::InvalidProgram, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Module, TensorView};

    fn load(program: &[u8], folder: &Path) -> Module {
        let cache = Cache::new(folder).smallest(0);
        Module::builder().lower("cpu").threads(1).cache(cache).load_bytes(program).expect("a program")
    }

    /// A deliberately changed file can have a valid checksum.
    #[test]
    fn forged_entries_are_read_like_any_file_of_a_stranger() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1/mlp.pte");
        let program = fs::read(path).expect("a file of the corpus");
        let folder = std::env::temp_dir().join(format!("rushlight-forged-{}", std::process::id()));
        let mut module = load(&program, &folder);
        let Some(CacheUse::Written { file, .. }) = module.cache_use().cloned() else { panic!("nothing was written") };
        let floats = [0.5f32; 16];
        let x = TensorView::of(&[2, 8], &floats).expect("a view");
        let want = module.forward(&[x.into()]).expect("it runs").len();
        let entry = fs::read(&file).expect("the entry");
        let content = &entry[..entry.len() - Checksum::LEN];
        let used =
            |at: usize| content[at.saturating_sub(16)..(at + 16).min(content.len())].iter().any(|byte| *byte != 0);
        let (mut taken, mut lowered) = (0, 0);
        for place in (0..content.len()).filter(|at| used(*at)).step_by(29) {
            let mut forged = content.to_vec();
            forged[place] ^= 0x81;
            let mut sum = Checksum::new();
            sum.update(&forged);
            forged.extend(sum.finish());
            fs::remove_file(&file).and_then(|()| fs::write(&file, &forged)).expect("the test's own file");
            let mut module = load(&program, &folder);
            // Weights may differ, and sizes that the program computes may not fit.
            if let Ok(outputs) = module.forward(&[x.into()]) {
                assert_eq!(outputs.len(), want, "byte {place}");
            }
            match module.cache_use().expect("it is lowered") {
                CacheUse::Loaded { .. } => taken += 1,
                CacheUse::Written { ignored: Some(_), .. } => lowered += 1,
                other => panic!("byte {place}: {other}"),
            }
        }
        assert!(taken > 0 && lowered > 0, "{taken} taken, {lowered} lowered again");
        fs::remove_dir_all(&folder).expect("the test's own folder");
    }
}
