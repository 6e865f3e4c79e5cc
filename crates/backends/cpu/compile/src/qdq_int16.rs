//! Quantized tensors of 16 bits, which are computed as the floats that they stand for.

use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_compiler::passes::{EliminateDeadCode, MergeCommonSubexpressions};
use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::quantization::{PerTensor, dequantizes_per_tensor, quantizes_per_tensor};
use rushlight_graph::{Action, Arg, Builder, Def, Graph, Model, Node, NodeId, ValueId, substitute};

use crate::call::Call;

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
pub(super) struct RoundQdqInt16;

impl Pass for RoundQdqInt16 {
    fn name(&self) -> &'static str {
        "round-qdq-int16"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let changed = model.rewrite(|builder, node| {
            let Some((integers, parameters)) = wide(builder, node, dequantizes_per_tensor) else {
                return Ok(Action::Keep);
            };
            let mut sources = Sources { builder, parameters, nodes: Vec::new(), budget: MAX_NODES };
            if !sources.trace(integers) {
                return Ok(Action::Keep);
            }
            let mut numbers = FxHashMap::default();
            for node in sources.nodes {
                let made = match wide(builder, node, quantizes_per_tensor) {
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

/// True if a value is what [`round`] gives.
pub(crate) fn is_rounded(graph: &Graph, value: ValueId) -> bool {
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
        let fits = match wide(self.builder, id, quantizes_per_tensor) {
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
    use rushlight_graph::{TensorType, Type};

    const FORM: (f64, i64, i64, i64) = (0.5, 3, -32768, 32767);
    const ROUNDING: [&str; 4] = [aten::MUL_SCALAR, aten::ROUND, aten::CLAMP, aten::MUL_SCALAR];

    fn change(method: &mut Method, name: &str, x: ValueId, form: (f64, i64, i64, i64)) -> ValueId {
        let (scale, zero_point, min, max) = form;
        let args = [x.into(), scale.into(), zero_point.into(), min.into(), max.into(), Arg::DType(ScalarType::Short)];
        method.calls(name, args.to_vec())[0]
    }

    /// The operators of a method after the pass; `build` makes its outputs of its input.
    fn names_after(build: impl FnOnce(&mut Method, ValueId) -> Vec<ValueId>) -> Vec<String> {
        let mut method = Method::new();
        let x = method.graph().input("x", float(&[4, 6]));
        let outputs = build(&mut method, x);
        method.graph().outputs = outputs.into_iter().map(Arg::from).collect();
        method.after(&RoundQdqInt16)
    }

    #[test]
    fn integers_that_become_numbers_again_are_rounded_numbers() {
        let names = names_after(|method, x| {
            let integers = change(method, quantized_decomposed::QUANTIZE_PER_TENSOR, x, FORM);
            vec![change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, integers, FORM)]
        });
        assert_eq!(names, ROUNDING);
    }

    #[test]
    fn several_uses_share_the_rounding_and_what_is_moved_moves() {
        let names = names_after(|method, x| {
            let integers = change(method, quantized_decomposed::QUANTIZE_PER_TENSOR, x, FORM);
            let turned = method.calls(aten::PERMUTE_COPY, vec![integers.into(), [1, 0].into()])[0];
            let joined = method.calls(aten::CAT, vec![Arg::List(vec![turned.into(), turned.into()])])[0];
            vec![
                change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, integers, FORM),
                change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, joined, FORM),
            ]
        });
        let all: Vec<&str> = ROUNDING.into_iter().chain([aten::PERMUTE_COPY, aten::CAT]).collect();
        assert_eq!(names, all);
    }

    #[test]
    fn what_reads_integers_in_another_way_keeps_them() {
        let (quantize, dequantize) =
            (quantized_decomposed::QUANTIZE_PER_TENSOR, quantized_decomposed::DEQUANTIZE_PER_TENSOR);
        let other = names_after(|method, x| {
            let integers = change(method, quantized_decomposed::QUANTIZE_PER_TENSOR, x, FORM);
            vec![change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, integers, (0.25, 3, -32768, 32767))]
        });
        assert_eq!(other, [quantize, dequantize]);
        let computed = names_after(|method, x| {
            let integers = change(method, quantized_decomposed::QUANTIZE_PER_TENSOR, x, FORM);
            let least = method.calls(aten::CLAMP, vec![integers.into(), 0.into()])[0];
            vec![change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, least, FORM)]
        });
        assert_eq!(computed, [quantize, aten::CLAMP, dequantize]);
        let given = names_after(|method, _| {
            let integers = method.graph().input("i", Type::Tensor(TensorType::of(ScalarType::Short, &[4])));
            vec![change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, integers, FORM)]
        });
        assert_eq!(given, [dequantize]);
    }

    #[test]
    fn no_more_than_a_few_nodes_are_followed() {
        let names = names_after(|method, x| {
            let mut integers = change(method, quantized_decomposed::QUANTIZE_PER_TENSOR, x, FORM);
            // Nor is the stack's room needed for them.
            for _ in 0..100_000 {
                integers = method.calls(aten::PERMUTE_COPY, vec![integers.into(), [1, 0].into()])[0];
            }
            vec![change(method, quantized_decomposed::DEQUANTIZE_PER_TENSOR, integers, FORM)]
        });
        assert!(!names.iter().any(|name| name == aten::ROUND), "{names:?}");
    }
}
