//! Conversions between the element types of inputs and outputs and those inside.

use rushlight_engine::Half;
use rushlight_format::ScalarType;

use crate::codec::{structure, union};
use crate::tensors::Tensors;
use crate::{PayloadError, StepKind, TensorId};

/// The largest absolute value of a position or index that is converted to f32. Sums and differences of two are still
/// exact.
pub const MAX_POSITION: i64 = 1 << 22;

/// Converts between the element type of an input or output and the type that steps compute with: f32, or u8 for 8-bit
/// integers.
///
/// Integers of 64 bits are positions. An input beyond [`MAX_POSITION`] is an error.
/// Booleans become 1 and 0, and every value except zero becomes true. Floats are rounded to the nearest 16-bit float,
/// ties to even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convert {
    pub x: TensorId,
    pub y: TensorId,
    pub element: ConvertedType,
    pub direction: Direction,
}

/// An element type of inputs and outputs that no step computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertedType {
    Half(Half),
    Bool,
    /// Stored with a bias of 128.
    Int8,
    Uint8,
    Int64,
}

/// The side of a [`Convert`] that is the caller's tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `x` is an input.
    Enter,
    /// `y` is an output.
    Leave,
}

structure! { Convert { x, y, element, direction } }

union! {
    ConvertedType { 0 Half(half), 1 Bool, 2 Int8, 3 Uint8, 4 Int64 }
    Direction { 0 Enter, 1 Leave }
}

impl ConvertedType {
    /// Returns the type that converts this element type; `None` if steps compute with it, or if no type converts it.
    pub const fn of(dtype: ScalarType) -> Option<Self> {
        Some(match dtype {
            ScalarType::Half => Self::Half(Half::F16),
            ScalarType::BFloat16 => Self::Half(Half::Bf16),
            ScalarType::Bool => Self::Bool,
            ScalarType::Char => Self::Int8,
            ScalarType::Byte => Self::Uint8,
            ScalarType::Long => Self::Int64,
            _ => return None,
        })
    }

    /// Returns the element type of the caller's tensor.
    pub const fn dtype(self) -> ScalarType {
        match self {
            Self::Half(Half::F16) => ScalarType::Half,
            Self::Half(Half::Bf16) => ScalarType::BFloat16,
            Self::Bool => ScalarType::Bool,
            Self::Int8 => ScalarType::Char,
            Self::Uint8 => ScalarType::Byte,
            Self::Int64 => ScalarType::Long,
        }
    }

    /// True if the tensor that steps compute with is quantized.
    pub const fn is_quantized(self) -> bool {
        matches!(self, Self::Int8 | Self::Uint8)
    }
}

impl Convert {
    /// Returns the tensor of the converted type, and the one that steps compute with.
    const fn sides(&self) -> [TensorId; 2] {
        match self.direction {
            Direction::Enter => [self.x, self.y],
            Direction::Leave => [self.y, self.x],
        }
    }
}

impl StepKind for Convert {
    fn name(&self) -> &'static str {
        "convert"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let [outside, inside] = self.sides();
        tensors.dtype(outside, self.element.dtype())?;
        tensors.quantized(inside, self.element.is_quantized())
    }

    fn check_halves(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let [_, inside] = self.sides();
        tensors.no_half(inside)
    }
}

#[cfg(test)]
impl crate::examples::Examples for Convert {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        let step = |element, direction| Convert { x: 1, y: 2, element, direction };
        [
            (step(ConvertedType::Half(Half::F16), Direction::Enter), "0b0102000000"),
            (step(ConvertedType::Half(Half::Bf16), Direction::Leave), "0b0102000101"),
            (step(ConvertedType::Bool, Direction::Enter), "0b01020100"),
            (step(ConvertedType::Int8, Direction::Enter), "0b01020200"),
            (step(ConvertedType::Uint8, Direction::Enter), "0b01020300"),
            (step(ConvertedType::Int64, Direction::Enter), "0b01020400"),
        ]
    }
}
