//! Lowers operators that move elements.

use rushlight_graph::{Arg, Call, Error, Node, ValueId};

use super::{Lowering, Order, int};
use crate::operators::{PAD, TRANSPOSE};
use crate::select::{Move, Pad, Transpose};

pub(crate) fn pad(step: &Pad, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let (input, order) = to.any(step.input.value)?;
    let [before, after] = [step.before, step.after].map(|amounts| Arg::from(order.arranged(amounts).as_slice()));
    to.add_int8(PAD, vec![input.into(), before, after, int(step.value)], result, order)
}

pub(crate) fn transpose(step: &Transpose, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let input = to.row_major(step.input.value)?;
    to.add_int8(TRANSPOSE, vec![input.into(), Arg::from(step.dims.as_slice())], result, Order::RowMajor)
}

pub(crate) fn other(step: &Move, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let mut integers = Vec::new();
    for (value, operand) in &step.operands {
        integers.push((*value, to.row_major(operand.value)?));
    }
    let call = Call::new(to.part, step.node);
    let Node { args, .. } = call.node;
    let name = call.name();
    let mut args: Vec<Arg> = args.clone();
    let integer = |value| integers.iter().find(|(number, _)| *number == value).map_or(value, |(_, integer)| *integer);
    args.iter_mut().for_each(|arg| arg.map_values(&mut |value| integer(value)));
    to.add_int8(name, args, result, Order::RowMajor)
}
