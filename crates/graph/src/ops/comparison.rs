//! Comparisons, and operations on truth values and bits.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Builder, Graph, Type};

use super::binary::scalar_first;
use super::inference::{arithmetic, comparison, same, truth};
use super::promotion::category;
use super::{Definition, Lowered, Operands, composite, done, forward, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel("aten::eq.Tensor", comparison),
    kernel("aten::eq.Scalar", comparison),
    kernel("aten::ne.Tensor", comparison),
    kernel("aten::ne.Scalar", comparison),
    kernel("aten::lt.Tensor", comparison),
    kernel("aten::lt.Scalar", comparison),
    kernel("aten::le.Tensor", comparison),
    kernel("aten::le.Scalar", comparison),
    kernel("aten::gt.Tensor", comparison),
    kernel("aten::gt.Scalar", comparison),
    kernel("aten::ge.Tensor", comparison),
    kernel("aten::ge.Scalar", comparison),
    composite("aten::not_equal.Tensor", comparison, |b, o| forward(b, o, "aten::ne.Tensor")),
    composite("aten::not_equal.Scalar", comparison, |b, o| forward(b, o, "aten::ne.Scalar")),
    composite("aten::less.Tensor", comparison, |b, o| forward(b, o, "aten::lt.Tensor")),
    composite("aten::less.Scalar", comparison, |b, o| forward(b, o, "aten::lt.Scalar")),
    composite("aten::less_equal.Tensor", comparison, |b, o| forward(b, o, "aten::le.Tensor")),
    composite("aten::less_equal.Scalar", comparison, |b, o| forward(b, o, "aten::le.Scalar")),
    composite("aten::greater.Tensor", comparison, |b, o| forward(b, o, "aten::gt.Tensor")),
    composite("aten::greater.Scalar", comparison, |b, o| forward(b, o, "aten::gt.Scalar")),
    composite("aten::greater_equal.Tensor", comparison, |b, o| forward(b, o, "aten::ge.Tensor")),
    composite("aten::greater_equal.Scalar", comparison, |b, o| forward(b, o, "aten::ge.Scalar")),
    composite("aten::isclose", comparison, isclose),
    kernel("aten::logical_and", comparison),
    kernel("aten::logical_or", comparison),
    kernel("aten::logical_xor", comparison),
    kernel("aten::logical_not", truth),
    kernel("aten::bitwise_not", bits),
    kernel("aten::bitwise_and.Tensor", bit_arithmetic),
    kernel("aten::bitwise_and.Scalar", bit_arithmetic),
    composite("aten::bitwise_and.Scalar_Tensor", bit_arithmetic, |b, o| swapped(b, o, "aten::bitwise_and.Scalar")),
    composite("aten::__and__.Tensor", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_and.Tensor")),
    composite("aten::__and__.Scalar", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_and.Scalar")),
    kernel("aten::bitwise_or.Tensor", bit_arithmetic),
    kernel("aten::bitwise_or.Scalar", bit_arithmetic),
    composite("aten::bitwise_or.Scalar_Tensor", bit_arithmetic, |b, o| swapped(b, o, "aten::bitwise_or.Scalar")),
    composite("aten::__or__.Tensor", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_or.Tensor")),
    composite("aten::__or__.Scalar", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_or.Scalar")),
    kernel("aten::bitwise_xor.Tensor", bit_arithmetic),
    kernel("aten::bitwise_xor.Scalar", bit_arithmetic),
    composite("aten::bitwise_xor.Scalar_Tensor", bit_arithmetic, |b, o| swapped(b, o, "aten::bitwise_xor.Scalar")),
    composite("aten::__xor__.Tensor", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_xor.Tensor")),
    composite("aten::__xor__.Scalar", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_xor.Scalar")),
    kernel("aten::bitwise_left_shift.Tensor", bit_arithmetic),
    kernel("aten::bitwise_left_shift.Tensor_Scalar", bit_arithmetic),
    composite("aten::bitwise_left_shift.Scalar_Tensor", bit_arithmetic, |b, o| {
        scalar_first(b, o, "aten::bitwise_left_shift.Tensor")
    }),
    composite("aten::__lshift__.Tensor", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_left_shift.Tensor")),
    composite("aten::__lshift__.Scalar", bit_arithmetic, |b, o| {
        forward(b, o, "aten::bitwise_left_shift.Tensor_Scalar")
    }),
    kernel("aten::bitwise_right_shift.Tensor", bit_arithmetic),
    kernel("aten::bitwise_right_shift.Tensor_Scalar", bit_arithmetic),
    composite("aten::bitwise_right_shift.Scalar_Tensor", bit_arithmetic, |b, o| {
        scalar_first(b, o, "aten::bitwise_right_shift.Tensor")
    }),
    composite("aten::__rshift__.Tensor", bit_arithmetic, |b, o| forward(b, o, "aten::bitwise_right_shift.Tensor")),
    composite("aten::__rshift__.Scalar", bit_arithmetic, |b, o| {
        forward(b, o, "aten::bitwise_right_shift.Tensor_Scalar")
    }),
];

/// The type of the first argument, which has bits.
fn bits(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    integral(same(operands, graph)?, operands)
}

/// Integers or truth values, promoted and broadcast.
fn bit_arithmetic(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    integral(arithmetic(operands, graph)?, operands)
}

fn integral(types: Vec<Type>, operands: &Operands<'_>) -> Result<Vec<Type>, Error> {
    match types.first().and_then(Type::as_tensor) {
        Some(tensor) if category(tensor.dtype) >= 2 => {
            Err(Error::type_error(format!("`{}` takes integers or booleans", operands.schema.name))
                .got(tensor.dtype.name()))
        }
        _ => Ok(types),
    }
}

/// A commutative operation whose first argument is the number.
fn swapped(b: &mut Builder<'_>, operands: &Operands<'_>, name: &str) -> Lowered {
    b.one(name, vec![operands.arg(1).clone(), operands.arg(0).clone()]).and_then(done)
}

/// `|x - y| <= atol + rtol * |y|` or equal, as infinities are.
fn isclose(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, y) = (operands.value(0)?, operands.value(1)?);
    let (rtol, atol) = (operands.float(2)?, operands.float(3)?);
    let equal = b.compare("aten::eq", x, y)?;
    let mut close = equal;
    if category(b.tensor(x)?.dtype) >= 2 || rtol != 0.0 || atol != 0.0 {
        let dtype = compared_in(b.tensor(y)?.dtype);
        let (x, y) = (b.cast(x, dtype)?, b.cast(y, dtype)?);
        let (difference, magnitude) = (b.sub(x, y)?, b.unary("aten::abs", y)?);
        let distance = b.unary("aten::abs", difference)?;
        let relative = b.mul(magnitude, rtol)?;
        let allowed = b.add(relative, atol)?;
        let within = b.compare("aten::le", distance, allowed)?;
        // Nothing is close to an infinity but itself.
        let finite = b.unary("aten::isfinite", distance)?;
        let near = b.one("aten::logical_and", vec![within.into(), finite.into()])?;
        close = b.one("aten::logical_or", vec![equal.into(), near.into()])?;
    }
    if operands.bool(4)? {
        let (x_nan, y_nan) = (b.unary("aten::isnan", x)?, b.unary("aten::isnan", y)?);
        let both = b.one("aten::logical_and", vec![x_nan.into(), y_nan.into()])?;
        close = b.one("aten::logical_or", vec![close.into(), both.into()])?;
    }
    done(close)
}

/// Integers are compared as numbers of the default dtype.
fn compared_in(dtype: ScalarType) -> ScalarType {
    super::promotion::to_floating(dtype)
}
