//! The parameters of nodes that quantize and dequantize.

use rushlight_format::ScalarType;

use crate::graph::{Arg, Node};

/// One scale and zero point for all elements, known when the program is compiled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PerTensor {
    pub scale: f32,
    pub zero_point: i64,
    /// The least and greatest integer in use.
    pub range: (i64, i64),
    /// Of the integers.
    pub dtype: ScalarType,
}

/// Whether an operator makes integers of numbers, all with the same known scale.
pub(crate) fn is_quantize(name: &str) -> bool {
    name == "quantized_decomposed::quantize_per_tensor"
}

/// Whether an operator makes numbers of integers, all with the same known scale.
pub(crate) fn is_dequantize(name: &str) -> bool {
    name == "quantized_decomposed::dequantize_per_tensor"
}

impl PerTensor {
    /// Those of a node that quantizes or dequantizes; `None` if it is another, or its parameters make no sense.
    pub fn of(node: &Node) -> Option<Self> {
        if !is_quantize(node.op.name()) && !is_dequantize(node.op.name()) {
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
