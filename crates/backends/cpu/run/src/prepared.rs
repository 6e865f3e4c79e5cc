//! Steps that are ready to run.

use rushlight_cpu_payload::{CpuProgram, Matmul, Step, match_step};
use rushlight_engine::Engine;
use rushlight_runtime::{Code, Detail, Error, Result};

use crate::memory::StepContext;
use crate::shapes::Shapes;
use crate::steps::RunStep;
use crate::table::Table;

/// A step with its lookup table, if it has one.
pub(crate) struct PreparedStep {
    pub step: Box<Step>,
    table: Option<Table>,
}

impl PreparedStep {
    /// Makes a step of a program ready to run.
    pub fn new(step: Step, program: &CpuProgram) -> Self {
        let table = match_step!(&step, step => step.table(program));
        Self { step: Box::new(step), table }
    }

    pub fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        match &self.table {
            None => match_step!(&*self.step, step => step.run(engine, cx)),
            Some(table) => match_step!(&*self.step, step => step.run_with_table(table, engine, cx)),
        }
    }

    /// Checks that the number of operations of the step is bounded by the elements of its tensors at their present sizes.
    pub fn check_work(&self, shapes: &Shapes) -> Result<()> {
        match self.step.kind().work(shapes) {
            Some(work) if !work.is_bounded() => {
                let [operations, limit] = work.saturated();
                Err(Error::new(Code::DelegateInvalidCompatibility, Detail::Work { operations, limit }))
            }
            _ => Ok(()),
        }
    }

    /// Returns the step as a GEMM with constant weights whose rows may be those of several calls, if it is one.
    pub fn shared_gemm(&self) -> Option<&Matmul> {
        match_step!(&*self.step, step => step.shared_gemm())
    }

    /// Copies the tensors of the step to allocations of their own.
    #[cfg(feature = "isolate")]
    pub fn isolate(&self, cx: &mut StepContext<'_, '_, '_, '_>) {
        let mut inputs = Vec::new();
        self.step.for_each_input(&mut |tensor| inputs.push(tensor));
        cx.isolated = crate::isolated::Isolated::of(cx, &inputs, self.step.output());
    }
}
