//! Recurrent layers: LSTM, GRU and Elman networks.
//!
//! The contribution of the inputs is one GEMM for all steps. The steps themselves are unrolled while they are few, which
//! leaves everything to the passes that follow; longer sequences and those of unknown length become a scan, since a
//! program grows with every unrolled step.

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Block, Builder, Expr, Graph, Op, TensorType, Type, ValueId};

use super::joins::cat_of;
use super::matmul::linear_of;
use super::slices::{select, split};
use super::views::{transpose, unsqueeze};
use super::{Definition, Lowered, Operands, by_lowering, composite, result};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::LSTM_INPUT, recurrent_types, lstm),
    composite(aten::GRU_INPUT, recurrent_types, gru),
    composite(aten::RNN_TANH_INPUT, recurrent_types, rnn),
    composite(aten::RNN_RELU_INPUT, recurrent_types, rnn),
    composite(aten::LSTM_CELL, by_lowering, lstm_cell),
    composite(aten::GRU_CELL, by_lowering, gru_cell),
    composite(aten::RNN_TANH_CELL, by_lowering, rnn_cell),
    composite(aten::RNN_RELU_CELL, by_lowering, rnn_cell),
];

/// The longest sequence that is unrolled.
const MAX_UNROLLED: i64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The parameters of one direction of a layer.
#[derive(Clone, Copy, Debug)]
struct Weights {
    input: ValueId,
    hidden: ValueId,
    input_bias: Option<ValueId>,
    hidden_bias: Option<ValueId>,
    /// Of an LSTM whose output is smaller than its cell.
    projection: Option<ValueId>,
}

/// The outputs of all steps, then the states after the last one: hidden and, for an LSTM, cell.
fn recurrent_types(operands: &Operands<'_>, graph: &Graph) -> Result<Vec<Type>, Error> {
    let input = operands.tensor(0, graph)?;
    let states = states(operands)?;
    let hidden = graph.tensor(states.first().copied().ok_or_else(|| operands.wrong(1, "states"))?)?;
    let (Some(width), [first, second, _]) = (hidden.shape.last(), input.shape.as_slice()) else {
        return Err(operands.wrong(0, "a tensor of 3 dimensions"));
    };
    let directions = if operands.bool(7)? { 2 } else { 1 };
    let output = vec![first.clone(), second.clone(), width.mul(directions)];
    let mut types = result(input.dtype, output);
    for state in states {
        types.extend(result(input.dtype, graph.tensor(state)?.shape.clone()));
    }
    Ok(types)
}

/// The first states: a tensor, or a list of two.
fn states(operands: &Operands<'_>) -> Result<Vec<ValueId>, Error> {
    match operands.arg(1) {
        Arg::Value(value) => Ok(vec![*value]),
        _ => operands.values(1),
    }
}

fn lstm(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    layers(b, operands, Cell::Lstm)
}

fn gru(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    layers(b, operands, Cell::Gru)
}

fn rnn(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    layers(b, operands, if operands.schema.name.contains("relu") { Cell::Relu } else { Cell::Tanh })
}

/// All layers, one after the other.
fn layers(b: &mut Builder<'_>, operands: &Operands<'_>, cell: Cell) -> Lowered {
    let (biased, layers, bidirectional) = (operands.bool(3)?, operands.int(4)?, operands.bool(7)?);
    if operands.float(5)? != 0.0 && operands.bool(6)? {
        return Err(Error::unsupported("a recurrent layer with dropout").help("call `model.eval()` before exporting"));
    }
    let batch_first = operands.bool(8)?;
    let first = states(operands)?;
    let (input, params) = (operands.value(0)?, operands.values(2)?);
    let mut sequence = if batch_first { transpose(b, input, 0, 1)? } else { input };
    let sizes =
        first.iter().map(|state| Ok(b.tensor(*state)?.shape.last().cloned())).collect::<Result<Vec<_>, Error>>()?;
    let projected = matches!(sizes.as_slice(), [hidden, cell] if hidden != cell);
    let each = 2 + if biased { 2 } else { 0 } + usize::from(projected);
    let directions = if bidirectional { 2 } else { 1 };
    let mut weights = params.chunks_exact(each);
    let mut last: Vec<Vec<ValueId>> = vec![Vec::new(); first.len()];
    for layer in 0..layers {
        let mut outputs = Vec::new();
        for direction in 0..directions {
            let weights = weights.next().and_then(|weights| read_weights(weights, biased));
            let weights = weights.ok_or_else(|| operands.wrong(2, "the parameters of every layer"))?;
            let at = layer * directions + direction;
            let state = first.iter().map(|state| select(b, *state, 0, at)).collect::<Result<Vec<_>, _>>()?;
            let (output, end) = run(b, cell, sequence, state, &weights, direction == 1)?;
            outputs.push(output);
            for (all, state) in last.iter_mut().zip(end) {
                all.push(state);
            }
        }
        sequence = cat_of(b, outputs, 2)?;
    }
    let mut results = vec![if batch_first { transpose(b, sequence, 0, 1)? } else { sequence }];
    for states in last {
        results.push(stack(b, states)?);
    }
    Ok(Some(results))
}

fn read_weights(values: &[ValueId], biased: bool) -> Option<Weights> {
    let (input, hidden) = (*values.first()?, *values.get(1)?);
    let (input_bias, hidden_bias) = if biased { (Some(*values.get(2)?), Some(*values.get(3)?)) } else { (None, None) };
    let projection = values.get(if biased { 4 } else { 2 }).copied();
    Some(Weights { input, hidden, input_bias, hidden_bias, projection })
}

/// One direction of a layer: the outputs of all steps and the states after the last one.
fn run(
    b: &mut Builder<'_>,
    cell: Cell,
    sequence: ValueId,
    states: Vec<ValueId>,
    weights: &Weights,
    backwards: bool,
) -> Result<(ValueId, Vec<ValueId>), Error> {
    let length = b.tensor(sequence)?.shape.first().cloned().unwrap_or(Expr::Int(1));
    let inputs = input_part(b, cell, sequence, weights)?;
    let Some(steps) = length.as_int().filter(|length| (1..=MAX_UNROLLED).contains(length)) else {
        return scan(b, cell, inputs, states, weights, backwards);
    };
    let mut states = states;
    let mut outputs = Vec::new();
    for index in 0..steps {
        let index = if backwards { steps - 1 - index } else { index };
        let input = select(b, inputs, 0, index)?;
        states = step(b, cell, input, &states, weights)?;
        outputs.extend(states.first().copied());
    }
    if backwards {
        outputs.reverse();
    }
    Ok((stack(b, outputs)?, states))
}

/// The steps as a scan over the first dimension of the inputs.
fn scan(
    b: &mut Builder<'_>,
    cell: Cell,
    inputs: ValueId,
    states: Vec<ValueId>,
    weights: &Weights,
    backwards: bool,
) -> Result<(ValueId, Vec<ValueId>), Error> {
    let flipped = |b: &mut Builder<'_>, value: ValueId| {
        if backwards { b.one(aten::FLIP, vec![value.into(), [0].into()]) } else { Ok(value) }
    };
    let inputs = flipped(b, inputs)?;
    let ty = b.tensor(inputs)?;
    let (Some((length, slice)), Some(first)) = (ty.shape.split_first(), states.first()) else {
        return Err(Error::type_error("a recurrent layer on a tensor without dimensions"));
    };
    let output = b.tensor(*first)?;
    let mut types = states.iter().map(|state| b.tensor(*state)).collect::<Result<Vec<_>, _>>()?;
    let block = b.graph.blocks.push(Block::default());
    let carried: Vec<ValueId> =
        types.iter().map(|ty| b.graph.param(block, "state", Type::Tensor(ty.clone()))).collect();
    let slice = Type::Tensor(TensorType::new(ty.dtype, slice.to_vec()));
    let input = b.graph.param(block, "input", slice);
    let next = b.inside(block, |b| step(b, cell, input, &carried, weights))?;
    let stacked = next.first().copied();
    b.graph.blocks[block].results = next.into_iter().chain(stacked).map(Arg::Value).collect();
    types.push(TensorType::new(output.dtype, [std::slice::from_ref(length), &output.shape].concat()));
    let args = vec![Arg::Block(block), states.into(), vec![inputs].into()];
    let mut results = b.push(Op::Scan, args, types.into_iter().map(Type::Tensor).collect());
    let outputs = results.pop().ok_or_else(|| Error::type_error("a scan without results"))?;
    Ok((flipped(b, outputs)?, results))
}

/// Computes the contribution of the inputs of all steps to the gates. Where the biases are only added, both are.
fn input_part(b: &mut Builder<'_>, cell: Cell, input: ValueId, weights: &Weights) -> Result<ValueId, Error> {
    let bias = match (weights.input_bias, weights.hidden_bias) {
        (Some(input), Some(hidden)) if cell != Cell::Gru => {
            Some(b.one(aten::ADD_TENSOR, vec![input.into(), hidden.into()])?)
        }
        (None, hidden) if cell != Cell::Gru => hidden,
        (input, _) => input,
    };
    linear_of(b, input, weights.input, bias)
}

/// The states after a step.
fn step(
    b: &mut Builder<'_>,
    cell: Cell,
    input: ValueId,
    states: &[ValueId],
    weights: &Weights,
) -> Result<Vec<ValueId>, Error> {
    let missing = || Error::type_error("a recurrent layer without a state");
    let hidden = states.first().copied().ok_or_else(missing)?;
    if cell == Cell::Gru {
        return gru_step(b, input, hidden, weights).map(|hidden| vec![hidden]);
    }
    let transposed = transpose(b, weights.hidden, 0, 1)?;
    let gates = b.one(aten::ADDMM, vec![input.into(), hidden.into(), transposed.into()])?;
    match cell {
        Cell::Tanh => Ok(vec![b.one(aten::TANH, vec![gates.into()])?]),
        Cell::Relu => Ok(vec![b.one(aten::RELU, vec![gates.into()])?]),
        _ => lstm_step(b, gates, states.get(1).copied().ok_or_else(missing)?, weights),
    }
}

/// Equal parts of the last dimension of a matrix.
fn gates_of<const N: usize>(b: &mut Builder<'_>, gates: ValueId) -> Result<[ValueId; N], Error> {
    let width = b.tensor(gates)?.shape.last().map_or(Expr::Int(0), |width| width.floor_div(N as i64));
    let parts = split(b, gates, 1, vec![width; N])?;
    parts.try_into().map_err(|_| Error::type_error("a recurrent layer with the wrong number of gates"))
}

fn binary(b: &mut Builder<'_>, name: &str, left: ValueId, right: ValueId) -> Result<ValueId, Error> {
    b.one(name, vec![left.into(), right.into()])
}

/// `c' = f * c + i * g` and `h' = o * tanh(c')`.
fn lstm_step(b: &mut Builder<'_>, gates: ValueId, state: ValueId, weights: &Weights) -> Result<Vec<ValueId>, Error> {
    let [input, forget, new, output] = gates_of::<4>(b, gates)?;
    let input = b.one(aten::SIGMOID, vec![input.into()])?;
    let forget = b.one(aten::SIGMOID, vec![forget.into()])?;
    let new = b.one(aten::TANH, vec![new.into()])?;
    let output = b.one(aten::SIGMOID, vec![output.into()])?;
    let kept = binary(b, aten::MUL_TENSOR, forget, state)?;
    let added = binary(b, aten::MUL_TENSOR, input, new)?;
    let state = binary(b, aten::ADD_TENSOR, kept, added)?;
    let shown = b.one(aten::TANH, vec![state.into()])?;
    let mut hidden = binary(b, aten::MUL_TENSOR, output, shown)?;
    if let Some(projection) = weights.projection {
        hidden = linear_of(b, hidden, projection, None)?;
    }
    Ok(vec![hidden, state])
}

/// `n = tanh(x_n + r * h_n)` and `h' = (h - n) * z + n`.
fn gru_step(b: &mut Builder<'_>, input: ValueId, hidden: ValueId, weights: &Weights) -> Result<ValueId, Error> {
    let recurrent = linear_of(b, hidden, weights.hidden, weights.hidden_bias)?;
    let [input_reset, input_update, input_new] = gates_of::<3>(b, input)?;
    let [hidden_reset, hidden_update, hidden_new] = gates_of::<3>(b, recurrent)?;
    let reset = binary(b, aten::ADD_TENSOR, input_reset, hidden_reset)?;
    let reset = b.one(aten::SIGMOID, vec![reset.into()])?;
    let update = binary(b, aten::ADD_TENSOR, input_update, hidden_update)?;
    let update = b.one(aten::SIGMOID, vec![update.into()])?;
    let shown = binary(b, aten::MUL_TENSOR, reset, hidden_new)?;
    let new = binary(b, aten::ADD_TENSOR, input_new, shown)?;
    let new = b.one(aten::TANH, vec![new.into()])?;
    let difference = binary(b, aten::SUB_TENSOR, hidden, new)?;
    let kept = binary(b, aten::MUL_TENSOR, difference, update)?;
    binary(b, aten::ADD_TENSOR, kept, new)
}

/// Tensors as slices of a new first dimension.
fn stack(b: &mut Builder<'_>, values: Vec<ValueId>) -> Result<ValueId, Error> {
    let slices = values.into_iter().map(|value| unsqueeze(b, value, 0)).collect::<Result<Vec<_>, _>>()?;
    cat_of(b, slices, 0)
}

fn cell_of(b: &mut Builder<'_>, operands: &Operands<'_>, cell: Cell) -> Lowered {
    let weights = Weights {
        input: operands.value(2)?,
        hidden: operands.value(3)?,
        input_bias: operands.optional(4)?,
        hidden_bias: operands.optional(5)?,
        projection: None,
    };
    let input = input_part(b, cell, operands.value(0)?, &weights)?;
    step(b, cell, input, &states(operands)?, &weights).map(Some)
}

fn lstm_cell(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    cell_of(b, operands, Cell::Lstm)
}

fn gru_cell(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    cell_of(b, operands, Cell::Gru)
}

fn rnn_cell(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    cell_of(b, operands, if operands.schema.name.contains("relu") { Cell::Relu } else { Cell::Tanh })
}
