//! Raises patterns of nodes to the one operator that accelerators compute in a step.
//!
//! Exporters and other compilers decompose operators that a backend has whole. A backend runs these passes on a copy of the
//! method when it claims nodes, and on its parts when it compiles them. Each matches a decomposed form by the
//! values that it computes, and allows views, factors and casts between its nodes.

mod activations;
mod attention;
mod experts;
mod linear;
mod operands;
mod rms_norm;
mod shared_heads;
mod ungroup_experts;

pub use activations::RaiseActivations;
pub use attention::RaiseAttention;
pub use experts::RaiseExperts;
pub use linear::RaiseLinear;
pub use operands::clamp_bounds;
pub use rms_norm::RaiseRmsNorms;
pub use shared_heads::ShareHeads;
pub use ungroup_experts::UngroupExperts;
