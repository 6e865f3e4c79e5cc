//! Lowering when a program is loaded: portable programs at the speed of compiled ones.
//!
//! Lowering at load is invisible but for its speed. The module keeps the file's program for everything that it reports, and runs
//! another: lifted, compiled for the CPU backend, and checked to take and return what the file declares. After any failure on the
//! way, up to loading the method, the file's own instructions run; `Module::report` has the reason. Lowering happens when the first
//! method is loaded, so that looking at a file costs nothing. Packed weights are handed over in memory
//! (`rushlight_cpu_run::Weights`), packed by several threads.
//!
//! With a cache ([`cache`], off by default) they are also written, with the lowered program, to one `.pte` file that later loads
//! map. Count up `FORMAT` in `key.rs` after a change of what lowering makes without a new version of the crate.

mod cache;
mod fingerprint;
mod interface;

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rushlight_compiler::emit::{EmitOptions, Emitted, MethodMap, emit};
use rushlight_compiler::front::pte::{LiftOptions, lift_with};
use rushlight_compiler::front::xnnpack;
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
use crate::portability;
use crate::source::{LoadMode, Shared};

use cache::{Entry, Kept, Made};

pub use cache::{Cache, CacheUse};
pub use fingerprint::Fingerprint;

/// Selects the back ends that a portable program is lowered to when it is loaded.
///
/// A lowered program is lifted into the compiler's graph, optimised, and compiled for a backend; what that does not take
/// stays on the reference operators. It takes and gives what the file declares, and its state behaves the same. A
/// program that cannot be lowered runs as it is: [`Module::report`](crate::Module::report) says why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lower {
    /// It runs on the reference operators.
    Off,
    /// It is lowered to the best backend of this machine, if that pays: a program whose one execution takes the
    /// reference operators less than about a tenth of a millisecond is left as it is.
    #[default]
    Auto,
    /// It is lowered to these backends, the first shown nodes first, however small it is.
    To(Vec<BackendSpec>),
}

impl Lower {
    /// Finds what cannot be meant.
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

    /// The error of something that programs cannot be lowered to.
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

    /// Reads `auto`, `off`, or a back end with its options, such as `cpu:precision=bf16`.
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

/// A program that was lowered, and what became of its nodes.
pub(crate) struct Lowered {
    pub program: Program<'static>,
    /// What back ends keep under names, handed over as it is.
    pub blobs: Arc<Blobs>,
    pub maps: Vec<MethodMap>,
    pub report: Report,
    pub cache: Option<CacheUse>,
    /// Duration of lowering, or of loading from the cache, if the system has a clock.
    pub time: Option<Duration>,
    /// Heap memory of the program and its weights, in bytes.
    pub memory: usize,
    /// Why a part that was compiled for another backend could not be translated, if one was just lowered.
    pub refusal: Option<Error>,
}

/// The files of a program that may be lowered.
pub(crate) struct Source {
    pub program: Arc<dyn StableBytes>,
    pub external: Vec<Arc<dyn StableBytes>>,
}

/// What a program is loaded with, as far as it decides whether it is lowered.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub lower: &'a Lower,
    pub registry: &'static [&'static OpSet],
    pub backends: &'a [Arc<dyn Backend + Send>],
    pub share_memory: bool,
    pub threads: Option<usize>,
    pub cache: Option<&'a Cache>,
    /// How a file of the cache is brought into memory.
    pub mode: LoadMode,
    /// Maximum memory of a method, in bytes.
    pub memory_limit: Option<usize>,
    pub progress: &'a Progress,
}

impl Lowered {
    /// Lowers a program, or finds what it was lowered to before.
    ///
    /// # Errors
    /// Why the program is left as it is.
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
                    // It is a file, which does not count, as the program itself.
                    let memory = 0;
                    return Ok(Self { program, blobs, maps, report, cache, time, memory, refusal: None });
                }
                Ok(None) => {}
                Err(error) => ignored = Some(error),
            }
        }
        Self::made(program, source, setting, translated, entry, ignored, started)
    }

    /// Lowers a program that was loaded from a cache and then did not run, for the reason `ignored`.
    ///
    /// # Errors
    /// Why the program is left as it is.
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
        // Methods may share weights, which then are told apart by content.
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

    /// Whether it was loaded from a cache.
    pub fn is_from_cache(&self) -> bool {
        matches!(self.cache, Some(CacheUse::Loaded { .. }))
    }

    /// Where the instructions of a method come from.
    pub fn map(&self, method: &str) -> Option<&MethodMap> {
        self.maps.iter().find(|map| map.method == method)
    }
}

/// Where the tokenizer and the signature of a lowered program are read from.
#[derive(Clone, Copy, PartialEq)]
enum NamedData {
    InSource,
    Copied,
}

/// A compiled program.
struct Compiled {
    model: Model,
    /// Weights that back ends added.
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
        // Weights are packed, or copied: what is made takes about as much as the files.
        let files = std::iter::once(&source.program).chain(&source.external).map(|file| file.bytes().len());
        check_memory(setting, files.fold(0, usize::saturating_add))?;
        let lift = LiftOptions { inline_xnnpack: inlines_xnnpack(setting) };
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
        let mut model = lift_with(&bytes(&source.program), &external, lift)?;
        let methods = program.num_methods();
        // Rushlight's compiler shares state by its name, as lowering does.
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
            return Err(left(format!("the back end {} claims no operator of it", names.join(", "))));
        }
        // Weights that back ends added: `Lowered` keeps them in memory, `to_file` writes them.
        let weights = model.named_data.split_off(known.min(model.named_data.len()));
        Ok(Self { model, weights, emit: options.emit, report, refusal })
    }
}

/// Lowers a program to a `.pte` file, which needs no compiler when it is loaded.
///
/// # Errors
/// Why the program is left as it is.
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

/// Finds reasons to leave a program as it is that show before it is lifted. Otherwise says whether parts of it run in no
/// other way, because they were compiled for another backend and are translated.
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
            translated |= delegate.id == xnnpack::BACKEND && !registered(setting.backends, delegate.id);
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
    if *setting.lower == Lower::Auto && !translated && portability::work(&parsed) < portability::WORTHWHILE {
        return Err(left("it is so small that lowering takes longer than it saves"));
    }
    Ok(translated)
}

/// Fails if `needed` bytes are more than the memory limit of a method.
fn check_memory(setting: Setting<'_>, needed: usize) -> Result<(), Error> {
    match setting.memory_limit.filter(|&limit| needed > limit) {
        Some(limit) => Err(left("the lowered program would take more memory than the limit")
            .expected(format!("at most {limit} bytes"))
            .got(format!("{needed} bytes"))),
        None => Ok(()),
    }
}

/// The place for a program in a cache.
fn entry<'c>(cache: &'c Cache, source: &Source, setting: Setting<'_>) -> Result<Entry<'c>, Error> {
    let files = std::iter::once(&source.program).chain(&source.external).map(|file| file.bytes()).collect();
    // Everything that `Lowered::made` looks at besides the files. What makes it refuse a program counts, too.
    let yes = |is: bool| if is { "yes" } else { "no" };
    let specs = specs(setting.lower);
    let mut settings: Vec<(&str, String)> = specs.iter().flat_map(BackendSpec::settings).collect();
    settings.push(("inline_xnnpack", yes(inlines_xnnpack(setting)).to_owned()));
    settings.push(("share_memory", yes(setting.share_memory).to_owned()));
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let threads = setting.threads.unwrap_or_else(default_threads);
    Entry::of(cache, &Made { files, settings: &settings }, threads)
}

/// The back ends that are shown the nodes of a program.
fn specs(lower: &Lower) -> Vec<BackendSpec> {
    match lower {
        Lower::Off => Vec::new(),
        Lower::Auto => BackendSpec::preferred().into_iter().collect(),
        Lower::To(specs) => specs.clone(),
    }
}

/// Whether what was compiled for XNNPACK is lowered, because nobody else runs it.
fn inlines_xnnpack(setting: Setting<'_>) -> bool {
    !registered(setting.backends, xnnpack::BACKEND)
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
        delegates.any(|delegate| delegate.id == xnnpack::BACKEND && !registered(backends, delegate.id))
    })
}

/// Whether the caller has a backend of that name, which runs what was compiled for it.
fn registered(backends: &[Arc<dyn Backend + Send>], id: &str) -> bool {
    backends.iter().any(|backend| backend.id() == id)
}

fn left(reason: impl Into<String>) -> Error {
    Error::new(Code::NotSupported, reason)
}
