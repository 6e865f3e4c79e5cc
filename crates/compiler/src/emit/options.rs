//! Options of the emitter.

use super::external::ExternalWeights;

/// Options of the emitter.
#[derive(Clone, Debug)]
pub struct EmitOptions {
    /// True if inputs have a place in the arena; otherwise the caller's memory is read.
    pub plan_inputs: bool,
    /// True if outputs have a place in the arena; otherwise the caller provides memory for them.
    pub plan_outputs: bool,
    /// True if each output has memory of its own: an output that is an input or an earlier output is copied.
    pub separate_outputs: bool,
    /// Each planned tensor starts at a multiple of this.
    pub alignment: u64,
    /// True if each instruction carries the Python stack that it comes from.
    pub stack_traces: bool,
    /// True if the program has a debug map: the origin of each instruction, for profilers and other tools.
    pub debug_map: bool,
    /// True if every result stays in memory to the end, for comparisons.
    pub keep_results: bool,
    /// Constants that go to `.ptd` files, which are loaded beside the program.
    pub external_weights: Option<ExternalWeights>,
}

impl Default for EmitOptions {
    fn default() -> Self {
        Self {
            plan_inputs: true,
            plan_outputs: true,
            separate_outputs: false,
            alignment: 16,
            stack_traces: false,
            debug_map: true,
            keep_results: false,
            external_weights: None,
        }
    }
}
