//! Matrix products and distances.

use rushlight_runtime::OpGroup;

pub mod distance;
pub mod fft;
pub(crate) mod gemm;
pub mod grouped;
pub mod matmul;
mod transform;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[matmul::PORTABLE, distance::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[];

/// The groups of this folder with operators that Hugging Face's transformers defines.
pub const TRANSFORMERS: &[OpGroup] = &[grouped::OPS];

/// The groups of this folder that ExecuTorch has only in its optimized set.
pub const OPTIMIZED: &[OpGroup] = &[matmul::OPTIMIZED, fft::OPS];
