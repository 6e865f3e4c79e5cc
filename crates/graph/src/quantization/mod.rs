//! Quantized values. In the graph they are what PyTorch's quantizers leave: integers between `quantize` and `dequantize`
//! nodes. What an integer stands for is read from these nodes ([`PerTensor`]); of constants it is part of their type
//! ([`QuantizedConstant`]), so that back ends find the integers of a weight behind the numbers that they stand for.

mod check;
mod folded;
mod layer;
mod parameters;

pub use crate::constant::{QuantizedConstant, permuted};
pub use check::check;
pub use folded::folded;
pub use layer::{ConvolutionShape, LayerShape};
pub use parameters::{PerTensor, is_dequantize, is_quantize};
