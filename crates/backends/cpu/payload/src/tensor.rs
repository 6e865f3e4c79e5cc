//! Tensors, their memory and their sizes.

use alloc::vec::Vec;
use core::fmt;

use rushlight_engine::Half;
use rushlight_format::ScalarType;

use crate::codec::{structure, union};
use crate::{PayloadError, PayloadFault};

/// An index in [`CpuProgram::tensors`](crate::CpuProgram::tensors).
pub type TensorId = u32;

/// A size that is fixed, or an index in [`CpuProgram::sizes`](crate::CpuProgram::sizes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Fixed(u64),
    Computed(u32),
}

impl Size {
    /// Returns the size if it is fixed.
    pub const fn fixed(self) -> Option<u64> {
        match self {
            Self::Fixed(size) => Some(size),
            Self::Computed(_) => None,
        }
    }
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
    /// `len` elements of [`CpuProgram::inline_floats`](crate::CpuProgram::inline_floats), from `offset`.
    Inline { offset: u64, len: u64 },
    /// A state, whole.
    State(u32),
}

/// A dense tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub dtype: ScalarType,
    /// An index in [`CpuProgram::buffers`](crate::CpuProgram::buffers).
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

    /// Checks that the scale and its reciprocal are finite and positive, and that `min <= max`.
    pub(crate) fn check(self) -> Result<(), PayloadError> {
        let scale = self.scale();
        let is_scale = |scale: f32| scale.is_finite() && scale > 0.0;
        if !is_scale(scale) || !is_scale(1.0 / scale) || self.min > self.max {
            return Err(PayloadError::new(PayloadFault::Affine));
        }
        Ok(())
    }
}

impl fmt::Debug for Affine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zero, min, max, .. } = self;
        f.debug_struct("Affine")
            .field("scale", &self.scale())
            .field("zero", zero)
            .field("min", min)
            .field("max", max)
            .finish()
    }
}

/// The 16-bit floating-point format of a type; `None` for other types.
pub const fn half_of(dtype: ScalarType) -> Option<Half> {
    match dtype {
        ScalarType::Half => Some(Half::F16),
        ScalarType::BFloat16 => Some(Half::Bf16),
        _ => None,
    }
}

structure! {
    Tensor { dtype, buffer, offset, dims, affine }
    Affine { scale, zero, min, max }
}

union! {
    Size { 0 Fixed(size), 1 Computed(index) }
    SizeOp {
        0 Fixed(value), 1 Input { input, dim }, 2 Add(a, b), 3 Mul(a, b), 4 FloorDiv(a, b), 5 Mod(a, b), 6 Max(a, b), 7 Min(a, b),
        8 Element { input, index, min, max }
    }
    Buffer { 0 Input(index), 1 Output(index), 2 Arena { offset, len }, 3 Blob(index), 4 Inline { offset, len }, 5 State(index) }
}
