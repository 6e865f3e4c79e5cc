//! Convolutions, linear layers and matmuls.

use rushlight_graph::{Call, NodeId, ValueId};

use super::weight::{Weight, bias};
use super::{Context, Operand, Output, SCALES, Selected, Step, pair};
use crate::affine::Factor;

/// A convolution in two dimensions.
#[derive(Debug)]
pub(crate) struct Convolution {
    pub input: Operand,
    /// `[N, C, H, W]`.
    pub input_sizes: Vec<i64>,
    /// `[N, C, H, W]`.
    pub output_sizes: Vec<i64>,
    pub weight: Weight,
    pub bias: Option<Vec<i32>>,
    pub stride: [i64; 2],
    pub padding: [i64; 2],
    pub dilation: [i64; 2],
    pub groups: i64,
    /// The output padding of a transposed convolution; `None` for other convolutions.
    pub transposed: Option<[i64; 2]>,
    /// The factor of each output channel.
    pub factors: Vec<Factor>,
    pub output: Output,
}

/// A linear layer.
#[derive(Debug)]
pub(crate) struct Linear {
    pub input: Operand,
    pub weight: Weight,
    pub bias: Option<Vec<i32>>,
    pub factor: Factor,
    pub output: Output,
}

/// A batched matmul of two activations.
#[derive(Debug)]
pub(crate) struct Matmul {
    /// `[B, M, K]`.
    pub a: Operand,
    /// `[B, K, N]`.
    pub b: Operand,
    pub b_sizes: Vec<i64>,
    pub factor: Factor,
    pub output: Output,
}

pub(super) fn convolution(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input = cx.operand(call, "input")?;
    let (input_sizes, output_sizes) = (cx.sizes(input.value)?, cx.sizes(result(call)?)?);
    if input_sizes.len() != 4 {
        return Err("it is not a convolution in two dimensions".to_owned());
    }
    let is_transposed = call.flag("transposed");
    let groups = call.int("groups").ok_or("`groups` is not known")?;
    let weight = Weight::of(cx, call, i64::from(is_transposed))?;
    let (output_padding, dilation) = (pair(call, "output_padding")?, pair(call, "dilation")?);
    if is_transposed && (groups != 1 || output_padding != [0, 0] || dilation != [1, 1]) {
        return Err("it is a transposed convolution with groups, output padding or dilation".to_owned());
    }
    let channels = *output_sizes.get(1).ok_or("it has no channels")? as usize;
    let (factors, bias) = scaled(cx, call, (&input, &weight, &output), channels)?;
    let (bias, bias_node) = bias.map_or((None, None), |(bias, node)| (Some(bias), node));
    let operands: Vec<NodeId> = [input.node, weight.node].into_iter().chain(bias_node).collect();
    let step = Convolution {
        input,
        input_sizes,
        output_sizes,
        weight,
        bias,
        stride: pair(call, "stride")?,
        padding: pair(call, "padding")?,
        dilation,
        groups,
        transposed: is_transposed.then_some(output_padding),
        factors,
        output,
    };
    Ok(Selected::new(operands, Step::Convolution(step)))
}

pub(super) fn linear(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input = cx.operand(call, "input")?;
    let weight = Weight::of(cx, call, 0)?;
    let &[channels, _] = weight.sizes()?.as_slice() else { return Err("its weight is not a matrix".to_owned()) };
    let (factors, bias) = scaled(cx, call, (&input, &weight, &output), channels)?;
    let (bias, bias_node) = bias.map_or((None, None), |(bias, node)| (Some(bias), node));
    let factor = match factors.as_slice() {
        [first, rest @ ..] if rest.iter().all(|factor| factor == first) => *first,
        _ => return Err("it is a linear layer with several scales of its weight".to_owned()),
    };
    let operands: Vec<NodeId> = [input.node, weight.node].into_iter().chain(bias_node).collect();
    Ok(Selected::new(operands, Step::Linear(Linear { input, weight, bias, factor, output })))
}

pub(super) fn matmul(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let (a, b) =
        (cx.operand(call, "self")?, cx.operand(call, if call.arg("mat2").is_some() { "mat2" } else { "other" })?);
    let (a_sizes, b_sizes) = (cx.sizes(a.value)?, cx.sizes(b.value)?);
    if a_sizes.len() != 3 || b_sizes.len() != 3 || a_sizes.first() != b_sizes.first() {
        return Err("its operands are not of three dimensions with equal batches".to_owned());
    }
    output.check_range()?;
    let scale = a.affine.scale * b.affine.scale / output.affine.scale;
    let depth = *a_sizes.last().unwrap_or(&0) as f64;
    let factor = Factor::of_accumulator(scale, depth * a.affine.largest() * b.affine.largest()).ok_or(SCALES)?;
    Ok(Selected::new([a.node, b.node], Step::Matmul(Matmul { a, b, b_sizes, factor, output })))
}

/// The factors of the output channels, and the bias with the node that dequantizes it.
type Scaled = (Vec<Factor>, Option<(Vec<i32>, Option<NodeId>)>);

fn scaled(
    cx: &Context<'_>,
    call: &Call<'_>,
    (input, weight, output): (&Operand, &Weight, &Output),
    channels: usize,
) -> Result<Scaled, String> {
    let unit = |channel: usize| Some(input.affine.scale * weight.scale(channel)?);
    let taps = weight.sizes()?.iter().product::<usize>() / channels.max(1);
    let largest = input.affine.largest() * 128.0 * taps as f64;
    let factor = |channel: usize| {
        let scale = unit(channel).ok_or(SCALES)? / output.affine.scale;
        Factor::of_accumulator(scale, largest).ok_or(SCALES)
    };
    let factors = (0..channels).map(factor).collect::<Result<_, _>>()?;
    Ok((factors, bias(cx, call, channels, unit)?))
}

fn result(call: &Call<'_>) -> Result<ValueId, String> {
    call.node.result().ok_or_else(|| "it has no result".to_owned())
}
