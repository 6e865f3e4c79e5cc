//! Python numbers as arguments of operators.

/// A `Scalar` argument, which keeps the Python type that it was written with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl Scalar {
    /// The value as a double; integers beyond 2^53 are rounded.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(v) => v as f64,
            Self::Double(v) => v,
            Self::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// The value as an integer; doubles are truncated towards zero and saturate.
    pub fn to_i64(self) -> i64 {
        match self {
            Self::Int(v) => v,
            Self::Double(v) => v as i64,
            Self::Bool(v) => i64::from(v),
        }
    }

    /// True unless the value is zero.
    pub fn to_bool(self) -> bool {
        match self {
            Self::Int(v) => v != 0,
            Self::Double(v) => v != 0.0,
            Self::Bool(v) => v,
        }
    }

    pub const fn is_floating(self) -> bool {
        matches!(self, Self::Double(_))
    }

    pub const fn is_bool(self) -> bool {
        matches!(self, Self::Bool(_))
    }
}
