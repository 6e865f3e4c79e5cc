//! Layer normalization: over the last dimensions.

use rushlight_runtime::{Detail, IntList, KernelContext, Op, Result, ScalarType, Tensor};

use crate::support::reduce::{DimSet, Nest};
use crate::support::shape::Dims;

use super::normalize::{check_floating, check_sizes, normalize_by_moments};

/// `native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps, *,
/// Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)`
///
/// The outputs are the normalized input, and the mean and the reciprocal standard deviation of each group. The latter
/// two have size 1 in the normalized dimensions. Parameters and outputs may have any floating type.
pub const NATIVE_LAYER_NORM_OUT: Op = Op::new("aten::native_layer_norm.out", 8, native_layer_norm_out).outs(3);

pub const OPS: &[Op] = &[NATIVE_LAYER_NORM_OUT];

fn native_layer_norm_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let dims = normalized_dims(&input, cx.ints(1)?).map_err(|e| e.arg(1))?;
    check_floating(input.dtype(), 0)?;
    let (weight, bias) = (cx.optional_tensor(2)?, cx.optional_tensor(3)?);
    for (parameter, index) in [(&weight, 2), (&bias, 3)] {
        if let Some(parameter) = parameter {
            check_floating(parameter.dtype(), index)?;
            check_sizes(parameter, dims.of(&input), index)?;
        }
    }
    let (mut out, mut mean, mut rstd) = (cx.out(5)?, cx.out(6)?, cx.out(7)?);
    out.resize(input.sizes()).map_err(|e| e.arg(5))?;
    let stats = dims.set.reduced_sizes(input.sizes(), true)?;
    mean.resize(&stats).map_err(|e| e.arg(6))?;
    rstd.resize(&stats).map_err(|e| e.arg(7))?;
    let nest = {
        let rank = input.rank();
        let along =
            |parameter: Option<Tensor<'_>>| dims.parameter_strides(rank, parameter.map_or(&[], |p| p.strides()));
        let (weight, bias) = (along(weight)?, along(bias)?);
        let mean = dims.set.reduced_strides(rank, mean.strides(), true)?;
        let rstd = dims.set.reduced_strides(rank, rstd.strides(), true)?;
        Nest::new(input.sizes(), [input.strides(), out.strides(), &weight, &bias, &mean, &rstd], dims.set)?
    };
    let (parameters, eps, outs) = ([weight, bias], cx.double(4)?, [out, mean, rstd]);
    if input.dtype() == ScalarType::Double {
        normalize_by_moments::<f64>(&nest, &input, parameters, eps, outs)
    } else {
        normalize_by_moments::<f32>(&nest, &input, parameters, eps, outs)
    }
}

/// The last dimensions of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Normalized {
    pub(super) set: DimSet,
    /// Dimensions before them.
    first: usize,
}

impl Normalized {
    /// The sizes of these dimensions.
    pub(super) fn of<'a>(&self, input: &Tensor<'a>) -> &'a [usize] {
        input.sizes().get(self.first..).unwrap_or(&[])
    }

    /// Strides of a weight or a bias along the input's dimensions.
    pub(super) fn parameter_strides(&self, rank: usize, strides: &[usize]) -> Result<Dims> {
        let mut result = Dims::filled(rank, 0)?;
        for (to, &stride) in result.iter_mut().skip(self.first).zip(strides) {
            *to = stride;
        }
        Ok(result)
    }
}

/// Checks that the input ends in `shape`.
pub(super) fn normalized_dims(input: &Tensor<'_>, shape: IntList<'_>) -> Result<Normalized> {
    let first = match input.rank().checked_sub(shape.len()) {
        Some(first) if !shape.is_empty() => first,
        _ => {
            let (what, expected, got) = ("normalized dimensions, 1 to", input.rank(), shape.len());
            return Err(Detail::Count { what, expected, got }.into());
        }
    };
    for (&size, got) in input.sizes().iter().skip(first).zip(shape.iter()) {
        if usize::try_from(got) != Ok(size) {
            let (what, expected) = ("normalized_shape", "the last sizes of the input");
            return Err(Detail::Value { what, expected, got }.into());
        }
    }
    Ok(Normalized { set: DimSet::from(first, input.rank()), first })
}
