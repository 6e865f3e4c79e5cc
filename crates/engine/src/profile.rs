//! How long the steps of compiled programs take, to compare with [the machine's limits](crate::hwbench::Limits).

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What one call of a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Additions and multiplications of numbers, counted as the definition of the operator has them: Winograd's algorithm
    /// does fewer. A transcendental function counts as one.
    pub flops: f64,
    /// Bytes of the tensors that are read and written, each once.
    pub bytes: f64,
}

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

    /// Adds a program with the names and kinds of its steps. Returns its index.
    pub fn add_program<'n>(&self, steps: impl Iterator<Item = (&'n str, &'static str)>) -> usize {
        let steps = steps.map(|(name, kind)| StepTime {
            name: name.to_owned(),
            kind,
            least: Duration::MAX,
            ..StepTime::default()
        });
        let Ok(mut recorded) = self.recorded.lock() else { return 0 };
        recorded.programs.push(steps.collect());
        recorded.programs.len() - 1
    }

    /// Adds a run of a step.
    pub fn record(&self, run: StepRun, cost: Cost) {
        let Ok(mut recorded) = self.recorded.lock() else { return };
        let Recorded { programs, runs } = &mut *recorded;
        if let Some(times) = programs.get_mut(run.program).and_then(|steps| steps.get_mut(run.step)) {
            times.calls += 1;
            times.total += run.time;
            times.least = times.least.min(run.time);
            times.cost = cost;
        }
        if runs.len() < MAX_RUNS {
            runs.push(run);
        }
    }
}
