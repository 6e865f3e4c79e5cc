//! Quantized tensors of 16 bits, which are computed as the floats that they stand for.

use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use crate::passes::cse::MergeCommonSubexpressions;
use crate::passes::dce::EliminateDeadCode;
use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::quantization::{PerTensor, is_per_tensor_dequantize, is_per_tensor_quantize};
use rushlight_graph::{Action, Arg, Builder, Call, Def, Graph, Model, Node, NodeId, ValueId, substitute};

/// Maximum number of nodes between a dequantization and the quantizations that it comes from. Each use computes them again,
/// until common subexpressions are merged.
const MAX_NODES: usize = 16;

/// Operators that arrange elements without computing.
const MOVES: &[&str] = &[
    aten::ALIAS_COPY,
    aten::CAT,
    aten::CLONE,
    aten::EXPAND_COPY,
    aten::PERMUTE_COPY,
    aten::SELECT_COPY_INT,
    aten::SLICE_COPY_TENSOR,
    aten::SPLIT_COPY_TENSOR,
    aten::SPLIT_WITH_SIZES_COPY,
    aten::SQUEEZE_COPY,
    aten::SQUEEZE_COPY_DIM,
    aten::SQUEEZE_COPY_DIMS,
    aten::STACK,
    aten::UNSQUEEZE_COPY,
    aten::VIEW_COPY,
];

/// Replaces pairs of quantization to 16 bits and dequantization by rounded floats, so that only elementwise operators are
/// left, which GEMMs compute in their epilogues. A float represents these integers exactly, so that results are the same.
/// Between the two, values may be moved, not computed with.
///
/// An int16 GEMM would be no faster than one of floats: its accumulators need more than 32 bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundQdqInt16;

impl Pass for RoundQdqInt16 {
    fn name(&self) -> &'static str {
        "round-qdq-int16"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let changed = model.rewrite(|builder, node| {
            let Some((integers, parameters)) = wide(builder, node, is_per_tensor_dequantize) else {
                return Ok(Action::Keep);
            };
            let mut sources = Sources { builder, parameters, nodes: Vec::new(), budget: MAX_NODES };
            if !sources.trace(integers) {
                return Ok(Action::Keep);
            }
            let mut numbers = FxHashMap::default();
            for node in sources.nodes {
                let made = match wide(builder, node, is_per_tensor_quantize) {
                    Some((x, parameters)) => vec![round(builder, x, parameters)?],
                    None => {
                        let Node { op, mut args, .. } = builder.graph.nodes[node].clone();
                        substitute(&mut args, &numbers);
                        builder.call(op.name(), args)?
                    }
                };
                numbers.extend(builder.graph.nodes[node].results.iter().copied().zip(made));
            }
            Ok(numbers.get(&integers).map_or(Action::Keep, |numbers| Action::Replace(vec![*numbers])))
        })?;
        if changed {
            // Each of several uses has rounded for itself.
            MergeCommonSubexpressions.run(model)?;
            EliminateDeadCode.run(model)?;
        }
        Ok(())
    }
}

/// True if [`RoundQdqInt16`] rounded a value.
pub fn is_rounded(graph: &Graph, value: ValueId) -> bool {
    let mut value = Some(value);
    [aten::MUL_SCALAR, aten::CLAMP, aten::ROUND, aten::MUL_SCALAR].iter().all(|name| {
        let Some(Def::Result(node, _)) = value.map(|value| graph.values[value].def) else { return false };
        let call = Call::new(graph, node);
        value = call.optional("self");
        call.name() == *name
    })
}

/// The input and the parameters of a node of a kind, if it converts between floats and integers of 16 bits.
fn wide(builder: &Builder<'_>, node: NodeId, kind: fn(&str) -> bool) -> Option<(ValueId, PerTensor)> {
    let call = Call::new(builder.graph, node);
    let parameters = PerTensor::of(call.node).filter(|_| kind(call.name()))?;
    let (given, made) = (call.optional("input")?, call.result().ok()?);
    let is_float = |value| builder.graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Float);
    let is_wide = matches!(parameters.dtype, ScalarType::Short | ScalarType::UInt16);
    (is_wide && (is_float(given) || is_float(made))).then_some((given, parameters))
}

/// The nodes that integers come from.
struct Sources<'b, 'g> {
    builder: &'b Builder<'g>,
    parameters: PerTensor,
    /// Each after those before it.
    nodes: Vec<NodeId>,
    /// The number of nodes that may still be followed.
    budget: usize,
}

impl Sources<'_, '_> {
    /// Follows a value. True if all that it comes from quantizes floats with these parameters, or moves the integers.
    fn trace(&mut self, value: ValueId) -> bool {
        let Def::Result(id, _) = self.builder.graph.values[value].def else { return false };
        if self.nodes.contains(&id) {
            return true;
        }
        let Some(budget) = self.budget.checked_sub(1) else { return false };
        self.budget = budget;
        let fits = match wide(self.builder, id, is_per_tensor_quantize) {
            Some((_, made_with)) => made_with == self.parameters,
            None => {
                let node = &self.builder.graph.nodes[id];
                let mut fits = MOVES.contains(&node.op.name());
                let mut look = |value| fits = fits && self.trace(value);
                node.args.iter().for_each(|arg| arg.for_each_value(&mut look));
                fits
            }
        };
        self.nodes.push(id);
        fits
    }
}

/// `clamp(round(x / scale), min - zero, max - zero) * scale`, which is what dequantizing gives of the integers.
fn round(builder: &mut Builder<'_>, x: ValueId, parameters: PerTensor) -> Result<ValueId, Error> {
    let PerTensor { scale, zero_point, range: (min, max), .. } = parameters;
    let bound = |integer: i64| Arg::Float(integer as f64 - zero_point as f64);
    let scaled = builder.one(aten::MUL_SCALAR, vec![x.into(), (1.0 / f64::from(scale)).into()])?;
    let whole = builder.one(aten::ROUND, vec![scaled.into()])?;
    let bounded = builder.one(aten::CLAMP, vec![whole.into(), bound(min), bound(max)])?;
    builder.one(aten::MUL_SCALAR, vec![bounded.into(), f64::from(scale).into()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_graph::operators::quantized_decomposed;
    use rushlight_graph::testing::{Method, float};

    /// Nor is the stack's room needed for them.
    #[test]
    fn no_more_than_a_few_nodes_are_followed() {
        let mut method = Method::new();
        let x = method.graph().input("x", float(&[4, 6]));
        let form = [0.5.into(), 3.into(), (-32768).into(), 32767.into(), Arg::DType(ScalarType::Short)];
        let convert =
            |method: &mut Method, name, x: ValueId| method.calls(name, [vec![x.into()], form.to_vec()].concat())[0];
        let mut integers = convert(&mut method, quantized_decomposed::QUANTIZE_PER_TENSOR, x);
        for _ in 0..100_000 {
            integers = method.calls(aten::PERMUTE_COPY, vec![integers.into(), [1, 0].into()])[0];
        }
        let y = convert(&mut method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, integers);
        method.graph().outputs = vec![y.into()];
        let names = method.after(&RoundQdqInt16);
        assert!(!names.iter().any(|name| name == aten::ROUND), "{names:?}");
    }
}
