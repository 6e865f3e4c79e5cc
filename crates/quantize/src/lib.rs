//! Quantizes models without PyTorch: how scales are chosen and which layers become integers.
//!
//! [`quantize`] replaces, in a model of a front end, weights and activations by what PyTorch's quantizers
//! leave: integers between `quantize` and `dequantize` nodes. What numbers are like inside of the model is seen by running
//! it on the inputs of a [`Calibration`], which the caller implements, with the back end that is to run the result.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod gptq;
mod kept;
mod noise;
mod observe;
mod quantizer;
mod read;
mod report;
mod rewrite;
mod scheme;
mod sites;
mod taps;
mod weights;

pub use quantizer::{Calibration, PackedBytes, See, Seen, Settings, Shown, quantize};
pub use report::{Decibels, Inputs, LOW_SNR, LayerReport, OutputReport, Report};
pub use scheme::{Observer, Rounding, Scheme};
