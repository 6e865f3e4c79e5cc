//! Operators that make tensors from sizes and scalars.

use rushlight_runtime::OpGroup;

pub mod arange;
pub mod distributions;
pub mod fill;
pub mod random;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[fill::OPS, arange::OPS, random::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[random::CORE_ATEN_OPS];

/// The groups of this folder with operators beyond core ATen.
pub const ATEN: &[OpGroup] = &[distributions::OPS];
