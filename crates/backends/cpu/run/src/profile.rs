//! Records how long steps take.

use std::sync::Arc;
use std::time::Instant;

use rushlight_cpu_payload::{CpuProgram, Step};
use rushlight_engine::profile::{StepProfile, StepRun};

use crate::cost;
use crate::shapes::Shapes;

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
        let name = |index: usize| program.names.get(index).map_or("", String::as_str);
        let index = to.add_program(program.steps.iter().enumerate().map(|(index, step)| (name(index), step.name())));
        let widths = program.tensors.iter().map(|tensor| tensor.dtype.size()).collect();
        Self { to, program: index, steps: program.steps.clone(), widths }
    }

    pub fn record(&self, step: usize, start: Instant, shapes: &Shapes) {
        let time = start.elapsed();
        let size = |size| shapes.size(size).unwrap_or(0);
        let width = |tensor: u32| self.widths.get(tensor as usize).copied().unwrap_or_default();
        let cost = self.steps.get(step).map(|step| cost::of(step, |tensor| shapes.dims(tensor), width, size));
        self.to.record(StepRun { program: self.program, step, start, time }, cost.unwrap_or_default());
    }
}
