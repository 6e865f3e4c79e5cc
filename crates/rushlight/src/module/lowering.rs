//! Programs that are lowered when their first method is loaded.

use std::sync::Arc;
use std::time::Duration;

use rushlight_compiler::emit::MethodMap;
use rushlight_compiler::partition::Report;
use rushlight_graph::Progress;
use rushlight_runtime::{Code, StableBytes};

use super::{Module, ModuleBuilder};
use crate::error::Error;
use crate::instance::MethodInstance;
use crate::lower::{self, Cache, CacheUse, Fingerprint, Lower, Lowered};
use crate::meta::MethodMeta;
use crate::source::LoadMode;

/// The options of lowering.
#[derive(Default)]
pub(super) struct Options {
    /// An error is that of loading.
    lower: Option<Result<Lower, Error>>,
    cache: Option<Cache>,
    progress: Progress,
}

impl Options {
    /// Finds what cannot be meant.
    pub fn check(mut self) -> Result<Self, Error> {
        let lower = self.lower.take().transpose()?.unwrap_or_default();
        lower.check()?;
        Ok(Self { lower: Some(Ok(lower)), ..self })
    }

    /// The lowering of a program in these files, before it is decided.
    pub fn start(self, mode: LoadMode, program: Arc<dyn StableBytes>, external: Vec<Arc<dyn StableBytes>>) -> Lowering {
        Lowering {
            lower: self.lower.and_then(Result::ok).unwrap_or_default(),
            cache: self.cache.or_else(Cache::of_environment).filter(Cache::is_on),
            mode,
            source: lower::Source { program, external },
            progress: self.progress,
            outcome: None,
            is_cancelled: false,
        }
    }
}

/// The lowering of a program, which is decided when its first method is loaded.
pub(super) struct Lowering {
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

impl Lowering {
    /// Forgets the outcome, so that the next call decides again.
    pub fn forget(&mut self) {
        self.outcome = None;
    }

    /// Stores the outcome of lowering.
    fn settle(&mut self, made: Result<Lowered, Error>) -> &mut Result<Box<Lowered>, Error> {
        // No other error of lowering has this code.
        self.is_cancelled = matches!(&made, Err(error) if error.code() == Code::InvalidState);
        self.outcome.insert(made.map(Box::new))
    }
}

impl ModuleBuilder {
    /// Sets the backends that a portable program is lowered to when its first method is loaded: [`Lower::Auto`] by default.
    /// Also as text: `auto`, `off`, or a backend with its options. Loading fails if there is none of that name, or it has no
    /// such option.
    ///
    /// ```no_run
    /// # fn main() -> rushlight::Result<()> {
    /// let module = rushlight::Module::builder().lower("cpu:precision=bf16").load("model.pte")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lower(mut self, lower: impl TryInto<Lower, Error: Into<Error>>) -> Self {
        self.lowering.lower = Some(lower.try_into().map_err(Into::into));
        self
    }

    /// A folder where lowered programs are kept, so that later loads of a large program find it there: a path, or a
    /// [`Cache`] with settings. It should be the user's own (see [`Cache`]). By default the environment variable
    /// `RUSHLIGHT_CACHE` names it, and without that nothing is kept; neither is it with an empty path.
    ///
    /// Nothing that goes wrong with it makes loading fail: [`Module::cache_use`] says what it did.
    #[must_use]
    pub fn cache(mut self, cache: impl Into<Cache>) -> Self {
        self.lowering.cache = Some(cache.into());
        self
    }

    /// Progress of lowering. When it is cancelled, the call that needed the lowered program fails with the code `InvalidState`,
    /// and the next one lowers it again.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.lowering.progress = progress;
        self
    }
}

impl Module {
    /// Reports for each node of a portable program the backend that took it, or why the program was left as it is.
    /// That is decided when the first method is loaded, or here.
    ///
    /// # Errors
    /// The reason why it runs on the reference operators, or `InvalidState` if its [`progress`](ModuleBuilder::progress) is cancelled.
    pub fn report(&mut self) -> Result<&Report, &Error> {
        self.lowered().as_ref().map(|lowered| &lowered.report)
    }

    /// Describes the work of the [`cache`](ModuleBuilder::cache); `None` without one, and for a program that is not lowered. That is
    /// decided when the first method is loaded, or here: after a lowering that was cancelled, too.
    pub fn cache_use(&mut self) -> Option<&CacheUse> {
        self.lowered().as_ref().ok()?.cache.as_ref()
    }

    /// The time of lowering, or of loading the lowered program from the cache; `None` for a program that runs as it is, or
    /// was not used yet, and where the system has no clock.
    pub fn lowering_time(&self) -> Option<Duration> {
        self.lowering.outcome.as_ref()?.as_ref().ok()?.time
    }

    /// Where the instructions that run come from, if the program was lowered; otherwise its own debug map says it.
    pub fn lowered_map(&self, method: &str) -> Option<&MethodMap> {
        self.lowering.outcome.as_ref()?.as_ref().ok()?.map(method)
    }

    /// Identifies the program by a hash of the bytes of its files.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.lowering.source)
    }

    /// Lowers the program to a `.pte` file, for a runtime without the compiler: as it is lowered when its first method is
    /// loaded, without the cache.
    ///
    /// # Errors
    /// The reason why it runs on the reference operators.
    pub fn to_lowered(&self) -> Result<Vec<u8>, Error> {
        lower::to_file(&self.program, &self.lowering.source, self.setting())
    }

    fn lowered(&mut self) -> &mut Result<Box<Lowered>, Error> {
        match self.lowering.outcome.take().filter(|_| !self.lowering.is_cancelled) {
            Some(outcome) => self.lowering.outcome.insert(outcome),
            None => {
                let made = Lowered::of(&self.program, &self.lowering.source, self.setting());
                self.lowering.settle(made)
            }
        }
    }

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

    /// Loads a method of the lowered program; `None` if the file's own one runs.
    pub(super) fn lowered_instance(
        &mut self,
        meta: &MethodMeta,
        has_states: bool,
    ) -> Option<Result<MethodInstance, Error>> {
        if let Ok(lowered) = self.lowered() {
            let (program, blobs) = (lowered.program.clone(), lowered.blobs.clone());
            let (is_from_cache, memory) = (lowered.is_from_cache(), lowered.memory);
            match self.instance(&program, meta, has_states, memory, &blobs) {
                Ok(instance) => return Some(Ok(instance)),
                // The state that methods share would become two.
                Err(error) if self.options.share_memory && !self.methods.is_empty() => return Some(Err(error)),
                // A file that loads may still hold a program that does not run.
                Err(error) if is_from_cache => {
                    self.arenas = None;
                    let again = Lowered::again(&self.program, &self.lowering.source, self.setting(), error);
                    self.lowering.settle(again);
                    if !self.lowering.is_cancelled {
                        return self.lowered_instance(meta, has_states);
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
        match &self.lowering.outcome {
            Some(Err(cancelled)) if self.lowering.is_cancelled => Some(Err(cancelled.clone())),
            _ => None,
        }
    }

    /// Adds why delegates of another backend were not translated: that the backend is missing is only the consequence.
    pub(super) fn untranslated(&self, error: Error, method: &str) -> Error {
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
}
