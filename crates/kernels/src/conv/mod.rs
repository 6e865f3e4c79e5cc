//! Convolution, pooling, padding, resampling: operators over spatial neighbourhoods.

use rushlight_runtime::OpGroup;

pub mod convolution;
mod staged;
mod window;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[convolution::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[];
