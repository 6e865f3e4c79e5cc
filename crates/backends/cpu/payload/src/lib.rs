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
//! A step has a kind (a direct, depthwise, transposed or Winograd convolution, f32 or int8), the format of its weights,
//! and exactly the fields that its kernel takes.

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;

#[cfg(test)]
mod bytes;
mod check;
mod codec;
mod error;
mod gemm;
mod step;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod work;

use alloc::string::String;
use alloc::vec::Vec;

use rushlight_format::ScalarType;

pub use codec::HEADER;
pub use error::{Counted, List, Nonzero, PayloadError, PayloadFault, PayloadSite};
pub use gemm::{
    Convolution, ConvolutionKind, Epilogue, FakeQuantize, FloatFormat, GroupwiseEpilogue, GroupwiseFormat,
    Int8Epilogue, Matmul, MatmulKind, QuantizedFormat, Residual, Window,
};
/// The vocabulary that the payload shares with the engine.
pub use rushlight_engine::pack::{Bits, Offsets, ScaleFormat};
pub use rushlight_engine::{
    Activation, AveragePool, Binary, Half, Instruction, Operand, PoolKind, Reduction, ResizeMode, Unary, Winograd,
    ZeroPointRule,
};
pub use step::{
    Attention, ChooseQparams, Convert, ConvertedType, Copy, DeltaRule, Direction, Elementwise, Experts, Gather,
    KeyValueFormat, Normalization, Pooling, QuantizeRows, Reduce, Register, Resize, RowQparams, Scatter, Step,
    TableFormat, half_of,
};
pub use work::{Sizes, Work};

/// The backend's id in programs.
pub const CPU_BACKEND: &str = "RushlightCpu";

/// Version of the format of payloads. A payload of another version is refused.
pub const VERSION: u8 = 13;

/// Number of registers of an elementwise step.
pub const REGISTERS: u8 = rushlight_engine::REGISTERS as u8;

/// The largest absolute value of a position or index that is converted to f32. Sums and differences of two are still
/// exact.
pub const MAX_POSITION: i64 = 1 << 22;

/// Maximum number of elements of a row that a [`Step::TopK`] finds: its work grows with them.
pub const MAX_TOP_K: u64 = 128;

/// Maximum number of tensors that an elementwise step reads.
pub const MAX_OPERANDS: usize = 16;

/// A compiled part of a method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuProgram {
    /// Computes the sizes; each may use the ones before it.
    pub sizes: Vec<SizeOp>,
    pub buffers: Vec<Buffer>,
    pub tensors: Vec<Tensor>,
    /// The tensors that the caller passes, by position.
    pub inputs: Vec<TensorId>,
    /// The tensors that are returned to the caller, by position.
    pub outputs: Vec<TensorId>,
    /// The sizes of each output as the caller sees it, in the order of the PyTorch tensor's dimensions.
    pub output_sizes: Vec<Vec<Size>>,
    /// Names of the blobs with large constants.
    pub blobs: Vec<String>,
    /// State that is kept between calls.
    pub states: Vec<State>,
    /// Small constants, which are in the payload itself instead of a blob.
    pub inline_floats: Vec<f32>,
    /// Number of `f32` that intermediate results take at the largest sizes.
    pub arena: u64,
    /// Number of scratch `f32` that a step may need, for each thread.
    pub scratch: u64,
    pub steps: Vec<Step>,
    /// The origin of each step, for profiles.
    pub names: Vec<String>,
}

/// A tensor that keeps its elements from call to call, such as a KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Payloads of a program that use the same key share the state.
    pub key: String,
    /// Number of `f32`.
    pub len: u64,
    /// The bits of each `f32` before the first call.
    pub initial: u32,
    /// True if elements are written at positions that the caller gives, and read up to the last position. Removing the
    /// last positions then needs no change of the memory.
    pub is_cache: bool,
}

/// An index in [`CpuProgram::tensors`].
pub type TensorId = u32;

/// A size that is fixed, or an index in [`CpuProgram::sizes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Fixed(u64),
    Computed(u32),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

/// A computation of a size. Operands are indices of earlier sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SizeOp {
    Fixed(i64),
    /// The size of a dimension of an input, as the caller sees it.
    Input {
        input: u32,
        dim: u32,
    },
    /// Element `index` of an input of i64: a position. The call is refused if it is less than `min` or more than `max`.
    Element {
        input: u32,
        index: u32,
        min: i64,
        max: i64,
    },
    Add(u32, u32),
    Mul(u32, u32),
    /// Rounded down.
    FloorDiv(u32, u32),
    /// With the sign of the divisor.
    Mod(u32, u32),
    Max(u32, u32),
    Min(u32, u32),
}

/// Memory of the delegate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The memory of an input, by position.
    Input(u32),
    /// The memory of an output, by position.
    Output(u32),
    /// `len` elements of the arena, from `offset`.
    Arena { offset: u64, len: u64 },
    /// A blob, whole.
    Blob(u32),
    /// `len` elements of [`CpuProgram::inline_floats`], from `offset`.
    Inline { offset: u64, len: u64 },
    /// A state, whole.
    State(u32),
}

/// A dense tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub dtype: ScalarType,
    /// An index in [`CpuProgram::buffers`].
    pub buffer: u32,
    /// The first element, counted from the start of the buffer.
    pub offset: Size,
    /// From the outermost dimension in memory to the innermost.
    pub dims: Vec<Size>,
    /// The quantization of u8 tensors between steps, which always have one; `None` for other tensors.
    pub affine: Option<Affine>,
}

/// Affine quantization to u8: a byte stands for `(byte - zero) * scale`. Values are rounded to nearest, ties to even, and
/// clamped to `min..=max`. Signed integers are stored with a bias of 128.
///
/// Compares and hashes the bits of its scale, unlike the engine's type.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Affine {
    /// Bits of f32.
    scale: u32,
    pub zero: u8,
    pub min: u8,
    pub max: u8,
}

impl Affine {
    /// Creates a quantization.
    pub const fn new(scale: f32, zero: u8, [min, max]: [u8; 2]) -> Self {
        Self { scale: scale.to_bits(), zero, min, max }
    }

    /// Returns the scale.
    pub const fn scale(&self) -> f32 {
        f32::from_bits(self.scale)
    }
}

impl CpuProgram {
    /// Reads a payload.
    ///
    /// # Errors
    /// For data that is truncated or damaged, an unknown version, and indices outside of their lists.
    pub fn parse(bytes: &[u8]) -> Result<Self, PayloadError> {
        let program = codec::read(bytes)?;
        check::check(&program)?;
        Ok(program)
    }

    /// Writes the payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::write(self)
    }
}
