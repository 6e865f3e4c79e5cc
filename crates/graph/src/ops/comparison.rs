//! Comparisons, and operations on truth values and bits.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Builder, Graph, Type};

use super::binary::scalar_first;
use super::inference::{arithmetic, comparison, same, truth};
use super::promotion::category;
use super::{Definition, Lowered, Operands, composite, done, forward, kernel, known_number};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::EQ_TENSOR, comparison),
    kernel(aten::EQ_SCALAR, comparison),
    kernel(aten::NE_TENSOR, comparison),
    kernel(aten::NE_SCALAR, comparison),
    kernel(aten::LT_TENSOR, comparison),
    kernel(aten::LT_SCALAR, comparison),
    kernel(aten::LE_TENSOR, comparison),
    kernel(aten::LE_SCALAR, comparison),
    kernel(aten::GT_TENSOR, comparison),
    kernel(aten::GT_SCALAR, comparison),
    kernel(aten::GE_TENSOR, comparison),
    kernel(aten::GE_SCALAR, comparison),
    composite(aten::NOT_EQUAL_TENSOR, comparison, |b, o| forward(b, o, aten::NE_TENSOR)),
    composite(aten::NOT_EQUAL_SCALAR, comparison, |b, o| forward(b, o, aten::NE_SCALAR)),
    composite(aten::LESS_TENSOR, comparison, |b, o| forward(b, o, aten::LT_TENSOR)),
    composite(aten::LESS_SCALAR, comparison, |b, o| forward(b, o, aten::LT_SCALAR)),
    composite(aten::LESS_EQUAL_TENSOR, comparison, |b, o| forward(b, o, aten::LE_TENSOR)),
    composite(aten::LESS_EQUAL_SCALAR, comparison, |b, o| forward(b, o, aten::LE_SCALAR)),
    composite(aten::GREATER_TENSOR, comparison, |b, o| forward(b, o, aten::GT_TENSOR)),
    composite(aten::GREATER_SCALAR, comparison, |b, o| forward(b, o, aten::GT_SCALAR)),
    composite(aten::GREATER_EQUAL_TENSOR, comparison, |b, o| forward(b, o, aten::GE_TENSOR)),
    composite(aten::GREATER_EQUAL_SCALAR, comparison, |b, o| forward(b, o, aten::GE_SCALAR)),
    composite(aten::ISCLOSE, comparison, isclose),
    kernel(aten::LOGICAL_AND, comparison),
    kernel(aten::LOGICAL_OR, comparison),
    kernel(aten::LOGICAL_XOR, comparison),
    kernel(aten::LOGICAL_NOT, truth),
    kernel(aten::BITWISE_NOT, bits),
    kernel(aten::BITWISE_AND_TENSOR, bit_arithmetic),
    kernel(aten::BITWISE_AND_SCALAR, bit_arithmetic),
    composite(aten::BITWISE_AND_SCALAR_TENSOR, bit_arithmetic, |b, o| swapped(b, o, aten::BITWISE_AND_SCALAR)),
    composite(aten::__AND___TENSOR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_AND_TENSOR)),
    composite(aten::__AND___SCALAR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_AND_SCALAR)),
    kernel(aten::BITWISE_OR_TENSOR, bit_arithmetic),
    kernel(aten::BITWISE_OR_SCALAR, bit_arithmetic),
    composite(aten::BITWISE_OR_SCALAR_TENSOR, bit_arithmetic, |b, o| swapped(b, o, aten::BITWISE_OR_SCALAR)),
    composite(aten::__OR___TENSOR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_OR_TENSOR)),
    composite(aten::__OR___SCALAR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_OR_SCALAR)),
    kernel(aten::BITWISE_XOR_TENSOR, bit_arithmetic),
    kernel(aten::BITWISE_XOR_SCALAR, bit_arithmetic),
    composite(aten::BITWISE_XOR_SCALAR_TENSOR, bit_arithmetic, |b, o| swapped(b, o, aten::BITWISE_XOR_SCALAR)),
    composite(aten::__XOR___TENSOR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_XOR_TENSOR)),
    composite(aten::__XOR___SCALAR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_XOR_SCALAR)),
    kernel(aten::BITWISE_LEFT_SHIFT_TENSOR, bit_arithmetic),
    kernel(aten::BITWISE_LEFT_SHIFT_TENSOR_SCALAR, bit_arithmetic),
    composite(aten::BITWISE_LEFT_SHIFT_SCALAR_TENSOR, bit_arithmetic, |b, o| {
        scalar_first(b, o, aten::BITWISE_LEFT_SHIFT_TENSOR)
    }),
    composite(aten::__LSHIFT___TENSOR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_LEFT_SHIFT_TENSOR)),
    composite(aten::__LSHIFT___SCALAR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_LEFT_SHIFT_TENSOR_SCALAR)),
    kernel(aten::BITWISE_RIGHT_SHIFT_TENSOR, bit_arithmetic),
    kernel(aten::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR, bit_arithmetic),
    composite(aten::BITWISE_RIGHT_SHIFT_SCALAR_TENSOR, bit_arithmetic, |b, o| {
        scalar_first(b, o, aten::BITWISE_RIGHT_SHIFT_TENSOR)
    }),
    composite(aten::__RSHIFT___TENSOR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_RIGHT_SHIFT_TENSOR)),
    composite(aten::__RSHIFT___SCALAR, bit_arithmetic, |b, o| forward(b, o, aten::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR)),
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
    let (rtol, atol) = (operands.number(2)?, operands.number(3)?);
    let equal = b.compare(aten::packet::EQ, x, y)?;
    let mut close = equal;
    if category(b.tensor(x)?.dtype) >= 2 || known_number(&rtol) != Some(0.0) || known_number(&atol) != Some(0.0) {
        let dtype = compared_in(b.tensor(y)?.dtype);
        let (x, y) = (b.cast(x, dtype)?, b.cast(y, dtype)?);
        let (difference, magnitude) = (b.sub(x, y)?, b.unary(aten::ABS, y)?);
        let distance = b.unary(aten::ABS, difference)?;
        let relative = b.mul(magnitude, rtol)?;
        let allowed = b.add(relative, atol)?;
        let within = b.compare(aten::packet::LE, distance, allowed)?;
        // Nothing is close to an infinity but itself.
        let finite = b.unary(aten::ISFINITE, distance)?;
        let near = b.one(aten::LOGICAL_AND, vec![within.into(), finite.into()])?;
        close = b.one(aten::LOGICAL_OR, vec![equal.into(), near.into()])?;
    }
    if operands.bool(4)? {
        let (x_nan, y_nan) = (b.unary(aten::ISNAN, x)?, b.unary(aten::ISNAN, y)?);
        let both = b.one(aten::LOGICAL_AND, vec![x_nan.into(), y_nan.into()])?;
        close = b.one(aten::LOGICAL_OR, vec![close.into(), both.into()])?;
    }
    done(close)
}

/// Integers are compared as numbers of the default dtype.
fn compared_in(dtype: ScalarType) -> ScalarType {
    super::promotion::to_floating(dtype)
}
