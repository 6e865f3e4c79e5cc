//! The CPU backend's entry in the table.

#[cfg(feature = "cpu-compile")]
use rushlight_compiler::partition;
#[cfg(feature = "cpu-compile")]
use rushlight_cpu_compile::{Cpu, Keys};

#[cfg(all(feature = "pt2", feature = "_backends", feature = "cpu-compile"))]
use super::Calibrating;
#[cfg(feature = "cpu-compile")]
use super::Destination;
use super::{BackendInfo, Halves};
#[cfg(feature = "_backends")]
pub use engine::chosen_isa;

pub(super) const CPU: BackendInfo = BackendInfo {
    name: "cpu",
    about: "this machine's vector instructions and threads",
    halves: Some(Halves {
        #[cfg(feature = "cpu-compile")]
        compile: Some(compile),
        #[cfg(all(feature = "compile", not(feature = "cpu-compile")))]
        compile: None,
        #[cfg(feature = "cpu")]
        run: Some(run::HALF),
        #[cfg(all(feature = "_backends", not(feature = "cpu")))]
        run: None,
        #[cfg(all(feature = "pt2", feature = "_backends", feature = "cpu-compile"))]
        calibrating: Some(Calibrating { rough, engine: engine::of }),
        #[cfg(all(feature = "pt2", feature = "_backends", not(feature = "cpu-compile")))]
        calibrating: None,
    }),
};

#[cfg(feature = "cpu-compile")]
fn compile(destination: &Destination) -> Box<dyn partition::Backend> {
    let keys = if destination.in_memory { Keys::Place } else { Keys::Content };
    Box::new(Cpu { threads: destination.threads, keys, packs_late: destination.is_file, ..Cpu::default() })
}

/// Only where processors multiply pairs of bf16 is it faster.
#[cfg(all(feature = "pt2", feature = "_backends", feature = "cpu-compile"))]
fn rough(engine: &rushlight_engine::Engine) -> &'static [(&'static str, &'static str)] {
    if engine.supports_bf16() { &[("precision", "bf16")] } else { &[] }
}

#[cfg(feature = "_backends")]
mod engine {
    use std::sync::Arc;

    use rushlight_engine::{Engine, Isa};
    use rushlight_runtime::Code;

    use crate::backends::{Host, default_threads};
    use crate::error::Error;

    /// Names the instruction set to compute with, instead of the best one of the machine.
    const ISA_VARIABLE: &str = "RUSHLIGHT_ISA";

    /// The engine of a host. Its threads start at the first call.
    pub(super) fn of(host: &Host) -> Result<Arc<Engine>, Error> {
        let threads = host.threads.unwrap_or_else(default_threads);
        host.device(|| Engine::with_isa(chosen_isa()?, threads).map_err(|_| not_here()))
    }

    /// The instruction set that programs are run with here: the best one, or the one that `RUSHLIGHT_ISA` names.
    ///
    /// # Errors
    /// `RUSHLIGHT_ISA` names none of this machine.
    pub fn chosen_isa() -> Result<Isa, Error> {
        let Some(name) = std::env::var_os(ISA_VARIABLE) else { return Ok(Isa::detect()) };
        let isa = name.to_str().and_then(Isa::from_name).filter(|isa| isa.is_available());
        isa.ok_or_else(|| not_here().got(format!("`{}`", name.display())))
    }

    fn not_here() -> Error {
        let names = Isa::available().map(|isa| format!("`{isa}`")).collect::<Vec<_>>().join(", ");
        let what = format!("{ISA_VARIABLE} names no instruction set of this machine");
        Error::new(Code::InvalidArgument, what).expected(names)
    }
}

#[cfg(feature = "cpu")]
mod run {
    use std::sync::Arc;

    use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram, Step};
    use rushlight_cpu_run::CpuBackend;

    use crate::backends::{Blobs, Host, RunHalf, Running, StepInfo};
    use crate::error::Error;

    pub(super) const HALF: RunHalf = RunHalf { id: CPU_BACKEND, options: &[], make, step };

    /// The first call starts the threads of the host.
    fn make(host: &Host, blobs: &Arc<Blobs>) -> Result<Running, Error> {
        Ok(Box::new(CpuBackend::new(super::engine::of(host)?).weights(blobs.clone())))
    }

    fn step(payload: &[u8], index: usize) -> Option<StepInfo> {
        let payload = CpuProgram::parse(payload).ok()?;
        let step = payload.steps.get(index)?;
        Some(StepInfo {
            kind: step.name(),
            value: payload.names.get(index).cloned().unwrap_or_default(),
            indices: matches!(step, Step::Gather(_)).then_some("indices"),
        })
    }
}
