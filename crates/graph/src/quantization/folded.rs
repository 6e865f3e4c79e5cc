//! Folding of the nodes that dequantize constants.

use std::sync::Arc;

use rushlight_format::ScalarType;

use crate::constant::integers;
use crate::operators::{quantized_decomposed, torchao};
use crate::{
    Arg, Constant, ConstantData, Granularity, Node, Parameters, Quantization, QuantizedConstant, TensorType, ValueId,
};

use super::parameters::{PerTensor, blocks, integer, is_per_tensor_dequantize};

/// Folds a node that dequantizes constant integers to a quantized constant; `None` for other nodes and invalid parameters.
/// `constant` finds the constant that a value is.
pub fn folded<'c>(
    node: &Node,
    result: &Constant,
    constant: impl Fn(ValueId) -> Option<&'c Constant>,
) -> Option<Constant> {
    let of = |name: &str| node.arg(name).and_then(Arg::as_value).and_then(&constant);
    let input = of("input")?;
    let quantization = if is_per_tensor_dequantize(node.op.name()) {
        let PerTensor { scale, zero_point, range, .. } = PerTensor::of(node)?;
        Quantization {
            granularity: Granularity::Tensor,
            scales: Parameters::same(scale, 1),
            zero_points: Parameters::same(i32::try_from(zero_point).ok()?, 1),
            range: (i32::try_from(range.0).ok()?, i32::try_from(range.1).ok()?),
        }
    } else {
        let (granularity, groups) = granularity(node, input)?;
        let scales = of("scales").or_else(|| of("scale"))?;
        let zero_points = node.arg("zero_points").or_else(|| node.arg("zero_point"));
        let scales = floats(scales)?;
        let zero_points = match zero_points {
            Some(Arg::Value(value)) => {
                let zeros = numbers(constant(*value)?)?;
                let is_far = zeros.iter().any(|zero| zero.abs() > 65536.0);
                (!is_far).then(|| zeros.into_iter().map(|zero| zero as i32).collect::<Vec<i32>>())?.into()
            }
            _ => Parameters::same(0, groups),
        };
        let is_scale = |scale: f32| scale.is_finite() && scale > 0.0;
        if scales.len() != groups || zero_points.len() != groups || !scales.all(is_scale) {
            return None;
        }
        let bound = |name: &str| i32::try_from(integer(node, name)?).ok();
        let natural = match input.ty.dtype {
            ScalarType::Byte => (0, 255),
            _ => (-128, 127),
        };
        Quantization {
            granularity,
            scales,
            zero_points,
            range: (bound("quant_min").unwrap_or(natural.0), bound("quant_max").unwrap_or(natural.1)),
        }
    };
    if result.ty.dtype != ScalarType::Float || integers(input.ty.dtype, &[]).is_none() {
        return None;
    }
    let ty = TensorType { quantization: Some(Arc::new(quantization)), ..input.ty.clone() };
    let quantized = QuantizedConstant { integers: Constant { ty, ..input.clone() }, minima: None };
    Some(Constant { data: ConstantData::Computed(Arc::new(quantized)), name: input.name.clone(), ..result.clone() })
}

/// The granularity of a node that is_dequantize, and its number of scales.
fn granularity(node: &Node, integers: &Constant) -> Option<(Granularity, usize)> {
    let sizes = integers.sizes().ok()?;
    let is_known = matches!(
        node.op.name(),
        quantized_decomposed::DEQUANTIZE_PER_CHANNEL
            | quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP
            | torchao::DEQUANTIZE_AFFINE
    );
    let static_sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    let blocks = blocks(node, &static_sizes).ok().flatten().filter(|_| is_known)?;
    let blocks: Vec<usize> = blocks.into_iter().map(|block| usize::try_from(block).ok()).collect::<Option<_>>()?;
    let divides = |(size, block): (&usize, &usize)| *block > 0 && size.is_multiple_of(*block);
    if !sizes.iter().zip(&blocks).all(divides) {
        return None;
    }
    let groups = sizes.iter().zip(&blocks).map(|(size, block)| size / block).product();
    let cut: Vec<usize> = (0..sizes.len()).filter(|dim| blocks[*dim] != sizes[*dim]).collect();
    let granularity = match cut[..] {
        [] => Granularity::Tensor,
        [axis] if blocks[axis] == 1 => Granularity::Channel { axis: u8::try_from(axis).ok()? },
        _ => {
            Granularity::Block { shape: blocks.iter().map(|block| u32::try_from(*block).ok()).collect::<Option<_>>()? }
        }
    };
    Some((granularity, groups))
}

/// The elements of a constant of numbers as `f32`, shared if they are that.
fn floats(constant: &Constant) -> Option<Parameters<f32>> {
    if constant.ty.dtype == ScalarType::Float && cfg!(target_endian = "little") {
        let shared = constant.in_place().map(Parameters::shared);
        if let Some(Ok(shared)) = shared {
            return Some(shared);
        }
    }
    Some(numbers(constant)?.into_iter().map(|number| number as f32).collect::<Vec<f32>>().into())
}

/// The elements of a small constant; `None` for other element types.
pub fn numbers(constant: &Constant) -> Option<Vec<f64>> {
    let bytes = constant.read().ok()?;
    Some(match constant.ty.dtype {
        ScalarType::Float => bytes.as_chunks().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect(),
        ScalarType::Double => bytes.as_chunks().0.iter().map(|x| f64::from_le_bytes(*x)).collect(),
        ScalarType::Long => bytes.as_chunks().0.iter().map(|x| i64::from_le_bytes(*x) as f64).collect(),
        dtype => integers(dtype, &bytes)?.into_iter().map(f64::from).collect(),
    })
}
