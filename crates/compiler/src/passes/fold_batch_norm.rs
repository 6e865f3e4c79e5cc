//! Folds batch normalizations with constant statistics into the convolutions and linear layers before them.
//!
//! `(w * x + b - mean) * gamma / sqrt(var + eps) + beta` equals `(w * scale) * x + (b - mean) * scale + beta` with
//! `scale = gamma / sqrt(var + eps)`, one for each output channel.

use std::sync::Arc;

use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::Operands;
use rushlight_graph::{
    Arena, Arg, Computed, Constant, ConstantData, Def, Graph, Model, NodeId, Op, TensorType, ValueId,
};

use rushlight_graph::Pass;

/// Folds batch normalizations into the weights and biases of the convolutions and linear layers before them. The scaled
/// weights are computed when they are written. The normalizations are left dead.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldBatchNorms;

impl Pass for FoldBatchNorms {
    fn name(&self) -> &'static str {
        "fold-batch-norms"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let Model { methods, constants, .. } = model;
        methods.values_mut().try_for_each(|graph| fold(graph, constants))
    }
}

fn fold(graph: &mut Graph, constants: &mut Arena<Constant>) -> Result<(), Error> {
    let mut norms: Vec<NodeId> = Vec::new();
    graph.for_each_node(graph.body, &mut |id| {
        if graph.nodes[id].op.name() == aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING {
            norms.push(id);
        }
    });
    if norms.is_empty() {
        return Ok(());
    }
    let mut uses: FxHashMap<ValueId, u32> = FxHashMap::default();
    graph.for_each_use(&mut |value| *uses.entry(value).or_default() += 1);
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for norm in norms {
        let results = graph.nodes[norm].results.clone();
        let (Some(input), [output, statistics @ ..]) = (graph.nodes[norm].args.first(), results.as_slice()) else {
            continue;
        };
        let Some(input) = input.as_value() else { continue };
        let is_only_use = uses.get(&input) == Some(&1) && statistics.iter().all(|value| !uses.contains_key(value));
        let source = replaced.get(&input).copied().unwrap_or(input);
        let Def::Result(convolution, _) = graph.values[source].def else { continue };
        if !is_only_use || !is_layer(graph, convolution, source) {
            continue;
        }
        let weight = graph.nodes[convolution].args.get(1).and_then(Arg::as_value);
        if weight.is_none_or(|weight| uses.get(&weight).is_some_and(|uses| *uses > 1)) {
            continue;
        }
        if let Some([weight, bias]) = folded(graph, constants, convolution, norm)? {
            let [weight, bias] = [weight, bias].map(|constant| {
                let id = constants.push(constant);
                Arg::Value(graph.constant(id, constants))
            });
            for (slot, arg) in graph.nodes[convolution].args.iter_mut().skip(1).zip([weight, bias]) {
                *slot = arg;
            }
            replaced.insert(*output, source);
            // The convolution computes the value of the normalization now, and comparisons find values by name.
            let [convolved, normalized] = [source, *output].map(|value| graph.values[value].name.clone());
            graph.values[source].name = normalized;
            graph.values[*output].name = convolved;
        }
    }
    if !replaced.is_empty() {
        graph.replace_uses(&replaced);
    }
    Ok(())
}

/// True for a convolution, and for a linear layer with a matrix as result: there, the output channels are dimension 1.
fn is_layer(graph: &Graph, node: NodeId, result: ValueId) -> bool {
    match graph.nodes[node].op.name() {
        aten::CONVOLUTION => true,
        aten::LINEAR => graph.tensor(result).is_ok_and(|ty| ty.rank() == 2),
        _ => false,
    }
}

/// Returns the weight and bias of a layer with a normalization folded into it. `None` unless all parameters are constants of
/// f32.
fn folded(
    graph: &Graph,
    constants: &Arena<Constant>,
    convolution: NodeId,
    norm: NodeId,
) -> Result<Option<[Constant; 2]>, Error> {
    let (convolution, norm) = (&graph.nodes[convolution], &graph.nodes[norm]);
    let (Op::Call(schema), Op::Call(norm_schema)) = (&convolution.op, &norm.op) else { return Ok(None) };
    let operands = Operands::new(schema, &convolution.args);
    let norm_operands = Operands::new(norm_schema, &norm.args);
    let constant = |value: ValueId| {
        let held = graph.constant_of(value).map(|id| &constants[id]);
        held.filter(|held| held.ty.dtype == ScalarType::Float)
    };
    let Some(weight) = constant(operands.value(1)?) else { return Ok(None) };
    let is_convolution = convolution.op.name() == aten::CONVOLUTION;
    let (transposed, groups) = if is_convolution { (operands.bool(6)?, operands.int(8)?) } else { (false, 1) };
    let sizes = weight.sizes()?;
    let (Some([outer, inner]), Ok(groups)) = (sizes.first_chunk::<2>(), usize::try_from(groups)) else {
        return Ok(None);
    };
    let channels = if transposed { inner.saturating_mul(groups) } else { *outer };
    if groups == 0 || channels == 0 || outer % groups != 0 {
        return Ok(None);
    }
    // One number for each channel. `default` replaces a missing parameter.
    let vector = |value: Option<ValueId>, default: f64| -> Result<Option<Vec<f64>>, Error> {
        let Some(value) = value else { return Ok(Some(vec![default; channels])) };
        let Some(held) = constant(value) else { return Ok(None) };
        let numbers: Vec<f64> = held.floats()?.into_iter().map(f64::from).collect();
        Ok((numbers.len() == channels).then_some(numbers))
    };
    let (Some(bias), Some(gamma), Some(beta), Some(mean), Some(variance)) = (
        vector(operands.optional(2)?, 0.0)?,
        vector(norm_operands.optional(1)?, 1.0)?,
        vector(norm_operands.optional(2)?, 0.0)?,
        vector(Some(norm_operands.value(3)?), 0.0)?,
        vector(Some(norm_operands.value(4)?), 0.0)?,
    ) else {
        return Ok(None);
    };
    let eps = norm_operands.float(6)?;
    let scale: Vec<f64> = gamma.iter().zip(variance).map(|(gamma, variance)| gamma / (variance + eps).sqrt()).collect();
    let moved = bias.iter().zip(mean).zip(&scale).zip(beta);
    let moved: Vec<u8> =
        moved.flat_map(|(((bias, mean), scale), beta)| (((bias - mean) * scale + beta) as f32).to_le_bytes()).collect();
    let bias_type = TensorType::of(ScalarType::Float, &[channels as i64]);
    let bias = Constant::dense(format!("{}.bias", weight.name), bias_type, moved)?;
    let per_group = if transposed { outer / groups } else { *outer };
    let scale = scale.into_iter().map(|scale| scale as f32).collect();
    let scaled = Scaled { weight: weight.clone(), scale, transposed, per_group };
    let weight = Constant { data: ConstantData::Computed(Arc::new(scaled)), ..weight.clone() };
    Ok(Some([weight, bias]))
}

/// A convolution's weight with a factor for each output channel.
struct Scaled {
    weight: Constant,
    scale: Vec<f32>,
    /// True if the output channels are in dimension 1: those of the first group belong to the first input channels.
    transposed: bool,
    /// Input channels of a group, for a transposed convolution.
    per_group: usize,
}

impl Computed for Scaled {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let sizes = self.weight.sizes()?;
        let inner = if self.transposed { sizes.get(1).copied().unwrap_or(1) } else { 1 };
        to.clear();
        to.extend_from_slice(&self.weight.read()?);
        // Number of consecutive elements of one output channel.
        let run = sizes.iter().skip(if self.transposed { 2 } else { 1 }).product::<usize>();
        for (index, run) in to.chunks_exact_mut(run.max(1).saturating_mul(4)).enumerate() {
            let channel = if self.transposed { index / inner / self.per_group * inner + index % inner } else { index };
            let scale = self.scale.get(channel).copied().unwrap_or(1.0);
            for element in run.as_chunks_mut::<4>().0 {
                *element = (f32::from_le_bytes(*element) * scale).to_le_bytes();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::{EmitOptions, emit};
    use crate::interpret::{Datum, TensorData, run};
    use crate::passes::EliminateDeadCode;
    use rushlight_graph::testing::{Method, float};

    fn constant(m: &mut Method, sizes: &[i64], from: f32) -> ValueId {
        let count = sizes.iter().product::<i64>();
        let bytes: Vec<u8> = (0..count).flat_map(|at| (from + (at % 7) as f32 * 0.25).to_le_bytes()).collect();
        let id = m.model.constants.push(Constant::dense("c", TensorType::of(ScalarType::Float, sizes), bytes).unwrap());
        let Model { methods, constants, .. } = &mut m.model;
        methods["forward"].constant(id, constants)
    }

    /// Returns a convolution of `[1, 4, 5, 5]` to six channels in two groups, with a normalization of its result.
    fn model(transposed: bool, biased: bool, affine: bool) -> Method {
        let mut m = Method::new();
        let x = m.graph().input("x", float(&[1, 4, 5, 5]));
        let weight = constant(&mut m, if transposed { &[4, 3, 3, 3] } else { &[6, 2, 3, 3] }, -0.5);
        let bias = biased.then(|| constant(&mut m, &[6], 0.1));
        let args = vec![x.into(), weight.into(), bias.into(), Arg::from([1, 1]), Arg::from([1, 1]), Arg::from([1, 1])];
        let args = [args, vec![transposed.into(), Arg::from([0, 0]), Arg::from(2)]].concat();
        let y = m.call(aten::CONVOLUTION, args, float(&[1, 6, 5, 5]));
        let vectors = [1.5, -0.2, 0.3, 0.7].map(|from| constant(&mut m, &[6], from));
        let [gamma, beta, mean, variance] = vectors.map(Arg::Value);
        let (gamma, beta) = if affine { (gamma, beta) } else { (Arg::None, Arg::None) };
        let args = vec![y.into(), gamma, beta, mean, variance, Arg::Float(0.1), Arg::Float(1e-3)];
        let outputs = m.calls(aten::_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, args);
        m.graph().outputs = vec![outputs[0].into()];
        m
    }

    fn result(m: &Method) -> Vec<f32> {
        let emitted = emit(&m.model, &EmitOptions::default()).unwrap();
        let file = emitted.program.to_bytes().unwrap();
        let bytes = (0..100).flat_map(|at| (at as f32 * 0.1 - 3.0).to_le_bytes()).collect();
        let x = Datum::Tensor(TensorData { dtype: ScalarType::Float, sizes: vec![1, 4, 5, 5], bytes });
        match &run(&file, "forward", &[x]).unwrap()[0] {
            Datum::Tensor(tensor) => {
                tensor.bytes.as_chunks::<4>().0.iter().map(|element| f32::from_le_bytes(*element)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_folded_normalisation_changes_nothing_else() {
        for case in 0..8 {
            let (transposed, biased, affine) = (case & 1 != 0, case & 2 != 0, case & 4 != 0);
            let mut m = model(transposed, biased, affine);
            let expected = result(&m);
            m.after(&FoldBatchNorms);
            assert_eq!(m.after(&EliminateDeadCode), [aten::CONVOLUTION]);
            let scale = expected.iter().fold(0f32, |max, value| max.max(value.abs()));
            for (got, expected) in result(&m).iter().zip(&expected) {
                assert!((got - expected).abs() <= scale * 1e-6, "case {case}: {got} for {expected}");
            }
        }
    }
}
