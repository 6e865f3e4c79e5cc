//! The programs and inputs by which a quantization measures.

use std::sync::Arc;

use rushlight_engine::Engine;
use rushlight_graph::{Error, Model};

use super::report::Inputs;

/// Number of inputs of the comparison of layers and outputs.
const COMPARED: usize = 16;

/// Runs programs on the inputs of a calibration, and on the example inputs of the export.
pub trait Calibration {
    /// The engine that runs the programs. It is idle while `see` is called.
    fn engine(&self) -> Arc<Engine>;

    /// Returns the number of inputs of a kind for a method.
    fn samples(&self, method: &str, of: Inputs) -> usize;

    /// Runs a method of a model on the first `shown.limit` of its inputs, and calls `see` with the results of each. All
    /// results are tensors of floats.
    ///
    /// # Errors
    /// Errors of the run, and those of `see`.
    fn run(&mut self, model: Model, method: &str, shown: Shown, see: &mut See<'_>) -> Result<(), Error>;
}

/// A request to a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The stage of progress; its unit is one input.
    pub stage: &'static str,
    pub inputs: Inputs,
    /// Maximum number of inputs.
    pub limit: usize,
    /// True if GEMMs and convolutions may round their operands to bf16 if that is faster. This is allowed when ranges
    /// are measured, but not when the float results are the reference.
    pub is_rough: bool,
}

impl Shown {
    pub(super) const fn all(stage: &'static str, inputs: Inputs) -> Self {
        Self { stage, inputs, limit: usize::MAX, is_rough: false }
    }

    /// A request for the inputs of the comparison of layers and outputs.
    pub(super) const fn compared(inputs: Inputs) -> Self {
        Self { stage: "comparing", inputs, limit: COMPARED, is_rough: false }
    }
}

/// A visitor of a method's results.
pub type See<'a> = dyn FnMut(&[Seen<'_>]) -> Result<(), Error> + 'a;

/// A tensor that a program returned, in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub sizes: &'a [usize],
    pub numbers: &'a [f32],
}
