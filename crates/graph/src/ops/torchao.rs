//! torchao's affine quantization: one scale and zero point for each block of elements.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{aten, torchao};
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::inference::{one, tensor};
use super::quantized::Affine;
use super::{Definition, Lowered, Operands, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(torchao::QUANTIZE_AFFINE, quantized, quantize),
    composite(torchao::DEQUANTIZE_AFFINE, dequantized, dequantize),
    composite(torchao::CHOOSE_QPARAMS_AFFINE, parameters, choose),
];

fn quantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.dtype_or(4, ScalarType::Char)?, operands.tensor(0, graph)?.shape.clone())
}

fn dequantized(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    one(operands.dtype_or(7, ScalarType::Float)?, operands.tensor(0, graph)?.shape.clone())
}

/// A tensor's dimensions, each split into blocks and the places in a block.
struct Blocks {
    /// `[count0, size0, count1, size1, …]`, without the counts of dimensions that are one block, and without the sizes of
    /// blocks of one element.
    split: Vec<Expr>,
    /// The same with 1 for the places in a block.
    per_block: Vec<Expr>,
    /// The dimensions of `split` that are places in a block.
    inside: Vec<i64>,
    /// The number of blocks of each dimension.
    counts: Vec<Expr>,
}

impl Blocks {
    fn new(operands: &Operands<'_>, shape: &[Expr], sizes: usize) -> Result<Self, Error> {
        let sizes = operands.exprs(sizes)?;
        if sizes.len() != shape.len() {
            return Err(operands.wrong(1, "a block size for each dimension"));
        }
        let mut blocks = Self { split: Vec::new(), per_block: Vec::new(), inside: Vec::new(), counts: Vec::new() };
        for (size, block) in shape.iter().zip(sizes) {
            // -1 stands for the whole dimension.
            let block = if block.is(-1) { size.clone() } else { block };
            let whole = block == *size;
            if !whole && !size.is_static() && !block.is(1) {
                let name = &operands.schema.name;
                return Err(Error::unsupported(format!(
                    "`{name}` in blocks along a dimension that depends on an input"
                )));
            }
            let count = if whole && !block.is(1) { Expr::Int(1) } else { size.floor_div(block.clone()) };
            blocks.counts.push(count.clone());
            if !whole || block.is(1) {
                blocks.split.push(count.clone());
                blocks.per_block.push(count);
            }
            if !block.is(1) {
                blocks.inside.push(blocks.split.len() as i64);
                blocks.split.push(block);
                blocks.per_block.push(Expr::Int(1));
            }
        }
        Ok(blocks)
    }
}

/// The range of the parameters, or else that of the dtype.
fn range(operands: &Operands<'_>, low: usize, dtype: ScalarType) -> Result<[Arg; 2], Error> {
    let (min, max) = match dtype {
        ScalarType::Byte => (0, 255),
        ScalarType::Char => (-128, 127),
        ScalarType::Short => (-32_768, 32_767),
        ScalarType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
        other => return Err(Error::unsupported(format!("quantization to {}", other.name()))),
    };
    let bound = |index: usize, natural: i64| match operands.arg(index) {
        Arg::None => Arg::from(natural),
        given => given.clone(),
    };
    Ok([bound(low, min), bound(low + 1, max)])
}

/// Scale and zero point of parameters 2 and 3, shaped to broadcast over the split tensor.
fn affine(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    blocks: &Blocks,
    dtype: ScalarType,
    range: [Arg; 2],
) -> Result<Affine, Error> {
    let mut parameter = |index: usize| -> Result<Arg, Error> {
        let Some(value) = operands.optional(index)? else { return Ok(Arg::None) };
        let value = b.cast(value, dtype)?;
        b.view(value, blocks.per_block.clone()).map(Arg::Value)
    };
    Ok(Affine { scale: parameter(2)?, zero_point: parameter(3)?, range })
}

fn quantize(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let dtype = operands.dtype_or(4, ScalarType::Char)?;
    let blocks = Blocks::new(operands, &ty.shape, 1)?;
    let wide = super::compute_dtype(ty.dtype);
    let affine = affine(b, operands, &blocks, wide, range(operands, 5, dtype)?)?;
    let x = b.cast(x, wide)?;
    let x = b.view(x, blocks.split)?;
    let rounded = affine.round(b, x)?;
    let integers = b.cast(rounded, dtype)?;
    b.view(integers, ty.shape).and_then(done)
}

fn dequantize(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let q = operands.value(0)?;
    let ty = b.tensor(q)?;
    let dtype = operands.dtype_or(7, ScalarType::Float)?;
    let blocks = Blocks::new(operands, &ty.shape, 1)?;
    let affine = affine(b, operands, &blocks, dtype, [Arg::None, Arg::None])?;
    let q = b.view(q, blocks.split)?;
    let q = b.cast(q, dtype)?;
    let value = affine.expand(b, q)?;
    b.view(value, ty.shape).and_then(done)
}

/// One scale and zero point for each block; the scale's dtype defaults to the input's.
fn parameters(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let blocks = Blocks::new(operands, &input.shape, 2)?;
    let shape = parameter_shape(operands, &blocks)?;
    let scale = operands.dtype_or(7, input.dtype)?;
    let zero_point = zero_point_dtype(operands, graph)?;
    Ok(vec![tensor(scale, shape.clone()), tensor(zero_point, shape)])
}

/// The dtype of zero points: the argument, or else the dtype recorded in the program, since versions of torchao differ in their default.
fn zero_point_dtype(operands: &Operands<'_>, graph: &Graph) -> Result<ScalarType, Error> {
    let recorded = operands.results.get(1).and_then(|value| graph.ty(*value).as_tensor()).map(|ty| ty.dtype);
    operands.dtype_or(8, recorded.unwrap_or(ScalarType::Int))
}

/// The counts of blocks; dimensions that are one block have a place of their own only if it is kept.
fn parameter_shape(operands: &Operands<'_>, blocks: &Blocks) -> Result<Vec<Expr>, Error> {
    if operands.bool(9)? {
        return Ok(blocks.counts.clone());
    }
    let inside = |dim: usize| blocks.inside.contains(&(dim as i64));
    Ok(blocks.split.iter().enumerate().filter(|(dim, _)| !inside(*dim)).map(|(_, size)| size.clone()).collect())
}

fn choose(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let target = operands.dtype_or(3, ScalarType::Char)?;
    let blocks = Blocks::new(operands, &ty.shape, 2)?;
    let [low, high] = range(operands, 4, target)?;
    let bound = |arg: &Arg| match arg {
        Arg::Int(Expr::Int(value)) => Ok(*value as f64),
        Arg::Float(value) => Ok(*value),
        _ => Err(operands.wrong(4, "a number")),
    };
    let (min, max) = (bound(&low)?, bound(&high)?);
    let default_eps = if ty.dtype == ScalarType::Double { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let eps = operands.float_or(6, default_eps)?;
    let scale_dtype = operands.dtype_or(7, ty.dtype)?;
    let zero_dtype = zero_point_dtype(operands, b.graph)?;
    let shape = parameter_shape(operands, &blocks)?;
    let wide = super::compute_dtype(ty.dtype);
    let x = b.cast(x, wide)?;
    let x = b.view(x, blocks.split)?;
    let extremum = |b: &mut Builder<'_>, name: &str| {
        let value = b.one(name, vec![x.into(), Arg::from(blocks.inside.as_slice()), Arg::from(false)])?;
        b.view(value, shape.clone())
    };
    let (minimum, maximum) = (extremum(b, aten::AMIN)?, extremum(b, aten::AMAX)?);
    let minimum = b.one(aten::CLAMP, vec![minimum.into(), Arg::None, Arg::from(0)])?;
    let maximum = b.one(aten::CLAMP, vec![maximum.into(), Arg::from(0), Arg::None])?;
    let above_eps =
        |b: &mut Builder<'_>, scale: ValueId| b.one(aten::CLAMP, vec![scale.into(), Arg::Float(eps), Arg::None]);
    let (scale, zero_point) = match operands.str(1)? {
        Some("ASYMMETRIC") => {
            let width = b.sub(maximum, minimum)?;
            let scale = b.div(width, max - min)?;
            let scale = above_eps(b, scale)?;
            let steps = b.div(minimum, scale)?;
            let rounded = b.unary(aten::ROUND, steps)?;
            let zero_point = b.sub(min, rounded)?;
            (scale, b.one(aten::CLAMP, vec![zero_point.into(), low, high])?)
        }
        Some("SYMMETRIC") => {
            let negative = b.unary(aten::NEG, minimum)?;
            let magnitude = b.one(aten::MAXIMUM, vec![negative.into(), maximum.into()])?;
            let scale = b.div(magnitude, (max - min) / 2.0)?;
            let scale = above_eps(b, scale)?;
            (scale, middle(b, &shape, min, max, wide)?)
        }
        Some("SYMMETRIC_NO_CLIPPING_ERR") => {
            let (below, above) = (b.div(minimum, min)?, b.div(maximum, max)?);
            let scale = b.one(aten::MAXIMUM, vec![below.into(), above.into()])?;
            let scale = above_eps(b, scale)?;
            (scale, middle(b, &shape, min, max, wide)?)
        }
        _ => return Err(operands.wrong(1, "ASYMMETRIC, SYMMETRIC or SYMMETRIC_NO_CLIPPING_ERR")),
    };
    Ok(Some(vec![b.cast(scale, scale_dtype)?, b.cast(zero_point, zero_dtype)?]))
}

/// The zero point of symmetric quantization: the middle of the range, rounded up.
fn middle(b: &mut Builder<'_>, shape: &[Expr], min: f64, max: f64, dtype: ScalarType) -> Result<ValueId, Error> {
    let value = f64::midpoint(max + 1.0, min).trunc();
    super::creation::filled(b, shape.to_vec().into(), Arg::Float(value), dtype)
}
