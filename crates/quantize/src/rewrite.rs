//! Writes a quantization into a graph, with PyTorch's own operators.

use std::sync::Arc;

use rushlight_format::ScalarType;
use rustc_hash::FxHashMap;

use rushlight_graph::operators::{aten, quantized_decomposed};
use rushlight_graph::{
    Arg, Builder, Bytes, Constant, ConstantData, Def, Expr, Model, Node, NodeId, TensorType, Type, ValueId, substitute,
    substitute_outputs,
};
use rushlight_graph::{Error, ErrorKind};

use super::read::turned;
use super::scheme::Scheme;
use super::sites::{Layer, Sites, operands};
use super::weights::{Integers, Rounded, Width};

/// Scales and weights that were chosen for the layers.
pub(super) struct Decisions<'a> {
    pub scheme: Scheme,
    pub sites: &'a Sites,
    /// The value of each scale of the sites, with its zero point; empty if activations have no static scales.
    pub scales: &'a [(f32, i32)],
    pub weights: &'a FxHashMap<NodeId, Rounded>,
    /// Embeddings, whose tables become integers.
    pub tables: &'a [(Layer, Width)],
    /// New biases of some layers.
    pub biases: &'a FxHashMap<NodeId, Vec<f32>>,
}

impl Decisions<'_> {
    fn weights(&self, layer: &Layer) -> Result<&Rounded, Error> {
        let without = || Error::new(ErrorKind::Verification, format!("`{}` has no integers", layer.name));
        self.weights.get(&layer.node).ok_or_else(without)
    }
}

impl Scheme {
    /// Width of the weights.
    pub(super) const fn width(self) -> Width {
        if self.has_four_bits() { Width::Four } else { Width::Eight }
    }
}

/// Rewrites a method so that its layers compute in integers.
pub(super) fn quantize(model: &mut Model, method: &str, decisions: &Decisions<'_>) -> Result<(), Error> {
    let Model { methods, constants, schemas, .. } = model;
    let Some(graph) = methods.get_mut(method) else { return Ok(()) };
    let layers: FxHashMap<NodeId, &Layer> = decisions.sites.layers.iter().map(|layer| (layer.node, layer)).collect();
    // The dequantized copy of each value. The second map has the results of integer operators, whose copies all readers
    // use.
    let mut rounded: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut given: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let body = graph.body;
    for id in std::mem::take(&mut graph.blocks[body].nodes) {
        let origin = graph.nodes[id].origin;
        let layer = layers.get(&id);
        let takes = if decisions.scheme.is_static() && decisions.sites.integers.contains(&id) {
            operands(graph, &graph.nodes[id])
        } else {
            layer.filter(|_| decisions.scheme.is_dynamic()).map(|layer| layer.input).into_iter().collect()
        };
        let mut builder = Builder::new(graph, constants, schemas, body, origin);
        for value in takes {
            if rounded.contains_key(&value) {
                continue;
            }
            let scale = decisions.sites.quantized.get(&value).and_then(|number| decisions.scales.get(*number));
            let is_convolution = builder.graph.nodes[id].op.name() == aten::CONVOLUTION;
            if let Some(again) = round_input(&mut builder, value, decisions.scheme, scale.copied(), is_convolution)? {
                rounded.insert(value, again);
                if matches!(builder.graph.values[value].def, Def::Result(node, _) if decisions.sites.integers.contains(&node))
                {
                    given.insert(value, again);
                }
            }
        }
        let takes_integers = decisions.sites.integers.contains(&id) || layer.is_some();
        substitute(&mut builder.graph.nodes[id].args, if takes_integers { &rounded } else { &given });
        let table =
            || decisions.tables.iter().find(|(table, _)| table.node == id).map(|(table, width)| (table, *width));
        if let Some((layer, width)) = layer.map(|layer| (*layer, decisions.scheme.width())).or_else(table) {
            let weight = integers(&mut builder, layer, decisions.weights(layer)?, width)?;
            set(&mut builder.graph.nodes[id], "weight", weight)?;
            if let Some(bias) = decisions.biases.get(&id) {
                let bias = floats(&mut builder, &format!("{}.bias", layer.name), &[bias.len() as i64], bias)?;
                set(&mut builder.graph.nodes[id], "bias", bias)?;
            }
        }
        graph.blocks[body].nodes.push(id);
    }
    substitute_outputs(graph, &given);
    Ok(())
}

/// Adds a second node for each layer, which computes in integers from the results of the float layers before it.
/// Returns the results of each pair: first the float one, then the integer one.
pub(super) fn add_twins(model: &mut Model, method: &str, decisions: &Decisions<'_>) -> Result<Vec<ValueId>, Error> {
    let Model { methods, constants, schemas, .. } = model;
    let Some(graph) = methods.get_mut(method) else { return Ok(Vec::new()) };
    let layers: FxHashMap<NodeId, &Layer> = decisions.sites.layers.iter().map(|layer| (layer.node, layer)).collect();
    let mut pairs: FxHashMap<NodeId, [ValueId; 2]> = FxHashMap::default();
    let mut rounded: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let body = graph.body;
    for id in std::mem::take(&mut graph.blocks[body].nodes) {
        graph.blocks[body].nodes.push(id);
        let (Some(layer), Some(result)) = (layers.get(&id), graph.nodes[id].result()) else { continue };
        let node = graph.nodes[id].clone();
        let mut builder = Builder::new(graph, constants, schemas, body, node.origin);
        let input = match rounded.get(&layer.input) {
            Some(input) => *input,
            None => {
                let scale = decisions.sites.quantized.get(&layer.input).and_then(|at| decisions.scales.get(*at));
                let is_convolution = node.op.name() == aten::CONVOLUTION;
                let input = round_input(&mut builder, layer.input, decisions.scheme, scale.copied(), is_convolution)?;
                *rounded.entry(layer.input).or_insert(input.unwrap_or(layer.input))
            }
        };
        let weight = integers(&mut builder, layer, decisions.weights(layer)?, decisions.scheme.width())?;
        let mut twin = node;
        set(&mut twin, "input", input)?;
        set(&mut twin, "weight", weight)?;
        let types: Vec<Type> = twin.results.iter().map(|result| builder.graph.ty(*result).clone()).collect();
        let results = builder.push(twin.op, twin.args, types);
        if let Some(twin) = results.first() {
            pairs.insert(id, [result, *twin]);
        }
    }
    Ok(decisions.sites.layers.iter().filter_map(|layer| pairs.get(&layer.node)).flatten().copied().collect())
}

fn set(node: &mut Node, param: &str, value: ValueId) -> Result<(), Error> {
    let position = node.op.schema().and_then(|schema| schema.position(param));
    match position.and_then(|position| node.args.get_mut(position)) {
        Some(arg) => *arg = Arg::Value(value),
        None => return Err(Error::new(ErrorKind::Verification, format!("a layer has no `{param}`"))),
    }
    Ok(())
}

/// Adds nodes that quantize and dequantize a value; `None` if it is not quantized. Images have one scale.
fn round_input(
    builder: &mut Builder<'_>,
    value: ValueId,
    scheme: Scheme,
    scale: Option<(f32, i32)>,
    is_convolution: bool,
) -> Result<Option<ValueId>, Error> {
    let byte = || Arg::DType(ScalarType::Char);
    let range = || [Arg::from(-128), Arg::from(127)];
    if scheme.is_dynamic() {
        let (choice, [round, back], form) = if is_convolution {
            // All pixels of a window must have the same scale.
            let [min, max] = range();
            let args = vec![Arg::Value(value), min, max, Arg::from(f64::from(f32::EPSILON)), byte()];
            let names =
                [quantized_decomposed::QUANTIZE_PER_TENSOR_TENSOR, quantized_decomposed::DEQUANTIZE_PER_TENSOR_TENSOR];
            ((quantized_decomposed::CHOOSE_QPARAMS_TENSOR, args), names, Arg::None)
        } else {
            let args = vec![Arg::Value(value), byte()];
            let names = [quantized_decomposed::QUANTIZE_PER_TOKEN, quantized_decomposed::DEQUANTIZE_PER_TOKEN];
            let choose = quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
            ((choose, args), names, Arg::DType(ScalarType::Float))
        };
        let chosen = builder.call(choice.0, choice.1)?;
        let args = |first: ValueId| {
            let mut args = vec![Arg::Value(first)];
            args.extend(chosen.iter().map(|value| Arg::Value(*value)));
            args.extend(range());
            args.push(byte());
            args
        };
        let integers = builder.one(round, args(value))?;
        let mut args = args(integers);
        args.push(form);
        return builder.one(back, args).map(Some);
    }
    let Some((scale, zero)) = scale else { return Ok(None) };
    let parameters = |first: ValueId| {
        let mut args = vec![Arg::Value(first), Arg::Float(f64::from(scale)), Arg::from(i64::from(zero))];
        args.extend(range());
        args.push(byte());
        args
    };
    let integers = builder.one(quantized_decomposed::QUANTIZE_PER_TENSOR, parameters(value))?;
    builder.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, parameters(integers)).map(Some)
}

/// Adds the dequantized integers of a weight.
fn integers(builder: &mut Builder<'_>, layer: &Layer, rounded: &Rounded, width: Width) -> Result<ValueId, Error> {
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
    let rows = shape.get(layer.axis).and_then(Expr::as_int).unwrap_or(1);
    let groups = rounded.scales.len() as i64 / rows.max(1);
    let (min, max) = width.range();
    let mut args = vec![Arg::Value(weight)];
    let range = [Arg::from(i64::from(min)), Arg::from(i64::from(max)), Arg::DType(ScalarType::Char)];
    let scale_name = format!("{name}_scale");
    if groups == 1 {
        let scales = shared(builder, &scale_name, &[rows], &rounded.scales)?;
        args.extend([Arg::Value(scales), Arg::None, Arg::from(layer.axis as i64)]);
        args.extend(range);
        return builder.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, args);
    }
    let scales = shared(builder, &scale_name, &[rows, groups], &rounded.scales)?;
    args.extend([Arg::Value(scales), Arg::None]);
    args.extend(range);
    args.extend([Arg::from(rounded.group as i64), Arg::DType(ScalarType::Float)]);
    builder.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP, args)
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
