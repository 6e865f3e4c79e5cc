//! The parameters of nodes that quantize and dequantize.

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::{quantized_decomposed, torchao};
use crate::{Arg, Node};

/// One scale and zero point for all elements, known when the program is compiled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerTensor {
    pub scale: f32,
    pub zero_point: i64,
    /// Minimum and maximum integer in use.
    pub range: (i64, i64),
    /// Of the integers.
    pub dtype: ScalarType,
}

/// True for the operators that turn numbers into integers with given parameters, of any granularity.
pub fn is_quantize(name: &str) -> bool {
    matches!(
        name,
        quantized_decomposed::QUANTIZE_PER_TENSOR
            | quantized_decomposed::QUANTIZE_PER_TENSOR_TENSOR
            | quantized_decomposed::QUANTIZE_PER_TENSOR_TENSOR2
            | quantized_decomposed::QUANTIZE_PER_CHANNEL
            | quantized_decomposed::QUANTIZE_PER_CHANNEL_GROUP
            | quantized_decomposed::QUANTIZE_PER_TOKEN
            | torchao::QUANTIZE_AFFINE
    )
}

/// True for the operators that turn integers into numbers with given parameters, of any granularity.
pub fn is_dequantize(name: &str) -> bool {
    matches!(
        name,
        quantized_decomposed::DEQUANTIZE_PER_TENSOR
            | quantized_decomposed::DEQUANTIZE_PER_TENSOR_TENSOR
            | quantized_decomposed::DEQUANTIZE_PER_TENSOR_TENSOR2
            | quantized_decomposed::DEQUANTIZE_PER_CHANNEL
            | quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP
            | quantized_decomposed::DEQUANTIZE_PER_TOKEN
            | torchao::DEQUANTIZE_AFFINE
    )
}

/// True for the operator that quantizes with one scale that is known.
pub fn is_per_tensor_quantize(name: &str) -> bool {
    name == quantized_decomposed::QUANTIZE_PER_TENSOR
}

/// True for the operator that dequantizes with one scale that is known.
pub fn is_per_tensor_dequantize(name: &str) -> bool {
    name == quantized_decomposed::DEQUANTIZE_PER_TENSOR
}

impl PerTensor {
    /// Reads the parameters of a node that quantizes or dequantizes; `None` for other nodes and invalid parameters.
    pub fn of(node: &Node) -> Option<Self> {
        if !is_per_tensor_quantize(node.op.name()) && !is_per_tensor_dequantize(node.op.name()) {
            return None;
        }
        let int = |name: &str| match node.arg(name)? {
            Arg::Int(expr) => expr.as_int(),
            _ => None,
        };
        let scale = match node.arg("scale")? {
            Arg::Float(scale) => *scale,
            Arg::Int(expr) => expr.as_int()? as f64,
            _ => return None,
        } as f32;
        let Some(Arg::DType(dtype)) = node.arg("dtype") else { return None };
        let (zero_point, range) = (int("zero_point")?, (int("quant_min")?, int("quant_max")?));
        let is_scale = |scale: f32| scale.is_finite() && scale > 0.0;
        let fits = is_scale(scale) && is_scale(1.0 / scale) && range.0 <= range.1;
        fits.then_some(Self { scale, zero_point, range, dtype: *dtype })
    }
}

/// An argument that is an integer.
pub(super) fn integer(node: &Node, name: &str) -> Option<i64> {
    match node.arg(name)? {
        Arg::Int(expr) => expr.as_int(),
        Arg::Float(float) if float.fract() == 0.0 => Some(*float as i64),
        _ => None,
    }
}

/// The sizes of the blocks that share a scale where a node quantizes or dequantizes a tensor of these sizes by channel, group or
/// block; `None` of others, and of blocks that are not known.
///
/// # Errors
/// A channel or blocks that are none of the tensor.
pub(super) fn blocks(node: &Node, sizes: &[i64]) -> Result<Option<Vec<i64>>, Error> {
    let name = node.op.name();
    if name.ends_with("_per_channel") {
        let Some(axis) = integer(node, "axis") else { return Ok(None) };
        let rank = sizes.len() as i64;
        if !(-rank..rank).contains(&axis) {
            return Err(Error::invalid("a channel axis that the tensor does not have")
                .expected(format!("{} to {}", -rank, rank - 1))
                .got(axis));
        }
        let axis = axis.rem_euclid(rank) as usize;
        return Ok(Some(sizes.iter().enumerate().map(|(dim, size)| if dim == axis { 1 } else { *size }).collect()));
    }
    if name.ends_with("_per_channel_group") {
        let group = integer(node, "group_size");
        let block = |group: i64| (0..sizes.len()).map(|dim| if dim + 1 == sizes.len() { group } else { 1 }).collect();
        return Ok(group.map(block));
    }
    let Some(Arg::List(blocks)) = node.arg("block_size") else { return Ok(None) };
    if blocks.len() != sizes.len() {
        return Err(Error::invalid("blocks of another rank than the tensor").expected(sizes.len()).got(blocks.len()));
    }
    let size = |(block, size): (&Arg, &i64)| match block {
        Arg::Int(expr) if expr.is(-1) => Some(*size),
        Arg::Int(expr) => expr.as_int(),
        _ => None,
    };
    Ok(blocks.iter().zip(sizes).map(size).collect())
}
