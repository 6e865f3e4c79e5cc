//! Steps as calls of the engine, a file each.

mod attention;
mod choose_qparams;
mod convert;
mod convolution;
mod copy;
mod delta_rule;
mod elementwise;
mod experts;
mod gather;
mod gather_elements;
mod matmul;
mod normalization;
mod pack_nibbles;
mod pooling;
mod quantize_rows;
mod reduce;
mod resize;
mod scatter;
mod softmax;
mod top_k;
mod unpack_nibbles;

use rushlight_cpu_payload::{CpuProgram, Matmul, StepKind};
use rushlight_engine::Engine;
use rushlight_runtime::Result;

use crate::bf16_choice::Choice;
use crate::error::Unfit;
use crate::memory::StepContext;
use crate::table::Table;

const FLOATS_ONLY: Unfit = Unfit::Part("a tensor is quantized or bf16, which the step does not compute with");

/// A step that the delegate runs.
pub(crate) trait RunStep: StepKind {
    /// Runs the step on the tensors of a call.
    ///
    /// # Errors
    /// For tensors that do not fit together, or whose memory is too small.
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()>;

    /// Computes the step's lookup table, if it has one, when its program is loaded.
    fn table(&self, _program: &CpuProgram) -> Option<Table> {
        None
    }

    /// As [`run`](Self::run), with the table.
    fn run_with_table(&self, _table: &Table, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        self.run(engine, cx)
    }

    /// Returns the scratch memory in floats that the kernel of this machine needs, besides what the payload asks for.
    fn scratch(&self, _program: &CpuProgram, _engine: &Engine) -> usize {
        0
    }

    /// Restricts the tensors that may be bf16 to those that the step supports. True if that changes anything.
    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        choice.refuse_all(self)
    }

    /// Returns the step as a GEMM with constant weights whose rows may be those of several calls, if it is one.
    fn shared_gemm(&self) -> Option<&Matmul> {
        None
    }
}
