//! ExecuTorch's custom operators for language models, experts among them, and its `preprocess` operators for images.

use rushlight_runtime::OpGroup;

mod attention;
pub mod cache;
pub mod delta_rule;
pub mod fallback;
pub mod hadamard;
pub mod moe;
mod packed_weights;
pub mod sdpa;
pub mod tile_crop;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] =
    &[sdpa::OPS, cache::OPS, hadamard::OPS, delta_rule::OPS, moe::OPS, fallback::OPS, tile_crop::OPS];
