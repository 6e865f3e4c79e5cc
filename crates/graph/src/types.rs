//! Types of values.

use std::fmt;
use std::sync::Arc;

use rushlight_format::ScalarType;

use super::expr::{Expr, SymbolId, Symbols};
use super::parameters::Parameters;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Tensor(TensorType),
    /// An integer; the expression is its value.
    Int(Expr),
    Float,
    Bool,
}

/// The type of a tensor. Tensors are dense: their elements fill their memory in the order of `dim_order`.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    pub dtype: ScalarType,
    /// Size of each dimension.
    pub shape: Vec<Expr>,
    /// The dimensions from the outermost in memory to the innermost. Operators have contiguous operands and results
    /// (`0, 1, 2, …`); only inputs, outputs and the operators that convert between orders have others, until
    /// the pass `AssignDimOrders` at the end.
    pub dim_order: Vec<u8>,
    /// Quantization of the integers, if they are quantized.
    pub quantization: Option<Arc<Quantization>>,
}

/// An affine quantization: the real value is `(q - zero_point) * scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    pub granularity: Granularity,
    /// One for each group of elements, in row-major order of the groups.
    pub scales: Parameters<f32>,
    /// Zero points, one for each scale.
    pub zero_points: Parameters<i32>,
    /// Minimum and maximum integer in use.
    pub range: (i32, i32),
}

/// The groups of elements that share a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granularity {
    Tensor,
    /// Each index of an axis has its own.
    Channel {
        axis: u8,
    },
    /// Each block of this shape has its own.
    Block {
        shape: Vec<u32>,
    },
}

impl Type {
    /// The symbol whose value an integer is, such as one that is read from a tensor.
    pub const fn symbol(&self) -> Option<SymbolId> {
        match self {
            Self::Int(Expr::Symbol(symbol)) => Some(*symbol),
            _ => None,
        }
    }

    /// The tensor type, if it is one.
    pub const fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The text, with the symbols' names.
    pub fn display<'a>(&'a self, symbols: &'a Symbols) -> impl fmt::Display + 'a {
        TypeText { ty: self, symbols }
    }
}

impl TensorType {
    /// A contiguous tensor.
    pub fn new(dtype: ScalarType, shape: Vec<Expr>) -> Self {
        let dim_order = contiguous(shape.len());
        Self { dtype, shape, dim_order, quantization: None }
    }

    /// A contiguous tensor of known sizes.
    pub fn of(dtype: ScalarType, sizes: &[i64]) -> Self {
        Self::new(dtype, sizes.iter().map(|size| Expr::Int(*size)).collect())
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> Expr {
        Expr::product(&self.shape)
    }

    /// The sizes, if none depends on a symbol.
    pub fn static_sizes(&self) -> Option<Vec<i64>> {
        self.shape.iter().map(Expr::as_int).collect()
    }

    /// Bytes at the largest sizes; `None` without an upper bound or beyond `u64`.
    pub fn max_bytes(&self, symbols: &Symbols) -> Option<u64> {
        let elements = self
            .shape
            .iter()
            .try_fold(1u64, |n, size| n.checked_mul(u64::try_from(size.upper_bound(symbols)?).ok()?))?;
        elements.checked_mul(self.dtype.size() as u64)
    }

    /// True if the elements are in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.dim_order.iter().enumerate().all(|(index, dim)| index == *dim as usize)
    }
}

/// The dim order of a row-major tensor.
pub fn contiguous(rank: usize) -> Vec<u8> {
    (0..rank as u8).collect()
}

struct TypeText<'a> {
    ty: &'a Type,
    symbols: &'a Symbols,
}

impl fmt::Display for TypeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            Type::Float => f.write_str("float"),
            Type::Bool => f.write_str("bool"),
            Type::Int(expr) => write!(f, "int {}", expr.display(self.symbols)),
            Type::Tensor(tensor) => {
                write!(f, "{}[", dtype_name(tensor.dtype))?;
                for (index, size) in tensor.shape.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{}", size.display(self.symbols))?;
                }
                f.write_str("]")?;
                if !tensor.is_contiguous() {
                    write!(f, " order {:?}", tensor.dim_order)?;
                }
                if let Some(quantization) = &tensor.quantization {
                    write!(f, " {quantization}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.granularity {
            Granularity::Tensor => f.write_str("q(tensor")?,
            Granularity::Channel { axis } => write!(f, "q(channel {axis}")?,
            Granularity::Block { shape } => write!(f, "q(block {shape:?}")?,
        }
        write!(f, ", {:?}, {:?}, {}..={})", self.scales, self.zero_points, self.range.0, self.range.1)
    }
}

/// Short names of dtypes, as the text form and messages use them.
const DTYPE_NAMES: [(ScalarType, &str); 15] = [
    (ScalarType::Byte, "u8"),
    (ScalarType::Char, "i8"),
    (ScalarType::Short, "i16"),
    (ScalarType::Int, "i32"),
    (ScalarType::Long, "i64"),
    (ScalarType::Half, "f16"),
    (ScalarType::Float, "f32"),
    (ScalarType::Double, "f64"),
    (ScalarType::ComplexHalf, "c32"),
    (ScalarType::ComplexFloat, "c64"),
    (ScalarType::ComplexDouble, "c128"),
    (ScalarType::Bool, "bool"),
    (ScalarType::BFloat16, "bf16"),
    (ScalarType::UInt16, "u16"),
    (ScalarType::UInt32, "u32"),
];

/// The short name of a dtype, such as `f32`.
pub fn dtype_name(dtype: ScalarType) -> &'static str {
    DTYPE_NAMES.iter().find(|(named, _)| *named == dtype).map_or_else(|| dtype.name(), |(_, name)| name)
}

/// The dtype with a short name.
pub fn dtype_named(name: &str) -> Option<ScalarType> {
    let short = DTYPE_NAMES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype);
    short.or_else(|| ScalarType::ALL.into_iter().find(|dtype| dtype.name() == name))
}
