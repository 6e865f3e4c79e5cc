//! How long steps take.

use std::sync::Mutex;
use std::time::Duration;

use rushlight_format::cpu::CpuProgram;

/// The times of the steps of all programs of a method.
#[derive(Debug, Default)]
pub struct Steps {
    programs: Mutex<Vec<Vec<StepTime>>>,
}

/// The time of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTime {
    /// The value of the graph that it computes.
    pub name: String,
    /// What kind of step it is.
    pub kind: &'static str,
    pub calls: u64,
    pub total: Duration,
    pub least: Duration,
}

impl Steps {
    /// The times so far, of each step of each program.
    pub fn times(&self) -> Vec<Vec<StepTime>> {
        self.programs.lock().map(|programs| programs.clone()).unwrap_or_default()
    }

    pub(crate) fn add(&self, program: &CpuProgram) -> usize {
        let steps = program.steps.iter().enumerate().map(|(index, step)| StepTime {
            name: program.names.get(index).cloned().unwrap_or_default(),
            kind: step.name(),
            least: Duration::MAX,
            ..StepTime::default()
        });
        let Ok(mut programs) = self.programs.lock() else { return 0 };
        programs.push(steps.collect());
        programs.len() - 1
    }

    pub(crate) fn record(&self, program: usize, step: usize, time: Duration) {
        let Ok(mut programs) = self.programs.lock() else { return };
        if let Some(times) = programs.get_mut(program).and_then(|steps| steps.get_mut(step)) {
            times.calls += 1;
            times.total += time;
            times.least = times.least.min(time);
        }
    }
}
