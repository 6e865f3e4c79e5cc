//! How long steps take.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rushlight_cpu_payload::{CpuProgram, Step};

use crate::cost::{self, Cost};
use crate::shapes::Shapes;

/// Records the times of the steps of all programs of a method.
#[derive(Debug, Default)]
pub struct StepProfile {
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    programs: Vec<Vec<StepTime>>,
    runs: Vec<StepRun>,
}

/// The time of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepTime {
    /// The value of the graph that it computes.
    pub name: String,
    /// What kind of step it is.
    pub kind: &'static str,
    pub calls: u64,
    pub total: Duration,
    pub least: Duration,
    /// What the last call computed and moved.
    pub cost: Cost,
}

/// One run of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepRun {
    /// Of which program, in the order in which a method loaded them.
    pub program: usize,
    pub step: usize,
    pub start: Instant,
    pub time: Duration,
}

/// Maximum number of runs that are kept one by one.
const MAX_RUNS: usize = 1 << 17;

impl StepProfile {
    /// The times so far, of each step of each program.
    pub fn times(&self) -> Vec<Vec<StepTime>> {
        self.recorded.lock().map(|recorded| recorded.programs.clone()).unwrap_or_default()
    }

    /// The first runs of steps, in order; some hundred thousand are kept.
    pub fn runs(&self) -> Vec<StepRun> {
        self.recorded.lock().map(|recorded| recorded.runs.clone()).unwrap_or_default()
    }

    /// Forgets all times, so that what comes next is not mixed with what was.
    pub fn clear(&self) {
        let Ok(mut recorded) = self.recorded.lock() else { return };
        recorded.runs.clear();
        for step in recorded.programs.iter_mut().flatten() {
            (step.calls, step.total, step.least) = (0, Duration::ZERO, Duration::MAX);
        }
    }
}

/// Records the steps of one program.
pub(crate) struct Recorder {
    to: Arc<StepProfile>,
    program: usize,
    steps: Vec<Step>,
    /// Bytes of an element of each tensor.
    widths: Vec<usize>,
}

impl Recorder {
    pub fn new(to: Arc<StepProfile>, program: &CpuProgram) -> Self {
        let steps = program.steps.iter().enumerate().map(|(index, step)| StepTime {
            name: program.names.get(index).cloned().unwrap_or_default(),
            kind: step.name(),
            least: Duration::MAX,
            ..StepTime::default()
        });
        let index = to.recorded.lock().map_or(0, |mut recorded| {
            recorded.programs.push(steps.collect());
            recorded.programs.len() - 1
        });
        let widths = program.tensors.iter().map(|tensor| tensor.dtype.size()).collect();
        Self { to, program: index, steps: program.steps.clone(), widths }
    }

    pub fn record(&self, step: usize, start: Instant, shapes: &Shapes) {
        let time = start.elapsed();
        let size = |size| shapes.size(size).unwrap_or(0);
        let width = |tensor: u32| self.widths.get(tensor as usize).copied().unwrap_or_default();
        let cost = self.steps.get(step).map(|step| cost::of(step, |tensor| shapes.dims(tensor), width, size));
        let Ok(mut recorded) = self.to.recorded.lock() else { return };
        let Recorded { programs, runs } = &mut *recorded;
        if let Some(times) = programs.get_mut(self.program).and_then(|steps| steps.get_mut(step)) {
            times.calls += 1;
            times.total += time;
            times.least = times.least.min(time);
            times.cost = cost.unwrap_or_default();
        }
        if runs.len() < MAX_RUNS {
            runs.push(StepRun { program: self.program, step, start, time });
        }
    }
}
