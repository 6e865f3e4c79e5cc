//! The operators that the lowering calls: ExecuTorch's `cortex_m::*`, and operators that move int8 elements.

use std::sync::LazyLock;

use rushlight_graph::operators::{aten, dim_order_ops};

pub(crate) const QUANTIZE: &str = "cortex_m::quantize_per_tensor";
pub(crate) const DEQUANTIZE: &str = "cortex_m::dequantize_per_tensor";
pub(crate) const ADD: &str = "cortex_m::quantized_add";
pub(crate) const MUL: &str = "cortex_m::quantized_mul";
pub(crate) const DIV: &str = "cortex_m::quantized_div";
pub(crate) const ACTIVATION: &str = "cortex_m::quantized_activation";
pub(crate) const MINIMUM: &str = "cortex_m::minimum";
pub(crate) const MAXIMUM: &str = "cortex_m::maximum";
pub(crate) const LINEAR: &str = "cortex_m::quantized_linear";
pub(crate) const BATCH_MATMUL: &str = "cortex_m::quantized_batch_matmul";
pub(crate) const SOFTMAX: &str = "cortex_m::softmax";
pub(crate) const TRANSPOSE: &str = "cortex_m::transpose";
pub(crate) const PAD: &str = "cortex_m::pad";
pub(crate) const CONV2D: &str = "cortex_m::quantized_conv2d";
pub(crate) const DEPTHWISE_CONV2D: &str = "cortex_m::quantized_depthwise_conv2d";
pub(crate) const TRANSPOSE_CONV2D: &str = "cortex_m::quantized_transpose_conv2d";
pub(crate) const AVG_POOL2D: &str = "cortex_m::quantized_avg_pool2d";
pub(crate) const MAX_POOL2D: &str = "cortex_m::quantized_max_pool2d";

/// Operators that move elements of any type, in row-major order.
pub(crate) const MOVES: [&str; 9] = [
    aten::CAT,
    aten::CLONE,
    aten::EXPAND_COPY,
    aten::SELECT_COPY_INT,
    aten::SLICE_COPY_TENSOR,
    aten::SQUEEZE_COPY_DIM,
    aten::SQUEEZE_COPY_DIMS,
    aten::UNSQUEEZE_COPY,
    aten::VIEW_COPY,
];

/// The schemas of ExecuTorch's operators, and the names of the others.
pub(crate) static DECLARED: LazyLock<Vec<&str>> =
    LazyLock::new(|| [SCHEMAS, &MOVES, &[aten::EMPTY_MEMORY_FORMAT, dim_order_ops::_TO_DIM_ORDER_COPY]].concat());

const SCHEMAS: &[&str] = &[
    "cortex_m::quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    "cortex_m::dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    "cortex_m::quantized_add(Tensor self, int self_zero_point, int self_multiplier, int self_shift, Tensor other, \
     int other_zero_point, int other_multiplier, int other_shift, int output_zero_point, int output_multiplier, int output_shift, \
     int activation_min, int activation_max) -> Tensor",
    "cortex_m::quantized_mul(Tensor self, int self_zero_point, Tensor other, int other_zero_point, int output_zero_point, \
     int output_multiplier, int output_shift) -> Tensor",
    "cortex_m::quantized_div(Tensor self, int self_zero_point, Tensor other, int other_zero_point, int output_zero_point, \
     float output_scale) -> Tensor",
    "cortex_m::quantized_activation(Tensor input, Tensor lut) -> Tensor",
    "cortex_m::minimum(Tensor self, Tensor other) -> Tensor",
    "cortex_m::maximum(Tensor self, Tensor other) -> Tensor",
    "cortex_m::quantized_linear(Tensor input, Tensor weights, Tensor? bias, Tensor? kernel_sum, int input_offset, int filter_offset, \
     int output_offset, int[] requantize_multipliers, int[] requantize_shifts, int activation_max, int activation_min) -> Tensor",
    "cortex_m::quantized_batch_matmul(Tensor lhs, int lhs_zero_point, Tensor rhs_transposed, int rhs_zero_point, \
     int output_zero_point, int output_multiplier, int output_shift, Tensor scratch) -> Tensor",
    "cortex_m::softmax(Tensor input, int dim, int input_zero_point, int output_zero_point, int input_multiplier, int input_shift, \
     int diff_min) -> Tensor",
    "cortex_m::transpose(Tensor input, int[] perm) -> Tensor",
    "cortex_m::pad(Tensor input, int[] pre_pad, int[] post_pad, int pad_value) -> Tensor",
    "cortex_m::quantized_conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, \
     int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min, \
     int activation_max, Tensor scratch) -> Tensor",
    "cortex_m::quantized_depthwise_conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, \
     int depth_multiplier, int input_offset, int output_offset, Tensor requantize_multipliers, Tensor requantize_shifts, \
     int activation_min, int activation_max, Tensor scratch) -> Tensor",
    "cortex_m::quantized_transpose_conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, \
     int[] output_padding, int[] dilation, int input_offset, int output_offset, Tensor requantize_multipliers, \
     Tensor requantize_shifts, int activation_min, int activation_max, Tensor scratch, Tensor output_scratch) -> Tensor",
    "cortex_m::quantized_avg_pool2d(Tensor input, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, int zero_point, \
     int multiplier, int shift, Tensor scratch) -> Tensor",
    "cortex_m::quantized_max_pool2d(Tensor input, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode, \
     int input_zero_point, int output_zero_point, int activation_min, int activation_max) -> Tensor",
];
