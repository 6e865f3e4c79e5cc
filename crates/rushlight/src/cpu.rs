//! The engine of a module, for programs that were compiled for the CPU back end.

use std::sync::{Arc, OnceLock};

use rushlight_cpu_run::CpuBackend;
use rushlight_engine::hwbench::Limits;
use rushlight_engine::{Engine, Isa};
use rushlight_runtime::Code;

use crate::error::Error;

pub use rushlight_cpu_run::{Cost, StepRun, StepTime, Steps};

/// Names the instruction set to compute with, instead of the best one of the machine.
pub(crate) const ISA_VARIABLE: &str = "RUSHLIGHT_ISA";

/// How a module computes on the CPU.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    /// Threads that a call uses, the caller's among them; as many as the machine runs at once if `None`.
    pub threads: Option<usize>,
    pub profile: Option<Arc<Steps>>,
    engine: OnceLock<Arc<Engine>>,
}

impl Cpu {
    /// The backend. Its threads are started when it is first asked for.
    pub fn backend(&self) -> Result<CpuBackend, Error> {
        let backend = CpuBackend::new(self.engine()?);
        Ok(match &self.profile {
            Some(steps) => backend.profile(steps.clone()),
            None => backend,
        })
    }

    /// What the machine can do at most with this engine.
    pub fn limits(&self) -> Result<Limits, Error> {
        let engine = self.engine()?;
        Ok(Limits::measure(&engine))
    }

    /// What computes.
    pub fn engine(&self) -> Result<Arc<Engine>, Error> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine.clone());
        }
        let engine = Engine::with_isa(chosen_isa()?, self.threads.unwrap_or_else(default_threads));
        let engine = Arc::new(engine.map_err(|_| not_here())?);
        Ok(self.engine.get_or_init(|| engine).clone())
    }
}

/// How many threads a call may use unless it is said: as many as the machine runs at once.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// True if this build runs what was compiled for the back end with this id.
pub fn runs_backend(id: &str) -> bool {
    id == rushlight_cpu_payload::CPU_BACKEND
}

/// What the compiler has packed, for the back end to use where it is.
#[cfg(feature = "compile")]
pub(crate) fn weights(packed: Vec<(String, rushlight_graph::Bytes)>) -> Arc<rushlight_cpu_run::Weights> {
    Arc::new(packed.into_iter().map(|(key, bytes)| (key, Arc::new(View(bytes)) as _)).collect())
}

/// Bytes as the back end takes them.
#[cfg(feature = "compile")]
struct View(rushlight_graph::Bytes);

#[cfg(feature = "compile")]
impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
