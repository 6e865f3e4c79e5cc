//! The run-time half of the CPU backend: runs the [`CpuProgram`]s of the compiler on the engine.
//!
//! A payload is parsed and checked when a method is loaded, and its memory is allocated then. A call allocates nothing
//! and takes no lock. It runs the list of steps, and each step is a call of the engine on slices of one arena. Sizes
//! that depend on the inputs are computed again only when the inputs' sizes change.
//!
//! # Decisions
//!
//! - **Sessions are batched without a compiled batch** (`batch.rs`). Sizes, memory and states are kept for each call. Products by
//!   constant weights copy the rows of all calls together and read their weights once. Every other step runs call by call. Calls
//!   may be of any positions and lengths.
//! - **Experts read the chosen panels only** (`steps/experts.rs`): the rows that chose an expert are multiplied by its panels.
//!   Calls of a batch do so one after the other.
//! - **The delegate decides at load which results are bf16** (`bf16_placement.rs`). The payload is the same for all machines, and a
//!   bf16 result takes the place that it would have as f32.
//! - **Equal sizes are checked** (`shapes.rs`) where lowering took two sizes for one.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod batch;
mod bf16_choice;
mod bf16_placement;
mod cost;
mod epilogue;
mod error;
mod isolated;
mod memory;
mod prepared;
mod shapes;
mod state;
mod steps;
mod table;
mod weights;

use std::sync::Arc;

use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram, Step, match_step};
use rushlight_engine::Engine;
use rushlight_engine::hwbench;
use rushlight_runtime::{
    Backend, Call, Code, Delegate, DelegateContext, DelegateEvent, DelegateEvents, DelegateHandle, Detail, Error,
    InitContext, Interrupts, Limits, Result, State, StateInfo, TensorMut,
};

use batch::{Lane, LaneCall, Rows};
#[cfg(feature = "isolate")]
use isolated::Isolated;
use memory::{Arena, Memory};
use prepared::PreparedStep;
use shapes::Shapes;
use state::States;
use steps::RunStep;
use weights::Blob;

pub use weights::{SharedBytes, Weights};

/// The run-time half of the CPU backend.
#[derive(Clone)]
pub struct CpuBackend {
    engine: Arc<Engine>,
    device: Arc<str>,
    weights: Arc<Weights>,
    #[cfg(feature = "isolate")]
    is_isolated: bool,
}

impl CpuBackend {
    /// Returns a backend that runs methods on `engine`.
    pub fn new(engine: Arc<Engine>) -> Self {
        let device = format!("{}, threads: {}", engine.isa(), engine.threads()).into();
        Self {
            engine,
            device,
            weights: Arc::default(),
            #[cfg(feature = "isolate")]
            is_isolated: false,
        }
    }

    /// Sets weights that are already in memory. Weights are looked up here first, then in the program's named data.
    #[must_use]
    pub fn weights(mut self, weights: Arc<Weights>) -> Self {
        self.weights = weights;
        self
    }

    /// Gives each step copies of its tensors, each in its own allocation, so that a sanitizer sees out-of-bounds
    /// accesses.
    #[cfg(feature = "isolate")]
    #[must_use]
    pub fn isolated(mut self) -> Self {
        self.is_isolated = true;
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
        let program = CpuProgram::parse(context.payload).map_err(error::of_payload)?;
        let scratch = scratch_of(&program, &self.engine);
        context.memory.charge(estimated_bytes(&program, context.payload.len(), scratch))?;
        let delegate = CpuDelegate::new(program, scratch, self, |key| context.named_data(key))?;
        Ok(DelegateHandle::Boxed(Box::new(delegate)))
    }

    fn device(&self) -> Option<&str> {
        Some(&self.device)
    }

    fn limits(&self) -> Option<Limits> {
        let hwbench::Limits { flop_rate, byte_rate, .. } = hwbench::Limits::measure(&self.engine);
        Some(Limits { flop_rate, byte_rate })
    }
}

/// A loaded payload.
struct CpuDelegate<'m> {
    engine: Arc<Engine>,
    steps: Vec<PreparedStep>,
    /// The kind of each step and the value that it computes, for events.
    kinds: Vec<&'static str>,
    values: Vec<String>,
    memory: Memory<'m>,
    lane: Lane,
    /// State for the other calls of a batch.
    more_lanes: Vec<Lane>,
    rows: Rows,
    scratch: Vec<f32>,
    outputs: usize,
    #[cfg(feature = "isolate")]
    is_isolated: bool,
}

impl<'m> CpuDelegate<'m> {
    fn new(
        mut program: CpuProgram,
        scratch: u64,
        backend: &CpuBackend,
        blob: impl Fn(&str) -> Option<&'m [u8]>,
    ) -> Result<Self> {
        let mut blobs = Vec::with_capacity(program.blobs.len());
        for key in &program.blobs {
            let missing =
                || Error::new(Code::NotFound, Detail::Text("weights of the CPU backend are not in the program"));
            let found = match backend.weights.get(key) {
                Some(bytes) => Blob::shared(bytes),
                None => Blob::borrowed(blob(key).ok_or_else(missing)?),
            };
            let unaligned =
                || Error::new(Code::InvalidProgram, Detail::Text("weights of the CPU backend are not aligned"));
            blobs.push(found.ok_or_else(unaligned)?);
        }
        if backend.engine.supports_bf16() {
            bf16_placement::choose(&mut program);
        }
        let scratch = memory::zeros(scratch)?;
        let outputs = program.outputs.len();
        let kinds = program.steps.iter().map(Step::name).collect();
        let steps = std::mem::take(&mut program.steps);
        let steps = steps.into_iter().map(|step| PreparedStep::new(step, &program)).collect();
        let values = std::mem::take(&mut program.names);
        let lane =
            Lane { shapes: Shapes::new(&program), arena: Arena::new(program.arena)?, states: States::new(&program) };
        let memory = Memory::new(program, blobs);
        Ok(Self {
            engine: backend.engine.clone(),
            steps,
            kinds,
            values,
            memory,
            lane,
            more_lanes: Vec::new(),
            rows: Rows::default(),
            scratch,
            outputs,
            #[cfg(feature = "isolate")]
            is_isolated: backend.is_isolated,
        })
    }
}

/// Estimates the heap memory of a program in bytes: its arena, `scratch` floats of scratch memory, its tensors, and its
/// steps with their tables.
fn estimated_bytes(program: &CpuProgram, payload: usize, scratch: u64) -> usize {
    let floats = usize::try_from(program.arena.saturating_add(scratch)).unwrap_or(usize::MAX);
    let steps = program.steps.len().saturating_mul(STEP_BYTES);
    floats.saturating_mul(size_of::<f32>()).saturating_add(steps).saturating_add(payload.saturating_mul(PAYLOAD_FACTOR))
}

/// Returns the scratch memory of a program in floats. It is the larger of the payload's request for all threads, and
/// the memory of the fastest quantized GEMMs on this machine.
fn scratch_of(program: &CpuProgram, engine: &Engine) -> u64 {
    let of_step = |step: &Step| match_step!(step, step => step.scratch(program, engine)) as u64;
    let of_kernels = program.steps.iter().map(of_step).max().unwrap_or(0);
    of_kernels.max(program.scratch.saturating_mul(engine.threads() as u64))
}

/// Maximum bytes of a prepared step, without the data that its payload describes: the table of a softmax (256 floats or
/// fixed-point numbers) and the step itself.
const STEP_BYTES: usize = 256 * 8 + size_of::<PreparedStep>() + size_of::<Step>();

/// Maximum heap bytes for each byte of a payload's tensors, sizes and steps.
const PAYLOAD_FACTOR: usize = 16;

/// Maximum number of outputs that are gathered on the stack. With more outputs, a call allocates.
const STACK_OUTPUTS: usize = 64;

impl Delegate for CpuDelegate<'_> {
    fn num_outputs(&self) -> usize {
        self.outputs
    }

    fn execute(&mut self, context: &DelegateContext<'_>) -> Result<()> {
        self.execute_watched(context, Interrupts(None), DelegateEvents(None))
    }

    fn execute_until(&mut self, context: &DelegateContext<'_>, interrupts: Interrupts<'_>) -> Result<()> {
        self.execute_watched(context, interrupts, DelegateEvents(None))
    }

    fn call(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        if self.lane.states.is_empty() {
            return self.execute_watched(&call.context, call.interrupts, call.events);
        }
        self.lane.states.borrow(&mut call.states)?;
        let result = self.execute_watched(&call.context, call.interrupts, call.events);
        self.lane.states.exchange(&mut call.states)?;
        result
    }

    fn call_batch(&mut self, calls: &mut [Call<'_, '_>]) -> Result<()> {
        // Only single calls have events.
        if calls.len() < 2 || calls.iter().any(|call| call.events.is_on()) {
            return calls.iter_mut().try_for_each(|call| self.call(call));
        }
        while self.more_lanes.len() + 1 < calls.len() {
            self.more_lanes.push(self.lane.another()?);
        }
        let mut borrowed = 0;
        let mut result = Ok(());
        for (lane, call) in self.lanes().zip(&mut *calls) {
            result = lane.states.borrow(&mut call.states);
            if result.is_err() {
                break;
            }
            borrowed += 1;
        }
        if result.is_ok() {
            result = self.run_batch(calls);
        }
        for (lane, call) in self.lanes().zip(&mut *calls).take(borrowed) {
            lane.states.exchange(&mut call.states)?;
        }
        result
    }

    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        self.lane.states.info(index)
    }

    fn new_state(&mut self, index: usize) -> Result<Box<dyn State>> {
        self.lane.states.make(index)
    }
}

impl CpuDelegate<'_> {
    fn execute_watched(
        &mut self,
        context: &DelegateContext<'_>,
        interrupts: Interrupts<'_>,
        events: DelegateEvents<'_>,
    ) -> Result<()> {
        update_shapes(&mut self.lane.shapes, context, &self.memory, &self.steps)?;
        // Clearing 64 entries takes as long as a small program, and most programs have one output or two.
        match self.outputs {
            0..=2 => self.run(context, interrupts, events, &mut [const { None }; 2]),
            3..=STACK_OUTPUTS => self.run(context, interrupts, events, &mut [const { None }; STACK_OUTPUTS]),
            // Programs for calibration and comparison return all intermediate values.
            more => self.run(context, interrupts, events, &mut (0..more).map(|_| None).collect::<Vec<_>>()),
        }
    }

    /// Runs all steps. `outputs` has an entry for each output.
    fn run<'c>(
        &mut self,
        context: &'c DelegateContext<'_>,
        interrupts: Interrupts<'_>,
        events: DelegateEvents<'_>,
        outputs: &mut [Option<TensorMut<'c>>],
    ) -> Result<()> {
        self.memory.outputs(context, &self.lane.shapes, outputs)?;
        let count = self.steps.len();
        for (index, step) in self.steps.iter().enumerate() {
            interrupts.check(index, count)?;
            let event = if events.is_on() {
                let name = self.kinds.get(index).copied().unwrap_or_default();
                let value = self.values.get(index).map_or("", String::as_str);
                let cost = Some(cost::of(step.step.kind(), &self.lane.shapes, &self.memory));
                DelegateEvent { name, step: Some(index), value, cost }
            } else {
                DelegateEvent::default()
            };
            events.begin(event);
            let mut cx = self.lane.step_context(context, &self.memory, &mut *outputs, &mut self.scratch);
            #[cfg(feature = "isolate")]
            if self.is_isolated {
                step.isolate(&mut cx);
            }
            step.run(&self.engine, &mut cx).map_err(|error| error.step(index))?;
            #[cfg(feature = "isolate")]
            Isolated::finish(&mut cx);
            events.end(event);
        }
        Ok(())
    }

    /// The memory of all calls of a batch.
    fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        std::iter::once(&mut self.lane).chain(&mut self.more_lanes)
    }

    /// Runs all steps for calls whose states are borrowed.
    fn run_batch(&mut self, calls: &[Call<'_, '_>]) -> Result<()> {
        let Self { engine, steps, memory, lane, more_lanes, rows, scratch, .. } = self;
        let mut lanes = Vec::with_capacity(calls.len());
        for (lane, call) in std::iter::once(lane).chain(more_lanes).zip(calls) {
            update_shapes(&mut lane.shapes, &call.context, memory, steps)?;
            let mut outputs: Vec<_> = (0..self.outputs).map(|_| None).collect();
            memory.outputs(&call.context, &lane.shapes, &mut outputs)?;
            lanes.push(LaneCall { lane, context: &call.context, outputs });
        }
        let count = steps.len();
        for (index, step) in steps.iter().enumerate() {
            calls.iter().try_for_each(|call| call.interrupts.check(index, count))?;
            let done = match step.shared_gemm() {
                Some(gemm) => rows.gemm(gemm, engine, memory, scratch, &mut lanes),
                None => lanes.iter_mut().try_for_each(|lane| {
                    let mut cx = lane.step_context(memory, scratch);
                    #[cfg(feature = "isolate")]
                    if self.is_isolated {
                        step.isolate(&mut cx);
                    }
                    let done = step.run(engine, &mut cx);
                    #[cfg(feature = "isolate")]
                    Isolated::finish(&mut cx);
                    done
                }),
            };
            done.map_err(|error| error.step(index))?;
        }
        Ok(())
    }
}

/// Computes the sizes of a call again if its inputs' sizes changed.
fn update_shapes(
    shapes: &mut Shapes,
    context: &DelegateContext<'_>,
    memory: &Memory<'_>,
    steps: &[PreparedStep],
) -> Result<()> {
    if shapes.update(context, memory)? {
        let mut steps = steps.iter().enumerate();
        steps.try_for_each(|(index, step)| step.check_work(shapes).map_err(|error| error.step(index)))?;
        shapes.accept();
    }
    Ok(())
}
