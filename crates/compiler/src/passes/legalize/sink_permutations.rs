//! Moves permutations from before elementwise operators to after them.

use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::quantization;
use rushlight_graph::{Action, Arg, Builder, Call, Def, Model, NodeId, Type, ValueId};

use crate::passes::rewrite::rewrite;

/// Computes `f(permute(x), permute(y))` as `permute(f(x, y))`, for activations that the backend fuses, additions,
/// multiplications and quantization. Removes pairs of permutations that cancel.
///
/// The operator can then be fused into the epilogue of the GEMM before it, as in programs that permute images to
/// channels-last after each convolution.
#[derive(Clone, Copy, Debug)]
pub struct SinkPermutations {
    /// True for the unary operators that the backend fuses into an epilogue.
    pub is_fused: fn(&Call<'_>) -> bool,
}

impl Pass for SinkPermutations {
    fn name(&self) -> &'static str {
        "sink-permutations"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        rewrite(model, |builder, node| {
            if let Some(source) = cancelled(builder, node) {
                return Ok(Action::Replace(vec![source]));
            }
            Ok(permuted_result(builder, node, self.is_fused)?
                .map_or(Action::Keep, |value| Action::Replace(vec![value])))
        })
    }
}

/// If a permutation computes `value`, returns its input and its order of dimensions.
fn permuted(builder: &Builder<'_>, value: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let Def::Result(node, 0) = builder.graph.values[value].def else { return None };
    permutation(&Call::new(builder.graph, node))
}

/// The input and the order of dimensions of a call of `permute_copy`; `None` for other operators.
fn permutation(call: &Call<'_>) -> Option<(ValueId, Vec<usize>)> {
    if call.name() != aten::PERMUTE_COPY {
        return None;
    }
    let dims = call.ints("dims")?;
    let rank = dims.len() as i64;
    let wrapped = dims.iter().map(|dim| usize::try_from(if *dim < 0 { dim + rank } else { *dim }).ok());
    Some((call.optional("self")?, wrapped.collect::<Option<_>>()?))
}

/// If a node is the inverse of the permutation before it, returns the input of that.
fn cancelled(builder: &Builder<'_>, node: NodeId) -> Option<ValueId> {
    let (middle, outer) = permutation(&Call::new(builder.graph, node))?;
    let (source, inner) = permuted(builder, middle)?;
    let is_identity = outer.iter().enumerate().all(|(at, dim)| inner.get(*dim) == Some(&at));
    is_identity.then_some(source)
}

/// If the same permutation computes all operands of a node, computes the node on their inputs and permutes its result.
fn permuted_result(
    builder: &mut Builder<'_>,
    node: NodeId,
    is_fused: fn(&Call<'_>) -> bool,
) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let operands = match call.name() {
        _ if is_fused(&call) => vec![call.optional("self")],
        aten::ADD_TENSOR | aten::MUL_TENSOR => vec![call.optional("self"), call.optional("other")],
        name if quantization::is_per_tensor_quantize(name) || quantization::is_per_tensor_dequantize(name) => {
            vec![call.optional("input")]
        }
        _ => return Ok(None),
    };
    let sources: Option<Vec<_>> = operands.iter().map(|value| permuted(builder, (*value)?)).collect();
    let Some(sources) = sources else { return Ok(None) };
    let Some((first, order)) = sources.first().cloned() else { return Ok(None) };
    let shape = builder.tensor(first)?.shape;
    for (source, other) in &sources {
        if *other != order || builder.tensor(*source)?.shape != shape {
            return Ok(None);
        }
    }
    let mut ty = builder.tensor(call.result()?)?;
    ty.shape = shape;
    let (op, mut args) = (call.node.op.clone(), call.node.args.clone());
    for (operand, (source, _)) in operands.iter().zip(&sources) {
        for arg in args.iter_mut().filter(|arg| arg.as_value().is_some() && arg.as_value() == *operand) {
            *arg = Arg::Value(*source);
        }
    }
    let computed = builder.push(op, args, vec![Type::Tensor(ty)]);
    let Some(computed) = computed.first().copied() else { return Ok(None) };
    let order: Vec<i64> = order.iter().map(|dim| *dim as i64).collect();
    builder.one(aten::PERMUTE_COPY, vec![computed.into(), Arg::from(order.as_slice())]).map(Some)
}
