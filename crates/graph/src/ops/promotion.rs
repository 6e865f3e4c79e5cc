//! PyTorch's rules of type promotion and broadcasting.

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Expr, Graph, TensorType, Type};

/// The dtype of the result of an operation on tensors and numbers.
///
/// Tensors with dimensions decide first, then tensors without, then numbers; a later class counts only if its category
/// (boolean, integer, floating, complex) is higher. See PyTorch's documentation of type promotion.
pub fn promote(args: &[&Arg], graph: &Graph) -> Result<ScalarType, Error> {
    let mut classes: [Option<ScalarType>; 3] = [None; 3];
    for arg in args {
        let Some((class, dtype)) = class_of(arg, graph)? else { continue };
        if let Some(slot) = classes.get_mut(class) {
            *slot = Some(slot.map_or(dtype, |known| wider(known, dtype)));
        }
    }
    let decide = |result: Option<ScalarType>, next: Option<ScalarType>| match (result, next) {
        (Some(result), Some(next)) if category(next) > category(result) => Some(wider(result, next)),
        (Some(result), _) => Some(result),
        (None, next) => next,
    };
    classes.into_iter().fold(None, decide).ok_or_else(|| Error::type_error("an operation on no values"))
}

fn class_of(arg: &Arg, graph: &Graph) -> Result<Option<(usize, ScalarType)>, Error> {
    Ok(Some(match arg {
        Arg::None => return Ok(None),
        Arg::Int(_) => (2, ScalarType::Long),
        Arg::Bool(_) => (2, ScalarType::Bool),
        Arg::Float(_) => (2, ScalarType::Float),
        Arg::Complex(..) => (2, ScalarType::ComplexFloat),
        Arg::Value(value) => match graph.ty(*value) {
            Type::Tensor(TensorType { dtype, shape, .. }) => (usize::from(shape.is_empty()), *dtype),
            Type::Int(_) => (2, ScalarType::Long),
            Type::Float => (2, ScalarType::Float),
            Type::Bool => (2, ScalarType::Bool),
        },
        other => return Err(Error::type_error("not a number or tensor").got(format!("{other:?}"))),
    }))
}

/// Boolean, integer, floating or complex.
pub fn category(dtype: ScalarType) -> u8 {
    if dtype.is_complex() {
        3
    } else if dtype.is_floating() || is_float8(dtype) {
        2
    } else {
        u8::from(dtype != ScalarType::Bool)
    }
}

const fn is_float8(dtype: ScalarType) -> bool {
    use ScalarType::{Float8E4M3Fn, Float8E4M3Fnuz, Float8E5M2, Float8E5M2Fnuz};
    matches!(dtype, Float8E5M2 | Float8E4M3Fn | Float8E5M2Fnuz | Float8E4M3Fnuz)
}

/// The dtype that holds both of two: c10's `promoteTypes`.
pub fn wider(a: ScalarType, b: ScalarType) -> ScalarType {
    use ScalarType::{Byte, Char, ComplexDouble, ComplexFloat, ComplexHalf, Double, Float, Half, Short};
    if a == b {
        return a;
    }
    match (category(a), category(b)) {
        (x, y) if x < y && !(y == 3 && x == 2) => b,
        (x, y) if x > y && !(x == 3 && y == 2) => a,
        (3, _) | (_, 3) => {
            let width = |dtype| match dtype {
                Double | ComplexDouble => 2,
                Half | ComplexHalf => 0,
                _ => 1,
            };
            [ComplexHalf, ComplexFloat, ComplexDouble].get(width(a).max(width(b))).copied().unwrap_or(ComplexFloat)
        }
        (2, _) => match (a, b) {
            (Double, _) | (_, Double) => Double,
            // Neither half-precision type holds the other.
            _ => Float,
        },
        _ => {
            let (signed_a, signed_b) = (!matches!(a, Byte), !matches!(b, Byte));
            if signed_a == signed_b {
                if a.size() >= b.size() { a } else { b }
            } else {
                let signed = if signed_a { a } else { b };
                // An unsigned byte needs one size more.
                if signed == Char { Short } else { signed }
            }
        }
    }
}

/// The dtype that floating-point functions give for this one: integers become the default.
pub fn to_floating(dtype: ScalarType) -> ScalarType {
    if category(dtype) >= 2 { dtype } else { ScalarType::Float }
}

/// The shape of the result of an elementwise operation on tensors of these shapes.
///
/// # Errors
/// A type error naming the dimension where two known sizes differ and neither is 1.
pub fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a [Expr]>) -> Result<Vec<Expr>, Error> {
    let mut result: Vec<Expr> = Vec::new();
    for shape in shapes {
        if shape.len() > result.len() {
            result.splice(0..0, vec![Expr::Int(1); shape.len() - result.len()]);
        }
        let rank = result.len();
        for (slot, size) in result.iter_mut().rev().zip(shape.iter().rev()) {
            if size.is(1) || slot == size {
                continue;
            }
            if slot.is(1) || (!slot.is_static() && size.is_static()) {
                // A size that depends on an input must turn out equal to a known one that is not 1.
                slot.clone_from(size);
            } else if slot.is_static() && size.is_static() {
                return Err(Error::type_error(format!("shapes do not broadcast to {rank} dimensions"))
                    .expected(format!("{:?} or 1", slot.as_int().unwrap_or_default()))
                    .got(size.as_int().unwrap_or_default()));
            }
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wider_dtype_holds_both() {
        use ScalarType::*;
        let table = [
            (Byte, Char, Short),
            (Byte, Int, Int),
            (Long, Half, Half),
            (Half, BFloat16, Float),
            (Bool, Byte, Byte),
            (ComplexFloat, Double, ComplexDouble),
            (ComplexHalf, Float, ComplexFloat),
            (Double, Float, Double),
        ];
        for (a, b, expected) in table {
            assert_eq!((wider(a, b), wider(b, a)), (expected, expected), "{a:?} {b:?}");
        }
    }

    #[test]
    fn classes_decide_in_order() {
        let mut graph = Graph::new();
        let mut tensor =
            |dtype, sizes: &[i64]| Arg::Value(graph.input("x", Type::Tensor(TensorType::of(dtype, sizes))));
        let (half, double0, long, bool0) = (
            tensor(ScalarType::Half, &[2]),
            tensor(ScalarType::Double, &[]),
            tensor(ScalarType::Long, &[3]),
            tensor(ScalarType::Bool, &[]),
        );
        assert_eq!(promote(&[&half, &double0], &graph).unwrap(), ScalarType::Half);
        assert_eq!(promote(&[&long, &double0], &graph).unwrap(), ScalarType::Double);
        assert_eq!(promote(&[&long, &Arg::Float(0.5)], &graph).unwrap(), ScalarType::Float);
        assert_eq!(promote(&[&bool0, &Arg::from(1)], &graph).unwrap(), ScalarType::Long);
        assert_eq!(promote(&[&half, &Arg::Float(0.5)], &graph).unwrap(), ScalarType::Half);
    }

    #[test]
    fn shapes_broadcast() {
        let shape = |sizes: &[i64]| sizes.iter().map(|size| Expr::Int(*size)).collect::<Vec<_>>();
        let (a, b) = (shape(&[3, 1]), shape(&[2, 1, 4]));
        assert_eq!(broadcast([a.as_slice(), b.as_slice()]).unwrap(), shape(&[2, 3, 4]));
        let c = shape(&[2]);
        assert!(broadcast([a.as_slice(), c.as_slice()]).is_ok());
        assert!(broadcast([shape(&[3]).as_slice(), c.as_slice()]).is_err());
    }
}
