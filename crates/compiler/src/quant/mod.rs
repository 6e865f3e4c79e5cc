//! Quantized values. In the graph they are what PyTorch's quantizers leave: integers between `quantize` and `dequantize`.
//! What an integer stands for is read from these nodes; of constants it is part of their type, so that backends find the
//! integers of a weight behind the numbers that they stand for.

mod check;
mod constant;
mod parameters;

pub(crate) use check::check;
pub use constant::QuantizedConstant;
pub(crate) use constant::{folded, permuted};
pub(crate) use parameters::{PerTensor, is_dequantize, is_quantize};
