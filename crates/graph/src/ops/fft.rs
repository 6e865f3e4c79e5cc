//! Fourier transforms.
//!
//! Kernels transform real tensors to complex ones and back. A complex tensor is transformed as its real and imaginary
//! parts, as the transform is linear: `F(a + ib) = F(a) + i F(b)`.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Constant, Expr, Graph, TensorType, Type, ValueId};

use super::inference::{one, same};
use super::promotion::to_floating;
use super::unary::real_dtype;
use super::{Definition, Lowered, Operands, by_lowering, composite, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::_FFT_R2C, real_to_complex),
    kernel(aten::_FFT_C2R, complex_to_real),
    composite(aten::_FFT_C2C, same, complex_to_complex),
    composite(aten::FFT_RFFT, by_lowering, |b, o| transform(b, o, Transform::RealForward)),
    composite(aten::FFT_RFFT2, by_lowering, |b, o| transform(b, o, Transform::RealForward)),
    composite(aten::FFT_RFFTN, by_lowering, |b, o| transform(b, o, Transform::RealForward)),
    composite(aten::FFT_IRFFT, by_lowering, |b, o| transform(b, o, Transform::RealInverse)),
    composite(aten::FFT_IRFFT2, by_lowering, |b, o| transform(b, o, Transform::RealInverse)),
    composite(aten::FFT_IRFFTN, by_lowering, |b, o| transform(b, o, Transform::RealInverse)),
    composite(aten::FFT_FFT, by_lowering, |b, o| transform(b, o, Transform::Forward)),
    composite(aten::FFT_FFT2, by_lowering, |b, o| transform(b, o, Transform::Forward)),
    composite(aten::FFT_FFTN, by_lowering, |b, o| transform(b, o, Transform::Forward)),
    composite(aten::FFT_IFFT, by_lowering, |b, o| transform(b, o, Transform::Inverse)),
    composite(aten::FFT_IFFT2, by_lowering, |b, o| transform(b, o, Transform::Inverse)),
    composite(aten::FFT_IFFTN, by_lowering, |b, o| transform(b, o, Transform::Inverse)),
    composite(aten::FFT_HFFT, by_lowering, |b, o| transform(b, o, Transform::HermitianForward)),
    composite(aten::FFT_HFFT2, by_lowering, |b, o| transform(b, o, Transform::HermitianForward)),
    composite(aten::FFT_HFFTN, by_lowering, |b, o| transform(b, o, Transform::HermitianForward)),
    composite(aten::FFT_IHFFT, by_lowering, |b, o| transform(b, o, Transform::HermitianInverse)),
    composite(aten::FFT_IHFFT2, by_lowering, |b, o| transform(b, o, Transform::HermitianInverse)),
    composite(aten::FFT_IHFFTN, by_lowering, |b, o| transform(b, o, Transform::HermitianInverse)),
    composite(aten::FFT_FFTSHIFT, same, |b, o| shift(b, o, |size| size.floor_div(2))),
    composite(aten::FFT_IFFTSHIFT, same, |b, o| shift(b, o, |size| size.add(1).floor_div(2))),
    composite(aten::FFT_FFTFREQ, frequencies_type, |b, o| frequencies(b, o, false)),
    composite(aten::FFT_RFFTFREQ, frequencies_type, |b, o| frequencies(b, o, true)),
];

/// PyTorch's codes of the normalization of a transform.
const UNSCALED: i64 = 0;
const BY_ROOT: i64 = 1;
const BY_SIZE: i64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transform {
    Forward,
    Inverse,
    RealForward,
    RealInverse,
    /// Half of a Hermitian spectrum to real numbers (`hfft`): the inverse real transform of the conjugate.
    HermitianForward,
    /// Real numbers to half of a Hermitian spectrum (`ihfft`): the conjugate of the real transform.
    HermitianInverse,
}

impl Transform {
    /// True if it is scaled as a forward transform is.
    const fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::RealForward | Self::HermitianForward)
    }
}

/// The complex dtype with parts of this one.
pub(crate) fn complex_dtype(dtype: ScalarType) -> ScalarType {
    match dtype {
        ScalarType::Half | ScalarType::ComplexHalf => ScalarType::ComplexHalf,
        ScalarType::Double | ScalarType::ComplexDouble => ScalarType::ComplexDouble,
        _ => ScalarType::ComplexFloat,
    }
}

/// Complex, and half as long and one more along the last dimension that is transformed if one side is enough.
fn real_to_complex(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let mut shape = input.shape.clone();
    let last = last_dim(operands, shape.len())?;
    if operands.bool(3)?
        && let Some(size) = shape.get_mut(last)
    {
        *size = size.floor_div(2).add(1);
    }
    one(complex_dtype(input.dtype), shape)
}

fn complex_to_real(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let mut shape = input.shape.clone();
    let last = last_dim(operands, shape.len())?;
    if let Some(size) = shape.get_mut(last) {
        *size = operands.expr(3)?;
    }
    one(real_dtype(input.dtype), shape)
}

/// The last of the dimensions in parameter 1, counted from the front.
fn last_dim(operands: &Operands<'_>, rank: usize) -> Result<usize, Error> {
    let dim = operands.ints(1)?.last().copied().ok_or_else(|| operands.wrong(1, "at least one dimension"))?;
    let wrapped = if dim < 0 { dim + rank as i64 } else { dim };
    usize::try_from(wrapped).ok().filter(|dim| *dim < rank).ok_or_else(|| operands.wrong(1, "dimensions of the tensor"))
}

fn complex_to_complex(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = operands.ints(1)?;
    complex_transform(b, operands.value(0)?, &dims, operands.int(2)?, operands.bool(3)?).and_then(done)
}

/// The transform of a real or complex tensor. The inverse is the conjugate of the transform of the conjugate.
fn complex_transform(
    b: &mut Builder<'_>,
    x: ValueId,
    dims: &[i64],
    mode: i64,
    forward: bool,
) -> Result<ValueId, Error> {
    if dims.is_empty() {
        return Ok(x);
    }
    let whole = |b: &mut Builder<'_>, x: ValueId| {
        b.one(aten::_FFT_R2C, vec![x.into(), Arg::from(dims), Arg::from(mode), Arg::from(false)])
    };
    let ty = b.tensor(x)?;
    if !ty.dtype.is_complex() {
        let transformed = whole(b, x)?;
        return if forward { Ok(transformed) } else { b.unary(aten::_CONJ_PHYSICAL, transformed) };
    }
    let parts = b.unary(aten::VIEW_AS_REAL_COPY, x)?;
    let part = |b: &mut Builder<'_>, index: i64| {
        b.one(aten::SELECT_COPY_INT, vec![parts.into(), Arg::from(-1), Arg::from(index)])
    };
    let (real, imaginary) = (part(b, 0)?, part(b, 1)?);
    let (real, imaginary) = (whole(b, real)?, whole(b, imaginary)?);
    // F*(x) = conj(F(conj(x))) = conj(F(a)) + i conj(F(b)).
    let (real, imaginary) = if forward {
        (real, imaginary)
    } else {
        (b.unary(aten::_CONJ_PHYSICAL, real)?, b.unary(aten::_CONJ_PHYSICAL, imaginary)?)
    };
    let unit = imaginary_unit(b, ty.dtype)?;
    let turned = b.mul(imaginary, unit)?;
    b.add(real, turned)
}

pub(crate) fn imaginary_unit(b: &mut Builder<'_>, dtype: ScalarType) -> Result<ValueId, Error> {
    let part = real_dtype(dtype);
    let bytes = [super::number_bytes(0.0, part)?, super::number_bytes(1.0, part)?].concat();
    Ok(b.constant(Constant::dense("imaginary_unit", TensorType::new(dtype, Vec::new()), bytes)?))
}

/// A transform of `torch.fft`: dimensions are cut or padded with zeros to sizes that are given.
fn transform(b: &mut Builder<'_>, operands: &Operands<'_>, transform: Transform) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    if ty.dtype.is_complex() && matches!(transform, Transform::RealForward | Transform::HermitianInverse) {
        return Err(operands.wrong(0, "a real tensor"));
    }
    let x = if ty.dtype.is_complex() { x } else { b.cast(x, to_floating(ty.dtype))? };
    let sizes = if operands.has(1) { operands.exprs(1)? } else { Vec::new() };
    let dims = dims(operands, ty.rank(), sizes.len())?;
    let mode = mode(operands, transform.is_forward())?;
    let dim_args: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let inverse_real = matches!(transform, Transform::RealInverse | Transform::HermitianForward);
    let mut value = x;
    for (position, (dim, size)) in dims.iter().zip(&sizes).enumerate() {
        let halved = inverse_real && position + 1 == dims.len();
        let size = if halved { size.floor_div(2).add(1) } else { size.clone() };
        value = resized(b, value, *dim, size)?;
    }
    let result = match transform {
        Transform::Forward => complex_transform(b, value, &dim_args, mode, true)?,
        Transform::Inverse => complex_transform(b, value, &dim_args, mode, false)?,
        Transform::RealForward | Transform::HermitianInverse => {
            let args = vec![value.into(), dim_args.as_slice().into(), mode.into(), Arg::from(true)];
            let half = b.one(aten::_FFT_R2C, args)?;
            if transform == Transform::RealForward { half } else { b.unary(aten::_CONJ_PHYSICAL, half)? }
        }
        Transform::RealInverse | Transform::HermitianForward => {
            let complex = if b.tensor(value)?.dtype.is_complex() {
                value
            } else {
                let unit = imaginary_unit(b, complex_dtype(ty.dtype))?;
                let nothing = b.mul(unit, 0)?;
                b.add(value, nothing)?
            };
            let complex =
                if transform == Transform::RealInverse { complex } else { b.unary(aten::_CONJ_PHYSICAL, complex)? };
            let natural = || {
                let last = dims.last().and_then(|dim| ty.shape.get(*dim)).cloned().unwrap_or(Expr::Int(1));
                last.sub(1).mul(2)
            };
            let size = if sizes.len() == dims.len() { sizes.last().cloned() } else { None }.unwrap_or_else(natural);
            let args = vec![complex.into(), dim_args.as_slice().into(), mode.into(), Arg::Int(size)];
            b.one(aten::_FFT_C2R, args)?
        }
    };
    done(result)
}

/// The dimensions of parameter 2; without them, the last ones that sizes are given for, or all.
fn dims(operands: &Operands<'_>, rank: usize, sizes: usize) -> Result<Vec<usize>, Error> {
    if !operands.has(2) {
        let count = if sizes > 0 { sizes } else { rank };
        return Ok((rank.saturating_sub(count)..rank).collect());
    }
    let wrap = |dim: i64| {
        let wrapped = if dim < 0 { dim + rank as i64 } else { dim };
        usize::try_from(wrapped)
            .ok()
            .filter(|dim| *dim < rank)
            .ok_or_else(|| operands.wrong(2, "dimensions of the tensor"))
    };
    operands.ints(2)?.into_iter().map(wrap).collect()
}

fn mode(operands: &Operands<'_>, forward: bool) -> Result<i64, Error> {
    match operands.str(3)? {
        Some("ortho") => Ok(BY_ROOT),
        None | Some("backward") => Ok(if forward { UNSCALED } else { BY_SIZE }),
        Some("forward") => Ok(if forward { BY_SIZE } else { UNSCALED }),
        Some(_) => Err(operands.wrong(3, "\"ortho\", \"backward\" or \"forward\"")),
    }
}

/// The first elements along a dimension, with zeros after the last.
fn resized(b: &mut Builder<'_>, x: ValueId, dim: usize, size: Expr) -> Result<ValueId, Error> {
    let ty = b.tensor(x)?;
    let old = ty.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
    if old == size {
        return Ok(x);
    }
    let Some(more) = size.sub(old).as_int() else {
        return Err(Error::unsupported(
            "a Fourier transform to a size that is not the tensor's own and depends on an input",
        ));
    };
    if more < 0 {
        return b.one(aten::SLICE_COPY_TENSOR, vec![x.into(), Arg::from(dim as i64), Arg::from(0), size.into()]);
    }
    // Kernels pad no complex tensors, but join them.
    let mut shape = ty.shape.clone();
    if let Some(slot) = shape.get_mut(dim) {
        *slot = Expr::Int(more);
    }
    let constant = Constant {
        name: "zeros".into(),
        ty: TensorType::new(ty.dtype, vec![Expr::Int(1); shape.len()]),
        data: crate::ConstantData::Zeros,
    };
    let zero = b.constant(constant);
    let zeros = b.one(aten::EXPAND_COPY, vec![zero.into(), shape.into()])?;
    b.one(aten::CAT, vec![Arg::from(vec![x, zeros]), Arg::from(dim as i64)])
}

/// Rotates each dimension so that the zero frequency moves to the middle, or back.
fn shift(b: &mut Builder<'_>, operands: &Operands<'_>, by: fn(&Expr) -> Expr) -> Lowered {
    let ty = operands.tensor(0, b.graph)?.clone();
    let dims = operands.dims_or_all(1, ty.rank())?;
    let shifts: Vec<Expr> = dims.iter().filter_map(|dim| ty.shape.get(*dim)).map(by).collect();
    let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    b.one(aten::ROLL, vec![operands.arg(0).clone(), shifts.into(), dims.as_slice().into()]).and_then(done)
}

fn frequencies_type(operands: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    let count = operands.int(0)?;
    let count = if operands.schema.name == aten::FFT_RFFTFREQ { count / 2 + 1 } else { count };
    one(operands.dtype_or(2, ScalarType::Float)?, vec![Expr::Int(count)])
}

/// The frequencies of a transform's elements, for samples at a distance.
fn frequencies(b: &mut Builder<'_>, operands: &Operands<'_>, onesided: bool) -> Lowered {
    let (count, distance) = (operands.int(0)?.max(0), operands.float(1)?);
    super::number::check_computed(&operands.schema.name, count)?;
    let positive = (count + 1) / 2;
    let index = |at: i64| if onesided || at < positive { at } else { at - count };
    let shown = if onesided { count / 2 + 1 } else { count };
    let values: Vec<f64> = (0..shown.max(0)).map(|at| index(at) as f64 / (count as f64 * distance)).collect();
    super::creation::constant(b, &values, operands.dtype_or(2, ScalarType::Float)?).and_then(done)
}
