//! Operators of quantized programs. Integers `q` represent real numbers `(q - zero_point) * scale`.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, quantized_decomposed};
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::{one, same, tensor};
use super::{Definition, Lowered, Operands, composite, done, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(quantized_decomposed::QUANTIZE_PER_TENSOR, quantized),
    kernel(quantized_decomposed::QUANTIZE_PER_TENSOR_TENSOR, quantized),
    kernel(quantized_decomposed::QUANTIZE_PER_CHANNEL, quantized),
    kernel(quantized_decomposed::QUANTIZE_PER_TOKEN, quantized),
    kernel(quantized_decomposed::DEQUANTIZE_PER_TENSOR, dequantized),
    kernel(quantized_decomposed::DEQUANTIZE_PER_TENSOR_TENSOR, dequantized),
    kernel(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, dequantized),
    kernel(quantized_decomposed::DEQUANTIZE_PER_TOKEN, dequantized),
    composite(quantized_decomposed::QUANTIZE_PER_CHANNEL_GROUP, quantized, quantize_groups),
    composite(quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP, dequantized, dequantize_groups),
    kernel(quantized_decomposed::CHOOSE_QPARAMS_TENSOR, tensor_qparams),
    composite(quantized_decomposed::CHOOSE_QPARAMS_SYMMETRIC_TENSOR, tensor_qparams, choose_symmetric),
    kernel(quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC, token_qparams),
    composite(quantized_decomposed::_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC_IMPL, token_qparams, |b, o| {
        super::forward(b, o, quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC)
    }),
    kernel(quantized_decomposed::ADD, same),
    composite(quantized_decomposed::ADD_RELU, same, add_relu),
    kernel(quantized_decomposed::EMBEDDING_BYTE, |o, g| embedding(o, g, 5, 1)),
    kernel(quantized_decomposed::EMBEDDING_BYTE_DTYPE, |o, g| embedding(o, g, 5, 1)),
    kernel(quantized_decomposed::EMBEDDING_4BIT, |o, g| embedding(o, g, 5, 2)),
    kernel(quantized_decomposed::EMBEDDING_4BIT_DTYPE, |o, g| embedding(o, g, 5, 2)),
    kernel(quantized_decomposed::EMBEDDING_2BIT, |o, g| embedding(o, g, 5, 4)),
    kernel(quantized_decomposed::EMBEDDING_2BIT_DTYPE, |o, g| embedding(o, g, 5, 4)),
    kernel(quantized_decomposed::MIXED_MM, |o, g| product(o, g, false)),
    kernel(quantized_decomposed::MIXED_LINEAR, |o, g| product(o, g, true)),
    composite(quantized_decomposed::FAKE_QUANT_PER_CHANNEL, same, |b, o| fake_quantize(b, o, Some(3))),
    composite(aten::FAKE_QUANTIZE_PER_TENSOR_AFFINE, same, |b, o| fake_quantize(b, o, None)),
    composite(aten::FAKE_QUANTIZE_PER_TENSOR_AFFINE_TENSOR_QPARAMS, same, |b, o| fake_quantize(b, o, None)),
    composite(aten::FAKE_QUANTIZE_PER_CHANNEL_AFFINE, same, |b, o| fake_quantize(b, o, Some(3))),
    composite(aten::FAKE_QUANTIZE_PER_TENSOR_AFFINE_CACHEMASK, with_mask, |b, o| cached(b, o, None)),
    composite(aten::FAKE_QUANTIZE_PER_CHANNEL_AFFINE_CACHEMASK, with_mask, |b, o| cached(b, o, Some(3))),
    composite(aten::_FAKE_QUANTIZE_PER_TENSOR_AFFINE_CACHEMASK_TENSOR_QPARAMS, with_mask, |b, o| cached(b, o, None)),
    composite(
        aten::DEQUANTIZE_SELF,
        |o, g| one(ScalarType::Float, o.tensor(0, g)?.shape.clone()),
        |b, o| b.cast(o.value(0)?, ScalarType::Float).and_then(done),
    ),
];

/// The shape of the first argument, in the dtype of the parameter of that name.
fn quantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let dtype = operands.dtype_or(named(operands, "dtype"), ScalarType::Char)?;
    one(dtype, operands.tensor(0, graph)?.shape.clone())
}

fn named(operands: &Operands<'_>, name: &str) -> usize {
    operands.schema.position(name).unwrap_or(usize::MAX)
}

/// The shape of the first argument, in `f32` unless another dtype is given.
fn dequantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let given = operands.schema.position("out_dtype").or_else(|| operands.schema.position("output_dtype"));
    let dtype = operands.dtype_or(given.unwrap_or(usize::MAX), ScalarType::Float)?;
    one(dtype, operands.tensor(0, graph)?.shape.clone())
}

/// A scale and a zero point.
fn tensor_qparams(_: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    let shape = vec![Expr::Int(1)];
    Ok(vec![tensor(ScalarType::Double, shape.clone()), tensor(ScalarType::Long, shape)])
}

/// A scale and a zero point for each row.
fn token_qparams(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let mut shape = input.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = Expr::Int(1);
    }
    Ok(vec![tensor(ScalarType::Double, shape.clone()), tensor(ScalarType::Long, shape)])
}

/// A row of the table for each index, in the scales' dtype unless another is given; `packed` weights share a byte.
fn embedding(operands: &Operands<'_>, graph: &Graph, indices: usize, packed: i64) -> Result<Vec<Type>, Error> {
    let weight = operands.tensor(0, graph)?;
    let [_, width] = weight.shape.as_slice() else { return Err(operands.wrong(0, "a matrix")) };
    let natural = operands.tensor(1, graph)?.dtype;
    let mut shape = operands.tensor(indices, graph)?.shape.clone();
    shape.push(width.mul(packed));
    one(operands.dtype_or(named(operands, "dtype"), natural)?, shape)
}

/// The type of a matmul whose second matrix may be transposed.
fn product(operands: &Operands<'_>, graph: &Graph, transposed: bool) -> Result<Vec<Type>, Error> {
    let (input, weight) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let mut shape = input.shape.clone();
    let columns = weight.shape.get(usize::from(!transposed)).ok_or_else(|| operands.wrong(1, "a matrix"))?;
    if let Some(last) = shape.last_mut() {
        last.clone_from(columns);
    }
    one(operands.dtype_or(named(operands, "dtype"), input.dtype)?, shape)
}

/// Quantization of the tensors of a computation.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub scale: Arg,
    /// The zero point; `None` is zero.
    pub zero_point: Arg,
    pub range: [Arg; 2],
}

impl Affine {
    /// Computes `clamp(round(x / scale) + zero_point)` as a floating tensor of integers. The division is a
    /// multiplication by the reciprocal.
    pub(crate) fn round(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, Error> {
        let scaled = match &self.scale {
            Arg::Float(scale) => b.mul(x, 1.0 / scale)?,
            scale => {
                let scale = scale.as_value().ok_or_else(|| Error::type_error("a scale that is not a number"))?;
                let dtype = b.tensor(x)?.dtype;
                let scale = b.cast(scale, dtype)?;
                let reciprocal = b.unary(aten::RECIPROCAL, scale)?;
                b.mul(x, reciprocal)?
            }
        };
        let mut value = b.unary(aten::ROUND, scaled)?;
        if !self.zero_point.is_none() {
            value = b.add(value, self.zero_point.clone())?;
        }
        let [low, high] = self.range.clone();
        b.one(aten::CLAMP, vec![value.into(), low, high])
    }

    /// `(q - zero_point) * scale`, where `q` is floating.
    pub(crate) fn expand(&self, b: &mut Builder<'_>, q: ValueId) -> Result<ValueId, Error> {
        let centred = if self.zero_point.is_none() { q } else { b.sub(q, self.zero_point.clone())? };
        b.mul(centred, self.scale.clone())
    }
}

/// Reshapes a tensor, so that the last dimension holds a block of elements and the parameters have size 1 there.
fn grouped(b: &mut Builder<'_>, x: ValueId, size: i64) -> Result<(ValueId, Vec<Expr>), Error> {
    let shape = b.tensor(x)?.shape;
    let ([.., last], Some(groups)) = (shape.as_slice(), shape.last().map(|last| last.floor_div(size))) else {
        return Err(Error::type_error("groups of a tensor without dimensions"));
    };
    if last.modulo(size).as_int().is_some_and(|rest| rest != 0) || size <= 0 {
        return Err(Error::type_error("the last dimension is no multiple of the group size").got(size));
    }
    let mut split = shape.clone();
    split.pop();
    split.extend([groups, Expr::Int(size)]);
    Ok((b.view(x, split)?, shape))
}

fn group_parameters(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    x: ValueId,
    dtype: ScalarType,
) -> Result<Affine, Error> {
    let mut shape = b.tensor(x)?.shape;
    if let Some(last) = shape.last_mut() {
        *last = Expr::Int(1);
    }
    let mut parameter = |index: usize| -> Result<Arg, Error> {
        let Some(value) = operands.optional(index)? else { return Ok(Arg::None) };
        let value = b.cast(value, dtype)?;
        b.view(value, shape.clone()).map(Arg::Value)
    };
    let (scale, zero_point) = (parameter(1)?, parameter(2)?);
    Ok(Affine { scale, zero_point, range: [operands.arg(3).clone(), operands.arg(4).clone()] })
}

fn quantize_groups(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let (x, shape) = grouped(b, operands.value(0)?, operands.int(6)?)?;
    let dtype = b.tensor(x)?.dtype;
    let affine = group_parameters(b, operands, x, dtype)?;
    let rounded = affine.round(b, x)?;
    let integers = b.cast(rounded, operands.dtype_or(5, ScalarType::Char)?)?;
    b.view(integers, shape).and_then(done)
}

fn dequantize_groups(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dtype = operands.dtype_or(7, ScalarType::Float)?;
    let (q, shape) = grouped(b, operands.value(0)?, operands.int(6)?)?;
    let affine = group_parameters(b, operands, q, dtype)?;
    let q = b.cast(q, dtype)?;
    let value = affine.expand(b, q)?;
    b.view(value, shape).and_then(done)
}

/// The scale that maps the maximum magnitude to the end of the range.
fn choose_symmetric(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let (low, high, eps) = (operands.float(1)?, operands.float(2)?, operands.float(3)?);
    let magnitude = b.unary(aten::ABS, x)?;
    let greatest = b.one(aten::AMAX, vec![magnitude.into(), Arg::List(Vec::new()), Arg::from(false)])?;
    let greatest = b.cast(greatest, ScalarType::Double)?;
    let scale = b.div(greatest, (high - low) / 2.0)?;
    let scale = b.one(aten::CLAMP, vec![scale.into(), Arg::Float(eps), Arg::None])?;
    let scale = b.view(scale, vec![Expr::Int(1)])?;
    let zero = super::creation::filled(b, Arg::from([1]), Arg::from(0), ScalarType::Long)?;
    Ok(Some(vec![scale, zero]))
}

/// Adds two quantized tensors, clamps the sum at zero and quantizes it.
fn add_relu(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let mut real = |first: usize| {
        let args = operands.args.iter().skip(first).take(5).cloned();
        let dtype = operands.tensor(first, b.graph)?.dtype;
        b.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, args.chain([Arg::DType(dtype)]).collect())
    };
    let (x, y) = (real(0)?, real(5)?);
    let sum = b.add(x, y)?;
    let positive = b.unary(aten::RELU, sum)?;
    let dtype = operands.tensor(0, b.graph)?.dtype;
    let args = [Arg::Value(positive)].into_iter().chain(operands.args.iter().skip(10).take(4).cloned());
    b.one(quantized_decomposed::QUANTIZE_PER_TENSOR, args.chain([Arg::DType(dtype)]).collect()).and_then(done)
}

/// Quantizes and dequantizes, with one scale, or one per index of the axis that a parameter states.
fn fake_quantize(b: &mut Builder<'_>, operands: &Operands<'_>, axis: Option<usize>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let wide = super::compute_dtype(ty.dtype);
    let mut shape = vec![Expr::Int(1); ty.rank()];
    if let Some(axis) = axis {
        let axis = operands.dim(axis, ty.rank())?;
        if let (Some(slot), Some(size)) = (shape.get_mut(axis), ty.shape.get(axis)) {
            slot.clone_from(size);
        }
    }
    let mut parameter = |index: usize| -> Result<Arg, Error> {
        match operands.arg(index) {
            number @ Arg::Value(value) => {
                let value = if b.is_tensor(number) { *value } else { b.as_tensor(number, wide)? };
                let is_one = b.tensor(value)?.rank() == 0;
                let value = b.cast(value, wide)?;
                let shape = if is_one { vec![Expr::Int(1); shape.len()] } else { shape.clone() };
                b.view(value, shape).map(Arg::Value)
            }
            number => Ok(number.clone()),
        }
    };
    let (scale, zero_point) = (parameter(1)?, parameter(2)?);
    let low = axis.map_or(3, |axis| axis + 1);
    let affine = Affine { scale, zero_point, range: [operands.arg(low).clone(), operands.arg(low + 1).clone()] };
    let x = b.cast(x, wide)?;
    let rounded = affine.round(b, x)?;
    let value = affine.expand(b, rounded)?;
    b.cast(value, ty.dtype).and_then(done)
}

/// The type of the first argument, and a mask of its shape.
fn with_mask(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    Ok(vec![tensor(input.dtype, input.shape.clone()), tensor(ScalarType::Bool, input.shape.clone())])
}

/// Fake quantization that also returns a mask of the elements inside its range. A tensor can turn off the rounding.
fn cached(b: &mut Builder<'_>, operands: &Operands<'_>, axis: Option<usize>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let wide = super::compute_dtype(ty.dtype);
    let enabled = operands.schema.position("fake_quant_enabled");
    let low = operands.schema.position("quant_min").unwrap_or(3);
    let range = [operands.arg(low).clone(), operands.arg(low + 1).clone()];
    let mut shape = vec![Expr::Int(1); ty.rank()];
    let mut args = vec![operands.arg(0).clone(), operands.arg(1).clone(), operands.arg(2).clone()];
    if let Some(axis) = axis {
        args.push(operands.arg(axis).clone());
        let at = operands.dim(axis, ty.rank())?;
        if let (Some(slot), Some(size)) = (shape.get_mut(at), ty.shape.get(at)) {
            slot.clone_from(size);
        }
    }
    args.extend(range.clone());
    let of_tensors = b.is_tensor(operands.arg(1));
    let name = match (axis, of_tensors) {
        (Some(_), _) => aten::FAKE_QUANTIZE_PER_CHANNEL_AFFINE,
        (None, true) => aten::FAKE_QUANTIZE_PER_TENSOR_AFFINE_TENSOR_QPARAMS,
        (None, false) => aten::FAKE_QUANTIZE_PER_TENSOR_AFFINE,
    };
    let mut value = b.one(name, args)?;
    let mut parameter = |index: usize| {
        let value = b.as_tensor(operands.arg(index), wide)?;
        let value = b.cast(value, wide)?;
        if b.tensor(value)?.rank() == 0 { Ok(value) } else { b.view(value, shape.clone()) }
    };
    let (scale, zero_point) = (parameter(1)?, parameter(2)?);
    let wide_x = b.cast(x, wide)?;
    let inverse = b.unary(aten::RECIPROCAL, scale)?;
    let scaled = b.mul(wide_x, inverse)?;
    let rounded = b.unary(aten::ROUND, scaled)?;
    let shifted = b.add(rounded, zero_point)?;
    let [min, max] = range;
    let (above, below) = (b.compare(aten::packet::GE, shifted, min)?, b.compare(aten::packet::LE, shifted, max)?);
    let mut mask = b.one(aten::LOGICAL_AND, vec![above.into(), below.into()])?;
    if let Some(enabled) = enabled {
        let off = b.compare(aten::packet::EQ, operands.value(enabled)?, 0)?;
        let off = b.view(off, Vec::new())?;
        value = b.select(off, x, value)?;
        mask = b.one(aten::LOGICAL_OR, vec![mask.into(), off.into()])?;
    }
    Ok(Some(vec![value, mask]))
}
