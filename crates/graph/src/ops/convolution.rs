//! Convolutions; all are lowered to `convolution`.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, TensorType, Type, ValueId};

use super::views::{squeeze, unsqueeze};
use super::{Definition, Lowered, Operands, by_lowering, composite, kernel, result};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::CONVOLUTION, convolution_type),
    composite(aten::CONVOLUTION_OVERRIDEABLE, convolution_type, plain),
    composite(aten::_CONVOLUTION, by_lowering, plain),
    composite(aten::_CONVOLUTION_DEPRECATED, by_lowering, plain),
    composite(aten::_CONVOLUTION_MODE, by_lowering, forward),
    composite(aten::CONV1D, by_lowering, forward),
    composite(aten::CONV1D_PADDING, by_lowering, forward),
    composite(aten::CONV2D, by_lowering, forward),
    composite(aten::CONV2D_PADDING, by_lowering, forward),
    composite(aten::CONV3D, by_lowering, forward),
    composite(aten::CONV3D_PADDING, by_lowering, forward),
    composite(aten::_CONV_DEPTHWISE2D, by_lowering, named),
    composite(aten::CONV_DEPTHWISE3D, by_lowering, named),
    composite(aten::THNN_CONV2D, by_lowering, named),
    composite(aten::SLOW_CONV3D, by_lowering, named),
    composite(aten::SLOW_CONV_DILATED2D, by_lowering, named),
    composite(aten::SLOW_CONV_DILATED3D, by_lowering, named),
    composite(aten::SLOW_CONV_TRANSPOSE2D, by_lowering, named),
    composite(aten::SLOW_CONV_TRANSPOSE3D, by_lowering, named),
    composite(aten::CONV_TRANSPOSE1D, by_lowering, transposed),
    composite(aten::CONV_TRANSPOSE2D_INPUT, by_lowering, transposed),
    composite(aten::CONV_TRANSPOSE3D_INPUT, by_lowering, transposed),
    composite(aten::CONV_TBC, by_lowering, time_first),
];

/// Attributes of a convolution; lists have a number for each spatial dimension.
#[derive(Clone, Debug)]
struct ConvolutionParameters {
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    transposed: bool,
    output_padding: Vec<i64>,
    groups: i64,
}

fn convolution_type(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let (input, weight) = (operands.tensor(0, graph)?, operands.tensor(1, graph)?);
    let dims = weight.rank().saturating_sub(2);
    if !(1..=3).contains(&dims) || input.rank() != weight.rank() {
        return Err(operands.wrong(0, &format!("a tensor of {} dimensions, as the weight", weight.rank())));
    }
    let transposed = operands.bool(6)?;
    let list = |index: usize, default: i64| operands.ints_for(index, dims, &[default]);
    let (stride, padding, dilation, extra) = (list(3, 1)?, list(4, 0)?, list(5, 1)?, list(7, 0)?);
    let groups = operands.int(8)?;
    let size = |ty: &TensorType, dim: usize| ty.shape.get(dim).cloned().unwrap_or(Expr::Int(1));
    let (from, to) = if transposed {
        (size(weight, 0), size(weight, 1).mul(groups))
    } else {
        (size(weight, 1).mul(groups), size(weight, 0))
    };
    if let (Some(expected), Some(got)) = (from.as_int(), size(input, 1).as_int())
        && expected != got
    {
        return Err(operands.wrong(0, &format!("a tensor of {expected} channels, not {got}")));
    }
    if input.dtype != weight.dtype {
        return Err(operands.wrong(1, &format!("a tensor of {}", input.dtype.name())));
    }
    let mut shape = vec![size(input, 0), to];
    let numbers = stride.iter().zip(&padding).zip(&dilation).zip(&extra).enumerate();
    for (dim, (((stride, padding), dilation), extra)) in numbers {
        let reach = size(weight, dim + 2).sub(1).mul(*dilation);
        let (size, around) = (size(input, dim + 2), Expr::Int(*padding).mul(2));
        if *stride < 1 {
            return Err(operands.wrong(3, "strides of at least 1"));
        }
        let size = if transposed {
            size.sub(1).mul(*stride).sub(around).add(reach).add(*extra).add(1)
        } else {
            size.add(around).sub(reach).sub(1).floor_div(*stride).add(1)
        };
        if size.as_int().is_some_and(|size| size < 0) {
            return Err(operands.wrong(0, "spatial sizes that, padded, are at least those of the kernel"));
        }
        shape.push(size);
    }
    Ok(result(input.dtype, shape))
}

/// Calls `convolution`, with a batch dimension around an input without one.
fn convolve(
    b: &mut Builder<'_>,
    input: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
    parameters: &ConvolutionParameters,
) -> Result<ValueId, Error> {
    let alone = b.tensor(input)?.rank() + 1 == b.tensor(weight)?.rank();
    let input = if alone { unsqueeze(b, input, 0)? } else { input };
    let list = |values: &[i64]| Arg::from(values);
    let args = vec![
        input.into(),
        weight.into(),
        bias.into(),
        list(&parameters.stride),
        list(&parameters.padding),
        list(&parameters.dilation),
        parameters.transposed.into(),
        list(&parameters.output_padding),
        parameters.groups.into(),
    ];
    let output = b.one(aten::CONVOLUTION, args)?;
    if alone { squeeze(b, output, 0) } else { Ok(output) }
}

fn spatial_dims(b: &Builder<'_>, operands: &Operands<'_>) -> Result<usize, Error> {
    let rank = operands.tensor(1, b.graph)?.rank();
    if (3..=5).contains(&rank) { Ok(rank - 2) } else { Err(operands.wrong(1, "a weight of 3 to 5 dimensions")) }
}

/// Reads a list argument by the name of its parameter.
fn by_name(operands: &Operands<'_>, name: &str, dims: usize, default: i64) -> Result<Vec<i64>, Error> {
    match operands.schema.position(name) {
        Some(index) => operands.ints_for(index, dims, &[default]),
        None => Ok(vec![default; dims]),
    }
}

fn plain(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = spatial_dims(b, operands)?;
    let parameters =
        ConvolutionParameters { transposed: operands.bool(6)?, groups: operands.int(8)?, ..common(operands, dims)? };
    let output = convolve(b, operands.value(0)?, operands.value(1)?, operands.optional(2)?, &parameters)?;
    Ok(Some(vec![output]))
}

/// Lowers `conv1d`, `conv2d` and `conv3d`, with padding given as numbers, `valid` or `same`.
fn forward(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = spatial_dims(b, operands)?;
    let mut input = operands.value(0)?;
    let stride = operands.ints_for(3, dims, &[1])?;
    let dilation = operands.ints_for(5, dims, &[1])?;
    let padding = match operands.arg(4) {
        Arg::Str(mode) if mode == "valid" => vec![0; dims],
        Arg::Str(mode) if mode == "same" => {
            let (padded, padding) = pad_same(b, operands, input, &stride, &dilation)?;
            input = padded;
            padding
        }
        Arg::Str(_) => return Err(operands.wrong(4, "`valid` or `same`")),
        _ => operands.ints_for(4, dims, &[0])?,
    };
    let groups = operands.int(6)?;
    let parameters =
        ConvolutionParameters { stride, padding, dilation, transposed: false, output_padding: vec![0; dims], groups };
    let output = convolve(b, input, operands.value(1)?, operands.optional(2)?, &parameters)?;
    Ok(Some(vec![output]))
}

/// Computes the padding that keeps the size: half on each side. An odd remainder goes to the end, as a separate padding
/// node.
fn pad_same(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    input: ValueId,
    stride: &[i64],
    dilation: &[i64],
) -> Result<(ValueId, Vec<i64>), Error> {
    if stride.iter().any(|stride| *stride != 1) {
        return Err(operands.wrong(3, "strides of 1 with the padding `same`"));
    }
    let weight = operands.tensor(1, b.graph)?;
    let kernel = weight.shape.iter().skip(2).map(Expr::as_int).collect::<Option<Vec<_>>>();
    let kernel = kernel.ok_or_else(|| operands.wrong(1, "a kernel of known size"))?;
    let total: Vec<i64> =
        kernel.iter().zip(dilation).map(|(size, dilation)| size.saturating_sub(1).saturating_mul(*dilation)).collect();
    let padding: Vec<i64> = total.iter().map(|total| total / 2).collect();
    if total.iter().all(|total| total % 2 == 0) {
        return Ok((input, padding));
    }
    let extra: Vec<i64> = total.iter().rev().flat_map(|total| [0, total % 2]).collect();
    let padded = b.one(aten::CONSTANT_PAD_ND, vec![input.into(), extra.as_slice().into()])?;
    Ok((padded, padding))
}

fn transposed(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = spatial_dims(b, operands)?;
    let parameters = ConvolutionParameters { transposed: true, groups: operands.int(6)?, ..common(operands, dims)? };
    let output = convolve(b, operands.value(0)?, operands.value(1)?, operands.optional(2)?, &parameters)?;
    Ok(Some(vec![output]))
}

/// Lowers convolutions that also state a kernel size: depthwise ones, with one or more filters per channel.
fn named(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let dims = spatial_dims(b, operands)?;
    let channels = |ty: &TensorType, dim: usize| ty.shape.get(dim).and_then(Expr::as_int).unwrap_or(1);
    let input = operands.tensor(0, b.graph)?;
    let groups = if operands.schema.name.contains("depthwise") {
        channels(input, input.rank().saturating_sub(dims + 1))
    } else {
        1
    };
    let transposed = operands.schema.name.contains("transpose");
    let parameters = ConvolutionParameters { transposed, groups, ..common(operands, dims)? };
    let output = convolve(b, operands.value(0)?, operands.value(1)?, operands.optional(3)?, &parameters)?;
    Ok(Some(vec![output]))
}

/// Stride, padding, dilation and output padding by their names.
fn common(operands: &Operands<'_>, dims: usize) -> Result<ConvolutionParameters, Error> {
    Ok(ConvolutionParameters {
        stride: by_name(operands, "stride", dims, 1)?,
        padding: by_name(operands, "padding", dims, 0)?,
        dilation: by_name(operands, "dilation", dims, 1)?,
        transposed: false,
        output_padding: by_name(operands, "output_padding", dims, 0)?,
        groups: 1,
    })
}

/// `conv_tbc`: time, batch, channels; the weight is kernel, input channels, output channels.
fn time_first(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let input = super::views::permute(b, operands.value(0)?, &[1, 2, 0])?;
    let weight = super::views::permute(b, operands.value(1)?, &[2, 1, 0])?;
    let (stride, dilation, output_padding) = (vec![1], vec![1], vec![0]);
    let padding = vec![operands.int(3)?];
    let parameters = ConvolutionParameters { stride, padding, dilation, transposed: false, output_padding, groups: 1 };
    let output = convolve(b, input, weight, operands.optional(2)?, &parameters)?;
    Ok(Some(vec![super::views::permute(b, output, &[2, 0, 1])?]))
}
