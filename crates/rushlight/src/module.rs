//! A program with its loaded methods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushlight_format::pte::{Plan, TensorStorage, ValueSpec};
use rushlight_format::{BundledProgram, FlatTensor};
#[cfg(feature = "lower")]
use rushlight_graph::Progress;
use rushlight_runtime::{
    Backend, BackendOption, Code, DataMap, Detail, EventTracer, Fault, Input, Limits, LoadOptions, Memory, Method,
    OpSet, OptionValue, Outputs, Program, Registry, SharedArenas, StableBytes, States,
};

#[cfg(feature = "backends")]
use crate::backends;
use crate::clock::HAS_CLOCK;
use crate::error::Error;
use crate::instance::{MethodInstance, Shown};
use crate::kinds::{self, Wanted};
#[cfg(feature = "lower")]
use crate::lower::{self, Cache, CacheUse, Lower, Lowered};
use crate::meta::{MethodMeta, ValueInfo};
use crate::options::{self, BackendOptions, Declared};
#[cfg(feature = "backends")]
use crate::portability::Portability;
use crate::source::{self, LoadMode};
use crate::tensor::{Tensor, Value};

/// A program, loaded from a file or from bytes, whose methods can be run.
///
/// Methods are loaded when they are first used and keep their state (mutable buffers, such as a KV cache) between
/// calls. A module can move between threads; several threads each load their own, over the same mapped file.
///
/// | | weights | state | at once |
/// |---|---|---|---|
/// | [`Session`](crate::Session) | the module's | its own | no: calls take turns with the module |
/// | [`MethodInstance`] of [`instantiate`](Self::instantiate) | the module's | its own | yes, one thread each |
/// | [`MethodBatch`](crate::MethodBatch) | the module's | of several sessions | calls of one shape run as one |
/// | another module of the same file | the mapped file's; what lowering packed is made again, or mapped from a [cache](ModuleBuilder::cache) | its own | yes |
///
/// With the feature `lower` (the default) a portable program is compiled for this machine when its first method is loaded
/// (see [`Lower`]). What the module says of the program is what the file says.
pub struct Module {
    program: Program<'static>,
    options: Options,
    methods: BTreeMap<String, MethodInstance>,
    /// Of methods that were called by name.
    metas: BTreeMap<String, Arc<MethodMeta>>,
    arenas: Option<Arc<SharedArenas<'static>>>,
    /// The states of delegates in calls without a session.
    states: States,
    /// What sessions know the module by.
    identity: Arc<()>,
    #[cfg(feature = "lower")]
    lowering: Lowering,
}

/// What becomes of a program when its first method is loaded.
#[cfg(feature = "lower")]
struct Lowering {
    lower: Lower,
    cache: Option<Cache>,
    mode: LoadMode,
    source: lower::Source,
    progress: Progress,
    /// The lowered program, or why the file's own one runs.
    outcome: Option<Result<Box<Lowered>, Error>>,
    /// True if lowering was cancelled: the next call lowers again.
    is_cancelled: bool,
}

#[cfg(feature = "lower")]
impl Lowering {
    /// Stores the outcome of lowering.
    fn settle(&mut self, made: Result<Lowered, Error>) -> &mut Result<Box<Lowered>, Error> {
        // No other error of lowering has this code.
        self.is_cancelled = matches!(&made, Err(error) if error.code() == Code::InvalidState);
        self.outcome.insert(made.map(Box::new))
    }
}

struct Options {
    #[cfg(feature = "backends")]
    host: backends::Host,
    /// The file that the program was loaded from, if any.
    path: Option<PathBuf>,
    external_data: Vec<DataMap<'static>>,
    /// Sources of the external data, for errors.
    external_names: Vec<String>,
    registry: &'static [&'static OpSet],
    backends: Vec<Arc<dyn Backend + Send>>,
    backend_options: BackendOptions,
    share_memory: bool,
    memory_limit: Option<usize>,
    time_limit: Option<Duration>,
}

/// The peak rates of the device of a back end.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceLimits {
    /// The name of the back end in programs.
    pub backend: String,
    /// The device and its settings, such as `avx512, threads: 2`; empty if the back end does not tell.
    pub device: String,
    pub limits: Limits,
}

/// How to load a [`Module`].
#[derive(Default)]
pub struct ModuleBuilder {
    /// An error is that of loading.
    #[cfg(feature = "lower")]
    lower: Option<Result<Lower, Error>>,
    #[cfg(feature = "lower")]
    cache: Option<Cache>,
    #[cfg(feature = "lower")]
    progress: Progress,
    #[cfg(feature = "backends")]
    host: backends::Host,
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
    /// How files are brought into memory; mapped by default.
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

    /// How many threads a call may use, the caller's among them; 0 counts as 1. As many as the machine runs at once by
    /// default. Only what was compiled for a back end uses more than one.
    #[cfg(feature = "backends")]
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.host.threads = Some(threads.max(1));
        self
    }

    /// Sets the back ends that a portable program is lowered to when its first method is loaded: [`Lower::Auto`] by default.
    /// Also as text: `auto`, `off`, or a back end with its options. Loading fails if there is none of that name, or it has no
    /// such option.
    ///
    /// ```no_run
    /// # fn main() -> rushlight::Result<()> {
    /// let module = rushlight::Module::builder().lower("cpu:precision=bf16").load("model.pte")?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "lower")]
    #[must_use]
    pub fn lower(mut self, lower: impl TryInto<Lower, Error: Into<Error>>) -> Self {
        self.lower = Some(lower.try_into().map_err(Into::into));
        self
    }

    /// A folder where lowered programs are kept, so that later loads of a large program find it there: a path, or a
    /// [`Cache`] with settings. It should be the user's own (see [`Cache`]). By default the environment variable
    /// `RUSHLIGHT_CACHE` names it, and without that nothing is kept; neither is it with an empty path.
    ///
    /// Nothing that goes wrong with it makes loading fail: [`Module::cache_use`] says what it did.
    #[cfg(feature = "lower")]
    #[must_use]
    pub fn cache(mut self, cache: impl Into<Cache>) -> Self {
        self.cache = Some(cache.into());
        self
    }

    /// Progress of lowering. When it is cancelled, the call that needed the lowered program fails with the code `InvalidState`,
    /// and the next one lowers it again.
    #[cfg(feature = "lower")]
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
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
    /// It counts planned buffers, temporary memory, what back ends allocate, the outputs of a call, and what lowering made:
    /// a program for which that is too much runs on the reference operators. The file itself does not count, nor do the
    /// caller's inputs and copies of them.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Limits the duration of one call of a method: the file alone decides what it computes. No limit by default.
    ///
    /// The clock is read between steps, in back ends too, so that a call ends one step later at most. It fails with
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
    /// files. What methods need besides, such as operators, is found when they are loaded.
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
        #[cfg(feature = "lower")]
        let lower = self.lower.transpose()?.unwrap_or_default();
        #[cfg(feature = "lower")]
        lower.check()?;
        let bytes = unbundled(bytes)?;
        let parsed = Program::from_owned(bytes.clone());
        let program = parsed.map_err(|error| unreadable(Wanted::Program, &error, bytes.bytes(), path))?;
        let (mut external_data, mut external_names) = (Vec::new(), Vec::new());
        #[cfg(feature = "lower")]
        let mut source = lower::Source { program: bytes, external: Vec::new() };
        for data in self.external_data {
            let (bytes, path) = match data {
                DataSource::File(path) => (source::open(&path, self.mode)?, Some(path)),
                DataSource::Bytes(bytes) => (bytes, None),
            };
            let site =
                path.as_ref().map_or_else(|| "external data".to_owned(), |path| format!("file `{}`", path.display()));
            #[cfg(feature = "lower")]
            source.external.push(bytes.clone());
            let map = DataMap::from_owned(bytes.clone());
            let map = map
                .map_err(|error| unreadable(Wanted::Data, &error, bytes.bytes(), path.as_deref()).site(site.clone()))?;
            external_data.push(map);
            external_names.push(site);
        }
        for option in self.backend_options.as_given() {
            options::check(option, declared(&self.backends))?;
        }
        let registry = interned(&self.registry, reference_operators());
        let options = Options {
            #[cfg(feature = "backends")]
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
            #[cfg(feature = "lower")]
            lowering: Lowering {
                lower,
                cache: self.cache.or_else(Cache::of_environment).filter(Cache::is_on),
                mode: self.mode,
                source,
                progress: self.progress,
                outcome: None,
                is_cancelled: false,
            },
        })
    }
}

/// Returns the sets of operators that every module has. Their kernels are at the addresses that modules call.
#[inline(never)]
pub fn reference_operators() -> &'static [&'static OpSet] {
    rushlight_kernels::ALL
}

/// The options of back ends: of the module's own, and of those that come with Rushlight.
fn declared(own: &[Arc<dyn Backend + Send>]) -> impl Iterator<Item = Declared<'_>> + Clone {
    let own = own.iter().map(|own| Declared { name: own.id(), id: own.id(), options: own.options() });
    #[cfg(feature = "backends")]
    let own = own.chain(backends::declared());
    own
}

/// Concatenates two lists of sets into one that lives as long as the process: a registry is part of a method's static
/// description. Equal lists are made once, so that what many modules are loaded with takes memory once.
fn interned(first: &[&'static OpSet], then: &'static [&'static OpSet]) -> &'static [&'static OpSet] {
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

impl Module {
    /// Loads a `.pte` file, mapped into memory, with every built-in operator.
    ///
    /// # Errors
    /// Those of [`ModuleBuilder::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().load(path)
    }

    /// Loads a program from the bytes of a `.pte` file. They are copied.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::builder().load_bytes(bytes)
    }

    /// Options for loading.
    pub fn builder() -> ModuleBuilder {
        ModuleBuilder::default()
    }

    /// How a portable program runs: what became of each of its nodes when it was lowered, or why it was left as it is.
    /// That is decided when the first method is loaded, or here.
    ///
    /// # Errors
    /// The reason why it runs on the reference operators, or `InvalidState` if its [`progress`](ModuleBuilder::progress) is cancelled.
    #[cfg(feature = "lower")]
    pub fn report(&mut self) -> Result<&rushlight_compiler::partition::Report, &Error> {
        self.lowered().as_ref().map(|lowered| &lowered.report)
    }

    /// Measures the peak rates of the device of a back end, to compare the times of its steps with. `id` is its name in
    /// programs, which events have. Takes about a fifth of a second for the CPU. `None` if the back end measures nothing.
    ///
    /// # Errors
    /// `NotFound` if the module has no such back end; `NotSupported` if the system has no clock; those of opening the device.
    pub fn measure_limits(&self, id: &str) -> Result<Option<DeviceLimits>, Error> {
        if !HAS_CLOCK {
            return Err(Error::new(Code::NotSupported, "this system has no clock, so that nothing can be measured"));
        }
        let of = |backend: &dyn Backend| {
            let limits = backend.limits()?;
            let device = backend.device().unwrap_or_default().to_owned();
            Some(DeviceLimits { backend: backend.id().to_owned(), device, limits })
        };
        if let Some(own) = self.options.backends.iter().find(|own| own.id() == id) {
            return Ok(of(&**own));
        }
        #[cfg(feature = "backends")]
        if let Some(half) = backends::run_half(id, &self.options.host) {
            return Ok(of(&*half?));
        }
        let known = declared(&self.options.backends).map(|known| format!("`{}`", known.id));
        let known = known.collect::<Vec<_>>().join(", ");
        Err(Error::new(Code::NotFound, format!("the module has no back end `{id}`")).expected(known))
    }

    /// What the [`cache`](ModuleBuilder::cache) did; `None` without one, and for a program that is not lowered. That is
    /// decided when the first method is loaded, or here: after a lowering that was cancelled, too.
    #[cfg(feature = "lower")]
    pub fn cache_use(&mut self) -> Option<&CacheUse> {
        self.lowered().as_ref().ok()?.cache.as_ref()
    }

    /// How long lowering took, or loading the lowered program from the cache; `None` for a program that runs as it is, or
    /// was not used yet, and where the system has no clock.
    #[cfg(feature = "lower")]
    pub fn lowering_time(&self) -> Option<Duration> {
        self.lowering.outcome.as_ref()?.as_ref().ok()?.time
    }

    /// Where the instructions that run come from, if the program was lowered; otherwise its own debug map says it.
    #[cfg(feature = "lower")]
    pub fn lowered_map(&self, method: &str) -> Option<&rushlight_compiler::emit::MethodMap> {
        self.lowering.outcome.as_ref()?.as_ref().ok()?.map(method)
    }

    /// Identifies the program by a hash of the bytes of its files.
    #[cfg(feature = "lower")]
    pub fn fingerprint(&self) -> lower::Fingerprint {
        lower::Fingerprint::of(&self.lowering.source)
    }

    /// Lowers the program to a `.pte` file, for a runtime without the compiler: as it is lowered when its first method is
    /// loaded, without the cache.
    ///
    /// # Errors
    /// The reason why it runs on the reference operators.
    #[cfg(feature = "lower")]
    pub fn to_lowered(&self) -> Result<Vec<u8>, Error> {
        lower::to_file(&self.program, &self.lowering.source, self.setting())
    }

    /// Portability of the program: whether it would gain from being lowered, which a build without the feature
    /// `lower` cannot do.
    #[cfg(feature = "backends")]
    pub fn portability(&self) -> Portability {
        let is_own = |id: &str| self.options.backends.iter().any(|own| own.id() == id);
        Portability::of(&self.program.parsed(), is_own)
    }

    #[cfg(feature = "lower")]
    fn lowered(&mut self) -> &mut Result<Box<Lowered>, Error> {
        match self.lowering.outcome.take().filter(|_| !self.lowering.is_cancelled) {
            Some(outcome) => self.lowering.outcome.insert(outcome),
            None => {
                let made = Lowered::of(&self.program, &self.lowering.source, self.setting());
                self.lowering.settle(made)
            }
        }
    }

    #[cfg(feature = "lower")]
    fn setting(&self) -> lower::Setting<'_> {
        lower::Setting {
            lower: &self.lowering.lower,
            registry: self.options.registry,
            backends: &self.options.backends,
            share_memory: self.options.share_memory,
            threads: self.options.host.threads,
            cache: self.lowering.cache.as_ref(),
            mode: self.lowering.mode,
            memory_limit: self.options.memory_limit,
            progress: &self.lowering.progress,
        }
    }

    /// Adds operators as [`ModuleBuilder::ops`] does, for methods that are loaded from now on: after a method failed to load
    /// because operators were missing, it can be tried again. Unless a method is loaded, whether the program is lowered is
    /// decided again, too.
    pub fn add_ops(&mut self, set: &'static OpSet) {
        if !self.options.registry.iter().any(|known| core::ptr::eq(*known, set)) {
            self.options.registry = interned(&[set], self.options.registry);
            self.reconsider();
        }
    }

    /// Adds a backend as [`ModuleBuilder::backend`] does, for methods that are loaded from now on, unless the module has one of
    /// its name.
    pub fn add_backend(&mut self, backend: Arc<dyn Backend + Send>) {
        if !self.options.backends.iter().any(|known| known.id() == backend.id()) {
            self.options.backends.push(backend);
            self.reconsider();
        }
    }

    /// Changes an option of a backend for all methods, loaded or not. Fails, with the options that exist, if the backend has none
    /// of this name or type, and for an option that can be set only at load, once a method is loaded that uses the backend.
    pub fn set_option<'v>(
        &mut self,
        backend: &str,
        name: &str,
        value: impl Into<OptionValue<'v>>,
    ) -> Result<(), Error> {
        let given = BackendOption { backend, key: name, value: value.into() };
        let option = options::check(given, declared(&self.options.backends))?;
        for instance in self.methods.values_mut() {
            match instance.method().set_option(&option) {
                // The method has no part that the backend runs.
                Err(error) if matches!(error.detail, Detail::Fault(Fault::NoOptionBackend, ..)) => {}
                result => result.map_err(|error| options::explain(&error, &option))?,
            }
        }
        self.options.backend_options.set(backend, name, given.value);
        Ok(())
    }

    /// Resets the decision about lowering, unless a loaded method depends on it.
    fn reconsider(&mut self) {
        if self.methods.is_empty() {
            self.arenas = None;
            self.states = no_states(self.options.memory_limit);
            #[cfg(feature = "lower")]
            {
                self.lowering.outcome = None;
            }
        }
    }

    /// The program behind the module, as its file has it.
    pub fn program(&self) -> &Program<'static> {
        &self.program
    }

    /// Names of the methods, in the file's order.
    pub fn method_names(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.program.num_methods()).map(|i| self.program.method_name(i).unwrap_or_default())
    }

    /// What the program says about a method. Does not load it.
    pub fn meta(&self, method: &str) -> Result<MethodMeta, Error> {
        match self.program.parsed().method_named(method) {
            Some(plan) => {
                let signature = plan.signature().map_err(|_| {
                    let text = "what the program says of the names of its inputs and outputs is damaged";
                    Error::new(Code::InvalidProgram, text).site(format!("method `{method}`"))
                })?;
                Ok(MethodMeta::with_signature(&plan, signature))
            }
            None => Err(self.no_method(method)),
        }
    }

    fn no_method(&self, method: &str) -> Error {
        let names: Vec<&str> = self.method_names().collect();
        Error::new(Code::NotFound, format!("the program has no method `{method}`"))
            .expected(format!("one of: {}", names.join(", ")))
    }

    fn registry(&self) -> Registry<'static> {
        Registry::new(self.options.registry)
    }

    /// Loads a method now rather than at its first run.
    pub fn load_method(&mut self, method: &str) -> Result<(), Error> {
        self.loaded(method).map(|_| ())
    }

    /// Frees a method. Its state is lost; it is loaded again when it is next used. States of delegates, which methods share,
    /// are lost with the last method.
    pub fn unload_method(&mut self, method: &str) {
        self.methods.remove(method);
        if self.methods.is_empty() {
            self.states = no_states(self.options.memory_limit);
        }
    }

    /// States of a session, before any are made.
    pub(crate) fn no_states(&self) -> States {
        no_states(self.options.memory_limit)
    }

    pub(crate) fn shares_memory(&self) -> bool {
        self.options.share_memory
    }

    pub(crate) fn identity(&self) -> Arc<()> {
        self.identity.clone()
    }

    pub(crate) fn loaded(&mut self, name: &str) -> Result<&mut MethodInstance, Error> {
        // Looked up twice, because the borrow checker cannot see that the first borrow ends on a miss.
        if !self.methods.contains_key(name) {
            let loaded = self.instantiate_with(name, false)?;
            self.methods.insert(name.to_owned(), loaded);
        }
        self.methods.get_mut(name).ok_or_else(|| Error::new(Code::Internal, "the method was just loaded"))
    }

    /// A loaded method, and the module's states if its delegates have some. They are made for the first call without a session.
    pub(crate) fn loaded_with_states(
        &mut self,
        name: &str,
    ) -> Result<(&mut MethodInstance, Option<&mut States>), Error> {
        if !self.methods.contains_key(name) {
            self.loaded(name)?;
        }
        let Self { methods, states, .. } = self;
        let missing = || Error::new(Code::Internal, "the method was just loaded");
        let instance = methods.get_mut(name).ok_or_else(missing)?;
        if !instance.has_lent_states {
            return Ok((instance, None));
        }
        instance.method().add_states(states)?;
        Ok((instance, Some(states)))
    }

    /// Loads a method with memory and state of its own, apart from the module's. With
    /// [`share_memory`](ModuleBuilder::share_memory) it uses the module's planned buffers.
    pub fn instantiate(&mut self, name: &str) -> Result<MethodInstance, Error> {
        self.instantiate_with(name, true)
    }

    /// Loads a method, with states of its own for its delegates or without.
    pub(crate) fn instantiate_with(&mut self, name: &str, has_states: bool) -> Result<MethodInstance, Error> {
        let meta = self.meta(name)?;
        #[cfg(feature = "lower")]
        if let Ok(lowered) = self.lowered() {
            let (program, blobs) = (lowered.program.clone(), lowered.blobs.clone());
            let (is_from_cache, memory) = (lowered.is_from_cache(), lowered.memory);
            match self.instance(&program, &meta, has_states, memory, &blobs) {
                Ok(instance) => return Ok(instance),
                // The state that methods share would become two.
                Err(error) if self.options.share_memory && !self.methods.is_empty() => return Err(error),
                // A file that loads may still hold what does not run.
                Err(error) if is_from_cache => {
                    self.arenas = None;
                    let again = Lowered::again(&self.program, &self.lowering.source, self.setting(), error);
                    self.lowering.settle(again);
                    if !self.lowering.is_cancelled {
                        return self.instantiate_with(name, has_states);
                    }
                }
                Err(error) => {
                    self.arenas = None;
                    let lowered = self.lowered();
                    let refusal = lowered.as_mut().ok().and_then(|lowered| lowered.refusal.take());
                    *lowered = Err(refusal.unwrap_or(error));
                }
            }
        }
        #[cfg(feature = "lower")]
        if let (Some(Err(cancelled)), true) = (&self.lowering.outcome, self.lowering.is_cancelled) {
            return Err(cancelled.clone());
        }
        let program = self.program.clone();
        let loaded = self.instance(
            &program,
            &meta,
            has_states,
            0,
            #[cfg(feature = "backends")]
            &Arc::default(),
        );
        #[cfg(feature = "lower")]
        let loaded = loaded.map_err(|error| self.untranslated(error, name));
        loaded
    }

    /// Adds why delegates of another backend were not translated: that the backend is missing is only the consequence.
    #[cfg(feature = "lower")]
    fn untranslated(&self, error: Error, method: &str) -> Error {
        let is_left = lower::needs_translation(&self.program, method, &self.options.backends);
        let (true, Code::NotFound, Some(Err(reason))) = (is_left, error.code(), &self.lowering.outcome) else {
            return error;
        };
        if self.lowering.lower == Lower::Off {
            return error.help(
                "it is translated when it is lowered, as `rushlight run` does: load it with `lower=\"auto\"` in Python, \
                 `Lower::Auto` in Rust",
            );
        }
        let mut text = reason.message().to_owned();
        for (name, part) in [("at", reason.location()), ("expected", reason.what_was_expected())] {
            text.extend(part.map(|part| format!(", {name} {part}")));
        }
        text.extend(reason.what_came().map(|part| format!(", got {part}")));
        let error = error.got(format!("no translation of that part: {text}"));
        match reason.hint() {
            Some(hint) => error.help(hint),
            None => error,
        }
    }

    /// Names the weights of a method that are in a data file that was not given, and the files beside the program that have
    /// them.
    fn without_data(&self, error: Error, program: &Program<'static>, method: &str) -> Error {
        let parsed = program.parsed();
        let given = &self.options.external_data;
        let is_known =
            |key: &str| parsed.named(key).is_some() || given.iter().any(|data| data.parsed().get(key).is_some());
        let plan = parsed.method_named(method);
        let mut missing: Vec<&str> = plan.iter().flat_map(Plan::values).filter_map(external_key).collect();
        missing.retain(|key| !is_known(key));
        missing.sort_unstable();
        missing.dedup();
        let Some(first) = missing.first() else { return error };
        let count = if missing.len() == 1 { "a weight".to_owned() } else { format!("{} weights", missing.len()) };
        let more = match missing.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let site = error.location().map(ToOwned::to_owned);
        let message = format!("{count} of `{method}` should come from a data file (.ptd) that was not given");
        let got = match &self.options.external_names[..] {
            [] => "no data file".to_owned(),
            names => format!("{}, without", names.join(", ")),
        };
        let mut explained = Error::new(error.code(), message).expected(format!("`{first}`{more}")).got(got);
        if let Some(site) = site {
            explained = explained.site(site);
        }
        let ways = "`data=` in Python, `ModuleBuilder::external_data` in Rust";
        let beside = self.options.path.as_deref().map(|path| data_beside(path, first)).unwrap_or_default();
        explained.help(match &beside[..] {
            [] => {
                let path = self.options.path.as_deref().unwrap_or(Path::new("model.pte"));
                let usual = path.with_extension("ptd");
                format!(
                    "give the file that was written with the program, `{}` unless it has a name of its own: \
                     `--data FILE.ptd`, {ways}",
                    usual.display()
                )
            }
            files => {
                let files: Vec<String> = files.iter().map(|file| format!("--data {}", file.display())).collect();
                format!("beside the program is a file that has it: `{}`, {ways}", files.join("` or `"))
            }
        })
    }

    /// Loads a method of a program, which takes `taken` bytes of memory besides the file's, and whose data for back ends that
    /// come with Rushlight may be in `blobs`. `meta` is the file's.
    fn instance(
        &mut self,
        program: &Program<'static>,
        meta: &MethodMeta,
        has_states: bool,
        taken: usize,
        #[cfg(feature = "backends")] blobs: &Arc<backends::Blobs>,
    ) -> Result<MethodInstance, Error> {
        let name = &meta.name;
        let shared = if self.options.share_memory { Some(self.shared_arenas(program)?) } else { None };
        let mut memory = Memory::heap();
        if let Some(limit) = self.options.memory_limit {
            let shared = shared.as_ref().map_or(0, |arenas| arenas.size());
            let outside = output_bytes(meta).saturating_add(taken).saturating_add(shared);
            memory = memory.with_limit(limit.checked_sub(outside).ok_or_else(|| {
                Error::new(Code::MemoryAllocationFailed, format!("the memory limit is too small for `{name}`"))
                    .expected(format!("more than {outside} bytes, which outputs and compiled weights take alone"))
                    .got(format!("{limit} bytes"))
            })?);
        }
        if let Some(shared) = shared {
            memory = memory.with_shared_arenas(shared);
        }
        let external: Vec<&DataMap<'static>> = self.options.external_data.iter().collect();
        let own = self.options.backends.iter().map(|backend| &**backend as &dyn Backend);
        #[cfg(feature = "backends")]
        let known = backends::running(program.parsed().method_named(name), &self.options.host, blobs)?;
        #[cfg(feature = "backends")]
        let own = own.chain(known.iter().map(|backend| &**backend as &dyn Backend));
        let backends: Vec<&dyn Backend> = own.collect();
        let registry = self.registry();
        let declared = declared(&self.options.backends);
        let backend_options =
            self.options.backend_options.as_given().map(|option| options::check(option, declared.clone()));
        let backend_options: Vec<BackendOption<'_>> = backend_options.collect::<Result<_, _>>()?;
        let options = LoadOptions {
            backends: &backends,
            backend_options: &backend_options,
            external_data: &external,
            without_states: !has_states,
            ..LoadOptions::new(registry)
        };
        let shown = Shown {
            program: self.program.clone(),
            external: self.options.external_data.clone(),
            #[cfg(feature = "lower")]
            map: self.lowered_map(name).cloned(),
        };
        let method = Method::load(program, name, memory, &options);
        let mut method = method.map_err(|error| {
            let mut explained = shown.explain(&error, program, name, &registry);
            if let Some(limit) = self.options.memory_limit.filter(|_| explained.code() == Code::MemoryAllocationFailed) {
                explained = explained.help(format!(
                    "the memory limit of the module is {limit} bytes; `MethodMeta::planned_buffers` has the largest parts of what \
                     `{name}` needs"
                ));
            }
            match error.detail {
                Detail::Fault(Fault::NoExternalData, ..) => self.without_data(explained, program, name),
                _ => explained,
            }
        })?;
        let has_lent_states = !has_states && method.has_delegate_states();
        let mut instance = MethodInstance::new(shown, program.clone(), method, meta, registry, self.options.time_limit);
        instance.has_lent_states = has_lent_states;
        Ok(instance)
    }

    fn shared_arenas(&mut self, program: &Program<'static>) -> Result<Arc<SharedArenas<'static>>, Error> {
        if let Some(arenas) = &self.arenas {
            return Ok(Arc::clone(arenas));
        }
        let mut sizes: Vec<usize> = Vec::new();
        for plan in program.parsed().methods() {
            for (i, size) in (1..plan.num_buffers()).map(|id| plan.buffer_size(id as u32)).enumerate() {
                let size = usize::try_from(size).map_err(|_| Error::invalid("a planned buffer is too large"))?;
                match sizes.get_mut(i) {
                    Some(largest) => *largest = size.max(*largest),
                    None => sizes.push(size),
                }
            }
        }
        let total = sizes.iter().fold(0usize, |total, size| total.saturating_add(*size));
        if let Some(limit) = self.options.memory_limit.filter(|&limit| total > limit) {
            let message = "the planned buffers that the methods share take more memory than the limit";
            return Err(Error::new(Code::MemoryAllocationFailed, message)
                .expected(format!("at most {limit} bytes"))
                .got(format!("{total} bytes")));
        }
        let mut arenas = SharedArenas::heap(&sizes)?;
        if program.parsed().shares_state() {
            // A method may be loaded after others were called.
            arenas = arenas.with_states_of(program)?;
        }
        let arenas = Arc::new(arenas);
        self.arenas = Some(Arc::clone(&arenas));
        Ok(arenas)
    }

    /// Runs the method `forward`.
    pub fn forward(&mut self, inputs: &[Input<'_>]) -> Result<Vec<Value>, Error> {
        self.run("forward", inputs)
    }

    /// Runs a method and copies its outputs. Fails with what was expected and what came if an input does not fit.
    pub fn run(&mut self, method: &str, inputs: &[Input<'_>]) -> Result<Vec<Value>, Error> {
        self.run_traced(method, inputs, &mut ())
    }

    /// Runs a method with inputs by their [names](MethodMeta::input_names), in any order. Values that were fixed at export may be
    /// left out.
    ///
    /// ```no_run
    /// # fn main() -> rushlight::Result<()> {
    /// use rushlight::TensorView;
    ///
    /// let mut module = rushlight::Module::load("model.pte")?;
    /// let (ids, mask) = ([101i64, 7592, 102], [1i64; 3]);
    /// let outputs = module.run_named(
    ///     "forward",
    ///     [
    ///         ("input_ids", TensorView::of(&[1, 3], &ids)?.into()),
    ///         ("attention_mask", TensorView::of(&[1, 3], &mask)?.into()),
    ///     ],
    /// )?;
    /// let logits = &outputs[module.meta("forward")?.output_index("logits")?];
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and `InvalidArgument` for a name that the method does not have, with the nearest, for
    /// one that is given twice, and for inputs that are missing.
    pub fn run_named<'n, 'i>(
        &mut self,
        method: &str,
        inputs: impl IntoIterator<Item = (&'n str, Input<'i>)>,
    ) -> Result<Vec<Value>, Error> {
        let meta = self.kept_meta(method)?;
        let inputs = meta.inputs_by_name(inputs)?;
        self.run(method, &inputs)
    }

    /// As [`meta`](Self::meta), which is read once, for calls by name.
    pub fn kept_meta(&mut self, method: &str) -> Result<Arc<MethodMeta>, Error> {
        if let Some(meta) = self.metas.get(method) {
            return Ok(meta.clone());
        }
        let meta = Arc::new(self.meta(method)?);
        self.metas.insert(method.to_owned(), meta.clone());
        Ok(meta)
    }

    /// Runs a method and reports what happens to `tracer`, which may end it early, also on behalf of another thread: see
    /// [`EventTracer::interrupt`] and the [front page](crate#threads-limits-and-cancelling).
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and `InvalidState` for a call that was cancelled.
    pub fn run_traced(
        &mut self,
        method: &str,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Vec<Value>, Error> {
        let (instance, states) = self.loaded_with_states(method)?;
        instance.run_with(states, inputs, tracer)
    }

    /// Runs a method and lends its outputs to `read` where they are, without a copy. Their memory, which is the module's or that of
    /// an input, keeps them until the module is used next.
    ///
    /// ```
    /// # fn main() -> rushlight::Result<()> {
    /// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m")).unwrap();
    /// use rushlight::runtime::Output;
    ///
    /// let mut module = rushlight::Module::load("digits.pte")?;
    /// let image = [0.0f32; 64];
    /// let inputs = [rushlight::TensorView::of(&[1, 1, 8, 8], &image)?.into()];
    /// let first = module.run_reading("forward", &inputs, &mut (), |outputs| match outputs.get(0)? {
    ///     Output::Tensor(logits) => Ok(logits.as_slice::<f32>()?[0]),
    ///     _ => Ok(f32::NAN),
    /// })?;
    /// assert_eq!(first, module.forward(&inputs)?[0].as_slice::<f32>()?[0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_reading<R>(
        &mut self,
        method: &str,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
        read: impl FnOnce(&Outputs<'_, '_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (instance, states) = self.loaded_with_states(method)?;
        instance.read_with(states, inputs, tracer, |outputs| Ok(read(outputs)?))
    }

    /// A loaded method, to execute without the facade: unplanned outputs, single steps, state. States of delegates are the
    /// module's; a method that has some is executed with others ([`Method::start_in`]).
    pub fn method(&mut self, name: &str) -> Result<&mut Method<'static>, Error> {
        Ok(self.loaded(name)?.method())
    }

    /// A copy of a parameter or buffer of a method, by its name in the exported module.
    pub fn attribute(&mut self, method: &str, name: &str) -> Result<Tensor, Error> {
        self.loaded(method)?.attribute(name)
    }
}

/// States that take at most as much memory as one method may.
fn no_states(memory_limit: Option<usize>) -> States {
    States::with_limit(memory_limit.unwrap_or(usize::MAX))
}

/// Upper bound of the memory of a call's outputs: the caller's copies, and buffers for outputs that the program has not
/// planned.
fn output_bytes(meta: &MethodMeta) -> usize {
    meta.outputs.iter().filter_map(ValueInfo::as_tensor).fold(0, |total: usize, info| {
        let bytes = usize::try_from(info.nbytes).unwrap_or(usize::MAX);
        total.saturating_add(if info.is_memory_planned { bytes } else { bytes.saturating_mul(2) })
    })
}

/// Returns the name by which a tensor is looked up outside of the program.
fn external_key(value: ValueSpec<'_>) -> Option<&str> {
    match value {
        ValueSpec::Tensor(spec) => match spec.storage {
            TensorStorage::External { name } | TensorStorage::ExternalPlanned { name, .. } => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Finds the data files in a program's folder that have a tensor of this name.
fn data_beside(program: &Path, key: &str) -> Vec<PathBuf> {
    /// Maximum number of files that are searched for an error message.
    const MAX_FILES: usize = 64;
    let folder = program.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|ending| ending == "ptd")).collect();
    files.sort();
    files.truncate(MAX_FILES);
    files.retain(|file| {
        let bytes = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file);
        let bytes = bytes.and_then(|_| source::open(file, LoadMode::Mmap).ok());
        bytes.is_some_and(|bytes| FlatTensor::parse(bytes.bytes()).is_ok_and(|data| data.get(key).is_some()))
    });
    files
}

impl core::fmt::Debug for Module {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Module").field("program", &self.program).finish_non_exhaustive()
    }
}
