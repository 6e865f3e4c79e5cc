//! Lowering when a program is loaded: portable programs at the speed of compiled ones.
//!
//! Apart from its speed, lowering at load is invisible. The module keeps the file's program for everything that it
//! reports, and runs another one. That program is lifted, compiled for the CPU backend, and checked to have the inputs
//! and outputs that the file declares. If any step fails, up to loading the method, the file's own instructions run;
//! `Module::report` has the reason. Lowering happens when the first method is loaded, so inspecting a file costs
//! nothing. Several threads pack the weights, which are handed over in memory (`rushlight_cpu_run::Weights`).
//!
//! With a cache ([`cache`], off by default) the lowered program and its weights are also written to one `.pte` file
//! that later loads map. Count up `FORMAT` in `key.rs` after a change of the lowered programs without a new version of
//! the crate.

mod cache;
mod fingerprint;
mod interface;

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rushlight_compiler::emit::{EmitOptions, Emitted, MethodMap, emit};
use rushlight_compiler::front::pte::{LiftOptions, lift_with};
use rushlight_compiler::partition::{PORTABLE, Report};
use rushlight_compiler::{CompileOptions, Stage, advance};
use rushlight_format::pte::WriteOptions;
use rushlight_format::signature::SIGNATURE_KEY;
use rushlight_format::{Blob, tokenizer};
use rushlight_graph::{Bytes, Model, Progress};
use rushlight_runtime::{Backend, Code, HeapBlock, OpSet, Program, Registry, StableBytes};

use crate::atomic::unwritable;
use crate::backends::{self, BackendSpec, Blobs, Destination, default_threads};
use crate::clock::Stopwatch;
use crate::error::Error;
use crate::source::{LoadMode, Shared};
use crate::work;

use cache::{Entry, Kept, Made};

#[cfg(feature = "llm")]
pub use cache::CachedModel;
pub use cache::{Cache, CacheUse};
pub use fingerprint::Fingerprint;

/// Selects the backends that a portable program is lowered to when it is loaded.
///
/// A lowered program is lifted into the compiler's graph, optimized, and compiled for a backend. Nodes that the backend
/// does not claim stay on the reference operators. The inputs and outputs are those that the file declares, and its
/// state behaves the same. A program that cannot be lowered runs as it is; [`Module::report`](crate::Module::report)
/// has the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lower {
    /// It runs on the reference operators.
    Off,
    /// It is lowered to the best backend of this machine, if that saves time. A program stays as it is if the reference
    /// operators run it in less than about a tenth of a millisecond.
    #[default]
    Auto,
    /// It is lowered to these backends, however small it is. The first backend is shown nodes first.
    To(Vec<BackendSpec>),
}

impl Lower {
    /// Refuses backends that programs cannot be lowered to.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Off | Self::Auto => Ok(()),
            Self::To(specs) if !specs.iter().any(BackendSpec::compiles) => {
                let names: Vec<&str> = specs.iter().map(BackendSpec::name).collect();
                Err(Self::unknown(&names.join(", ")))
            }
            Self::To(specs) => backends::check(specs.iter().map(BackendSpec::name)),
        }
    }

    /// Returns the error for backends that programs cannot be lowered to.
    fn unknown(got: &str) -> Error {
        let known = backends::compiling().map(|backend| format!("`{}`", backend.name()));
        let names: Vec<String> = ["`auto`".to_owned(), "`off`".to_owned()].into_iter().chain(known).collect();
        Error::new(Code::NotFound, "programs cannot be lowered to this when they are loaded")
            .expected(names.join(", "))
            .got(format!("`{got}`"))
    }
}

impl FromStr for Lower {
    type Err = Error;

    /// Parses `auto`, `off`, or a backend with its options, such as `cpu:precision=bf16`.
    ///
    /// # Errors
    /// `NotFound`, with the names that exist, and those of [`BackendSpec`].
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match text.parse::<BackendSpec>() {
                Ok(spec) => Ok(spec.into()),
                Err(error) if error.code() == Code::NotFound => Err(Self::unknown(text)),
                Err(error) => Err(error),
            },
        }
    }
}

impl TryFrom<&str> for Lower {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<BackendSpec> for Lower {
    fn from(spec: BackendSpec) -> Self {
        Self::To(vec![spec])
    }
}

/// A lowered program, with the report of its nodes.
pub(crate) struct Lowered {
    pub program: Program<'static>,
    /// The backends' named data, handed over in memory.
    pub blobs: Arc<Blobs>,
    pub maps: Vec<MethodMap>,
    pub report: Report,
    pub cache: Option<CacheUse>,
    /// Duration of lowering, or of loading from the cache, if the system has a clock.
    pub time: Option<Duration>,
    /// Heap memory of the program and its weights, in bytes.
    pub memory: usize,
    /// The reason why a part for another backend could not be translated, if the program was lowered just now.
    pub refusal: Option<Error>,
}

/// The files of a program that may be lowered.
pub(crate) struct Source {
    pub program: Arc<dyn StableBytes>,
    pub external: Vec<Arc<dyn StableBytes>>,
}

/// The options of loading a program that determine if it is lowered.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub lower: &'a Lower,
    pub registry: &'static [&'static OpSet],
    pub backends: &'a [Arc<dyn Backend + Send>],
    pub share_memory: bool,
    pub threads: Option<usize>,
    pub cache: Option<&'a Cache>,
    /// The way to load a file of the cache.
    pub mode: LoadMode,
    /// Maximum memory of a method, in bytes.
    pub memory_limit: Option<usize>,
    pub progress: &'a Progress,
}

impl Lowered {
    /// Lowers a program, or loads the lowered program from the cache.
    ///
    /// # Errors
    /// The reason why the program is left as it is.
    pub fn of(program: &Program<'static>, source: &Source, setting: Setting<'_>) -> Result<Self, Error> {
        let started = Stopwatch::start();
        let translated = check(program, setting)?;
        let entry = setting.cache.map(|cache| entry(cache, source, setting));
        let mut ignored = None;
        if let Some(Ok(entry)) = &entry {
            let kept = entry.load(setting.mode);
            let kept = kept.and_then(|kept| match kept {
                Some(kept) => interface::check(program, &kept.program).map(|()| Some(kept)),
                None => Ok(None),
            });
            match kept {
                Ok(Some(Kept { program, maps, report })) => {
                    let cache = Some(CacheUse::Loaded { file: entry.file.clone() });
                    let (blobs, time) = (Arc::default(), started.elapsed());
                    // The program is a file, which does not count, like the original program.
                    let memory = 0;
                    return Ok(Self { program, blobs, maps, report, cache, time, memory, refusal: None });
                }
                Ok(None) => {}
                Err(error) => ignored = Some(error),
            }
        }
        Self::made(program, source, setting, translated, entry, ignored, started)
    }

    /// Lowers a program again that was loaded from a cache and then did not run, for the reason `ignored`.
    ///
    /// # Errors
    /// The reason why the program is left as it is.
    pub fn again(
        program: &Program<'static>,
        source: &Source,
        setting: Setting<'_>,
        ignored: Error,
    ) -> Result<Self, Error> {
        let started = Stopwatch::start();
        let translated = check(program, setting)?;
        let entry = setting.cache.map(|cache| entry(cache, source, setting));
        Self::made(program, source, setting, translated, entry, Some(ignored), started)
    }

    fn made(
        program: &Program<'static>,
        source: &Source,
        setting: Setting<'_>,
        translated: bool,
        entry: Option<Result<Entry<'_>, Error>>,
        ignored: Option<Error>,
        started: Stopwatch,
    ) -> Result<Self, Error> {
        // Methods may share weights. The weights are then identified by their content.
        let is_kept = matches!(entry, Some(Ok(_)));
        let in_memory = program.num_methods() == 1 && !is_kept;
        let Compiled { model, weights, emit: options, report, refusal } =
            Compiled::of(program, source, setting, translated, NamedData::InSource, in_memory)?;
        let packed = weights.iter().fold(0, |total: usize, (_, blob)| total.saturating_add(blob.size() as usize));
        check_memory(setting, packed)?;
        let Emitted { program: emitted, debug: maps, .. } = emit(&model, &options)?;
        let image = emitted.write(&WriteOptions::default()).map_err(unwritable)?;
        let size = usize::try_from(image.size()).map_err(|_| left("the lowered program is too large"))?;
        let memory = packed.saturating_add(size);
        check_memory(setting, memory)?;
        let mut block = HeapBlock::new(size)?;
        let mut rest = block.bytes_mut();
        image
            .write(|piece| {
                let (to, after) = std::mem::take(&mut rest).split_at_mut(piece.len());
                to.copy_from_slice(piece);
                rest = after;
                Ok(())
            })
            .map_err(unwritable)?;
        let lowered = Program::from_owned(Arc::new(block))?;
        interface::check(program, &lowered)?;
        let cache = entry.map(|entry| match entry.and_then(|entry| entry.save(emitted, &weights, &maps, &report)) {
            Ok(file) => CacheUse::Written { file, ignored },
            Err(reason) => CacheUse::NotWritten { reason, ignored },
        });
        Ok(Self {
            program: lowered,
            blobs: backends::shared_blobs(weights)?,
            maps,
            report,
            cache,
            time: started.elapsed(),
            memory,
            refusal,
        })
    }

    /// True if the program was loaded from a cache.
    pub fn is_from_cache(&self) -> bool {
        matches!(self.cache, Some(CacheUse::Loaded { .. }))
    }

    /// Returns the origins of a method's instructions.
    pub fn map(&self, method: &str) -> Option<&MethodMap> {
        self.maps.iter().find(|map| map.method == method)
    }
}

/// The place of a lowered program's tokenizer and signature.
#[derive(Clone, Copy, PartialEq)]
enum NamedData {
    InSource,
    Copied,
}

/// A compiled program.
struct Compiled {
    model: Model,
    /// Weights that backends added.
    weights: Vec<(String, Blob<'static>)>,
    emit: EmitOptions,
    report: Report,
    refusal: Option<Error>,
}

impl Compiled {
    fn of(
        program: &Program<'static>,
        source: &Source,
        setting: Setting<'_>,
        translated: bool,
        named_data: NamedData,
        in_memory: bool,
    ) -> Result<Self, Error> {
        // Weights are packed or copied, so the result is about as large as the files.
        let files = std::iter::once(&source.program).chain(&source.external).map(|file| file.bytes().len());
        check_memory(setting, files.fold(0, usize::saturating_add))?;
        let keep = setting.backends.iter().map(|backend| backend.id().to_owned()).collect();
        let lift = LiftOptions { keep, ..LiftOptions::default() };
        let (plan_inputs, plan_outputs) = interface::planned(program);
        let destination =
            Destination { threads: setting.threads.and_then(NonZeroUsize::new), in_memory, ..Destination::default() };
        let specs = specs(setting.lower);
        let made = specs.iter().map(|spec| spec.make(&destination)).collect::<Result<Vec<_>, _>>()?;
        let options = CompileOptions {
            backends: made.into_iter().flatten().collect(),
            emit: EmitOptions {
                debug_map: false,
                plan_inputs,
                plan_outputs,
                separate_outputs: interface::has_separate_outputs(program),
                ..EmitOptions::default()
            },
            progress: setting.progress.latched(),
            trusts_types: true,
            ..CompileOptions::default()
        };
        let bytes = |bytes: &Arc<dyn StableBytes>| Bytes::new(Shared(bytes.clone()));
        let external: Vec<Bytes> = source.external.iter().map(bytes).collect();
        let mut model = lift_with(&bytes(&source.program), &external, &lift)?;
        let methods = program.num_methods();
        // Rushlight's compiler shares state by name, and so does lowering.
        let is_by_name = program.parsed().shares_state();
        if setting.share_memory && !is_by_name && methods > 1 && !model.states.is_empty() {
            return Err(left("methods that share memory may share state in ways that only the file's own plan keeps"));
        }
        let refusal = model.delegates.iter().find_map(|(_, delegate)| delegate.refusal.clone()).map(Error::from);
        if named_data == NamedData::InSource {
            model.named_data.retain(|(key, _)| !key.starts_with(tokenizer::KEY_PREFIX) && key != SIGNATURE_KEY);
        }
        let known = model.named_data.len();
        let report = advance(&mut model, &options, Stage::Final)?;
        if !translated && report.entries.iter().all(|entry| entry.claimant() == PORTABLE) {
            let names: Vec<String> = specs.iter().map(|spec| format!("`{}`", spec.name())).collect();
            return Err(left(format!("the backend {} claims no operator of it", names.join(", "))));
        }
        // Weights that backends added: `Lowered` keeps them in memory, `to_file` writes them.
        let weights = model.named_data.split_off(known.min(model.named_data.len()));
        Ok(Self { model, weights, emit: options.emit, report, refusal })
    }
}

/// Lowers a program to a `.pte` file, which needs no compiler when it is loaded.
///
/// # Errors
/// The reason why the program is left as it is.
pub(crate) fn to_file(program: &Program<'static>, source: &Source, setting: Setting<'_>) -> Result<Vec<u8>, Error> {
    let translated = check(program, setting)?;
    let Compiled { model, weights, emit: options, .. } =
        Compiled::of(program, source, setting, translated, NamedData::Copied, false)?;
    let Emitted { program: mut emitted, .. } = emit(&model, &options)?;
    emitted.named_data.extend(weights);
    let image = emitted.write(&WriteOptions::default()).map_err(unwritable)?;
    let size = usize::try_from(image.size()).map_err(|_| left("the lowered program is too large"))?;
    check_memory(setting, size)?;
    let mut bytes = Vec::with_capacity(size);
    image
        .write(|piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .map_err(unwritable)?;
    Ok(bytes)
}

/// Checks before lifting if the program should be left as it is. Otherwise returns true if parts of it can only run
/// translated, because they were compiled for another backend.
fn check(program: &Program<'static>, setting: Setting<'_>) -> Result<bool, Error> {
    if *setting.lower == Lower::Off {
        return Err(left("lowering is off"));
    }
    let parsed = program.parsed();
    let mut translated = false;
    for plan in parsed.methods() {
        for delegate in (0..plan.num_delegates()).filter_map(|index| plan.delegate(index)) {
            if let Some(name) = backends::name_of(delegate.id) {
                return Err(left(format!("it is compiled for the backend `{name}` already")));
            }
            translated |= is_lifted(delegate.id, setting.backends);
        }
        for operator in (0..plan.num_operators()).filter_map(|index| plan.operator(index)) {
            let find = |sets: &[&'static OpSet]| Registry::new(sets).find(operator.name, operator.overload);
            let own = setting.registry.len() - rushlight_kernels::ALL.len().min(setting.registry.len());
            let replaced = find(setting.registry.get(..own).unwrap_or_default()).is_some();
            if replaced && find(rushlight_kernels::ALL).is_some() {
                let name = crate::meta::full_name(operator.name, operator.overload);
                return Err(left(format!("it calls `{name}`, which the caller replaced")));
            }
        }
    }
    if *setting.lower == Lower::Auto && !translated && work::work(&parsed) < work::WORTHWHILE {
        return Err(left("it is so small that lowering takes longer than it saves"));
    }
    Ok(translated)
}

/// Fails if `needed` bytes exceed the memory limit of a method.
fn check_memory(setting: Setting<'_>, needed: usize) -> Result<(), Error> {
    match setting.memory_limit.filter(|&limit| needed > limit) {
        Some(limit) => Err(left("the lowered program would take more memory than the limit")
            .expected(format!("at most {limit} bytes"))
            .got(format!("{needed} bytes"))),
        None => Ok(()),
    }
}

/// Returns the entry of a program in a cache.
fn entry<'c>(cache: &'c Cache, source: &Source, setting: Setting<'_>) -> Result<Entry<'c>, Error> {
    let files = std::iter::once(&source.program).chain(&source.external).map(|file| file.bytes()).collect();
    // Everything that determines the result of `Lowered::made`, or makes it refuse a program, besides the files.
    let yes = |is: bool| if is { "yes" } else { "no" };
    let specs = specs(setting.lower);
    let mut settings: Vec<(&str, String)> = specs.iter().flat_map(BackendSpec::settings).collect();
    let lifted: Vec<&str> = backends::lifted().filter(|id| is_lifted(id, setting.backends)).collect();
    settings.push(("lifted", lifted.join(",")));
    settings.push(("share_memory", yes(setting.share_memory).to_owned()));
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let threads = setting.threads.unwrap_or_else(default_threads);
    Entry::of(cache, &Made { files, settings: &settings }, threads)
}

/// Returns the backends that are shown the nodes of a program.
fn specs(lower: &Lower) -> Vec<BackendSpec> {
    match lower {
        Lower::Off => Vec::new(),
        Lower::Auto => BackendSpec::preferred().into_iter().collect(),
        Lower::To(specs) => specs.clone(),
    }
}

/// True if a method has delegates that only run when they are translated.
pub(crate) fn needs_translation(
    program: &Program<'static>,
    method: &str,
    backends: &[Arc<dyn Backend + Send>],
) -> bool {
    let plan = program.parsed().method_named(method);
    plan.is_some_and(|plan| {
        let mut delegates = (0..plan.num_delegates()).filter_map(|index| plan.delegate(index));
        delegates.any(|delegate| is_lifted(delegate.id, backends))
    })
}

/// True if delegates of this id become operators: an importer reads their payloads, and the caller has no backend that runs
/// them.
fn is_lifted(id: &str, backends: &[Arc<dyn Backend + Send>]) -> bool {
    backends::lifted().any(|lifted| lifted == id) && !backends.iter().any(|backend| backend.id() == id)
}

fn left(reason: impl Into<String>) -> Error {
    Error::new(Code::NotSupported, reason)
}
