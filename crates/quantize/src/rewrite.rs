//! Writes a quantization into a graph, with PyTorch's own operators.

use std::sync::Arc;

use rushlight_compiler::quantization::{
    ActivationScales, ActivationSpec, BiasSpec, Layer, LayerSpec, WeightScales, WeightSpec,
};
use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_graph::operators::quantized_decomposed;
use rushlight_graph::{
    Arena, Arg, BlockId, Builder, Bytes, Constant, ConstantData, Def, Expr, Graph, Model, Node, NodeId, Schemas,
    TensorType, Type, ValueId, substitute, substitute_outputs,
};
use rushlight_graph::{Error, ErrorKind};

use super::read::turned;
use super::sites::{Sites, output};
use super::weights::{Integers, Rounded};

/// Scales and weights that were chosen for the layers.
pub(super) struct Decisions<'a> {
    pub sites: &'a Sites,
    /// The scale and the zero point of each set of values that share them; empty if none is known before the program runs.
    pub scales: &'a [(f32, i32)],
    /// The quantization of layers and tables.
    pub specs: &'a FxHashMap<NodeId, LayerSpec>,
    pub weights: &'a FxHashMap<NodeId, Rounded>,
    /// Embeddings, whose tables become integers.
    pub tables: &'a [Layer],
    /// New biases of some layers.
    pub biases: &'a FxHashMap<NodeId, Vec<f32>>,
}

impl Decisions<'_> {
    fn weights(&self, layer: &Layer) -> Result<(&Rounded, LayerSpec), Error> {
        let without = || Error::new(ErrorKind::Verification, format!("`{}` has no integers", layer.name));
        self.weights.get(&layer.node).zip(self.specs.get(&layer.node).copied()).ok_or_else(without)
    }

    /// The scale and the zero point of a site, if they are known before the program runs.
    fn scale(&self, site: usize) -> Option<(f32, i32)> {
        self.scales.get(self.sites.site(site).set?).copied()
    }
}

/// The dequantized copies of values.
#[derive(Default)]
struct Copies {
    /// Those of each site.
    sites: FxHashMap<usize, ValueId>,
    /// Those of results of integer operators, which all later readers use.
    results: FxHashMap<ValueId, ValueId>,
}

impl Copies {
    /// Returns the copy of a value in a form. Adds its nodes the first time.
    fn get(
        &mut self,
        builder: &mut Builder<'_>,
        decisions: &Decisions<'_>,
        (value, spec): (ValueId, ActivationSpec),
    ) -> Result<ValueId, Error> {
        let Some(site) = decisions.sites.find(value, &spec) else { return Ok(value) };
        if let Some(copy) = self.sites.get(&site) {
            return Ok(*copy);
        }
        let copy = match (spec.scales, decisions.scale(site)) {
            (ActivationScales::PerTensor | ActivationScales::PerToken, _) => {
                quantize_dynamically(builder, value, spec)?
            }
            (_, Some(scale)) => quantize_statically(builder, value, spec, scale)?,
            (_, None) => return Ok(value),
        };
        self.sites.insert(site, copy);
        if let Def::Result(node, _) = builder.graph.values[value].def
            && decisions.sites.annotations.get(node).is_some()
            && !spec.is_dynamic()
        {
            self.results.entry(value).or_insert(copy);
        }
        Ok(copy)
    }
}

/// Rewrites a method so that its layers compute in integers.
pub(super) fn quantize(model: &mut Model, method: &str, decisions: &Decisions<'_>) -> Result<(), Error> {
    let Model { methods, constants, schemas, .. } = model;
    let Some(graph) = methods.get_mut(method) else { return Ok(()) };
    let layers = decisions.sites.layers.iter().chain(decisions.tables);
    let layers = layers.map(|layer| (layer.node, layer)).collect();
    let mut rewriter = Rewriter { constants, schemas, decisions, layers, weights: FxHashMap::default() };
    let replaced = rewriter.block(graph, graph.body)?;
    substitute_outputs(graph, &replaced);
    Ok(())
}

/// Rewrites the blocks of a method.
struct Rewriter<'m, 'd> {
    constants: &'m mut Arena<Constant>,
    schemas: &'m Arc<Schemas>,
    decisions: &'d Decisions<'d>,
    layers: FxHashMap<NodeId, &'d Layer>,
    /// Dequantized weights, by the float weights and the address of the integers' scales: calls of a layer share them.
    weights: FxHashMap<(ValueId, *const f32), ValueId>,
}

impl Rewriter<'_, '_> {
    /// Rewrites a block and the blocks in it. Returns the values that later readers use instead of others.
    fn block(&mut self, graph: &mut Graph, block: BlockId) -> Result<FxHashMap<ValueId, ValueId>, Error> {
        let (decisions, mut copies) = (self.decisions, Copies::default());
        for id in std::mem::take(&mut graph.blocks[block].nodes) {
            for inner in graph.nodes[id].blocks().collect::<Vec<_>>() {
                self.block(graph, inner)?;
            }
            let origin = graph.nodes[id].origin;
            let mut builder = Builder::new(graph, self.constants, self.schemas, block, origin);
            let annotation = decisions.sites.annotations.get(id);
            let mut inputs: FxHashMap<ValueId, ValueId> = FxHashMap::default();
            for input in annotation.into_iter().flat_map(|annotation| &annotation.inputs) {
                inputs.insert(input.0, copies.get(&mut builder, decisions, *input)?);
            }
            substitute(&mut builder.graph.nodes[id].args, &inputs);
            substitute(&mut builder.graph.nodes[id].args, &copies.results);
            if let Some(layer) = self.layers.get(&id).copied() {
                self.constants_of(graph, layer)?;
            }
            graph.blocks[block].nodes.push(id);
            if let Some(result) = annotation.and_then(|annotation| output(graph, id, annotation)) {
                let mut builder = Builder::new(graph, self.constants, self.schemas, block, origin);
                copies.get(&mut builder, decisions, result)?;
            }
        }
        Ok(copies.results)
    }

    /// Replaces the weight and the bias of a layer. Nodes that dequantize them are in the body, so that a loop computes them once.
    fn constants_of(&mut self, graph: &mut Graph, layer: &Layer) -> Result<(), Error> {
        let (rounded, spec) = self.decisions.weights(layer)?;
        let (body, origin) = (graph.body, graph.nodes[layer.node].origin);
        let mut builder = Builder::new(graph, self.constants, self.schemas, body, origin);
        let key = (layer.weight, rounded.scales.as_ptr());
        let weight = match self.weights.get(&key) {
            Some(weight) => *weight,
            None => integers(&mut builder, layer, rounded, spec.weight)?,
        };
        self.weights.insert(key, weight);
        set(&mut builder.graph.nodes[layer.node], "weight", weight)?;
        let corrected = self.decisions.biases.get(&layer.node).cloned();
        let bias = match (spec.bias, corrected) {
            (BiasSpec::Float, None) => None,
            (_, Some(bias)) => Some(bias),
            (BiasSpec::Int32, None) => bias_of(&builder, layer)?,
        };
        let Some(bias) = bias else { return Ok(()) };
        let bias = match spec.bias {
            BiasSpec::Float => floats(&mut builder, &bias_name(layer), &[bias.len() as i64], &bias)?,
            BiasSpec::Int32 => quantized_bias(&mut builder, layer, &bias, rounded, self.decisions)?,
        };
        set(&mut builder.graph.nodes[layer.node], "bias", bias)
    }
}

fn bias_name(layer: &Layer) -> String {
    format!("{}.bias", layer.name)
}

/// The bias of a layer; `None` if it has none, or one that is computed.
fn bias_of(builder: &Builder<'_>, layer: &Layer) -> Result<Option<Vec<f32>>, Error> {
    let bias = builder.graph.nodes[layer.node].arg("bias").and_then(Arg::as_value);
    match bias.and_then(|bias| builder.graph.constant_of(bias)) {
        Some(bias) => builder.constants[bias].floats().map(Some),
        None => Ok(None),
    }
}

/// Adds the dequantized integers of a bias. Their scales are the products of those of the input and the weights.
fn quantized_bias(
    builder: &mut Builder<'_>,
    layer: &Layer,
    bias: &[f32],
    rounded: &Rounded,
    decisions: &Decisions<'_>,
) -> Result<ValueId, Error> {
    let Some((input, _)) = decisions.sites.input_of(layer).and_then(|site| decisions.scale(site)) else {
        let error = Error::unsupported("the backend's quantizer asks for a bias of integers");
        let error = error.expected("an input with a scale that is known before the program runs");
        return Err(builder.graph.locate(error, layer.node));
    };
    let scales: Vec<f32> = rounded.scales.iter().map(|scale| (scale * input).max(f32::MIN_POSITIVE)).collect();
    let scale_of = |channel: usize| scales.get(channel % scales.len().max(1)).copied().unwrap_or(1.0);
    let integer = |(channel, bias): (usize, &f32)| {
        // Casts saturate.
        (f64::from(*bias) / f64::from(scale_of(channel))).round_ties_even() as i32
    };
    let bytes: Vec<u8> = bias.iter().enumerate().map(integer).flat_map(i32::to_le_bytes).collect();
    let (name, sizes) = (bias_name(layer), [bias.len() as i64]);
    let integers = builder.constant(Constant::dense(&name, TensorType::of(ScalarType::Int, &sizes), bytes)?);
    let range = [Arg::from(i64::from(i32::MIN)), Arg::from(i64::from(i32::MAX)), Arg::DType(ScalarType::Int)];
    if let [scale] = scales[..] {
        return dequantize_by_one(builder, integers, scale, range);
    }
    let scales = floats(builder, &format!("{name}_scale"), &[scales.len() as i64], &scales)?;
    dequantize_by_channel(builder, integers, scales, 0, range)
}

/// Adds a second node for each layer that is [compared](Sites::compared), which computes in integers from the results of the float layers before it.
/// Returns the results of each pair: first the float one, then the integer one.
pub(super) fn add_twins(model: &mut Model, method: &str, decisions: &Decisions<'_>) -> Result<Vec<ValueId>, Error> {
    let Model { methods, constants, schemas, .. } = model;
    let Some(graph) = methods.get_mut(method) else { return Ok(Vec::new()) };
    let layers: FxHashMap<NodeId, &Layer> = decisions.sites.compared().map(|layer| (layer.node, layer)).collect();
    let mut pairs: FxHashMap<NodeId, [ValueId; 2]> = FxHashMap::default();
    let mut copies = Copies::default();
    let body = graph.body;
    for id in std::mem::take(&mut graph.blocks[body].nodes) {
        graph.blocks[body].nodes.push(id);
        let (Some(layer), Some(result)) = (layers.get(&id), graph.nodes[id].result()) else { continue };
        let node = graph.nodes[id].clone();
        let mut builder = Builder::new(graph, constants, schemas, body, node.origin);
        let input = match decisions.sites.input_of(layer) {
            Some(site) => copies.get(&mut builder, decisions, (layer.input, decisions.sites.site(site).spec))?,
            None => layer.input,
        };
        let (rounded, spec) = decisions.weights(layer)?;
        let weight = integers(&mut builder, layer, rounded, spec.weight)?;
        let mut twin = node;
        set(&mut twin, "input", input)?;
        set(&mut twin, "weight", weight)?;
        let types: Vec<Type> = twin.results.iter().map(|result| builder.graph.ty(*result).clone()).collect();
        let results = builder.push(twin.op, twin.args, types);
        if let Some(twin) = results.first() {
            pairs.insert(id, [result, *twin]);
        }
    }
    Ok(decisions.sites.compared().filter_map(|layer| pairs.get(&layer.node)).flatten().copied().collect())
}

fn set(node: &mut Node, param: &str, value: ValueId) -> Result<(), Error> {
    let position = node.op.schema().and_then(|schema| schema.position(param));
    match position.and_then(|position| node.args.get_mut(position)) {
        Some(arg) => *arg = Arg::Value(value),
        None => return Err(Error::new(ErrorKind::Verification, format!("a layer has no `{param}`"))),
    }
    Ok(())
}

/// The range and the element type of integers, as arguments.
fn integer_args(spec: ActivationSpec) -> [Arg; 3] {
    let [min, max] = spec.range.map(|integer| Arg::from(i64::from(integer)));
    [min, max, Arg::DType(spec.dtype)]
}

/// Adds nodes that quantize and dequantize a value with a scale and a zero point that they compute from it: of the whole
/// tensor, or of each row.
fn quantize_dynamically(builder: &mut Builder<'_>, value: ValueId, spec: ActivationSpec) -> Result<ValueId, Error> {
    use quantized_decomposed as ops;
    let [min, max, dtype] = integer_args(spec);
    let (choice, [round, back], form) = if spec.scales == ActivationScales::PerTensor {
        let args = vec![Arg::Value(value), min, max, Arg::from(f64::from(f32::EPSILON)), dtype];
        let choose = if spec.is_symmetric { ops::CHOOSE_QPARAMS_SYMMETRIC_TENSOR } else { ops::CHOOSE_QPARAMS_TENSOR };
        let names = [ops::QUANTIZE_PER_TENSOR_TENSOR, ops::DEQUANTIZE_PER_TENSOR_TENSOR];
        ((choose, args), names, Arg::None)
    } else {
        let args = vec![Arg::Value(value), dtype];
        let names = [ops::QUANTIZE_PER_TOKEN, ops::DEQUANTIZE_PER_TOKEN];
        ((ops::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC, args), names, Arg::DType(ScalarType::Float))
    };
    let chosen = builder.call(choice.0, choice.1)?;
    let args = |first: ValueId| {
        let mut args = vec![Arg::Value(first)];
        args.extend(chosen.iter().map(|value| Arg::Value(*value)));
        args.extend(integer_args(spec));
        args
    };
    let integers = builder.one(round, args(value))?;
    let mut args = args(integers);
    args.push(form);
    builder.one(back, args)
}

/// Adds nodes that quantize and dequantize a value with a known scale and zero point.
fn quantize_statically(
    builder: &mut Builder<'_>,
    value: ValueId,
    spec: ActivationSpec,
    (scale, zero): (f32, i32),
) -> Result<ValueId, Error> {
    let parameters = |first: ValueId| {
        let mut args = vec![Arg::Value(first), Arg::Float(f64::from(scale)), Arg::from(i64::from(zero))];
        args.extend(integer_args(spec));
        args
    };
    let integers = builder.one(quantized_decomposed::QUANTIZE_PER_TENSOR, parameters(value))?;
    builder.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, parameters(integers))
}

/// Adds the dequantized integers of a weight.
fn integers(builder: &mut Builder<'_>, layer: &Layer, rounded: &Rounded, spec: WeightSpec) -> Result<ValueId, Error> {
    let Some(id) = builder.graph.constant_of(layer.weight) else {
        return Err(Error::new(ErrorKind::Verification, format!("the weight of `{}` is no constant", layer.name)));
    };
    let constant = &builder.constants[id];
    let (name, shape, sizes) = (constant.name.clone(), constant.ty.shape.clone(), constant.sizes()?);
    let data = match (sizes.as_slice(), layer.axis) {
        ([inputs, outputs, taps @ ..], 1) => {
            let integers = turned(&rounded.integers.read()?, [*outputs, *inputs, taps.iter().product()]);
            ConstantData::Dense(Bytes::new(Shared(Arc::new(integers))))
        }
        _ => match &rounded.integers {
            Integers::Held(integers) => ConstantData::Dense(Bytes::new(Shared(integers.clone()))),
            Integers::Nearest(nearest) => ConstantData::Computed(nearest.clone()),
        },
    };
    let weight = Constant { name: name.clone(), ty: TensorType::new(ScalarType::Char, shape.clone()), data };
    let weight = builder.constant(weight);
    let [min, max] = spec.range.map(|integer| Arg::from(i64::from(integer)));
    let range = [min, max, Arg::DType(ScalarType::Char)];
    if let (WeightScales::PerTensor, [scale]) = (spec.scales, rounded.scales.as_slice()) {
        return dequantize_by_one(builder, weight, *scale, range);
    }
    let rows = shape.get(layer.axis).and_then(Expr::as_int).unwrap_or(1);
    let groups = rounded.scales.len() as i64 / rows.max(1);
    let scale_name = format!("{name}_scale");
    if groups == 1 {
        let scales = shared(builder, &scale_name, &[rows], &rounded.scales)?;
        return dequantize_by_channel(builder, weight, scales, layer.axis, range);
    }
    let scales = shared(builder, &scale_name, &[rows, groups], &rounded.scales)?;
    let mut args = vec![Arg::Value(weight), Arg::Value(scales), Arg::None];
    args.extend(range);
    args.extend([Arg::from(rounded.group as i64), Arg::DType(ScalarType::Float)]);
    builder.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP, args)
}

/// Adds a node that dequantizes integers with one scale and without a zero point.
fn dequantize_by_one(
    builder: &mut Builder<'_>,
    integers: ValueId,
    scale: f32,
    range: [Arg; 3],
) -> Result<ValueId, Error> {
    let mut args = vec![Arg::Value(integers), Arg::Float(f64::from(scale)), Arg::from(0)];
    args.extend(range);
    builder.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, args)
}

/// Adds a node that dequantizes integers with a scale for each index of an axis and without zero points.
fn dequantize_by_channel(
    builder: &mut Builder<'_>,
    integers: ValueId,
    scales: ValueId,
    axis: usize,
    range: [Arg; 3],
) -> Result<ValueId, Error> {
    let mut args = vec![Arg::Value(integers), Arg::Value(scales), Arg::None, Arg::from(axis as i64)];
    args.extend(range);
    builder.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, args)
}

/// Numbers as bytes, in shared memory.
struct Shared<T>(Arc<Vec<T>>);

impl<T: bytemuck::Pod> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Adds a constant of floats in shared memory.
fn shared(builder: &mut Builder<'_>, name: &str, sizes: &[i64], numbers: &Arc<Vec<f32>>) -> Result<ValueId, Error> {
    if cfg!(target_endian = "big") {
        return floats(builder, name, sizes, numbers);
    }
    let bytes = Bytes::new(Shared(numbers.clone()));
    Ok(builder.constant(Constant::dense(name, TensorType::of(ScalarType::Float, sizes), bytes)?))
}

/// Adds a constant of floats.
fn floats(builder: &mut Builder<'_>, name: &str, sizes: &[i64], numbers: &[f32]) -> Result<ValueId, Error> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(builder.constant(Constant::dense(name, TensorType::of(ScalarType::Float, sizes), bytes)?))
}
