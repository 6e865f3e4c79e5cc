//! Lowers pooling.

use rushlight_format::ScalarType;
use rushlight_graph::{Arg, Error, TensorType, ValueId};

use super::layers::bounds;
use super::{Lowering, Order, ScratchBytes, in_order, int, pair};
use crate::affine::Factor;
use crate::operators::{AVG_POOL2D, MAX_POOL2D, PAD};
use crate::select::{Average, Maximum};

pub(crate) fn average(step: &Average, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let zero_point = int(step.input.affine.zero_point);
    let [batch, channels, height, width] = step.input_sizes;
    let (mut input, mut order) = to.image(step.input.value)?;
    let mut padding = step.window.padding;
    if step.counts_padding && padding != [0, 0] {
        let [rows, columns] = padding;
        // An image of one pixel has another order once it is padded.
        if order == Order::RowMajor && channels > 1 {
            (input, order) = (to.ordered(step.input.value, Order::ChannelsLast)?, Order::ChannelsLast);
        }
        let ty = TensorType::of(ScalarType::Char, &[batch, channels, height + 2 * rows, width + 2 * columns]);
        let amounts = Arg::from(order.arranged([0, 0, rows, columns]).as_slice());
        input = to.call(PAD, vec![input.into(), amounts.clone(), amounts, zero_point.clone()], in_order(ty, order))?;
        padding = [0, 0];
    }
    // The kernels ignore the scale.
    let factor = Factor::of(step.input.affine.scale).unwrap_or(Factor { multiplier: 0, shift: 0 });
    let scratch = to.scratch(ScratchBytes::of_average(to.target().isa(), channels))?;
    let mut args = vec![input.into(), pair(step.window.kernel), pair(step.window.stride), pair(padding)];
    args.extend([Arg::Bool(step.window.is_rounded_up), zero_point]);
    args.extend([factor.multiplier, factor.shift].map(int));
    args.push(scratch.into());
    // The result of a mean may be `[N, C]`.
    let ty = to.ty(result)?;
    if ty.rank() == 4 {
        let order = to.image_order(result)?;
        return to.add_int8(AVG_POOL2D, args, result, order);
    }
    let pooled = to.call(AVG_POOL2D, args, TensorType::of(ScalarType::Char, &[batch, channels, 1, 1]))?;
    let sizes = Arg::from([batch, channels].as_slice());
    to.add_int8(rushlight_graph::operators::aten::VIEW_COPY, vec![pooled.into(), sizes], result, Order::RowMajor)
}

pub(crate) fn maximum(step: &Maximum, to: &mut Lowering<'_>, result: ValueId) -> Result<(), Error> {
    let zero_point = int(step.input.affine.zero_point);
    let (input, _) = to.image(step.input.value)?;
    let mut args = vec![input.into(), pair(step.window.kernel), pair(step.window.stride), pair(step.window.padding)];
    args.extend([pair([1, 1]), Arg::Bool(false), zero_point.clone(), zero_point]);
    args.extend(bounds(&step.output));
    let order = to.image_order(result)?;
    to.add_int8(MAX_POOL2D, args, result, order)
}
