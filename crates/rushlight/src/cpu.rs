//! The engine of a module, for programs that were compiled for the CPU back end.

use std::sync::{Arc, OnceLock};

use rushlight_cpu::CpuBackend;
use rushlight_engine::{Engine, Isa};
use rushlight_runtime::Code;

use crate::error::Error;

pub use rushlight_cpu::{Cost, StepRun, StepTime, Steps};

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
        let engine = match self.engine.get() {
            Some(engine) => engine.clone(),
            None => {
                let engine = Arc::new(self.start()?);
                self.engine.get_or_init(|| engine).clone()
            }
        };
        let backend = CpuBackend::new(engine);
        Ok(match &self.profile {
            Some(steps) => backend.profile(steps.clone()),
            None => backend,
        })
    }

    fn start(&self) -> Result<Engine, Error> {
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let Some(name) = std::env::var_os(ISA_VARIABLE) else { return Ok(Engine::new(threads)) };
        let names = || Isa::available().map(|isa| format!("`{isa}`")).collect::<Vec<_>>().join(", ");
        let unknown = || {
            Error::new(Code::InvalidArgument, format!("{ISA_VARIABLE} names no instruction set of this machine"))
                .expected(names())
                .got(format!("`{}`", name.display()))
        };
        let isa = name.to_str().and_then(Isa::from_name).ok_or_else(unknown)?;
        Engine::with_isa(isa, threads).map_err(|_| unknown())
    }
}
