//! Legalizes operators that the engine has no step for: group and batch norms, `addmm` without a constant bias, embeddings of
//! packed integers, attention over quantized operands, and data movement without a step.

mod data_movement;

use rushlight_compiler::passes::legalize::{ReadNumbersAsTensors, RoundQdqInt16, SinkPermutations};
use rushlight_compiler::passes::legalize::{embedding, quantized_cache};
use rushlight_compiler::passes::raise::{
    RaiseActivations, RaiseAttention, RaiseExperts, RaiseRmsNorms, ShareHeads, UngroupExperts,
};
use rushlight_compiler::passes::{EliminateDeadCode, FoldConstants, rewrite};
use rushlight_engine::pack::PANEL;
use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::{aten, llama, quantized_decomposed, rushlight};
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::quantization;
use rushlight_graph::{Action, Arg, Builder, Call, Def, Expr, Model, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::select::{activation, has_bias};
use crate::storage::is_stored_as_float;

/// Legalizes a model, or a part of one: decomposed operators are raised, quantized tensors of 16 bits become rounded floats,
/// permutations move behind elementwise operators, and constants are folded.
///
/// # Errors
/// Errors of the passes.
pub(super) fn legalize(model: &mut Model) -> Result<(), Error> {
    passes().iter().try_for_each(|pass| pass.run(model))
}

/// The passes that legalize a part, in their order.
pub fn passes() -> [&'static dyn Pass; 12] {
    // Masks and tables of biases are worth their room: nothing computes them again at each call.
    const FOLD: FoldConstants = FoldConstants { small: 1 << 23, allowance: 1 << 26, dequantize: true };
    // Epilogues compute activations.
    const SINK: SinkPermutations = SinkPermutations { is_fused: |call| activation(call).is_some() };
    // GEMMs of experts read whole panels.
    const COLUMNS: i64 = PANEL as i64;
    [
        &ReadNumbersAsTensors,
        &RaiseAttention,
        &UngroupExperts { multiple: COLUMNS },
        &RaiseExperts { multiple: COLUMNS },
        &ShareHeads,
        &RaiseActivations,
        &RaiseRmsNorms,
        &RoundQdqInt16,
        &SINK,
        &Legalize,
        &FOLD,
        &EliminateDeadCode,
    ]
}

/// Lowers group norms to layer norms of reshaped values, batch norms to a scale and a shift for each channel, `addmm` without
/// a constant bias to a GEMM and an addition, embeddings of packed integers to plain ones, quantized attention to one of
/// dequantized operands, and data movement to views and copies. A later pass folds the constants.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Legalize;

impl Pass for Legalize {
    fn name(&self) -> &'static str {
        "legalize"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        // Collected first: while a block is rewritten, it lacks the nodes that follow.
        let mut used = FxHashSet::default();
        for graph in model.methods.values() {
            graph.for_each_use(&mut |value| {
                used.insert(value);
            });
        }
        rewrite(model, |builder, node| {
            if let Some(values) = data_movement::legalize(builder, node)? {
                return Ok(Action::Replace(values));
            }
            let statistics = builder.graph.nodes[node].results.get(1..).unwrap_or_default();
            let needs_statistics = statistics.iter().any(|result| used.contains(result));
            let legal = match builder.graph.nodes[node].op.name() {
                aten::NATIVE_GROUP_NORM if !needs_statistics => group_norm(builder, node)?,
                aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING if !needs_statistics => batch_norm(builder, node)?,
                aten::ADDMM => matrix_sum(builder, node)?,
                rushlight::EXPERTS_LINEAR => lowered(builder, node)?,
                llama::CUSTOM_QUANTIZED_SDPA | quantized_decomposed::DEQUANTIZE_PER_TOKEN => {
                    quantized_cache::legalize(builder, node)?
                }
                _ => embedding::legalize(builder, node)?,
            };
            let Some(value) = legal else { return Ok(Action::Keep) };
            // Nothing uses the statistics.
            let rest = builder.graph.nodes[node].results.iter().skip(1).copied();
            Ok(Action::Replace(std::iter::once(value).chain(rest).collect()))
        })
    }
}

fn group_norm(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, weight, bias) = (call.value("input")?, call.optional("weight"), call.optional("bias"));
    let (Some(groups), Some(eps)) = (call.expr("group"), call.number("eps")) else { return Ok(None) };
    let shape = builder.tensor(input)?.shape;
    let [batch, ..] = shape.as_slice() else { return Ok(None) };
    let Some(rest) = Expr::product(&shape[1..]).exact_div(&groups) else { return Ok(None) };
    let grouped = vec![batch.clone(), groups, rest.clone()];
    let rows = builder.one(aten::VIEW_COPY, vec![input.into(), grouped.into()])?;
    let args = vec![rows.into(), vec![rest].into(), Arg::None, Arg::None, eps.into()];
    let normalised = builder.call(aten::NATIVE_LAYER_NORM, args)?;
    let Some(normalised) = normalised.first() else { return Ok(None) };
    let mut value = builder.one(aten::VIEW_COPY, vec![(*normalised).into(), shape.clone().into()])?;
    for (name, parameter) in [(aten::MUL_TENSOR, weight), (aten::ADD_TENSOR, bias)] {
        if let Some(parameter) = parameter {
            let parameter = per_channel(builder, parameter, shape.len())?;
            value = builder.one(name, vec![value.into(), parameter.into()])?;
        }
    }
    Ok(Some(value))
}

/// `x * s + (bias - mean * s)`, with `s = weight / sqrt(var + eps)`.
fn batch_norm(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (input, weight, bias) = (call.value("input")?, call.optional("weight"), call.optional("bias"));
    let (mean, variance) = (call.value("running_mean")?, call.value("running_var")?);
    let Some(eps) = call.number("eps") else { return Ok(None) };
    let rank = builder.tensor(input)?.rank();
    // Statistics of another type take part in the promotion of types otherwise.
    let same = [Some(mean), Some(variance), weight, bias].into_iter().flatten();
    let dtype = builder.tensor(input)?.dtype;
    let mut alike = true;
    for value in same {
        alike &= builder.tensor(value)?.dtype == dtype;
    }
    if rank < 2 || !alike {
        return Ok(None);
    }
    let above = builder.one(aten::ADD_SCALAR, vec![variance.into(), eps.into()])?;
    let mut scale = builder.one(aten::RSQRT, vec![above.into()])?;
    if let Some(weight) = weight {
        scale = builder.one(aten::MUL_TENSOR, vec![scale.into(), weight.into()])?;
    }
    let mut shift = builder.one(aten::MUL_TENSOR, vec![mean.into(), scale.into()])?;
    shift = match bias {
        Some(bias) => builder.one(aten::SUB_TENSOR, vec![bias.into(), shift.into()])?,
        None => builder.one(aten::NEG, vec![shift.into()])?,
    };
    let (scale, shift) = (per_channel(builder, scale, rank)?, per_channel(builder, shift, rank)?);
    let scaled = builder.one(aten::MUL_TENSOR, vec![input.into(), scale.into()])?;
    builder.one(aten::ADD_TENSOR, vec![scaled.into(), shift.into()]).map(Some)
}

/// Lowers `beta * self + alpha * (mat1 @ mat2)`, unless `self` is the bias of a GEMM. Steps of recurrent layers add a matrix.
fn matrix_sum(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let (summand, a, b) = (call.value("self")?, call.value("mat1")?, call.value("mat2")?);
    if has_bias(&call, |weights| is_known(&call, weights))
        || !is_stored_as_float(call.graph.tensor(call.result()?)?.dtype)
    {
        return Ok(None);
    }
    let factor = |name: &str| if call.arg(name).is_none() { Some(1.0) } else { call.number(name) };
    let (Some(beta), Some(alpha)) = (factor("beta"), factor("alpha")) else { return Ok(None) };
    let mut scaled = |value: ValueId, by: f64| match by {
        1.0 => Ok(value),
        by => builder.one(aten::MUL_SCALAR, vec![value.into(), by.into()]),
    };
    // As in PyTorch, `beta = 0` ignores `self`, even NaN.
    let summand = if beta == 0.0 { None } else { Some(scaled(summand, beta)?) };
    let mut sum = builder.one(aten::MM, vec![a.into(), b.into()])?;
    if alpha != 1.0 {
        sum = builder.one(aten::MUL_SCALAR, vec![sum.into(), alpha.into()])?;
    }
    if let Some(summand) = summand {
        sum = builder.one(aten::ADD_TENSOR, vec![sum.into(), summand.into()])?;
    }
    Ok(Some(sum))
}

/// Lowers an operator as its definition says.
fn lowered(builder: &mut Builder<'_>, node: NodeId) -> Result<Option<ValueId>, Error> {
    let Some(schema) = builder.graph.nodes[node].op.schema().cloned() else { return Ok(None) };
    let Some(lower) = ops::definition(&schema.name).and_then(|definition| definition.lower) else { return Ok(None) };
    let args = builder.graph.nodes[node].args.clone();
    let results = lower(builder, &Operands::new(&schema, &args))?;
    Ok(results.and_then(|results| results.first().copied()))
}

/// True if constant folding makes a value a constant: quantized weights are dequantized and transposed until then.
fn is_known(call: &Call<'_>, value: ValueId) -> bool {
    let mut value = value;
    // Weights are transposed, reshaped and dequantized, each once or twice.
    for _ in 0..8 {
        let node = match call.graph.values[value].def {
            Def::Constant(_) => return true,
            Def::Result(node, 0) => &call.graph.nodes[node],
            _ => return false,
        };
        let name = node.op.name();
        let moves = matches!(name, aten::PERMUTE_COPY | aten::VIEW_COPY | aten::CLONE);
        if !moves && !quantization::is_dequantize(name) {
            return false;
        }
        let Some(next) = node.args.first().and_then(Arg::as_value) else { return false };
        value = next;
    }
    false
}

/// A vector `[C]` as `[C, 1, ...]`, to go with the channels of a tensor of that rank.
fn per_channel(builder: &mut Builder<'_>, vector: ValueId, rank: usize) -> Result<ValueId, Error> {
    let mut shape = builder.tensor(vector)?.shape;
    shape.resize(rank.saturating_sub(1).max(shape.len()), Expr::Int(1));
    builder.one(aten::VIEW_COPY, vec![vector.into(), shape.into()])
}
