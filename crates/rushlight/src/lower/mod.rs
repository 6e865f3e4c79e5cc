//! Lowering when a program is loaded: portable programs at the speed of compiled ones.

mod cache;
mod interface;
mod work;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rushlight_compiler::back::cpu::{Cpu, Keys};
use rushlight_compiler::emit::{EmitOptions, Emitted, MethodMap, emit};
use rushlight_compiler::front::pte::{LiftOptions, lift_with};
use rushlight_compiler::front::xnnpack;
use rushlight_compiler::partition::{PORTABLE, Report};
use rushlight_compiler::{Bytes, CompileOptions, Stage, advance};
use rushlight_cpu::Weights;
use rushlight_format::cpu::CPU_BACKEND;
use rushlight_format::pte::WriteOptions;
use rushlight_runtime::{Backend, Code, HeapBlock, OpSet, Program, Registry, StableBytes};

use crate::atomic::unwritable;
use crate::cpu::{self, default_threads};
use crate::error::Error;
use crate::source::{LoadMode, Shared};

use cache::{Entry, Kept, Made};

pub use cache::{Cache, CacheUse};

/// What is done with a portable program when it is loaded.
///
/// A lowered program is lifted into the compiler's graph, optimised, and compiled for a backend; what that does not take
/// stays on the reference operators. It takes and gives what the file declares, and its state behaves the same. A
/// program that cannot be lowered runs as it is: [`Module::report`](crate::Module::report) says why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lower {
    /// It runs on the reference operators.
    Off,
    /// It is lowered to the best backend of this machine, if that pays: a program whose one execution takes the
    /// reference operators less than about a tenth of a millisecond is left as it is.
    #[default]
    Auto,
    /// It is lowered to the CPU back end, however small it is.
    Cpu,
}

impl Lower {
    /// Every choice with its name.
    pub const NAMES: [(&'static str, Self); 3] = [("auto", Self::Auto), ("off", Self::Off), ("cpu", Self::Cpu)];

    /// The choice of a name: `auto`, `off`, or a backend's.
    ///
    /// # Errors
    /// `NotFound`, with the names that there are.
    pub fn from_name(name: &str) -> Result<Self, Error> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, lower)| *lower).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| format!("`{name}`"));
            Error::new(Code::NotFound, "programs cannot be lowered to this when they are loaded")
                .expected(names.join(", "))
                .got(format!("`{name}`"))
        })
    }
}

/// A program that was lowered, and what became of its nodes.
pub(crate) struct Lowered {
    pub program: Program<'static>,
    /// What the CPU back end keeps under names, handed over as it is.
    pub weights: Arc<Weights>,
    pub maps: Vec<MethodMap>,
    pub report: Report,
    pub cache: Option<CacheUse>,
    /// Of lowering it, or of loading it from the cache.
    pub time: Duration,
}

/// The files of a program that may be lowered.
pub(crate) struct Source {
    pub program: Arc<dyn StableBytes>,
    pub external: Vec<Arc<dyn StableBytes>>,
}

/// What a program is loaded with, as far as it decides whether it is lowered.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub lower: Lower,
    pub registry: &'static [&'static OpSet],
    pub backends: &'a [Arc<dyn Backend + Send>],
    pub share_memory: bool,
    pub threads: Option<usize>,
    pub cache: Option<&'a Cache>,
    /// How a file of the cache is brought into memory.
    pub mode: LoadMode,
}

impl Lowered {
    /// Lowers a program, or finds what it was lowered to before.
    ///
    /// # Errors
    /// Why the program is left as it is.
    pub fn of(program: &Program<'static>, source: &Source, setting: Setting<'_>) -> Result<Self, Error> {
        let started = Instant::now();
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
                    return Ok(Self { program, weights: Arc::default(), maps, report, cache, time: started.elapsed() });
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
        let started = Instant::now();
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
        started: Instant,
    ) -> Result<Self, Error> {
        let lift = LiftOptions { inline_xnnpack: inlines_xnnpack(setting) };
        let (plan_inputs, plan_outputs) = interface::planned(program);
        // Methods may share weights, which then are told apart by content.
        let is_kept = matches!(entry, Some(Ok(_)));
        let keys = if program.num_methods() == 1 && !is_kept { Keys::Place } else { Keys::Content };
        let options = CompileOptions {
            backends: vec![Box::new(Cpu {
                threads: setting.threads.and_then(NonZeroUsize::new),
                keys,
                ..Cpu::default()
            })],
            emit: EmitOptions { debug_map: false, plan_inputs, plan_outputs, ..EmitOptions::default() },
            ..CompileOptions::default()
        };
        let bytes = |bytes: &Arc<dyn StableBytes>| Bytes::new(Shared(bytes.clone()));
        let external: Vec<Bytes> = source.external.iter().map(bytes).collect();
        let mut model = lift_with(&bytes(&source.program), &external, lift)?;
        let methods = program.num_methods();
        if setting.share_memory && methods > 1 && !model.states.is_empty() {
            return Err(left("methods that share memory may share state in ways that only the file's own plan keeps"));
        }
        let known = model.named_data.len();
        let report = advance(&mut model, &options, Stage::Final)?;
        if !translated && report.entries.iter().all(|entry| entry.taker() == PORTABLE) {
            return Err(left("the CPU back end takes no operator of it"));
        }
        // What the back end added stays where it is; writing it to a file to map it again would only copy it.
        let weights = model.named_data.split_off(known.min(model.named_data.len()));
        let Emitted { program: emitted, debug: maps, .. } = emit(&model, &options.emit)?;
        let image = emitted.write(&WriteOptions::default()).map_err(unwritable)?;
        let size = usize::try_from(image.size()).map_err(|_| left("the lowered program is too large"))?;
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
        Ok(Self { program: lowered, weights: cpu::weights(weights), maps, report, cache, time: started.elapsed() })
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

/// Finds reasons to leave a program as it is that show before it is lifted. Otherwise says whether parts of it run in no
/// other way, because they were compiled for another backend and are translated.
fn check(program: &Program<'static>, setting: Setting<'_>) -> Result<bool, Error> {
    if setting.lower == Lower::Off {
        return Err(left("lowering is off"));
    }
    let parsed = program.parsed();
    let mut translated = false;
    for plan in parsed.methods() {
        for delegate in (0..plan.num_delegates()).filter_map(|index| plan.delegate(index)) {
            if delegate.id == CPU_BACKEND {
                return Err(left("it is compiled for the CPU back end already"));
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
    if setting.lower == Lower::Auto && !translated && work::of(&parsed) < work::WORTHWHILE {
        return Err(left("it is so small that lowering takes longer than it saves"));
    }
    Ok(translated)
}

/// The place for a program in a cache.
fn entry<'c>(cache: &'c Cache, source: &Source, setting: Setting<'_>) -> Result<Entry<'c>, Error> {
    let files = std::iter::once(&source.program).chain(&source.external).map(|file| file.bytes()).collect();
    // Everything that `Lowered::made` looks at besides the files. What makes it refuse a program counts, too.
    let yes = |is: bool| if is { "yes" } else { "no" };
    let settings = [
        ("backend", CPU_BACKEND),
        ("inline_xnnpack", yes(inlines_xnnpack(setting))),
        ("share_memory", yes(setting.share_memory)),
    ];
    let threads = setting.threads.unwrap_or_else(default_threads);
    Entry::of(cache, &Made { files, settings: &settings }, threads)
}

/// Whether what was compiled for XNNPACK is lowered, because nobody else runs it.
fn inlines_xnnpack(setting: Setting<'_>) -> bool {
    !registered(setting.backends, xnnpack::BACKEND)
}

/// Whether the caller has a backend of that name, which runs what was compiled for it.
fn registered(backends: &[Arc<dyn Backend + Send>], id: &str) -> bool {
    backends.iter().any(|backend| backend.id() == id)
}

fn left(reason: impl Into<String>) -> Error {
    Error::new(Code::NotSupported, reason)
}
