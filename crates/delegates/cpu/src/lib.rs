//! Level 2. The run-time half of the CPU back end: runs the [`CpuProgram`]s that the compiler made, on the engine.
//!
//! A payload is parsed and checked when a method is loaded; its memory is taken then. A call allocates nothing and takes
//! no lock: it goes through the list of steps, each a call of the engine on windows of one arena. Sizes that depend on
//! the inputs are computed again only when the inputs' sizes change.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod convert;
mod cost;
mod error;
mod halves;
mod memory;
mod prepared;
mod profile;
mod shapes;
mod steps;
mod weights;

use std::sync::Arc;

use rushlight_engine::Engine;
use rushlight_format::cpu::{CPU_BACKEND, CpuProgram};
use rushlight_runtime::{
    Backend, Code, Delegate, DelegateContext, DelegateHandle, Detail, Error, InitContext, Result, TensorMut,
};

use memory::{Arena, Memory};
use prepared::Prepared;
use profile::Recorder;
use shapes::Shapes;
use weights::Blob;

pub use cost::Cost;
pub use profile::{StepRun, StepTime, Steps};
pub use weights::Weights;

/// The run-time half of the CPU back end.
#[derive(Clone)]
pub struct CpuBackend {
    engine: Arc<Engine>,
    profile: Option<Arc<Steps>>,
    memory_limit: usize,
    weights: Arc<Weights>,
}

impl CpuBackend {
    /// A backend whose methods compute with an engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, profile: None, memory_limit: usize::MAX, weights: Arc::default() }
    }

    /// Blobs that programs name and do not hold, for who compiled them in this process. They are looked up first.
    #[must_use]
    pub fn weights(mut self, weights: Arc<Weights>) -> Self {
        self.weights = weights;
        self
    }

    /// The most memory that one program may ask for, in bytes: a file may declare any size. No limit by default.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Records how long each step takes.
    #[must_use]
    pub fn profile(mut self, steps: Arc<Steps>) -> Self {
        self.profile = Some(steps);
        self
    }
}

impl std::fmt::Debug for CpuBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuBackend").field("isa", &self.engine.isa()).finish_non_exhaustive()
    }
}

impl Backend for CpuBackend {
    fn id(&self) -> &str {
        CPU_BACKEND
    }

    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>> {
        let program = CpuProgram::parse(context.payload).map_err(|_| {
            Error::new(Code::DelegateInvalidCompatibility, Detail::Text("a damaged payload of the CPU back end"))
        })?;
        let running = Running::new(program, self, |key| context.named_data(key))?;
        Ok(DelegateHandle::Boxed(Box::new(running)))
    }
}

/// A program that is ready to run.
struct Running<'m> {
    engine: Arc<Engine>,
    profile: Option<Recorder>,
    steps: Vec<Prepared>,
    shapes: Shapes,
    memory: Memory<'m>,
    arena: Arena,
    scratch: Vec<f32>,
    outputs: usize,
}

impl<'m> Running<'m> {
    fn new(mut program: CpuProgram, backend: &CpuBackend, blob: impl Fn(&str) -> Option<&'m [u8]>) -> Result<Self> {
        let mut blobs = Vec::with_capacity(program.blobs.len());
        for key in &program.blobs {
            let missing =
                || Error::new(Code::NotFound, Detail::Text("weights of the CPU back end are not in the program"));
            let found = match backend.weights.get(key) {
                Some(bytes) => Blob::shared(bytes),
                None => Blob::lent(blob(key).ok_or_else(missing)?),
            };
            let unaligned =
                || Error::new(Code::InvalidProgram, Detail::Text("weights of the CPU back end are not aligned"));
            blobs.push(found.ok_or_else(unaligned)?);
        }
        if backend.engine.takes_bf16() {
            halves::choose(&mut program);
        }
        let profile = backend.profile.as_ref().map(|steps| Recorder::new(steps.clone(), &program));
        let arena = Arena::new(program.arena)?;
        let threads = backend.engine.threads() as u64;
        let needed = program.scratch.saturating_mul(threads).saturating_add(program.arena).saturating_mul(4);
        if usize::try_from(needed).map_or(true, |needed| needed > backend.memory_limit) {
            return Err(Error::new(
                Code::MemoryAllocationFailed,
                Detail::Text("the CPU back end needs more memory than it may take"),
            ));
        }
        let scratch = memory::zeros(program.scratch.saturating_mul(threads))?;
        let outputs = program.outputs.len();
        let steps = program.steps.iter().map(|step| Prepared::new(step, &program)).collect();
        let shapes = Shapes::new(&program);
        let memory = Memory::new(program, blobs);
        Ok(Self { engine: backend.engine.clone(), profile, steps, shapes, memory, arena, scratch, outputs })
    }
}

/// As many outputs are gathered on the stack; for more a call allocates.
const MANY_OUTPUTS: usize = 64;

impl Delegate for Running<'_> {
    fn num_outputs(&self) -> usize {
        self.outputs
    }

    fn execute(&mut self, context: &DelegateContext<'_>) -> Result<()> {
        self.shapes.update(context, &self.memory)?;
        // Most programs have few, and smaller ones take no longer than the clearing of room for many.
        match self.outputs {
            0..=2 => self.run(context, &mut [const { None }; 2]),
            3..=MANY_OUTPUTS => self.run(context, &mut [const { None }; MANY_OUTPUTS]),
            // Programs that show what is inside of a model have so many.
            more => self.run(context, &mut (0..more).map(|_| None).collect::<Vec<_>>()),
        }
    }
}

impl Running<'_> {
    /// Runs all steps, with room for the outputs.
    fn run<'c>(&mut self, context: &'c DelegateContext<'_>, outputs: &mut [Option<TensorMut<'c>>]) -> Result<()> {
        self.memory.outputs(context, &self.shapes, outputs)?;
        for (index, step) in self.steps.iter_mut().enumerate() {
            let started = self.profile.as_ref().map(|_| std::time::Instant::now());
            let mut site = memory::Site {
                context,
                memory: &self.memory,
                shapes: &self.shapes,
                arena: &mut self.arena,
                outputs: &mut *outputs,
                scratch: &mut self.scratch,
            };
            step.run(&self.engine, &mut site)?;
            if let (Some(recorder), Some(started)) = (&self.profile, started) {
                recorder.record(index, started, &self.shapes);
            }
        }
        Ok(())
    }
}
