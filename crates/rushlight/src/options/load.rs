//! The options of loading a module.

use std::path::PathBuf;
use std::time::Duration;

use super::{Field, OptionSpec, Options};
use crate::error::Error;
use crate::module::{Module, ModuleBuilder};
use crate::source::LoadMode;

/// The options of a [`ModuleBuilder`] that users set by name. [`builder`](Self::builder) applies them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LoadOptions {
    /// The way to load files into memory; mapped by default.
    pub load_mode: Option<String>,
    /// [`ModuleBuilder::share_memory`].
    pub share_memory: bool,
    /// [`ModuleBuilder::threads`].
    pub threads: Option<usize>,
    /// [`ModuleBuilder::lower`]: `auto`, `off` or a backend.
    pub lower: Option<String>,
    /// [`ModuleBuilder::cache`].
    pub cache: Option<PathBuf>,
    /// [`ModuleBuilder::memory_limit`].
    pub memory_limit: Option<usize>,
    /// [`ModuleBuilder::time_limit`].
    pub time_limit: Option<Duration>,
}

/// Maximum number of threads of the engine.
#[cfg(feature = "_backends")]
const MAX_THREADS: usize = rushlight_engine::MAX_THREADS;

static TABLE: &[OptionSpec<LoadOptions>] = &[
    OptionSpec::new(
        "load_mode",
        Field::Choice(|| LoadMode::ALL.map(LoadMode::name).to_vec(), |options| &mut options.load_mode),
        "MODE",
        "The way to load files into memory: read whole, mapped, or mapped and locked; mmap by default",
    ),
    OptionSpec::new(
        "share_memory",
        Field::Flag(|options| &mut options.share_memory),
        "",
        "Let all methods use one set of planned buffers, sized for the largest, and share state in planned memory",
    ),
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "threads",
        Field::Limit(1, MAX_THREADS, |options| &mut options.threads),
        "N",
        "Number of threads of a call; by default the number that the machine runs at once",
    ),
    #[cfg(feature = "lower")]
    OptionSpec::new(
        "lower",
        Field::Text(|options| &mut options.lower),
        "auto|off|BACKEND",
        "Compile a portable program at load: auto if that saves time, off never, a backend always, with options such as \
         `cpu:precision=bf16`; auto by default",
    ),
    #[cfg(feature = "lower")]
    OptionSpec::new(
        "cache",
        Field::Path(|options| &mut options.cache),
        "FOLDER",
        "Keep large programs that were compiled at load in this folder, and load them from there; by default the folder \
         of RUSHLIGHT_CACHE, if it is set",
    ),
    OptionSpec::new(
        "memory_limit",
        Field::Size(|options| &mut options.memory_limit),
        "SIZE",
        "Maximum memory of a method, besides the file",
    ),
    OptionSpec::new(
        "time_limit",
        Field::Time(|options| &mut options.time_limit),
        "TIME",
        "Maximum duration of a call, which ends at most one step later",
    ),
];

impl Options for LoadOptions {
    fn table() -> &'static [OptionSpec<Self>] {
        TABLE
    }
}

impl LoadOptions {
    /// Returns a builder with these options.
    ///
    /// # Errors
    /// For values outside of the ranges, and for a backend that does not exist.
    pub fn builder(&self) -> Result<ModuleBuilder, Error> {
        self.apply(Module::builder())
    }

    /// Sets the options of a builder that differ from the defaults.
    ///
    /// # Errors
    /// The errors of [`builder`](Self::builder).
    pub fn apply(&self, mut builder: ModuleBuilder) -> Result<ModuleBuilder, Error> {
        let mut options = self.clone();
        TABLE.iter().try_for_each(|spec| spec.check(&mut options))?;
        if self.share_memory {
            builder = builder.share_memory(true);
        }
        if let Some(mode) = &self.load_mode {
            builder = builder.mode(mode.parse::<LoadMode>()?);
        }
        #[cfg(feature = "_backends")]
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        #[cfg(feature = "lower")]
        if let Some(lower) = &self.lower {
            builder = builder.lower(lower.parse::<crate::lower::Lower>()?);
        }
        #[cfg(feature = "lower")]
        if let Some(folder) = &self.cache {
            builder = builder.cache(folder);
        }
        if let Some(limit) = self.memory_limit {
            builder = builder.memory_limit(limit);
        }
        if let Some(limit) = self.time_limit {
            builder = builder.time_limit(limit);
        }
        Ok(builder)
    }
}
