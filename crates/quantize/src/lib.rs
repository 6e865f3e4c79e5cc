//! Quantizes models without PyTorch: chooses scales, and the layers that become integers.
//!
//! [`quantize`] replaces weights and activations of a front end's model by the form that PyTorch's quantizers leave: integers
//! between `quantize` and `dequantize` nodes. To measure ranges, it runs the model on the inputs of a [`Calibration`], which
//! the caller implements, with the backend that will run the result.
//!
//! # Decisions
//!
//! - **The result is that of PyTorch's quantizers**, with the same operators. A backend selects by these operators, whoever wrote
//!   them.
//! - **Values to look at become outputs.** `taps.rs` builds models that return the values that get scales, each layer in floats
//!   beside itself in integers, or the Gram matrix of a layer's inputs (for GPTQ). The facade runs them with the CPU backend on the
//!   user's inputs. Where only ranges are looked at and the processor multiplies pairs of bf16, it runs them in bf16. The threads
//!   that computed a result also observe it.
//! - **A backend has the policy** ([`Quantizer`](rushlight_compiler::quantization::Quantizer)), as PyTorch's quantizers are a
//!   backend's. It annotates the operators that compute with quantized tensors, and chooses their types. This crate measures and
//!   rounds for all backends alike, and knows no operator but layers.
//! - **The worst layers stay floats** if the signal-to-noise ratio of the outputs is too low. Bisection finds how many.
//! - **Without a calibration**, layers and outputs are compared on the example inputs of the export. Static scales come from them, too,
//!   which the report says; nothing else is chosen by them.
//! - **Outputs below 30 dB are worth proposals**: the worst layers are tried in floats, and the report has the gain and the cost.
//! - **Scales go down to the epsilon of f32**, as those of PyTorch's observers do.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calibration;
mod gptq;
mod kept;
mod noise;
mod observe;
mod quantize;
mod read;
mod report;
mod rewrite;
mod settings;
mod sites;
mod taps;
mod weights;
mod work;

pub use calibration::{Calibration, See, Seen, Shown};
pub use quantize::quantize;
pub use report::{Decibels, Inputs, LOW_SNR, LayerReport, OutputReport, Proposal, Report};
pub use settings::{Observer, Rounding, Settings};
