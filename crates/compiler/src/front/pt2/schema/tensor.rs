//! Types of values: element types, sizes, and sizes that are expressions.

use rushlight_format::ScalarType;
use serde::Deserialize;

use super::text::{Float, Text};
use super::union::union;

/// An element type, by its code in the schema, which is not the one in c10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ScalarCode(pub i64);

impl ScalarCode {
    /// The type, if programs can have it. `float8_e8m0fnu` (33) has no code in ExecuTorch.
    pub fn scalar_type(self) -> Option<ScalarType> {
        Some(match self.0 {
            1 => ScalarType::Byte,
            2 => ScalarType::Char,
            3 => ScalarType::Short,
            4 => ScalarType::Int,
            5 => ScalarType::Long,
            6 => ScalarType::Half,
            7 => ScalarType::Float,
            8 => ScalarType::Double,
            9 => ScalarType::ComplexHalf,
            10 => ScalarType::ComplexFloat,
            11 => ScalarType::ComplexDouble,
            12 => ScalarType::Bool,
            13 => ScalarType::BFloat16,
            28 => ScalarType::UInt16,
            29 => ScalarType::Float8E4M3Fn,
            30 => ScalarType::Float8E5M2,
            31 => ScalarType::Float8E4M3Fnuz,
            32 => ScalarType::Float8E5M2Fnuz,
            34 => ScalarType::UInt32,
            35 => ScalarType::UInt64,
            _ => return None,
        })
    }
}

/// Storage layout of a tensor; programs can only have [`Layout::STRIDED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Layout(pub i64);

impl Layout {
    pub const STRIDED: Self = Self(7);
}

impl Default for Layout {
    fn default() -> Self {
        Self::STRIDED
    }
}

/// An argument of type `MemoryFormat`, by its code in the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct MemoryFormat(pub i64);

impl MemoryFormat {
    pub const CONTIGUOUS: Self = Self(1);
    pub const CHANNELS_LAST: Self = Self(2);
    pub const CHANNELS_LAST_3D: Self = Self(3);
    pub const PRESERVE: Self = Self(4);
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Device<'a> {
    /// `cpu`, `cuda`, …
    #[serde(rename = "type", borrow)]
    pub kind: Text<'a>,
    #[serde(default)]
    pub index: Option<i64>,
}

/// An expression of symbols, in the notation of SymPy's `srepr`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SymbolicText<'a> {
    #[serde(borrow)]
    pub expr_str: Text<'a>,
    /// The value that it had with the sample inputs.
    #[serde(default)]
    pub hint: Option<Hint<'a>>,
}

union! {
    /// The value of an expression with the sample inputs.
    pub enum Hint {
        "as_int" => Int(i64),
        "as_bool" => Bool(bool),
        "as_float" => Float(f64; Float),
    }
}

union! {
    /// A size, stride or integer: a number or an expression.
    pub enum SymInt {
        "as_int" => Int(i64),
        "as_expr" => Expr(SymbolicText<'a>),
    }
}

union! {
    /// A floating-point number or an expression.
    pub enum SymFloat {
        "as_float" => Float(f64; Float),
        "as_expr" => Expr(SymbolicText<'a>),
    }
}

union! {
    /// A condition: known, or an expression.
    pub enum SymBool {
        "as_bool" => Bool(bool),
        "as_expr" => Expr(SymbolicText<'a>),
    }
}

/// Everything that a program says of a tensor before it runs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TensorMeta<'a> {
    pub dtype: ScalarCode,
    #[serde(borrow)]
    pub sizes: Vec<SymInt<'a>>,
    #[serde(default)]
    pub requires_grad: bool,
    #[serde(default)]
    pub device: Option<Device<'a>>,
    /// In elements, one for each size. The order of dimensions in memory follows from these.
    #[serde(default)]
    pub strides: Vec<SymInt<'a>>,
    /// In elements, from the start of the storage.
    #[serde(default = "SymInt::zero")]
    pub storage_offset: SymInt<'a>,
    #[serde(default)]
    pub layout: Layout,
}

impl SymInt<'_> {
    fn zero() -> Self {
        Self::Int(0)
    }

    /// The number, unless it is an expression.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }
}
