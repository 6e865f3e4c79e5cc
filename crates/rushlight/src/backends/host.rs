//! The resources of the machine that a module uses: threads, the instruction set, and the profile.

use std::sync::{Arc, OnceLock};

use rushlight_engine::hwbench::Limits;
use rushlight_engine::profile::StepProfile;
use rushlight_engine::{Engine, Isa};
use rushlight_runtime::Code;

use crate::error::Error;

/// Names the instruction set to compute with, instead of the best one of the machine.
pub(crate) const ISA_VARIABLE: &str = "RUSHLIGHT_ISA";

/// How back ends compute on this machine.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Threads that a call uses, the caller's among them; as many as the machine runs at once if `None`.
    pub threads: Option<usize>,
    pub profile: Option<Arc<StepProfile>>,
    engine: OnceLock<Arc<Engine>>,
}

impl Host {
    /// What the machine can do at most with this engine.
    pub fn limits(&self) -> Result<Limits, Error> {
        let engine = self.engine()?;
        Ok(Limits::measure(&engine))
    }

    /// The engine. Its threads start at the first call.
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
