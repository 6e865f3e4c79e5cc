//! Quantized values. The graph represents them as PyTorch's quantizers do: integers between `quantize` and `dequantize`
//! nodes. Scales and zero points are read from these nodes ([`PerTensor`]). Those of constants are part of their type
//! ([`QuantizedConstant`]), so that backends find the integers of a dequantized weight.

mod check;
mod folded;
mod layer;
mod parameters;

pub use crate::constant::QuantizedConstant;
pub use check::check;
pub use folded::{folded, numbers};
pub use layer::{ConvolutionShape, LayerShape};
pub use parameters::{PerTensor, is_dequantize, is_per_tensor_dequantize, is_per_tensor_quantize, is_quantize};
