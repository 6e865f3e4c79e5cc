//! The backends that come with Rushlight.
//!
//! Each is a file here and an entry of [`TABLE`]. The rest of the facade asks the table, and names no backend.
//!
//! An entry has the name, the documentation and both halves of a backend. Text such as `cpu:precision=bf16` is parsed in one place
//! (`spec.rs`), for the command line, Python and Rust, at compile time and for lowering at load.

#[cfg(any(feature = "lower", all(feature = "pt2", feature = "_backends")))]
mod blobs;
#[cfg(feature = "cortex-m-compile")]
mod cortex_m;
#[cfg(any(feature = "cpu", feature = "cpu-compile"))]
mod cpu;
#[cfg(feature = "_backends")]
mod host;
#[cfg(feature = "compile")]
mod spec;

#[cfg(feature = "_backends")]
use std::collections::HashMap;
#[cfg(feature = "compile")]
use std::num::NonZeroUsize;
#[cfg(feature = "_backends")]
use std::sync::Arc;

#[cfg(feature = "lower")]
use rushlight_compiler::front::payload::IMPORTERS;
#[cfg(feature = "compile")]
use rushlight_compiler::partition::{Backend, OptionSpec, PORTABLE};
#[cfg(all(feature = "pt2", feature = "_backends"))]
use rushlight_engine::Engine;
#[cfg(feature = "_backends")]
use rushlight_runtime::OptionSpec as RunOption;

#[cfg(feature = "_backends")]
use crate::backend_options::Declared;
#[cfg(any(feature = "_backends", feature = "pt2"))]
use crate::error::Error;

#[cfg(any(feature = "lower", all(feature = "pt2", feature = "_backends")))]
pub(crate) use blobs::shared_blobs;
#[cfg(all(feature = "_backends", any(feature = "cpu", feature = "cpu-compile")))]
pub use cpu::chosen_isa;
#[cfg(feature = "_backends")]
pub(crate) use host::Host;
#[cfg(feature = "_backends")]
pub use host::default_threads;
#[cfg(feature = "compile")]
pub use spec::{BackendChoice, BackendSpec};

/// A backend that comes with Rushlight. [`backends`] lists all of them.
pub struct BackendInfo {
    name: &'static str,
    about: &'static str,
    /// `None` for the runtime's operators, which run the remaining nodes.
    halves: Option<Halves>,
}

/// The two halves of a backend. A build may lack either.
struct Halves {
    /// Makes the ahead-of-time half; `None` if this build does not have it.
    #[cfg(feature = "compile")]
    compile: Option<fn(&Destination) -> Box<dyn Backend>>,
    /// `None` if this build does not have it.
    #[cfg(feature = "_backends")]
    run: Option<RunHalf>,
    #[cfg(all(feature = "pt2", feature = "_backends"))]
    calibrating: Option<Calibrating>,
}

/// The constructor of a run-time half, and data that is known without it.
#[cfg(feature = "_backends")]
struct RunHalf {
    /// The backend's name in programs.
    id: &'static str,
    /// The options that it takes at load and later.
    options: &'static [RunOption],
    /// Makes the run-time half. If `blobs` has a program's named data in memory, it is used there.
    make: fn(&Host, blobs: &Arc<Blobs>) -> Result<Running, Error>,
    /// Finds a step of a payload, for errors.
    step: fn(payload: &[u8], step: usize) -> Option<StepInfo>,
}

/// Named data of lowered programs, by key. It stays in memory, and run-time halves use it in place.
#[cfg(feature = "_backends")]
pub(crate) type Blobs = HashMap<String, Arc<dyn AsRef<[u8]> + Send + Sync>>;

/// A run-time half.
#[cfg(feature = "_backends")]
pub(crate) type Running = Box<dyn rushlight_runtime::Backend + Send>;

/// A step of a payload, as errors show it.
#[cfg(feature = "_backends")]
pub(crate) struct StepInfo {
    pub kind: &'static str,
    /// The name of the value that it computes.
    pub value: String,
    /// The argument whose elements are indices, if it has one.
    pub indices: Option<&'static str>,
}

/// The destination of a compiled program.
#[cfg(feature = "compile")]
#[allow(dead_code, reason = "backends read it, and a build may have none")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Destination {
    /// Number of threads that compile; the number that the machine runs at once if `None`. An option of the backend may
    /// replace it.
    pub threads: Option<NonZeroUsize>,
    /// True if this process runs the result at once and never writes it.
    pub in_memory: bool,
    /// True if the result is only written, so that large data can be made while writing.
    pub is_file: bool,
}

/// The functions by which a backend runs the programs of a calibration.
#[cfg(all(feature = "pt2", feature = "_backends"))]
pub(crate) struct Calibrating {
    /// Returns options with which calibration runs faster on this host, at a lower precision.
    pub rough: fn(&Engine) -> &'static [(&'static str, &'static str)],
    /// Returns the engine with which integer weights are chosen.
    pub engine: fn(&Host) -> Result<Arc<Engine>, Error>,
}

/// The backends in order of preference.
const TABLE: &[BackendInfo] = &[
    #[cfg(any(feature = "cpu", feature = "cpu-compile"))]
    cpu::CPU,
    #[cfg(feature = "cortex-m-compile")]
    cortex_m::CORTEX_M,
    #[cfg(feature = "compile")]
    BackendInfo {
        name: PORTABLE,
        about: "the reference operators, which take every node; what other backends leave runs on them in any case",
        halves: None,
    },
];

/// The backends that come with Rushlight, with the options that users can choose.
pub fn backends() -> impl ExactSizeIterator<Item = &'static BackendInfo> {
    TABLE.iter()
}

impl BackendInfo {
    /// The name that users write, such as `cpu`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its name in programs, such as `RushlightCpu`. `None` for the runtime's operators, and if this build lacks the run-time half.
    #[cfg(feature = "_backends")]
    pub fn id(&self) -> Option<&'static str> {
        Some(self.halves.as_ref()?.run.as_ref()?.id)
    }

    /// One line of documentation.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Its options when a model is compiled.
    #[cfg(feature = "compile")]
    pub fn options(&self) -> &'static [OptionSpec] {
        self.compiling_half(&Destination::default()).map_or(&[], |half| half.options())
    }

    /// True for the runtime's operators, and if this build has the ahead-of-time half.
    #[cfg(feature = "compile")]
    fn is_compiled_for(&self) -> bool {
        self.halves.as_ref().is_none_or(|halves| halves.compile.is_some())
    }

    /// The ahead-of-time half, with the defaults of its options; `None` if this build does not have it.
    #[cfg(feature = "compile")]
    fn compiling_half(&self, destination: &Destination) -> Option<Box<dyn Backend>> {
        Some((self.halves.as_ref()?.compile?)(destination))
    }

    /// The run-time half; `None` for the runtime's operators.
    #[cfg(all(feature = "pt2", feature = "_backends"))]
    pub(crate) fn run(&self, host: &Host, blobs: &Arc<Blobs>) -> Result<Option<Running>, Error> {
        let run = self.halves.as_ref().and_then(|halves| halves.run.as_ref());
        run.map(|run| (run.make)(host, blobs)).transpose()
    }
}

impl PartialEq for BackendInfo {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for BackendInfo {}

impl core::fmt::Debug for BackendInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BackendInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The backends that programs can be lowered to, in order of preference.
#[cfg(feature = "lower")]
pub(crate) fn compiling() -> impl Iterator<Item = &'static BackendInfo> {
    let compiles = |backend: &&BackendInfo| backend.halves.as_ref().is_some_and(|halves| halves.compile.is_some());
    run_halves().map(|(backend, _)| backend).filter(compiles)
}

/// The backend that runs the programs of calibrations, and its functions for that.
#[cfg(all(feature = "pt2", feature = "_backends"))]
pub(crate) fn calibrating() -> Option<(&'static BackendInfo, &'static Calibrating)> {
    TABLE.iter().find_map(|backend| Some((backend, backend.halves.as_ref()?.calibrating.as_ref()?)))
}

/// The backends that this build runs, with their run-time halves.
#[cfg(feature = "_backends")]
fn run_halves() -> impl Iterator<Item = (&'static BackendInfo, &'static RunHalf)> + Clone {
    TABLE.iter().filter_map(|backend| Some((backend, backend.halves.as_ref()?.run.as_ref()?)))
}

/// The backend with an id, and its run-time half.
#[cfg(feature = "_backends")]
fn with_id(id: &str) -> Option<(&'static BackendInfo, &'static RunHalf)> {
    run_halves().find(|(_, half)| half.id == id)
}

/// The name of the backend whose run-time half has this id, if this build has it.
#[cfg(feature = "lower")]
pub(crate) fn name_of(id: &str) -> Option<&'static str> {
    with_id(id).map(|(backend, _)| backend.name)
}

/// The options of run-time halves.
#[cfg(feature = "_backends")]
pub(crate) fn declared<'a>() -> impl Iterator<Item = Declared<'a>> + Clone {
    run_halves().map(|(backend, half)| Declared { name: backend.name, id: half.id, options: half.options })
}

/// The ids of other runtimes' backends whose payloads become operators again when a program is loaded, such as
/// ExecuTorch's XNNPACK. The compiler has an importer for each, and this build has no backend that runs them.
#[cfg(feature = "lower")]
pub(crate) fn lifted() -> impl Iterator<Item = &'static str> {
    IMPORTERS.iter().map(|importer| importer.backend).filter(|id| !runs_backend(id))
}

/// The ids of backends whose programs this build runs: those of its own backends, and those whose payloads become operators
/// again when a program is loaded.
#[cfg(feature = "lower")]
pub fn program_backends() -> impl Iterator<Item = &'static str> {
    run_halves().map(|(_, half)| half.id).chain(lifted())
}

/// True if this build runs programs that were compiled for the backend with this id.
#[cfg(feature = "_backends")]
pub fn runs_backend(id: &str) -> bool {
    with_id(id).is_some()
}

/// The run-time halves of the backends that a method delegates to.
#[cfg(feature = "_backends")]
pub(crate) fn running(
    plan: Option<rushlight_format::pte::Plan<'_>>,
    host: &Host,
    blobs: &Arc<Blobs>,
) -> Result<Vec<Running>, Error> {
    let Some(plan) = plan else { return Ok(Vec::new()) };
    let is_used =
        |id: &str| (0..plan.num_delegates()).filter_map(|index| plan.delegate(index)).any(|delegate| delegate.id == id);
    let used = run_halves().filter(|(_, half)| is_used(half.id));
    used.map(|(_, half)| (half.make)(host, blobs)).collect()
}

/// The run-time half with this id, without the weights of a program.
#[cfg(feature = "_backends")]
pub(crate) fn run_half(id: &str, host: &Host) -> Option<Result<Running, Error>> {
    with_id(id).map(|(_, half)| (half.make)(host, &Arc::default()))
}

/// A step of a delegate's payload.
#[cfg(feature = "_backends")]
pub(crate) fn step(id: &str, payload: &[u8], step: usize) -> Option<StepInfo> {
    (with_id(id)?.1.step)(payload, step)
}

/// Refuses a list that names a backend twice, or one after `portable`. The first backend of a list claims nodes first.
#[cfg(any(feature = "lower", feature = "pt2"))]
pub(crate) fn check<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut before: Vec<&str> = Vec::new();
    for name in names {
        if before.contains(&name) {
            return Err(Error::invalid(format!("the backend `{name}` is given twice")));
        }
        if before.contains(&PORTABLE) {
            return Err(Error::invalid(format!(
                "the backend `{name}` comes after `{PORTABLE}`, which takes every node"
            ))
            .help(format!("put `{PORTABLE}` last, or leave it out: it takes what others leave")));
        }
        before.push(name);
    }
    Ok(())
}

#[cfg(all(test, any(feature = "lower", feature = "pt2")))]
mod tests {
    use super::*;

    #[test]
    fn lists_that_cannot_be_meant_are_refused() {
        assert!(check(["a", "b", PORTABLE]).is_ok());
        assert!(check(["a", "b", "a"]).unwrap_err().message().contains("twice"));
        assert!(check([PORTABLE, "a"]).unwrap_err().hint().is_some_and(|hint| hint.contains("last")));
    }

    #[test]
    fn names_are_unique_and_everything_is_documented() {
        let mut names: Vec<&str> = backends().map(BackendInfo::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), backends().len());
        for backend in backends() {
            assert!(!backend.about().is_empty());
            let mut options: Vec<&str> = backend.options().iter().map(|option| option.name).collect();
            options.sort_unstable();
            options.dedup();
            assert_eq!(options.len(), backend.options().len(), "{}", backend.name());
            for option in backend.options() {
                assert!(!option.about.is_empty() && !option.about.contains('\n'), "{option}");
                assert!(option.takes(option.default), "{option}");
            }
        }
    }
}
