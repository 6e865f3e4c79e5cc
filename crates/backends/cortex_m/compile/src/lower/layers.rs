//! Lowers convolutions, linear layers and matmuls.

use rushlight_format::ScalarType;
use rushlight_graph::{Arg, Constant, Error, TensorType, ValueId};

use super::scratch::{self, ScratchBytes};
use super::{Lowering, in_order, int, pair};
use crate::affine::Factor;
use crate::operators::{BATCH_MATMUL, CONV2D, DEPTHWISE_CONV2D, LINEAR, TRANSPOSE, TRANSPOSE_CONV2D};
use crate::select::{Convolution, Linear, Matmul, Output};
use crate::target::Isa;

/// A constant with permuted dimensions, without its quantization.
fn permuted(constant: &Constant, dims: &[usize]) -> Result<Constant, Error> {
    let permuted = constant.permuted(dims);
    let permuted = permuted.ok_or_else(|| Error::invalid(format!("`{}` has other dimensions", constant.name)))?;
    Ok(Constant { ty: TensorType { quantization: None, ..permuted.ty }, ..permuted })
}

pub(crate) fn convolution(step: &Convolution, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let sizes = |sizes: &[i64]| <[i64; 4]>::try_from(sizes).map_err(|_| Error::invalid("a convolution of no image"));
    let (input_sizes, output_sizes) = (sizes(&step.input_sizes)?, sizes(&step.output_sizes)?);
    let weight_sizes: Vec<i64> = step.weight.integers.sizes()?.iter().map(|size| *size as i64).collect();
    let &[_, depth, kernel_height, kernel_width] = weight_sizes.as_slice() else {
        return Err(Error::invalid("weights of no image"));
    };
    let shape = scratch::Convolution {
        input: input_sizes,
        output: output_sizes,
        kernel: [kernel_height, kernel_width],
        depth,
        stride: step.stride,
        padding: step.padding,
        dilation: step.dilation,
    };
    let (isa, name) = (to.target().isa(), step.weight.integers.name.clone());
    let [batch, channels, ..] = input_sizes;
    let is_depthwise = step.transposed.is_none() && step.groups == channels && depth == 1 && batch == 1;
    let (order, operator, scratches): (_, _, Vec<ScratchBytes>) = match step.transposed {
        Some(_) => ([1, 2, 3, 0], TRANSPOSE_CONV2D, ScratchBytes::of_transposed(isa, &shape).to_vec()),
        None if is_depthwise => ([1, 2, 3, 0], DEPTHWISE_CONV2D, vec![ScratchBytes::of_depthwise(isa, &shape)]),
        None => ([0, 2, 3, 1], CONV2D, vec![ScratchBytes::of_convolution(isa, &shape)]),
    };
    let (input, _) = to.image(step.input.value)?;
    let weight = to.constant(permuted(&step.weight.integers, &order)?)?;
    let bias = match &step.bias {
        Some(bias) => Some(to.vector(&format!("{name}_bias"), bias)?),
        // CMSIS-NN's grouped and depthwise kernels read the bias without a check.
        None if step.groups > 1 || is_depthwise => {
            Some(to.vector(&format!("{name}_bias"), &vec![0; step.factors.len()])?)
        }
        None => None,
    };
    let mut args = vec![input.into(), weight.into(), bias.into(), pair(step.stride), pair(step.padding)];
    args.extend(step.transposed.map(pair));
    args.push(pair(step.dilation));
    if is_depthwise {
        args.push(Arg::from(output_sizes[1] / channels));
    }
    args.extend([int(-step.input.affine.zero_point), int(step.output.affine.zero_point)]);
    args.extend(factors(to, &name, &step.factors)?);
    args.extend(bounds(&step.output));
    for bytes in scratches {
        args.push(to.scratch(bytes)?.into());
    }
    let order = to.image_order(result)?;
    to.add_int8(operator, args, result, order)
}

/// Adds the multipliers and the shifts of all channels as constants.
fn factors(to: &mut Lowering<'_>, name: &str, factors: &[Factor]) -> Result<[Arg; 2], Error> {
    let multipliers: Vec<i32> = factors.iter().map(|factor| factor.multiplier).collect();
    let shifts: Vec<i32> = factors.iter().map(|factor| factor.shift).collect();
    Ok([
        to.vector(&format!("{name}_multipliers"), &multipliers)?.into(),
        to.vector(&format!("{name}_shifts"), &shifts)?.into(),
    ])
}

/// The arguments `activation_min` and `activation_max` of an output.
pub(super) fn bounds(output: &Output) -> [Arg; 2] {
    [int(output.bounds.0), int(output.bounds.1)]
}

pub(crate) fn linear(step: &Linear, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let integers = &step.weight.integers;
    let input_offset = -step.input.affine.zero_point;
    let name = integers.name.clone();
    let (bias, sums) = if to.target().isa() == Isa::Mve {
        let sums = kernel_sums(step, input_offset)?;
        let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let ty = TensorType::of(ScalarType::Int, &[1, sums.len() as i64]);
        (None, Some(to.constant(Constant::dense(format!("{name}_sums"), ty, bytes)?)?))
    } else {
        let bias = step.bias.as_ref().map(|bias| to.vector(&format!("{name}_bias"), bias));
        (bias.transpose()?, None)
    };
    let input = to.row_major(step.input.value)?;
    let weight = to.constant(permuted(integers, &[0, 1])?)?;
    let mut args = vec![input.into(), weight.into(), bias.into(), sums.into(), int(input_offset), int(0)];
    args.push(int(step.output.affine.zero_point));
    args.extend([step.factor.multiplier, step.factor.shift].map(|number| Arg::List(vec![int(number)])));
    let [min, max] = bounds(&step.output);
    args.extend([max, min]);
    to.add_int8(LINEAR, args, result, super::Order::RowMajor)
}

/// The bias of each output channel plus `input_offset` times the sum of its weights. Wraps in 32 bits, as the kernels'
/// accumulators do.
fn kernel_sums(step: &Linear, input_offset: i32) -> Result<Vec<i32>, Error> {
    let bytes = step.weight.integers.read()?;
    let inner = step.weight.integers.sizes()?.get(1).copied().unwrap_or(0).max(1);
    let sum = |row: &[u8]| row.iter().fold(0i32, |sum, byte| sum.wrapping_add(i32::from(byte.cast_signed())));
    let bias = |output: usize| step.bias.as_ref().and_then(|bias| bias.get(output)).copied().unwrap_or(0);
    let rows = bytes.chunks_exact(inner).enumerate();
    Ok(rows.map(|(output, row)| sum(row).wrapping_mul(input_offset).wrapping_add(bias(output))).collect())
}

pub(crate) fn matmul(step: &Matmul, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let (a, b) = (to.row_major(step.a.value)?, to.row_major(step.b.value)?);
    let &[batch, inner, outputs] = step.b_sizes.as_slice() else {
        return Err(Error::invalid("a matmul of no matrices"));
    };
    let ty = in_order(TensorType::of(ScalarType::Char, &[batch, outputs, inner]), super::Order::RowMajor);
    let transposed = to.call(TRANSPOSE, vec![b.into(), Arg::from([0, 2, 1].as_slice())], ty)?;
    let scratch = to.scratch(ScratchBytes::of_matmul(to.target().isa(), outputs))?;
    let args = vec![
        a.into(),
        int(-step.a.affine.zero_point),
        transposed.into(),
        int(-step.b.affine.zero_point),
        int(step.output.affine.zero_point),
        int(step.factor.multiplier),
        int(step.factor.shift),
        scratch.into(),
    ];
    to.add_int8(BATCH_MATMUL, args, result, super::Order::RowMajor)
}
