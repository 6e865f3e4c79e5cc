//! The `cortex_m` operators: int8 layers of ExecuTorch's Cortex-M backend, with the bits of CMSIS-NN.
//!
//! A program for one instruction set runs on every machine: scratch arguments are ignored, and linear layers accept both
//! the form with a bias (DSP, scalar) and the one with `kernel_sum` (MVE). Arguments named `input_offset` hold negated
//! zero points. The names that end in `_nhwc` take contiguous tensors `[N, H, W, C]`, the others `[N, C, H, W]` that are
//! stored channels-last.
//!
//! The arithmetic is in `rushlight-engine-mcu`. `quantize_per_tensor`, `dequantize_per_tensor` and `quantized_div` compute
//! in f32, as ExecuTorch's kernels do.

use rushlight_runtime::OpGroup;

mod binary;
mod params;

pub mod conv;
pub mod conv_transpose;
pub mod elementwise;
pub mod float;
pub mod layout;
pub mod linear;
pub mod pool;
pub mod softmax;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] =
    &[conv::OPS, conv_transpose::OPS, elementwise::OPS, float::OPS, layout::OPS, linear::OPS, pool::OPS, softmax::OPS];
