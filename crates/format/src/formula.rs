//! Arithmetic of Python on numbers and truth values, in which the guards of `torch.export` are written.

/// A number or truth value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A double.
    Float(f64),
    /// A truth value, which counts as 0 or 1 in arithmetic.
    Bool(bool),
}

/// A function of [`Number`]s, with Python's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of Python's operators and functions")]
pub enum Function {
    Add,
    Sub,
    Mul,
    /// `/`: always a double.
    TrueDiv,
    FloorDiv,
    Mod,
    Pow,
    Max,
    Min,
    Eq,
    Ne,
    Lt,
    Le,
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
    Not,
    Neg,
    Abs,
    /// `float(a)`.
    Float,
    /// `bool(a)`.
    Truth,
    /// `math.trunc(a)`, or `int(a)`.
    Trunc,
    Floor,
    Ceil,
    /// `round(a)`: halves go to the even integer.
    Round,
    /// `round(a, digits)`.
    RoundDigits,
    /// `b if a else c`.
    Select,
    Sqrt,
    Exp,
    Log,
    Log2,
    Log10,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
}

impl Function {
    pub(crate) const ALL: [Self; 46] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::TrueDiv,
        Self::FloorDiv,
        Self::Mod,
        Self::Pow,
        Self::Max,
        Self::Min,
        Self::Eq,
        Self::Ne,
        Self::Lt,
        Self::Le,
        Self::And,
        Self::Or,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::Not,
        Self::Neg,
        Self::Abs,
        Self::Float,
        Self::Truth,
        Self::Trunc,
        Self::Floor,
        Self::Ceil,
        Self::Round,
        Self::RoundDigits,
        Self::Select,
        Self::Sqrt,
        Self::Exp,
        Self::Log,
        Self::Log2,
        Self::Log10,
        Self::Sin,
        Self::Cos,
        Self::Tan,
        Self::Asin,
        Self::Acos,
        Self::Atan,
        Self::Sinh,
        Self::Cosh,
        Self::Tanh,
        Self::Asinh,
        Self::Acosh,
        Self::Atanh,
    ];

    /// Number of operands.
    pub const fn arity(self) -> usize {
        match self {
            Self::Select => 3,
            Self::Add
            | Self::Sub
            | Self::Mul
            | Self::TrueDiv
            | Self::FloorDiv
            | Self::Mod
            | Self::Pow
            | Self::Max
            | Self::Min
            | Self::Eq
            | Self::Ne
            | Self::Lt
            | Self::Le
            | Self::And
            | Self::Or
            | Self::BitAnd
            | Self::BitOr
            | Self::BitXor
            | Self::RoundDigits => 2,
            _ => 1,
        }
    }

    /// Computes the function. `None` where Python raises an error, and for integers beyond `i64`. An operand that has no value
    /// is no fault where the others decide, as in `a or b`.
    pub fn apply(self, operands: &[Option<Number>]) -> Option<Number> {
        match (self, operands) {
            (Self::Select, [condition, yes, no]) => {
                if condition.as_ref()?.is_true() {
                    *yes
                } else {
                    *no
                }
            }
            (Self::And, [a, b]) => {
                if a.as_ref()?.is_true() {
                    *b
                } else {
                    *a
                }
            }
            (Self::Or, [a, b]) => {
                if a.as_ref()?.is_true() {
                    *a
                } else {
                    *b
                }
            }
            (_, [a, b]) => self.binary((*a)?, (*b)?),
            (_, [a]) => self.unary((*a)?),
            _ => None,
        }
    }

    fn binary(self, a: Number, b: Number) -> Option<Number> {
        let compare = || a.to_f64().partial_cmp(&b.to_f64());
        let order = || match (a.to_int(), b.to_int()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => compare(),
        };
        Some(match self {
            Self::Add => a.combine(b, i64::checked_add, |a, b| a + b)?,
            Self::Sub => a.combine(b, i64::checked_sub, |a, b| a - b)?,
            Self::Mul => a.combine(b, i64::checked_mul, |a, b| a * b)?,
            Self::TrueDiv => {
                let divisor = b.to_f64();
                if divisor == 0.0 {
                    return None;
                }
                Number::Float(a.to_f64() / divisor)
            }
            Self::FloorDiv => a.combine(b, floor_quotient, |a, b| (a - float_remainder(a, b)) / b)?.finite(b)?,
            Self::Mod => a.combine(b, floor_remainder, float_remainder)?.finite(b)?,
            Self::Pow => return power(a, b),
            Self::Max => {
                if order() == Some(core::cmp::Ordering::Less) {
                    b
                } else {
                    a
                }
            }
            Self::Min => {
                if order() == Some(core::cmp::Ordering::Greater) {
                    b
                } else {
                    a
                }
            }
            Self::Eq => Number::Bool(order().is_some_and(core::cmp::Ordering::is_eq)),
            Self::Ne => Number::Bool(!order().is_some_and(core::cmp::Ordering::is_eq)),
            Self::Lt => Number::Bool(order().is_some_and(core::cmp::Ordering::is_lt)),
            Self::Le => Number::Bool(order().is_some_and(core::cmp::Ordering::is_le)),
            Self::BitAnd => a.bits(b, |a, b| a & b)?,
            Self::BitOr => a.bits(b, |a, b| a | b)?,
            Self::BitXor => a.bits(b, |a, b| a ^ b)?,
            Self::RoundDigits => round_digits(a, b.to_int()?)?,
            _ => return None,
        })
    }

    fn unary(self, a: Number) -> Option<Number> {
        let float = |f: fn(f64) -> f64, is_defined: bool| {
            let result = f(a.to_f64());
            (is_defined && (result.is_finite() || !a.to_f64().is_finite())).then_some(Number::Float(result))
        };
        let x = a.to_f64();
        match self {
            Self::Not => Some(Number::Bool(!a.is_true())),
            Self::Truth => Some(Number::Bool(a.is_true())),
            Self::Float => Some(Number::Float(x)),
            Self::Neg => Some(match a {
                Number::Float(a) => Number::Float(-a),
                a => Number::Int(a.to_int()?.checked_neg()?),
            }),
            Self::Abs => Some(match a {
                Number::Float(a) => Number::Float(a.abs()),
                a => Number::Int(a.to_int()?.checked_abs()?),
            }),
            Self::Trunc => a.rounded(libm::trunc),
            Self::Floor => a.rounded(libm::floor),
            Self::Ceil => a.rounded(libm::ceil),
            Self::Round => a.rounded(libm::rint),
            Self::Sqrt => float(libm::sqrt, x >= 0.0),
            Self::Exp => float(libm::exp, true),
            Self::Log => float(libm::log, x > 0.0),
            Self::Log2 => float(libm::log2, x > 0.0),
            Self::Log10 => float(libm::log10, x > 0.0),
            Self::Sin => float(libm::sin, x.is_finite()),
            Self::Cos => float(libm::cos, x.is_finite()),
            Self::Tan => float(libm::tan, x.is_finite()),
            Self::Asin => float(libm::asin, x.abs() <= 1.0),
            Self::Acos => float(libm::acos, x.abs() <= 1.0),
            Self::Atan => float(libm::atan, true),
            Self::Sinh => float(libm::sinh, true),
            Self::Cosh => float(libm::cosh, true),
            Self::Tanh => float(libm::tanh, true),
            Self::Asinh => float(libm::asinh, true),
            Self::Acosh => float(libm::acosh, x >= 1.0),
            Self::Atanh => float(libm::atanh, x.abs() < 1.0),
            _ => None,
        }
    }
}

impl Number {
    /// True unless it is zero or false.
    pub fn is_true(self) -> bool {
        match self {
            Self::Int(value) => value != 0,
            Self::Float(value) => value != 0.0,
            Self::Bool(value) => value,
        }
    }

    /// The value as a double.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }

    /// The integer, or the truth value as one; `None` for a double.
    pub fn to_int(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Float(_) => None,
            Self::Bool(value) => Some(i64::from(value)),
        }
    }

    fn combine(self, other: Self, ints: fn(i64, i64) -> Option<i64>, doubles: fn(f64, f64) -> f64) -> Option<Self> {
        match (self.to_int(), other.to_int()) {
            (Some(a), Some(b)) => ints(a, b).map(Self::Int),
            _ => Some(Self::Float(doubles(self.to_f64(), other.to_f64()))),
        }
    }

    /// This quotient or remainder, unless the divisor is zero.
    fn finite(self, divisor: Self) -> Option<Self> {
        (divisor.to_f64() != 0.0).then_some(self)
    }

    fn bits(self, other: Self, of: fn(i64, i64) -> i64) -> Option<Self> {
        let result = of(self.to_int()?, other.to_int()?);
        let are_truths = matches!((self, other), (Self::Bool(_), Self::Bool(_)));
        Some(if are_truths { Self::Bool(result != 0) } else { Self::Int(result) })
    }

    /// An integer near the number; `None` for NaN, infinities and what `i64` cannot hold.
    fn rounded(self, round: fn(f64) -> f64) -> Option<Self> {
        match self {
            Self::Float(value) => {
                let value = round(value);
                let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
                fits.then_some(Self::Int(value as i64))
            }
            value => value.to_int().map(Self::Int),
        }
    }
}

fn floor_quotient(a: i64, b: i64) -> Option<i64> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn floor_remainder(a: i64, b: i64) -> Option<i64> {
    a.checked_sub(floor_quotient(a, b)?.checked_mul(b)?)
}

/// Remainder of doubles with the divisor's sign.
fn float_remainder(a: f64, b: f64) -> f64 {
    let remainder = libm::fmod(a, b);
    if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }
}

/// `a ** b`: an integer if both are and `b` is not negative.
fn power(a: Number, b: Number) -> Option<Number> {
    if let (Some(base), Some(exponent)) = (a.to_int(), b.to_int())
        && exponent >= 0
    {
        return base.checked_pow(u32::try_from(exponent).ok()?).map(Number::Int);
    }
    let (base, exponent) = (a.to_f64(), b.to_f64());
    let is_complex = base < 0.0 && libm::trunc(exponent) != exponent;
    let is_pole = base == 0.0 && exponent < 0.0;
    let result = libm::pow(base, exponent);
    let overflows = result.is_infinite() && base.is_finite() && exponent.is_finite();
    (!is_complex && !is_pole && !overflows).then_some(Number::Float(result))
}

/// `round(a, digits)` of a double: the nearest decimal, computed as Python does for few digits.
fn round_digits(a: Number, digits: i64) -> Option<Number> {
    if a.to_int().is_some() && digits >= 0 {
        return Some(a);
    }
    let digits = i32::try_from(digits).ok().filter(|digits| (-22..=22).contains(digits))?;
    let (x, scale) = (a.to_f64(), libm::pow(10.0, f64::from(digits.abs())));
    let scaled = if digits >= 0 { x * scale } else { x / scale };
    let mut nearest = libm::round(scaled);
    // The product may have been rounded to a half that the number itself is not.
    if (scaled - nearest).abs() == 0.5 {
        let error = if digits >= 0 { libm::fma(x, scale, -scaled) } else { 0.0 };
        let lower = libm::floor(scaled);
        nearest = if error > 0.0 {
            lower + 1.0
        } else if error < 0.0 {
            lower
        } else {
            libm::rint(scaled)
        };
    }
    let result = if digits >= 0 { nearest / scale } else { nearest * scale };
    Some(if a.to_int().is_some() { Number::Int(result as i64) } else { Number::Float(result) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(function: Function, operands: &[Number]) -> Option<Number> {
        assert_eq!(operands.len(), function.arity());
        let mut known = [None; 3];
        for (slot, operand) in known.iter_mut().zip(operands) {
            *slot = Some(*operand);
        }
        function.apply(known.get(..operands.len()).unwrap_or_default())
    }

    #[test]
    fn results_are_pythons() {
        use Number::{Bool, Float, Int};
        let cases: &[(Function, &[Number], Option<Number>)] = &[
            (Function::TrueDiv, &[Int(7), Int(2)], Some(Float(3.5))),
            (Function::TrueDiv, &[Int(7), Int(0)], None),
            (Function::FloorDiv, &[Int(-7), Int(2)], Some(Int(-4))),
            (Function::FloorDiv, &[Float(-7.5), Int(2)], Some(Float(-4.0))),
            (Function::FloorDiv, &[Float(1.0), Int(0)], None),
            (Function::Mod, &[Int(-7), Int(2)], Some(Int(1))),
            (Function::Mod, &[Float(-7.5), Float(2.0)], Some(Float(0.5))),
            (Function::Pow, &[Int(2), Int(10)], Some(Int(1024))),
            (Function::Pow, &[Int(2), Int(-1)], Some(Float(0.5))),
            (Function::Pow, &[Int(2), Int(64)], None),
            (Function::Pow, &[Float(-8.0), Float(0.5)], None),
            (Function::Pow, &[Int(0), Int(-1)], None),
            (Function::Max, &[Int(2), Float(2.5)], Some(Float(2.5))),
            (Function::Min, &[Int(2), Int(3)], Some(Int(2))),
            (Function::Eq, &[Int(2), Float(2.0)], Some(Bool(true))),
            (Function::Ne, &[Float(f64::NAN), Float(f64::NAN)], Some(Bool(true))),
            (Function::Lt, &[Float(f64::NAN), Int(1)], Some(Bool(false))),
            (Function::Le, &[Int(i64::MAX - 1), Int(i64::MAX)], Some(Bool(true))),
            (Function::And, &[Bool(true), Int(3)], Some(Int(3))),
            (Function::Or, &[Bool(false), Bool(true)], Some(Bool(true))),
            (Function::BitAnd, &[Bool(true), Bool(true)], Some(Bool(true))),
            (Function::BitOr, &[Int(5), Int(2)], Some(Int(7))),
            (Function::BitXor, &[Float(1.0), Int(2)], None),
            (Function::Not, &[Int(0)], Some(Bool(true))),
            (Function::Neg, &[Bool(true)], Some(Int(-1))),
            (Function::Abs, &[Int(-3)], Some(Int(3))),
            (Function::Abs, &[Int(i64::MIN)], None),
            (Function::Trunc, &[Float(-2.7)], Some(Int(-2))),
            (Function::Floor, &[Float(-2.1)], Some(Int(-3))),
            (Function::Ceil, &[Float(2.1)], Some(Int(3))),
            (Function::Round, &[Float(2.5)], Some(Int(2))),
            (Function::Round, &[Float(f64::INFINITY)], None),
            (Function::RoundDigits, &[Float(2.675), Int(2)], Some(Float(2.67))),
            (Function::RoundDigits, &[Float(0.125), Int(2)], Some(Float(0.12))),
            (Function::RoundDigits, &[Float(8.0 / 3.0), Int(1)], Some(Float(2.7))),
            (Function::RoundDigits, &[Int(1234), Int(-2)], Some(Int(1200))),
            (Function::Select, &[Bool(false), Int(1), Float(2.0)], Some(Float(2.0))),
            (Function::Sqrt, &[Int(9)], Some(Float(3.0))),
            (Function::Sqrt, &[Int(-9)], None),
            (Function::Log, &[Int(0)], None),
            (Function::Exp, &[Float(1e4)], None),
            (Function::Truth, &[Float(0.5)], Some(Bool(true))),
        ];
        for (function, operands, expected) in cases {
            assert_eq!(of(*function, operands), *expected, "{function:?} {operands:?}");
        }
    }

    #[test]
    fn what_decides_alone_needs_no_other_value() {
        let yes = Some(Number::Bool(true));
        assert_eq!(Function::Or.apply(&[yes, None]), yes);
        assert_eq!(Function::And.apply(&[Some(Number::Int(0)), None]), Some(Number::Int(0)));
        assert_eq!(Function::Select.apply(&[yes, Some(Number::Int(1)), None]), Some(Number::Int(1)));
        assert_eq!(Function::And.apply(&[yes, None]), None);
        assert_eq!(Function::Add.apply(&[yes, None]), None);
    }

    #[test]
    fn no_operand_panics() {
        let edges = [
            Number::Int(i64::MIN),
            Number::Int(-1),
            Number::Int(0),
            Number::Int(i64::MAX),
            Number::Float(f64::NAN),
            Number::Float(f64::NEG_INFINITY),
            Number::Float(-0.5),
            Number::Float(1e300),
            Number::Bool(true),
        ];
        for function in Function::ALL {
            for a in edges {
                for b in edges {
                    for operands in [&[Some(a)][..], &[Some(a), Some(b)], &[Some(a), Some(b), Some(a)], &[]] {
                        let _ = function.apply(operands);
                    }
                }
            }
        }
    }
}
