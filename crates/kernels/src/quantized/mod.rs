//! The `quantized_decomposed` operators.
//!
//! An affine quantized tensor stands for `(q - zero_point) * scale`. Scales are rounded to f32 before use, as
//! ExecuTorch does.

use rushlight_runtime::OpGroup;

#[macro_use]
pub(crate) mod integer;

pub mod add;
pub mod choose_qparams;
pub mod dequantize;
pub mod embedding;
pub mod mixed;
mod params;
pub mod quantize;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] =
    &[quantize::OPS, dequantize::OPS, choose_qparams::OPS, embedding::OPS, add::OPS, mixed::OPS];
