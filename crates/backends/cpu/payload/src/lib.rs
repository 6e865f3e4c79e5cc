//! The payload of the CPU backend: the format in which the compiler hands a part to the delegate that runs it.
//!
//! A [`CpuProgram`] is a list of [`Step`]s over [`Tensor`]s. A tensor is a dense window of a [`Buffer`]. Its dimensions
//! are listed in their order in memory, the innermost last. Images are channels-last (NHWC). Sizes are fixed, or
//! computed from the sizes of the inputs at each call.
//!
//! [`CpuProgram::parse`] checks that:
//! - every index is in its list,
//! - steps only read tensors that were written before,
//! - windows lie inside of their buffers,
//! - the weights of GEMMs and convolutions have the element type and the size of the step's format.
//!
//! Computed sizes are checked at each call.
//!
//! Tensors between steps are f32, or u8 with an [`Affine`] quantization. States, and values that are written to them,
//! may be floats of 16 bits. Int8 GEMMs and convolutions multiply u8 by i8, and accumulate exactly in i32.
//!
//! Operators, activations and modes are the engine's own enums, so nothing is translated when a step runs.
//!
//! A step is a file of `steps`, with its structure, bytes, checks and work ([`StepKind`]), and a line in the list there. It has a
//! kind (a direct, depthwise, transposed or Winograd convolution, f32 or int8), the format of its weights, and exactly the
//! fields that its kernel takes.

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;

mod check;
mod codec;
mod epilogue;
mod error;
#[cfg(test)]
mod examples;
mod formats;
mod program;
mod step_kind;
mod steps;
mod tensor;
mod tensors;
#[cfg(test)]
mod tests;
mod text;
mod work;

pub use epilogue::{Epilogue, FakeQuantize, GroupwiseEpilogue, Int8Epilogue, Residual};
pub use error::{Counted, List, Nonzero, PayloadError, PayloadFault, PayloadSite};
pub use formats::{FloatFormat, GroupwiseFormat, QuantizedFormat};
pub use program::{CpuProgram, HEADER, State};
/// The vocabulary that the payload shares with the engine.
pub use rushlight_engine::pack::{Bits, Offsets, ScaleFormat};
pub use rushlight_engine::{
    Activation, AveragePool, Binary, Half, Instruction, Operand, PoolKind, Reduction, ResizeMode, Unary, Winograd,
    ZeroPointRule,
};
pub use step_kind::StepKind;
pub use steps::*;
pub use tensor::{Affine, Buffer, Size, SizeOp, Tensor, TensorId, half_of};
pub use tensors::Tensors;
pub use work::{Sizes, Work};

/// The backend's id in programs.
pub const CPU_BACKEND: &str = "RushlightCpu";
