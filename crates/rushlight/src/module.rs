//! A program with its loaded methods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rushlight_runtime::{
    Backend, Code, DataMap, EventTracer, Input, LoadOptions, Memory, Method, OpSet, Program, Registry, SharedArenas,
    StableBytes,
};

use crate::error::Error;
use crate::instance::{MethodInstance, Shown};
#[cfg(feature = "lower")]
use crate::lower::{self, Cache, CacheUse, Lower, Lowered};
use crate::meta::MethodMeta;
use crate::source::{self, LoadMode};
use crate::tensor::{Tensor, Value};

/// A program, loaded from a file or from bytes, whose methods can be run.
///
/// Methods are loaded when they are first used and keep their state (mutable buffers, such as a KV cache) between
/// calls. A module can move between threads; several threads each load their own, over the same mapped file.
///
/// With the feature `lower` (the default) a portable program is compiled for this machine when its first method is loaded
/// (see [`Lower`]). What the module says of the program is what the file says.
pub struct Module {
    program: Program<'static>,
    options: Options,
    methods: BTreeMap<String, MethodInstance>,
    arenas: Option<Arc<SharedArenas<'static>>>,
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
    /// The lowered program, or why the file's own one runs.
    outcome: Option<Result<Box<Lowered>, Error>>,
}

struct Options {
    #[cfg(feature = "cpu")]
    cpu: crate::cpu::Cpu,
    external_data: Vec<DataMap<'static>>,
    registry: &'static [&'static OpSet],
    backends: Vec<Arc<dyn Backend + Send>>,
    share_memory: bool,
    memory_limit: Option<usize>,
}

/// How to load a [`Module`].
#[derive(Default)]
pub struct ModuleBuilder {
    #[cfg(feature = "lower")]
    lower: Lower,
    #[cfg(feature = "lower")]
    cache: Option<Cache>,
    #[cfg(feature = "cpu")]
    cpu: crate::cpu::Cpu,
    mode: LoadMode,
    external_data: Vec<Source>,
    registry: Vec<&'static OpSet>,
    backends: Vec<Arc<dyn Backend + Send>>,
    share_memory: bool,
    memory_limit: Option<usize>,
}

enum Source {
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
        self.external_data.push(Source::File(path.as_ref().to_owned()));
        self
    }

    /// The bytes of a `.ptd` file. They are copied.
    pub fn external_data_bytes(mut self, bytes: &[u8]) -> Result<Self, Error> {
        self.external_data.push(Source::Bytes(source::copy(bytes)?));
        Ok(self)
    }

    /// Operators of your own, found before the built-in ones. The set lives as long as the process.
    ///
    /// An operator is a function, its name and the number of its arguments. Programs call the out variant:
    /// `example::twice(Tensor x) -> Tensor` in PyTorch is `example::twice.out` with the arguments `x` and `out`.
    ///
    /// ```
    /// use rushlight::runtime::{KernelContext, Result};
    /// use rushlight::{Op, OpSet, TensorView};
    ///
    /// fn twice_out(context: &KernelContext<'_>) -> Result<()> {
    ///     let x = context.tensor(0)?;
    ///     let mut out = context.out(1)?;
    ///     out.resize(x.sizes())?;
    ///     for (y, x) in out.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
    ///         *y = 2.0 * x;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// static MY_OPS: OpSet = OpSet { name: "MY_OPS", groups: &[&[&[Op::new("example::twice.out", 2, twice_out)]]] };
    ///
    /// # #[cfg(feature = "compile")]
    /// # fn main() -> rushlight::Result<()> {
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/custom_operator.pt2");
    /// // `path` is a model that returns `torch.ops.example.twice(x) + 1`.
    /// let program = rushlight::Compiler::new().method("forward", path).compile()?.to_bytes()?;
    /// let mut module = rushlight::Module::builder().ops(&MY_OPS).load_bytes(&program)?;
    /// let outputs = module.forward(&[TensorView::of(&[4], &[1.0f32, 2.0, 3.0, 4.0])?.into()])?;
    /// assert_eq!(outputs[0].as_slice::<f32>()?, [3.0, 5.0, 7.0, 9.0]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "compile"))]
    /// # fn main() {}
    /// ```
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

    /// How many threads a call may use, the caller's among them; 0 counts as 1. As many as the machine runs at once by
    /// default. Only what was compiled for the CPU back end uses more than one.
    #[cfg(feature = "cpu")]
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.cpu.threads = Some(threads.max(1));
        self
    }

    /// What is done with a portable program when its first method is loaded: [`Lower::Auto`] by default.
    #[cfg(feature = "lower")]
    #[must_use]
    pub fn lower(mut self, lower: Lower) -> Self {
        self.lower = lower;
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

    /// Records how long each step of what was compiled for the CPU back end takes.
    #[cfg(feature = "cpu")]
    #[must_use]
    pub fn profile_steps(mut self, steps: Arc<crate::cpu::Steps>) -> Self {
        self.cpu.profile = Some(steps);
        self
    }

    /// Lets all methods use one set of planned buffers, sized for the largest: less memory, and state in planned
    /// memory is common to the methods.
    #[must_use]
    pub fn share_memory(mut self, share: bool) -> Self {
        self.share_memory = share;
        self
    }

    /// The most that one method may take, in bytes: a file may declare buffers of any size. No limit by default.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Loads a `.pte` file.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Module, Error> {
        let path = path.as_ref();
        let bytes = source::open(path, self.mode)?;
        self.build(bytes).map_err(|e| match e.location() {
            None => e.site(format!("file `{}`", path.display())),
            Some(_) => e,
        })
    }

    /// Loads a program from the bytes of a `.pte` file. They are copied.
    pub fn load_bytes(self, bytes: &[u8]) -> Result<Module, Error> {
        let bytes = source::copy(bytes)?;
        self.build(bytes)
    }

    /// Loads a program from bytes that it keeps, without a copy. They should be aligned to 16.
    pub fn load_shared(self, bytes: Arc<dyn StableBytes>) -> Result<Module, Error> {
        self.build(bytes)
    }

    fn build(self, bytes: Arc<dyn StableBytes>) -> Result<Module, Error> {
        let program = Program::from_owned(bytes.clone()).map_err(|e| not_a_program(&e))?;
        let mut external_data = Vec::new();
        #[cfg(feature = "lower")]
        let mut source = lower::Source { program: bytes, external: Vec::new() };
        for data in self.external_data {
            let (bytes, site) = match data {
                Source::File(path) => (source::open(&path, self.mode)?, format!("file `{}`", path.display())),
                Source::Bytes(bytes) => (bytes, "external data".to_owned()),
            };
            #[cfg(feature = "lower")]
            source.external.push(bytes.clone());
            external_data
                .push(DataMap::from_owned(bytes).map_err(|e| {
                    Error::new(e.code, format!("not a well-formed .ptd file: {}", e.detail)).site(site)
                })?);
        }
        let registry = if self.registry.is_empty() {
            rushlight_kernels::ALL
        } else {
            let mut sets = self.registry;
            sets.extend(rushlight_kernels::ALL);
            // A registry is part of a method's static description; user sets are few and live as long as the process.
            Vec::leak(sets)
        };
        let options = Options {
            #[cfg(feature = "cpu")]
            cpu: self.cpu,
            external_data,
            registry,
            backends: self.backends,
            share_memory: self.share_memory,
            memory_limit: self.memory_limit,
        };
        Ok(Module {
            program,
            options,
            methods: BTreeMap::new(),
            arenas: None,
            #[cfg(feature = "lower")]
            lowering: Lowering {
                lower: self.lower,
                cache: self.cache.or_else(Cache::of_environment).filter(Cache::is_on),
                mode: self.mode,
                source,
                outcome: None,
            },
        })
    }
}

impl core::fmt::Debug for ModuleBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ModuleBuilder").field("mode", &self.mode).finish_non_exhaustive()
    }
}

fn not_a_program(error: &rushlight_runtime::Error) -> Error {
    let message = match error.detail {
        rushlight_runtime::Detail::Format(detail) => format!("not a well-formed .pte file: {detail}"),
        detail => detail.to_string(),
    };
    Error::new(error.code, message).help("export the model again, or check that the file was copied whole")
}

impl Module {
    /// Loads a `.pte` file, mapped into memory, with every built-in operator.
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
    /// The reason why it runs on the reference operators.
    #[cfg(feature = "lower")]
    pub fn report(&mut self) -> Result<&rushlight_compiler::partition::Report, &Error> {
        self.lowered().as_ref().map(|lowered| &lowered.report)
    }

    /// Measures what the machine can do at most with the instruction set and the threads that the CPU back end uses here,
    /// to compare the times of its steps with. Takes about a fifth of a second.
    ///
    /// # Errors
    /// `RUSHLIGHT_ISA` names no instruction set of this machine.
    #[cfg(feature = "cpu")]
    pub fn measure_limits(&self) -> Result<rushlight_engine::hwbench::Limits, Error> {
        self.options.cpu.limits()
    }

    /// What the [`cache`](ModuleBuilder::cache) did; `None` without one, and for a program that is not lowered. That is
    /// decided when the first method is loaded, or here.
    #[cfg(feature = "lower")]
    pub fn cache_use(&mut self) -> Option<&CacheUse> {
        self.lowered().as_ref().ok()?.cache.as_ref()
    }

    /// How long lowering took, or loading the lowered program from the cache; `None` for a program that runs as it is, or
    /// was not used yet.
    #[cfg(feature = "lower")]
    pub fn lowering_time(&self) -> Option<std::time::Duration> {
        Some(self.lowering.outcome.as_ref()?.as_ref().ok()?.time)
    }

    /// Where the instructions that run come from, if the program was lowered; otherwise its own debug map says it.
    #[cfg(feature = "lower")]
    pub fn lowered_map(&self, method: &str) -> Option<&rushlight_compiler::emit::MethodMap> {
        self.lowering.outcome.as_ref()?.as_ref().ok()?.map(method)
    }

    #[cfg(feature = "lower")]
    fn lowered(&mut self) -> &mut Result<Box<Lowered>, Error> {
        let outcome = match self.lowering.outcome.take() {
            Some(outcome) => outcome,
            None => Lowered::of(&self.program, &self.lowering.source, self.setting()).map(Box::new),
        };
        self.lowering.outcome.insert(outcome)
    }

    #[cfg(feature = "lower")]
    fn setting(&self) -> lower::Setting<'_> {
        lower::Setting {
            lower: self.lowering.lower,
            registry: self.options.registry,
            backends: &self.options.backends,
            share_memory: self.options.share_memory,
            threads: self.options.cpu.threads,
            cache: self.lowering.cache.as_ref(),
            mode: self.lowering.mode,
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
            Some(plan) => Ok(MethodMeta::of(&plan)),
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

    /// Frees a method. Its state is lost; it is loaded again when it is next used.
    pub fn unload_method(&mut self, method: &str) {
        self.methods.remove(method);
    }

    pub(crate) fn loaded(&mut self, name: &str) -> Result<&mut MethodInstance, Error> {
        // Looked up twice, because the borrow checker cannot see that the first borrow ends on a miss.
        if !self.methods.contains_key(name) {
            let loaded = self.instantiate(name)?;
            self.methods.insert(name.to_owned(), loaded);
        }
        self.methods.get_mut(name).ok_or_else(|| Error::new(Code::Internal, "the method was just loaded"))
    }

    /// Loads a method with memory and state of its own, apart from the module's. With
    /// [`share_memory`](ModuleBuilder::share_memory) it uses the module's planned buffers.
    pub fn instantiate(&mut self, name: &str) -> Result<MethodInstance, Error> {
        let meta = self.meta(name)?;
        #[cfg(feature = "lower")]
        if let Ok(lowered) = self.lowered() {
            let (program, weights) = (lowered.program.clone(), lowered.weights.clone());
            let is_from_cache = lowered.is_from_cache();
            match self.instance(&program, &meta, &weights) {
                Ok(instance) => return Ok(instance),
                // The state that methods share would become two.
                Err(error) if self.options.share_memory && !self.methods.is_empty() => return Err(error),
                // A file that loads may still hold what does not run.
                Err(error) if is_from_cache => {
                    self.arenas = None;
                    let again = Lowered::again(&self.program, &self.lowering.source, self.setting(), error);
                    *self.lowered() = again.map(Box::new);
                    return self.instantiate(name);
                }
                Err(error) => {
                    self.arenas = None;
                    *self.lowered() = Err(error);
                }
            }
        }
        let program = self.program.clone();
        self.instance(
            &program,
            &meta,
            #[cfg(feature = "cpu")]
            &Arc::default(),
        )
    }

    /// Loads a method of a program, whose weights for the CPU back end may lie elsewhere. `meta` is the file's.
    fn instance(
        &mut self,
        program: &Program<'static>,
        meta: &MethodMeta,
        #[cfg(feature = "cpu")] weights: &Arc<rushlight_cpu::Weights>,
    ) -> Result<MethodInstance, Error> {
        let name = &meta.name;
        let mut memory = Memory::heap().with_limit(self.options.memory_limit.unwrap_or(usize::MAX));
        if self.options.share_memory {
            memory = memory.with_shared_arenas(self.shared_arenas(program)?);
        }
        let external: Vec<&DataMap<'static>> = self.options.external_data.iter().collect();
        #[cfg_attr(not(feature = "cpu"), allow(unused_mut, reason = "only the CPU back end is added"))]
        let mut backends: Vec<&dyn Backend> = self.options.backends.iter().map(|b| &**b as &dyn Backend).collect();
        #[cfg(feature = "cpu")]
        let cpu;
        #[cfg(feature = "cpu")]
        if uses_cpu(program, name) {
            let limit = self.options.memory_limit.unwrap_or(usize::MAX);
            cpu = self.options.cpu.backend()?.memory_limit(limit).weights(weights.clone());
            backends.push(&cpu);
        }
        let registry = self.registry();
        let options = LoadOptions { backends: &backends, external_data: &external, ..LoadOptions::new(registry) };
        let shown = Shown { program: self.program.clone(), external: self.options.external_data.clone() };
        let method = Method::load(program, name, memory, &options);
        let method = method.map_err(|error| shown.explain(&error, program, name, &registry))?;
        Ok(MethodInstance::new(shown, program.clone(), method, meta, registry))
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
        let arenas = Arc::new(SharedArenas::heap(&sizes)?);
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

    /// Runs a method and reports what happens to `tracer`.
    pub fn run_traced(
        &mut self,
        method: &str,
        inputs: &[Input<'_>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Vec<Value>, Error> {
        self.loaded(method)?.run_traced(inputs, tracer)
    }

    /// A loaded method, to execute without the facade: unplanned outputs, single steps, state.
    pub fn method(&mut self, name: &str) -> Result<&mut Method<'static>, Error> {
        Ok(self.loaded(name)?.method())
    }

    /// A copy of a parameter or buffer of a method, by its name in the exported module.
    pub fn attribute(&mut self, method: &str, name: &str) -> Result<Tensor, Error> {
        self.loaded(method)?.attribute(name)
    }
}

#[cfg(feature = "cpu")]
fn uses_cpu(program: &Program<'_>, method: &str) -> bool {
    let plan = program.parsed().method_named(method);
    plan.is_some_and(|plan| {
        (0..plan.num_delegates())
            .filter_map(|index| plan.delegate(index))
            .any(|delegate| delegate.id == rushlight_format::cpu::CPU_BACKEND)
    })
}

impl core::fmt::Debug for Module {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Module").field("program", &self.program).finish_non_exhaustive()
    }
}
