//! Lowers elementwise operators and softmax.

use rushlight_format::ScalarType;
use rushlight_graph::{Arg, Constant, Error, TensorType, ValueId};

use super::layers::bounds;
use super::{Lowering, Order, int};
use crate::operators::{ACTIVATION, ADD, DIV, MAXIMUM, MINIMUM, MUL, SOFTMAX};
use crate::select::{Add, Div, Extremum, Lookup, Mul, Operand, Softmax};
use crate::table::Table;

/// Two operands in one order: channels-last if an operand of the result's sizes exists so, row-major otherwise.
fn operands(to: &mut Lowering<'_>, operands: &[Operand; 2], result: ValueId) -> Result<([ValueId; 2], Order), Error> {
    let sizes = to.ty(result)?.static_sizes();
    for operand in operands {
        if to.ty(operand.value)?.static_sizes() == sizes && to.any(operand.value)?.1 == Order::ChannelsLast {
            let [a, b] = operands;
            return Ok(([to.image(a.value)?.0, to.image(b.value)?.0], Order::ChannelsLast));
        }
    }
    let [a, b] = operands;
    Ok(([to.row_major(a.value)?, to.row_major(b.value)?], Order::RowMajor))
}

pub(crate) fn add(step: &Add, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let ([a, b], order) = operands(to, &step.operands, result)?;
    let [first, second] = step.operands.map(|operand| int(operand.affine.zero_point));
    let ([one, two], [one_shift, two_shift]) = (step.multipliers.map(int), step.shifts.map(int));
    let mut args = vec![a.into(), first, one, one_shift, b.into(), second, two, two_shift];
    args.extend([step.output.affine.zero_point, step.factor.multiplier, step.factor.shift].map(int));
    args.extend(bounds(&step.output));
    to.add_int8(ADD, args, result, order)
}

pub(crate) fn mul(step: &Mul, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let ([a, b], order) = operands(to, &step.operands, result)?;
    let [first, second] = step.operands.map(|operand| int(operand.affine.zero_point));
    let mut args = vec![a.into(), first, b.into(), second];
    args.extend([step.output.affine.zero_point, step.factor.multiplier, step.factor.shift].map(int));
    to.add_int8(MUL, args, result, order)
}

pub(crate) fn div(step: &Div, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let ([a, b], order) = operands(to, &step.operands, result)?;
    let [first, second] = step.operands.map(|operand| int(operand.affine.zero_point));
    let args = vec![a.into(), first, b.into(), second, int(step.output.affine.zero_point), Arg::Float(step.scale)];
    to.add_int8(DIV, args, result, order)
}

pub(crate) fn extremum(step: &Extremum, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let ([a, b], order) = operands(to, &step.operands, result)?;
    to.add_int8(if step.is_minimum { MINIMUM } else { MAXIMUM }, vec![a.into(), b.into()], result, order)
}

pub(crate) fn lookup(step: &Lookup, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    table(&step.input, &step.table, to, result)
}

pub(crate) fn table(input: &Operand, table: &Table, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let (input, order) = to.any(input.value)?;
    let bytes: Vec<u8> = table.0.iter().map(|entry| entry.cast_unsigned()).collect();
    let table = to.constant(Constant::dense("table", TensorType::of(ScalarType::Char, &[256]), bytes)?)?;
    to.add_int8(ACTIVATION, vec![input.into(), table.into()], result, order)
}

pub(crate) fn softmax(step: &Softmax, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let input = to.row_major(step.input.value)?;
    let mut args = vec![input.into(), Arg::from(step.dim)];
    args.extend([step.input.affine.zero_point, -128, step.factor.multiplier, step.factor.shift].map(int));
    args.push(int(step.minimum_difference));
    to.add_int8(SOFTMAX, args, result, Order::RowMajor)
}
