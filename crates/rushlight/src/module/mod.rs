//! A program with its loaded methods.

mod builder;
mod built_in;
mod call;
mod limits;
mod load;
#[cfg(feature = "lower")]
mod lowering;
#[cfg(not(feature = "lower"))]
#[path = "no_lowering.rs"]
mod lowering;
mod missing_data;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rushlight_runtime::{
    Backend, BackendOption, Code, DataMap, Detail, Fault, Method, OpSet, OptionValue, Program, Registry, SharedArenas,
    States,
};

use crate::backend_options::{self, BackendOptions};
use crate::error::Error;
use crate::instance::MethodInstance;
use crate::meta::MethodMeta;
#[cfg(feature = "_backends")]
use crate::portability::Portability;
use crate::tensor::Tensor;

use builder::{declared, interned};
use built_in::Host;
use load::no_states;
use lowering::Lowering;

pub use builder::{ModuleBuilder, reference_operators};
pub use call::Call;
pub use limits::DeviceLimits;

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
/// (see [`Lower`](crate::Lower)). The module describes the program as its file has it.
pub struct Module {
    program: Program<'static>,
    options: Options,
    methods: BTreeMap<String, MethodInstance>,
    /// Of methods that were called by name.
    metas: BTreeMap<String, Arc<MethodMeta>>,
    arenas: Option<Arc<SharedArenas<'static>>>,
    /// The states of delegates in calls without a session.
    states: States,
    /// Identifies the module to its sessions.
    identity: Arc<()>,
    lowering: Lowering,
}

struct Options {
    host: Host,
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
        let option = backend_options::check(given, declared(&self.options.backends))?;
        for instance in self.methods.values_mut() {
            match instance.method().set_option(&option) {
                // The method has no part that the backend runs.
                Err(error) if matches!(error.detail, Detail::Fault(Fault::NoOptionBackend, ..)) => {}
                result => result.map_err(|error| backend_options::explain(&error, &option))?,
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
            self.lowering.forget();
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

    /// Describes a method as the program has it. Does not load it.
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

    /// Portability of the program: whether it would gain from being lowered, which a build without the feature
    /// `lower` cannot do.
    #[cfg(feature = "_backends")]
    pub fn portability(&self) -> Portability {
        let is_own = |id: &str| self.options.backends.iter().any(|own| own.id() == id);
        Portability::of(&self.program.parsed(), is_own)
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

impl core::fmt::Debug for Module {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Module").field("program", &self.program).finish_non_exhaustive()
    }
}
