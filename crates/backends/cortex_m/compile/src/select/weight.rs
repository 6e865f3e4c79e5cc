//! Weights and biases of layers: constant integers with their scales.

use rushlight_format::ScalarType;
use rushlight_graph::operators::quantized_decomposed;
use rushlight_graph::quantization::{is_per_tensor_dequantize, numbers};
use rushlight_graph::{Call, Constant, NodeId, ValueId};

use super::Context;
use crate::affine::Affine;

/// The weights of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    /// The node that dequantizes them.
    pub node: NodeId,
    /// The integers.
    pub integers: Constant,
    /// One scale, or one for each channel.
    pub scales: Vec<f64>,
}

impl Weight {
    /// Reads the argument `weight`. Its output channels are the dimension `axis`.
    ///
    /// # Errors
    /// The reason if they are not constant int8 with zero points of 0.
    pub fn of(cx: &Context<'_>, call: &Call<'_>, axis: i64) -> Result<Self, String> {
        let wrong = || "its weight is not constant int8 with one scale, or one per output channel".to_owned();
        let node = call.optional("weight").and_then(|value| cx.producer(value)).ok_or_else(wrong)?;
        let dequantize = Call::new(cx.graph, node);
        let integers =
            constant(cx, &dequantize, "input").filter(|it| it.ty.dtype == ScalarType::Char).ok_or_else(wrong)?;
        let (scales, zero_points) = if is_per_tensor_dequantize(dequantize.name()) {
            let affine = Affine::of(dequantize.node).ok_or_else(wrong)?;
            (vec![affine.scale], vec![f64::from(affine.zero_point)])
        } else if dequantize.name() == quantized_decomposed::DEQUANTIZE_PER_CHANNEL {
            let list = |name: &str| constant(cx, &dequantize, name).and_then(|constant| numbers(&constant));
            let zero_points = dequantize.arg("zero_points").map_or(Some(Vec::new()), |_| list("zero_points"));
            if dequantize.int("axis") != Some(axis) {
                return Err(wrong());
            }
            (list("scales").ok_or_else(wrong)?, zero_points.ok_or_else(wrong)?)
        } else {
            return Err(wrong());
        };
        if zero_points.iter().any(|zero_point| *zero_point != 0.0) {
            return Err("its weight has zero points other than 0".to_owned());
        }
        Ok(Self { node, integers: integers.clone(), scales })
    }

    /// The sizes.
    pub fn sizes(&self) -> Result<Vec<usize>, String> {
        self.integers.sizes().map_err(|error| error.message().to_owned())
    }

    /// The scale of a channel.
    pub fn scale(&self, channel: usize) -> Option<f64> {
        if let [one] = self.scales[..] { Some(one) } else { self.scales.get(channel).copied() }
    }
}

/// The bias of a layer in the scale of its accumulators, with the node that dequantizes it. `None` if the layer has no bias.
/// `unit` returns the accumulator's scale for a channel.
///
/// # Errors
/// The reason if the bias is not constant, or does not fit 32 bits.
pub(super) fn bias(
    cx: &Context<'_>,
    call: &Call<'_>,
    channels: usize,
    unit: impl Fn(usize) -> Option<f64>,
) -> Result<Option<(Vec<i32>, Option<NodeId>)>, String> {
    let Some(value) = call.optional("bias") else { return Ok(None) };
    let wrong = || "its bias is not a constant with a number per output channel".to_owned();
    let node = cx.producer(value);
    let (numbers, scales): (Vec<f64>, Vec<f64>) = match node {
        Some(node) => dequantized_bias(cx, &Call::new(cx.graph, node)).ok_or_else(wrong)?,
        None => (plain(cx, value).and_then(|constant| numbers(&constant)).ok_or_else(wrong)?, vec![1.0]),
    };
    if numbers.len() != channels || scales.len() != 1 && scales.len() != channels {
        return Err(wrong());
    }
    let integer = |(channel, number): (usize, &f64)| {
        let scale = scales.get(channel).or(scales.first()).copied()?;
        let unit = unit(channel)?;
        // A scale that was computed in f32 differs from the product of two f64 in the last bits.
        let is_unit = node.is_some() && (scale / unit - 1.0).abs() < 1e-5;
        let integer = if is_unit { *number } else { (number * scale / unit).round_ties_even() };
        (integer.abs() <= f64::from(i32::MAX)).then_some(integer as i32)
    };
    let integers: Option<Vec<i32>> = numbers.iter().enumerate().map(integer).collect();
    integers.map(|integers| Some((integers, node))).ok_or_else(|| "its bias does not fit 32 bits".to_owned())
}

/// The integers minus their zero points, and the scales, of a constant that a node dequantizes.
fn dequantized_bias(cx: &Context<'_>, call: &Call<'_>) -> Option<(Vec<f64>, Vec<f64>)> {
    let mut integers = numbers(&constant(cx, call, "input")?)?;
    if is_per_tensor_dequantize(call.name()) {
        let zero_point = call.number("zero_point")?;
        integers.iter_mut().for_each(|integer| *integer -= zero_point);
        return Some((integers, vec![call.number("scale")?]));
    }
    if call.name() != quantized_decomposed::DEQUANTIZE_PER_CHANNEL {
        return None;
    }
    if call.arg("zero_points").is_some() {
        let zero_points = numbers(&constant(cx, call, "zero_points")?)?;
        integers.iter_mut().zip(zero_points).for_each(|(integer, zero_point)| *integer -= zero_point);
    }
    Some((integers, numbers(&constant(cx, call, "scales")?)?))
}

/// The constant at an argument.
fn constant(cx: &Context<'_>, call: &Call<'_>, name: &str) -> Option<Constant> {
    plain(cx, call.optional(name)?)
}

fn plain(cx: &Context<'_>, value: ValueId) -> Option<Constant> {
    cx.graph.constant_of(value).map(|id| cx.constants[id].clone())
}
