//! Softmax and normalization.

use rushlight_runtime::OpGroup;

pub mod backward;
pub mod batch_norm;
pub mod group_norm;
pub mod layer_norm;
mod normalize;
pub mod softmax;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[batch_norm::OPS, group_norm::OPS, layer_norm::OPS, softmax::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[backward::OPS];
