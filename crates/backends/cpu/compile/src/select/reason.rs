//! Reasons why a node is refused.

use std::fmt;

use rushlight_engine::pack::PANEL;
use rushlight_format::ScalarType;

/// The reason why the backend does not compute a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An input has a type that is neither stored as `f32` nor as indices that a step reads.
    Input(ScalarType),
    /// An argument is a number that another operator computes.
    ComputedNumber,
    /// A result is not a tensor, or has a type that is not stored as `f32`.
    Result,
    /// The step of the operator produces floats, not truth values.
    Truth { op: String },
    /// A parameter must be packed at compile time, but is computed at run time.
    ComputedParameter { op: String, param: &'static str },
    /// A size or a position does not follow from the sizes of an input.
    Size { symbol: String },
    /// No step computes tensors of this rank with these arguments.
    Rank { op: String, rank: usize },
    /// The number of columns of an expert is no multiple of a panel's.
    Experts { columns: i64 },
    /// No step computes the operator, or none with these arguments.
    Arguments { op: String },
    /// The values that are quantized or dequantized are no tensors.
    NoTensor,
    /// Quantized integers have a type that is not stored as `u8`.
    Integers(ScalarType),
    /// The floats that are quantized or dequantized have this type, which is not supported.
    Quantized(ScalarType),
    /// The scale, the zero point or the range of a quantization is unknown or invalid.
    Affine,
    /// Scales that are computed at run time have other users than one dynamic quantization, or an unsupported form.
    DynamicScales,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(dtype) => write!(f, "an input of {}, which is not stored as f32", dtype.name()),
            Self::ComputedNumber => f.write_str("a number that another operator computes"),
            Self::Result => f.write_str("a result that is not stored as f32"),
            Self::Truth { op } => write!(f, "`{op}` of truth values"),
            Self::ComputedParameter { op, param } => write!(f, "`{op}` with a {param} that is computed"),
            Self::Size { symbol } => write!(f, "`{symbol}`, which is no size of an input, as a size or a position"),
            Self::Rank { op, rank } => write!(f, "no step computes `{op}` of {rank} dimensions with these arguments"),
            Self::Experts { columns } => write!(f, "experts of {columns} columns, which are no multiple of {PANEL}"),
            Self::Arguments { op } => write!(f, "no step computes `{op}` with these types and arguments"),
            Self::NoTensor => f.write_str("a quantized value that is no tensor"),
            Self::Integers(dtype) => write!(f, "integers of {}, which are not stored as bytes", dtype.name()),
            Self::Quantized(dtype) => write!(f, "quantized floats of {}", dtype.name()),
            Self::Affine => f.write_str("a scale or range that is not known or makes no sense"),
            Self::DynamicScales => {
                f.write_str("dynamic quantization whose scales are used for more, or of another form")
            }
        }
    }
}
