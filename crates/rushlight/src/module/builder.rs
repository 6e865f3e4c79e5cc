//! The options of loading a module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushlight_format::BundledProgram;
use rushlight_runtime::{Backend, Code, DataMap, Detail, OpSet, OptionValue, Program, StableBytes};

use super::built_in::{self, Host};
use super::load::no_states;
use super::{Module, Options, lowering};
use crate::backend_options::{self, BackendOptions, Declared};
use crate::clock::HAS_CLOCK;
use crate::error::Error;
use crate::kinds::{self, Wanted};
use crate::source::{self, LoadMode};

/// How to load a [`Module`].
#[derive(Default)]
pub struct ModuleBuilder {
    pub(super) lowering: lowering::Options,
    host: Host,
    mode: LoadMode,
    external_data: Vec<DataSource>,
    registry: Vec<&'static OpSet>,
    backends: Vec<Arc<dyn Backend + Send>>,
    backend_options: BackendOptions,
    share_memory: bool,
    memory_limit: Option<usize>,
    time_limit: Option<Duration>,
}

enum DataSource {
    File(PathBuf),
    Bytes(Arc<dyn StableBytes>),
}

impl ModuleBuilder {
    /// Sets the way in which files are brought into memory; mapped by default.
    #[must_use]
    pub fn mode(mut self, mode: LoadMode) -> Self {
        self.mode = mode;
        self
    }

    /// A `.ptd` file with constants that the program does not hold. Several may be given.
    #[must_use]
    pub fn external_data(mut self, path: impl AsRef<Path>) -> Self {
        self.external_data.push(DataSource::File(path.as_ref().to_owned()));
        self
    }

    /// The bytes of a `.ptd` file. They are copied.
    pub fn external_data_bytes(self, bytes: &[u8]) -> Result<Self, Error> {
        Ok(self.external_data_shared(source::copy(bytes)?))
    }

    /// The bytes of a `.ptd` file where they are, aligned to 16.
    #[must_use]
    pub fn external_data_shared(mut self, bytes: Arc<dyn StableBytes>) -> Self {
        self.external_data.push(DataSource::Bytes(bytes));
        self
    }

    /// Operators of your own, found before the built-in ones. The set lives as long as the process. The
    /// [crate's page](crate#a-custom-operator) has an example.
    #[must_use]
    pub fn ops(mut self, set: &'static OpSet) -> Self {
        self.registry.push(set);
        self
    }

    /// A backend that runs delegated parts of the program.
    #[must_use]
    pub fn backend(mut self, backend: Arc<dyn Backend + Send>) -> Self {
        self.backends.push(backend);
        self
    }

    /// An option of one of the [backends](Self::backend), or of one that comes with Rushlight. Loading fails, with the options that
    /// exist, if the backend has none of this name or type. [`Module::set_option`] changes options later.
    #[must_use]
    pub fn option<'v>(mut self, backend: &str, name: &str, value: impl Into<OptionValue<'v>>) -> Self {
        self.backend_options.set(backend, name, value.into());
        self
    }

    /// Sets the number of threads that a call may use, the caller's among them; 0 counts as 1. As many as the machine runs at once by
    /// default. Only payloads of backends use more than one.
    #[cfg(feature = "_backends")]
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.host.threads = Some(threads.max(1));
        self
    }

    /// Lets all methods use one set of planned buffers, sized for the largest: less memory, and state in planned
    /// memory is common to the methods. Those of a program that was compiled so that they share state always do.
    #[must_use]
    pub fn share_memory(mut self, share: bool) -> Self {
        self.share_memory = share;
        self
    }

    /// Limits the memory of one method, in bytes: a file may declare buffers of any size. No limit by default.
    ///
    /// It counts planned buffers, temporary memory, what backends allocate, the outputs of a call, and what lowering made:
    /// a program for which that is too much runs on the reference operators. The file itself does not count, nor do the
    /// caller's inputs and copies of them.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Limits the duration of one call of a method: the file alone decides what it computes. No limit by default.
    ///
    /// The clock is read between steps, in backends too, so that a call ends one step later at most. It fails with
    /// `OutOfResources` then, and the method can be called again; states may have been updated or not, as after any
    /// error. Loading, and lowering with the first call, are not part of a call.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Loads a `.pte` file, or the program in a `.bpte` file.
    ///
    /// # Errors
    /// `NotFound` and `AccessFailed` for the file, `InvalidProgram` for one that is damaged or of another kind, and those of `.ptd`
    /// files. Operators that are missing fail when a method that uses them is loaded.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Module, Error> {
        let path = path.as_ref();
        let bytes = source::open(path, self.mode)?;
        self.build(bytes, Some(path)).map_err(|e| match e.location() {
            None => e.site(format!("file `{}`", path.display())),
            Some(_) => e,
        })
    }

    /// Loads a program from the bytes of a `.pte` or `.bpte` file. They are copied.
    pub fn load_bytes(self, bytes: &[u8]) -> Result<Module, Error> {
        let bytes = source::copy(bytes)?;
        self.build(bytes, None)
    }

    /// Loads a program from bytes that it keeps, without a copy. They should be aligned to 16.
    pub fn load_shared(self, bytes: Arc<dyn StableBytes>) -> Result<Module, Error> {
        self.build(bytes, None)
    }

    fn build(self, bytes: Arc<dyn StableBytes>, path: Option<&Path>) -> Result<Module, Error> {
        if self.time_limit.is_some() && !HAS_CLOCK {
            let message = "this system has no clock, so that a time limit cannot be kept";
            return Err(Error::new(Code::NotSupported, message).help("load the program without one"));
        }
        let lowering = self.lowering.check()?;
        let bytes = unbundled(bytes)?;
        let parsed = Program::from_owned(bytes.clone());
        let program = parsed.map_err(|error| unreadable(Wanted::Program, &error, bytes.bytes(), path))?;
        #[cfg(not(feature = "lower"))]
        crate::work::say_if_slow(&program.parsed(), !self.backends.is_empty());
        let (mut external, mut external_data, mut external_names) = (Vec::new(), Vec::new(), Vec::new());
        for data in self.external_data {
            let (bytes, path) = match data {
                DataSource::File(path) => (source::open(&path, self.mode)?, Some(path)),
                DataSource::Bytes(bytes) => (bytes, None),
            };
            let site =
                path.as_ref().map_or_else(|| "external data".to_owned(), |path| format!("file `{}`", path.display()));
            external.push(bytes.clone());
            let map = DataMap::from_owned(bytes.clone());
            let map = map
                .map_err(|error| unreadable(Wanted::Data, &error, bytes.bytes(), path.as_deref()).site(site.clone()))?;
            external_data.push(map);
            external_names.push(site);
        }
        for option in self.backend_options.as_given() {
            backend_options::check(option, declared(&self.backends))?;
        }
        let registry = interned(&self.registry, reference_operators());
        let options = Options {
            host: self.host,
            path: path.map(Path::to_owned),
            external_data,
            external_names,
            registry,
            backends: self.backends,
            backend_options: self.backend_options,
            share_memory: self.share_memory || program.parsed().shares_state(),
            memory_limit: self.memory_limit,
            time_limit: self.time_limit,
        };
        let states = no_states(options.memory_limit);
        Ok(Module {
            program,
            options,
            methods: BTreeMap::new(),
            metas: BTreeMap::new(),
            arenas: None,
            states,
            identity: Arc::default(),
            lowering: lowering.start(self.mode, bytes, external),
        })
    }
}

/// Returns the sets of operators that every module has. Their kernels are at the addresses that modules call.
#[inline(never)]
pub fn reference_operators() -> &'static [&'static OpSet] {
    rushlight_kernels::ALL
}

/// The options of backends: of the module's own, and of those that come with Rushlight.
pub(super) fn declared(own: &[Arc<dyn Backend + Send>]) -> impl Iterator<Item = Declared<'_>> + Clone {
    let own = own.iter().map(|own| Declared { name: own.id(), id: own.id(), options: own.options() });
    own.chain(built_in::declared())
}

/// Concatenates two lists of sets into one that lives as long as the process: a registry is part of a method's static
/// description. Equal lists are made once, so that what many modules are loaded with takes memory once.
pub(super) fn interned(first: &[&'static OpSet], then: &'static [&'static OpSet]) -> &'static [&'static OpSet] {
    static KNOWN: Mutex<Vec<&'static [&'static OpSet]>> = Mutex::new(Vec::new());
    if first.is_empty() {
        return then;
    }
    let is_same = |known: &&&'static [&'static OpSet]| {
        known.len() == first.len() + then.len()
            && known.iter().zip(first.iter().chain(then)).all(|(a, b)| core::ptr::eq(*a, *b))
    };
    let make = || -> &'static [&'static OpSet] { Vec::leak(first.iter().chain(then).copied().collect()) };
    // Nobody waits: the child of a fork would wait for ever for a thread that it does not have.
    let Ok(mut known) = KNOWN.try_lock() else { return make() };
    if let Some(known) = known.iter().find(is_same) {
        return known;
    }
    let made = make();
    known.push(made);
    made
}

impl core::fmt::Debug for ModuleBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ModuleBuilder").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// The program in a bundled program. Other files stay as they are.
fn unbundled(file: Arc<dyn StableBytes>) -> Result<Arc<dyn StableBytes>, Error> {
    if !BundledProgram::is_bundled(file.bytes()) {
        return Ok(file);
    }
    let bundled = BundledProgram::parse(file.bytes()).map_err(|fault| kinds::damaged(Wanted::Bundled, &fault))?;
    let program = bundled.program();
    let start = (program.as_ptr() as usize).wrapping_sub(file.bytes().as_ptr() as usize);
    let range = start..start.wrapping_add(program.len());
    source::part(file, range)
}

/// Explains why a file cannot be read as the expected kind.
fn unreadable(wanted: Wanted, error: &rushlight_runtime::Error, bytes: &[u8], path: Option<&Path>) -> Error {
    match (kinds::mistaken(wanted, bytes, path), error.detail) {
        (Some(mistaken), _) => mistaken,
        (None, Detail::Format(fault)) => kinds::damaged(wanted, &fault),
        (None, detail) => Error::new(error.code, detail.to_string()),
    }
}
