//! Packing of weights: the memory layouts that are the contract between a compiler and the engine.
//!
//! A `[k, n]` matrix is packed into panels of 16 columns, `[ceil(n / 16)][padded_rows(k)][16]`. `padded_rows(k)` rounds
//! `k` up to an even number, because bf16 dot products consume pairs of rows; padding rows and columns are zero. All
//! instruction sets read the same layout. The functions here are portable scalar code and run on any machine.

mod int8;
mod matrix;
mod quantized;

pub use crate::conv::pack::{
    conv_transpose2d_f32, conv_transpose2d_f32_len, conv_transpose2d_i8_into, conv_transpose2d_i8_len,
    conv_transpose2d_i8_sums, conv2d_f32, conv2d_f32_len, conv2d_i8_into, conv2d_i8_len, conv3d_f32, conv3d_f32_len,
    conv3d_i8_into, conv3d_i8_len, depthwise2d_f32, depthwise2d_i8_into, depthwise2d_i8_len, winograd_f32,
    winograd_f32_into, winograd_f32_len,
};
pub use int8::{GROUP_SIZE, GroupwiseMatrix, groupwise_into, matrix_i8_into, matrix_i8_len};
pub(crate) use int8::{pad_to_4, taps_i8_into};
pub(crate) use matrix::padded_rows;
pub use matrix::{PANEL, columns_f32_into, matrix_f32, matrix_f32_into, matrix_f32_len, narrow, rows_f32_into};
pub use quantized::{
    Bits, GroupNumbers, Offsets, QUANTIZED_HEADER, QuantizedGroups, QuantizedMatrix, ScaleFormat, UNIT_ROWS, quantized,
    quantized_header, quantized_len, quantized_panels,
};
pub(crate) use quantized::{FACTOR_BIAS, QuantizedLayout};
