//! Operators that move elements. Their results have the scale of their inputs.

use rushlight_graph::{Call, NodeId, ValueId};

use super::{Context, Operand, Output, Selected, Step};

/// Padding of a tensor with at most four dimensions.
#[derive(Debug)]
pub(crate) struct Pad {
    pub input: Operand,
    /// Number of elements before and after the last four dimensions.
    pub before: [i64; 4],
    pub after: [i64; 4],
    pub value: i32,
}

/// Permuted dimensions.
#[derive(Debug)]
pub(crate) struct Transpose {
    pub input: Operand,
    pub dims: Vec<i64>,
}

/// One of the operators [`MOVES`](crate::operators::MOVES).
#[derive(Debug)]
pub(crate) struct Move {
    pub node: NodeId,
    /// The int8 operands, with the dequantized values that they replace.
    pub operands: Vec<(ValueId, Operand)>,
}

/// Fails unless operands have the scale of the result, and the same range.
fn check(operands: &[Operand], output: &Output) -> Result<(), String> {
    let is_alike = |operand: &Operand| operand.affine.is_alike(&output.affine) && operand.affine.range == output.bounds;
    if operands.iter().all(is_alike) {
        Ok(())
    } else {
        Err("its input and its result have different scales".to_owned())
    }
}

pub(super) fn pad(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input = cx.operand(call, "self")?;
    check(&[input], &output)?;
    let rank = cx.sizes(input.value)?.len();
    let amounts = call.ints("pad").ok_or("`pad` is not known")?;
    if !(1..=4).contains(&rank) || amounts.iter().any(|amount| *amount < 0) || amounts.len() > 2 * rank {
        return Err("it pads more than four dimensions, or by negative amounts".to_owned());
    }
    let (mut before, mut after) = ([0; 4], [0; 4]);
    for (at, [first, last]) in amounts.as_chunks().0.iter().enumerate() {
        (before[3 - at], after[3 - at]) = (*first, *last);
    }
    let value = if call.arg("value").is_some() { call.number("value").ok_or("`value` is not known")? } else { 0.0 };
    let value = input.affine.quantize(value);
    Ok(Selected::new([input.node], Step::Pad(Pad { input, before, after, value })))
}

pub(super) fn transpose(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let input = cx.operand(call, "self")?;
    check(&[input], &output)?;
    let rank = cx.sizes(input.value)?.len() as i64;
    let dims = call.ints("dims").filter(|_| (1..=4).contains(&rank));
    let dims = dims.ok_or("it has more than four dimensions")?;
    let dims = dims.into_iter().map(|dim| if dim < 0 { dim + rank } else { dim }).collect();
    Ok(Selected::new([input.node], Step::Transpose(Transpose { input, dims })))
}

pub(super) fn other(cx: &Context<'_>, call: &Call<'_>, output: Output) -> Result<Selected, String> {
    let mut operands = Vec::new();
    for value in call.operands() {
        let operand = cx.producer(value).and_then(|node| cx.dequantize(node));
        operands.push((value, operand.ok_or("an operand is not int8 with one scale and fixed sizes")?));
    }
    let sources: Vec<Operand> = operands.iter().map(|(_, operand)| *operand).collect();
    check(&sources, &output)?;
    let node = call.node.result().and_then(|result| cx.producer(result)).ok_or("it has no result")?;
    Ok(Selected::new(sources.iter().map(|operand| operand.node), Step::Move(Move { node, operands })))
}
