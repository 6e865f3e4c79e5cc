//! Programs of published language models, each compiled once.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use etcetera::base_strategy::{BaseStrategy, choose_native_strategy};
use rushlight_format::pte::WriteOptions;
use rushlight_graph::Progress;
use rushlight_runtime::Code;

use super::{Cache, Made, check_sum, folder, write_summed};
use crate::atomic::{Files, Written, unwritable};
use crate::backends;
use crate::compile::Compiler;
use crate::error::Error;
use crate::options::CompilerOptions;
use crate::source::{self, LoadMode};

/// The folder of the cache among those of other programs.
const FOLDER: &str = "rushlight";

/// The program of a language model in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedModel {
    /// The `.pte` file.
    pub file: PathBuf,
    /// True if it was compiled now, and false if it was there.
    pub is_new: bool,
}

impl Cache {
    /// Returns the cache of the environment variable `RUSHLIGHT_CACHE`. If it names no folder, returns the folder `rushlight`
    /// among the user's caches: `~/.cache` on Linux, `~/Library/Caches` on macOS, and `%LOCALAPPDATA%` on Windows.
    ///
    /// # Errors
    /// `NotFound` if the user has no home folder.
    pub fn of_user() -> Result<Self, Error> {
        if let Some(cache) = Self::of_environment() {
            return Ok(cache);
        }
        let folders = choose_native_strategy().map_err(|error| {
            Error::new(Code::NotFound, "no folder for a cache is known")
                .got(error.to_string())
                .help("name one in the environment variable `RUSHLIGHT_CACHE`")
        })?;
        Ok(Self::new(folders.cache_dir().join(FOLDER)))
    }

    /// Returns the program of a published language model: a folder of Hugging Face, or a GGUF file. Compiles it with `options`
    /// unless it is there. Without a backend in the options, the first one of this build compiles it.
    ///
    /// A program is found by the model's path, its files' names, sizes and times, the options, and the version of Rushlight.
    ///
    /// # Errors
    /// The errors of [`Compiler::compile`] and [`save`](crate::CompiledProgram::save), and `AccessFailed` for a folder that
    /// everybody may write to.
    pub fn language_model(
        &self,
        path: impl AsRef<Path>,
        options: &CompilerOptions,
        progress: &Progress,
    ) -> Result<CachedModel, Error> {
        let path = path.as_ref();
        let mut options = options.clone();
        if options.backend.is_empty() {
            options.backend.extend(backends::compiling().next().map(|backend| backend.name().to_owned()));
        }
        if !self.is_on() {
            return Err(Error::invalid("the folder of the cache has no name"));
        }
        let named = |error: Error| {
            error.help(
                "name another folder (`--cache`, `cache=` in Python, RUSHLIGHT_CACHE), or use `rushlight compile`",
            )
        };
        folder::create(&self.folder).map_err(named)?;
        folder::check(&self.folder).map_err(named)?;
        let settings = settings(path, &options).map_err(|error| {
            Error::new(Code::AccessFailed, format!("cannot read `{}`", path.display())).got(error.to_string())
        })?;
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let file = folder::file_of(&self.folder, &Made { files: Vec::new(), settings: &settings }.key(1));
        // A damaged entry is written again.
        if file.is_file() && source::open(&file, LoadMode::Mmap).is_ok_and(|bytes| check_sum(&*bytes).is_ok()) {
            folder::touch(&file);
            return Ok(CachedModel { file, is_new: false });
        }
        // An unwritable folder is an error before the work.
        let mut files = Files::replacing();
        let entry = files.create(&file).map_err(named)?;
        let compiler = options.apply(Compiler::new().progress(progress.clone()))?;
        let compiled = compiler.language_model(path, options.language_model()?).compile()?;
        let image = compiled.compiled().program.write(&WriteOptions::default()).map_err(unwritable)?;
        let mut written = Written::none_of(image.size(), progress);
        write_summed(entry, &file, |summed| written.image(&image, summed))?;
        files.finish()?;
        folder::sweep(&self.folder, self.limit, &file);
        Ok(CachedModel { file, is_new: true })
    }
}

/// Everything that determines the program of a language model, by name.
fn settings(path: &Path, options: &CompilerOptions) -> io::Result<Vec<(String, String)>> {
    let path = fs::canonicalize(path)?;
    let mut settings =
        vec![("language model".to_owned(), path.display().to_string()), ("options".to_owned(), format!("{options:?}"))];
    if !path.is_dir() {
        settings.push(("file".to_owned(), state(&fs::metadata(&path)?)));
        return Ok(settings);
    }
    for file in fs::read_dir(&path)? {
        let file = file?;
        // Of a link, that is the file behind it. A link without one is no file of the model.
        let Ok(metadata) = fs::metadata(file.path()) else { continue };
        if metadata.is_file() {
            settings.push((file.file_name().to_string_lossy().into_owned(), state(&metadata)));
        }
    }
    settings.sort();
    Ok(settings)
}

/// The size of a file in bytes, and the time of its last change in nanoseconds.
fn state(metadata: &Metadata) -> String {
    let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{} {}", metadata.len(), changed.unwrap_or_default().as_nanos())
}
