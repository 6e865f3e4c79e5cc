//! Quantized values, and programs that become quantized. In the graph values are what PyTorch's quantizers leave: integers
//! between `quantize` and `dequantize`. What an integer stands for is read from these nodes; of constants it is part of their
//! type, so that backends find the integers of a weight behind the numbers that they stand for.

mod check;
mod constant;
mod gptq;
mod kept;
mod noise;
mod observe;
mod parameters;
mod quantizer;
mod raise;
mod read;
mod report;
mod rewrite;
mod scheme;
mod sites;
mod taps;
mod weights;

pub(crate) use check::check;
pub use constant::QuantizedConstant;
pub(crate) use constant::{folded, permuted};
pub(crate) use parameters::{PerTensor, is_dequantize, is_quantize};
pub use quantizer::{Calibration, See, Seen, Settings, Shown, quantize};
pub(crate) use raise::RaiseLinear;
pub use report::{Decibels, Inputs, LOW_SNR, LayerReport, OutputReport, Report};
pub use scheme::{Observer, Rounding, Scheme};
