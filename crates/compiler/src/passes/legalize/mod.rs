//! Rewrites nodes of a backend's part into plainer ones, which most backends have.
//!
//! Passes rewrite a whole model. [`embedding`] and [`quantized_cache`] rewrite one node, for a backend's own pass.

pub mod embedding;
mod qdq_int16;
pub mod quantized_cache;
mod sink_permutations;
mod tensor_numbers;

pub use qdq_int16::{RoundQdqInt16, is_rounded};
pub use sink_permutations::SinkPermutations;
pub use tensor_numbers::ReadNumbersAsTensors;
