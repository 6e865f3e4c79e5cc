//! Complex numbers from real ones.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Graph, Type, ValueId};

use super::fft::{complex_dtype, imaginary_unit};
use super::inference::{broadcast_shape, one};
use super::promotion::to_floating;
use super::unary::real_dtype;
use super::{Definition, Lowered, Operands, composite, done, promote};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::COMPLEX, pairs, |b, o| complex(b, o.value(0)?, o.value(1)?).and_then(done)),
    composite(aten::POLAR, pairs, polar),
    composite(aten::VIEW_AS_COMPLEX, last_as_complex, view_as_complex),
    composite(aten::VIEW_AS_COMPLEX_COPY, last_as_complex, view_as_complex),
    composite(aten::ANGLE, angle_type, angle),
];

fn pairs(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let args = [operands.arg(0), operands.arg(1)];
    one(complex_dtype(promote(&args, graph)?), broadcast_shape(&args, graph)?)
}

/// The sum of a real tensor and a real tensor times the imaginary unit.
fn complex(b: &mut Builder<'_>, real: ValueId, imaginary: ValueId) -> Result<ValueId, Error> {
    let dtype = complex_dtype(b.tensor(real)?.dtype);
    let unit = imaginary_unit(b, dtype)?;
    let turned = b.mul(imaginary, unit)?;
    b.add(real, turned)
}

/// A number of this magnitude and angle.
fn polar(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (magnitude, angle) = (operands.value(0)?, operands.value(1)?);
    let (cosine, sine) = (b.unary(aten::COS, angle)?, b.unary(aten::SIN, angle)?);
    let (real, imaginary) = (b.mul(magnitude, cosine)?, b.mul(magnitude, sine)?);
    complex(b, real, imaginary).and_then(done)
}

/// The last dimension holds the two parts.
fn last_as_complex(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let [outer @ .., parts] = input.shape.as_slice() else { return Err(operands.wrong(0, "a tensor with dimensions")) };
    if parts.as_int().is_some_and(|parts| parts != 2) {
        return Err(operands.wrong(0, "a last dimension of size 2"));
    }
    one(complex_dtype(input.dtype), outer.to_vec())
}

fn view_as_complex(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let mut part = |index: i64| b.one(aten::SELECT_COPY_INT, vec![x.into(), Arg::from(-1), Arg::from(index)]);
    let (real, imaginary) = (part(0)?, part(1)?);
    complex(b, real, imaginary).and_then(done)
}

fn angle_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    one(real_dtype(to_floating(input.dtype)), input.shape.clone())
}

/// Of real numbers, 0 or π.
fn angle(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let dtype = b.tensor(x)?.dtype;
    if dtype.is_complex() {
        let parts = b.unary(aten::VIEW_AS_REAL_COPY, x)?;
        let mut part = |index: i64| b.one(aten::SELECT_COPY_INT, vec![parts.into(), Arg::from(-1), Arg::from(index)]);
        let (real, imaginary) = (part(0)?, part(1)?);
        return b.one(aten::ATAN2, vec![imaginary.into(), real.into()]).and_then(done);
    }
    let x = b.cast(x, to_floating(dtype))?;
    let nan = b.unary(aten::ISNAN, x)?;
    let negative = b.compare(aten::packet::LT, x, 0)?;
    let nothing = b.as_tensor(&Arg::Float(0.0), to_floating(dtype))?;
    let angle = b.select(negative, std::f64::consts::PI, nothing)?;
    b.select(nan, x, angle).and_then(done)
}
