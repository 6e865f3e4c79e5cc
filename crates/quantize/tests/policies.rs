//! Policies of backends: the nodes that they make of one model. Calibrations are made up, since the nodes do not depend on them.

use std::sync::Arc;

use rushlight_compiler::quantization::{
    ActivationScales, ActivationSpec, Annotation, Annotations, BiasSpec, Layer, LayerSpec, MethodLayers,
    OperatorChains, Quantizer, Role, Scheme, WeightScales, WeightSpec,
};
use rushlight_engine::Engine;
use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, quantized_decomposed as ops};
use rushlight_graph::{Arg, Constant, Error, ErrorKind, Graph, Model, Node, Origin, TensorType, Type};
use rushlight_quantize::{Calibration, Inputs, Report, See, Seen, Settings, Shown, quantize};

/// Shows ramps for all outputs. The ramp of output `i` goes from `-1 - i` to `1 + i`.
struct Ramps {
    engine: Arc<Engine>,
}

impl Calibration for Ramps {
    fn engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    fn samples(&self, _: &str, of: Inputs) -> usize {
        usize::from(of == Inputs::Calibration)
    }

    fn run(&mut self, model: Model, method: &str, _: Shown, see: &mut See<'_>) -> Result<(), Error> {
        let graph = &model.methods[method];
        let sizes = graph.outputs.iter().map(|output| {
            let sizes = graph.tensor(output.as_value().unwrap()).unwrap().static_sizes().unwrap();
            sizes.into_iter().map(|size| size as usize).collect::<Vec<_>>()
        });
        let outputs = sizes.enumerate().map(|(index, sizes)| {
            let (count, most) = (sizes.iter().product::<usize>(), (1 + index) as f32);
            let ramp = (0..count).map(|at| (at as f32 / (count - 1) as f32 * 2.0 - 1.0) * most);
            (sizes, ramp.collect::<Vec<_>>())
        });
        let outputs: Vec<_> = outputs.collect();
        let seen: Vec<_> = outputs.iter().map(|(sizes, numbers)| Seen { sizes, numbers }).collect();
        see(&seen)
    }
}

/// `softmax(cat(relu(conv(x)), conv(x)))`, and a linear layer of it.
fn model() -> Model {
    let mut model = Model::default();
    let mut graph = Graph::new();
    let x = graph.input("x", Type::Tensor(TensorType::of(ScalarType::Float, &[1, 2, 4, 4])));
    let (block, origin) = (graph.body, graph.origins.push(Origin { node: "node".into(), ..Origin::default() }));
    model.add_method("forward", graph);
    let mut builder = model.builder("forward", block, origin).unwrap();
    let mut constant = |name: &str, sizes: &[i64]| {
        let first = f32::from(name.as_bytes()[0]);
        let numbers = (0..sizes.iter().product::<i64>()).map(|at| (at as f32 * 0.7 + first).sin());
        let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        let ty = TensorType::of(ScalarType::Float, sizes);
        Arg::Value(builder.constant(Constant::dense(name, ty, bytes).unwrap()))
    };
    let weights = [constant("w", &[3, 2, 1, 1]), constant("v", &[3, 2, 1, 1])];
    let (bias, matrix, shift) = (constant("b", &[3]), constant("m", &[5, 4]), constant("s", &[5]));
    let ints = |ints: [i64; 2]| Arg::from(ints);
    let convolutions = weights.map(|weight| {
        let window = [ints([1, 1]), ints([0, 0]), ints([1, 1]), false.into(), ints([0, 0]), 1.into()];
        let args = [vec![x.into(), weight, bias.clone()], window.to_vec()].concat();
        builder.one(aten::CONVOLUTION, args).unwrap()
    });
    let positive = builder.one(aten::RELU, vec![convolutions[0].into()]).unwrap();
    let joined = builder.one(aten::CAT, vec![Arg::from(vec![positive, convolutions[1]]), 1.into()]).unwrap();
    let shares = builder.one(aten::_SOFTMAX, vec![joined.into(), 1.into(), false.into()]).unwrap();
    let result = builder.one(aten::LINEAR, vec![shares.into(), matrix, shift]).unwrap();
    model.methods["forward"].outputs = vec![result.into()];
    model
}

fn quantized(quantizer: &dyn Quantizer, scheme: Scheme) -> Result<(Model, Report), Error> {
    let mut model = model();
    let settings = Settings { scheme, bias_correction: false, ..Settings::default() };
    let mut calibration = Ramps { engine: Arc::new(Engine::new(1)) };
    let report = quantize(&mut model, quantizer, &settings, &mut calibration)?;
    model.verify()?;
    Ok((model, report))
}

fn nodes(model: &Model) -> Vec<&Node> {
    let graph = &model.methods["forward"];
    graph.blocks[graph.body].nodes.iter().map(|node| &graph.nodes[*node]).collect()
}

fn names(model: &Model) -> Vec<&str> {
    nodes(model).into_iter().map(|node| node.op.name()).collect()
}

/// The scale and the zero point of each node that quantizes.
fn parameters(model: &Model) -> Vec<(f64, i64)> {
    let quantizes = |node: &&Node| node.op.name() == ops::QUANTIZE_PER_TENSOR;
    let of = |node: &Node| match (node.arg("scale"), node.arg("zero_point")) {
        (Some(Arg::Float(scale)), Some(Arg::Int(zero))) => (*scale, zero.as_int().unwrap()),
        other => panic!("{other:?}"),
    };
    nodes(model).into_iter().filter(quantizes).map(of).collect()
}

/// Unsigned activations, one scale for the weights of a layer, and a softmax with a fixed scale.
#[derive(Debug)]
struct Unsigned;

const UNSIGNED: Scheme = Scheme { name: "u8", activation: Some(ActivationSpec::UINT8), ..Scheme::INT8 };

impl Quantizer for Unsigned {
    fn schemes(&self) -> &[Scheme] {
        &[UNSIGNED]
    }

    fn layer(&self, _: &Scheme, _: &Graph, _: &Layer) -> Result<LayerSpec, String> {
        let weight = WeightSpec { range: [-128, 127], scales: WeightScales::PerTensor, is_power_of_two: false };
        Ok(LayerSpec { weight, bias: BiasSpec::Int32 })
    }

    fn annotate(&self, scheme: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
        let activation = scheme.activation.unwrap();
        let role = |name: &str| match name {
            aten::CAT => Role::Concat,
            aten::RELU | aten::_SOFTMAX => Role::Unary,
            _ => Role::Float,
        };
        let fuses = |_, _: &str| false;
        OperatorChains { activation, role, fuses, quantizes_results: true }.annotate(method, annotations);
        let fixed = ActivationScales::Fixed { scale: 1.0 / 256.0, zero_point: 0 };
        let fixed = ActivationSpec { scales: fixed, ..activation };
        let graph = method.graph;
        for id in &graph.blocks[graph.body].nodes {
            let Some(mut annotation) = annotations.get(*id).cloned() else { continue };
            match graph.nodes[*id].op.name() {
                aten::_SOFTMAX => annotation.output = Some(fixed),
                aten::LINEAR => annotation.inputs.iter_mut().for_each(|(_, spec)| *spec = fixed),
                _ => continue,
            }
            annotations.set(*id, annotation);
        }
        Ok(())
    }
}

#[test]
fn unsigned_integers_with_shared_and_fixed_scales() {
    let (model, report) = quantized(&Unsigned, UNSIGNED).unwrap();
    let [q, dq] = [ops::QUANTIZE_PER_TENSOR, ops::DEQUANTIZE_PER_TENSOR];
    let expected = [
        &[q, dq, dq, dq, aten::CONVOLUTION, q, dq][..],
        &[dq, dq, aten::CONVOLUTION, q, dq],
        &[aten::RELU, q, dq, aten::CAT, q, dq, aten::_SOFTMAX, q, dq],
        &[dq, dq, aten::LINEAR, q, dq],
    ];
    assert_eq!(names(&model), expected.concat());
    // The input, the two convolutions, ReLU, the concatenation, softmax, and the result.
    let parameters = parameters(&model);
    assert_eq!(parameters.len(), 7);
    assert_eq!((parameters[2], parameters[3]), (parameters[4], parameters[4]), "operands of the concatenation");
    assert_ne!(parameters[1], parameters[3], "the input of ReLU");
    assert_eq!(parameters[5], (1.0 / 256.0, 0));
    let dtypes = nodes(&model).into_iter().filter_map(|node| match node.arg("dtype") {
        Some(Arg::DType(dtype)) => Some(*dtype),
        _ => None,
    });
    let count = |wanted| dtypes.clone().filter(|dtype| *dtype == wanted).count();
    assert_eq!([ScalarType::Byte, ScalarType::Char, ScalarType::Int].map(count), [14, 3, 3]);
    assert_eq!(report.layers.iter().map(|layer| layer.bytes_after).sum::<u64>(), 6 + 6 + 20 + 3 * 4);
}

/// The types of the scheme, for the inputs of layers alone.
#[derive(Debug)]
struct Simple {
    schemes: [Scheme; 1],
    bias: BiasSpec,
}

impl Simple {
    fn quantized(scheme: Scheme, bias: BiasSpec) -> Result<Model, Error> {
        quantized(&Self { schemes: [scheme], bias }, scheme).map(|(model, _)| model)
    }
}

impl Quantizer for Simple {
    fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    fn layer(&self, scheme: &Scheme, graph: &Graph, layer: &Layer) -> Result<LayerSpec, String> {
        if !scheme.has_convolutions && layer.sizes[0] > 99 {
            return Err("it is too large".to_owned());
        }
        assert_eq!(layer.shape(graph).unwrap().convolution.is_none(), layer.is_linear(graph));
        Ok(LayerSpec { weight: scheme.weight, bias: self.bias })
    }
}

#[test]
fn scales_that_are_chosen_at_run_time() {
    let with = |spec| Scheme { name: "dynamic", activation: Some(spec), has_convolutions: false, ..Scheme::INT8 };
    let symmetric = ActivationSpec { is_symmetric: true, range: [-127, 127], ..ActivationSpec::INT8 };
    for (spec, choose, [q, dq]) in [
        (
            ActivationSpec { scales: ActivationScales::PerToken, ..ActivationSpec::INT8 },
            ops::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC,
            [ops::QUANTIZE_PER_TOKEN, ops::DEQUANTIZE_PER_TOKEN],
        ),
        (
            ActivationSpec { scales: ActivationScales::PerTensor, ..ActivationSpec::UINT8 },
            ops::CHOOSE_QPARAMS_TENSOR,
            [ops::QUANTIZE_PER_TENSOR_TENSOR, ops::DEQUANTIZE_PER_TENSOR_TENSOR],
        ),
        (
            ActivationSpec { scales: ActivationScales::PerTensor, ..symmetric },
            ops::CHOOSE_QPARAMS_SYMMETRIC_TENSOR,
            [ops::QUANTIZE_PER_TENSOR_TENSOR, ops::DEQUANTIZE_PER_TENSOR_TENSOR],
        ),
    ] {
        let model = Simple::quantized(with(spec), BiasSpec::Float).unwrap();
        let names = names(&model);
        assert!(names.ends_with(&[choose, q, dq, ops::DEQUANTIZE_PER_CHANNEL, aten::LINEAR]), "{names:?}");
        assert_eq!(names.len(), 5 + 5);
    }
}

#[test]
fn forms_that_no_operator_has_are_refused_at_the_node() {
    let dynamic = Scheme::INT8_DYNAMIC.activation;
    let floats = ActivationSpec { dtype: ScalarType::Float, ..ActivationSpec::INT8 };
    for (scheme, bias, reason) in [
        (Scheme { activation: Some(floats), ..Scheme::INT8 }, BiasSpec::Float, "activations of `Float`"),
        (Scheme { activation: dynamic, ..Scheme::INT8 }, BiasSpec::Int32, "a bias of integers"),
        (Scheme { weight: WeightSpec::INT4, ..Scheme::INT8 }, BiasSpec::Float, "nothing in this model"),
        (
            Scheme { weight: WeightSpec { scales: WeightScales::PerGroup(1), ..WeightSpec::INT8 }, ..Scheme::INT8 },
            BiasSpec::Float,
            "groups of the weights of a convolution",
        ),
        (
            Scheme { weight: WeightSpec { range: [0, 127], ..WeightSpec::INT8 }, ..Scheme::INT8 },
            BiasSpec::Float,
            "weights from 0 to 127",
        ),
    ] {
        let error = Simple::quantized(scheme, bias).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn annotations_of_one_value_may_differ() {
    /// Integers of 16 bits for the first convolution, of 8 bits for the others.
    #[derive(Debug)]
    struct Mixed;
    impl Quantizer for Mixed {
        fn annotate(&self, _: &Scheme, method: &MethodLayers<'_>, annotations: &mut Annotations) -> Result<(), Error> {
            for (layer, spec) in method.layers.iter().zip([ActivationSpec::INT16, ActivationSpec::INT8]) {
                annotations.set(layer.node, Annotation::inputs([(layer.input, spec)]));
            }
            Ok(())
        }
    }
    let (model, report) = quantized(&Mixed, Scheme::INT8).unwrap();
    let inputs = nodes(&model).into_iter().filter(|node| node.op.name() == ops::QUANTIZE_PER_TENSOR);
    let inputs: Vec<_> = inputs.map(|node| (node.args[0].clone(), node.arg("dtype").cloned())).collect();
    assert_eq!(inputs.len(), 2);
    assert_eq!(inputs[0].0, inputs[1].0);
    let dtypes = [ScalarType::Short, ScalarType::Char].map(|dtype| Some(Arg::DType(dtype)));
    assert_eq!([inputs[0].1.clone(), inputs[1].1.clone()], dtypes);
    assert_eq!(report.quantized(), 3);
}

/// An LSTM of 4 inputs and 4 states over a sequence.
fn recurrent(length: i64) -> Model {
    let mut model = Model::default();
    let mut graph = Graph::new();
    let mut input =
        |name: &str, sizes: [i64; 3]| graph.input(name, Type::Tensor(TensorType::of(ScalarType::Float, &sizes)));
    let (x, states) = (input("x", [length, 1, 4]), [input("h", [1, 1, 4]), input("c", [1, 1, 4])]);
    let origin = Origin { node: "lstm".into(), module: "rnn".into(), ..Origin::default() };
    let (block, origin) = (graph.body, graph.origins.push(origin));
    model.add_method("forward", graph);
    let mut builder = model.builder("forward", block, origin).unwrap();
    let mut constant = |name: &str, sizes: &[i64]| {
        let numbers = (0..sizes.iter().product::<i64>()).map(|at| (at as f32 * 0.7 + name.len() as f32).sin());
        let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        builder.constant(Constant::dense(name, TensorType::of(ScalarType::Float, sizes), bytes).unwrap())
    };
    let weights = vec![constant("rnn.ih", &[16, 4]), constant("rnn.hidden", &[16, 4])];
    let biases = vec![constant("rnn.b", &[16]), constant("rnn.bias", &[16])];
    let args = vec![x.into(), Arg::from(states.to_vec()), Arg::from([weights, biases].concat())];
    let form = [true.into(), 1.into(), Arg::Float(0.0), false.into(), false.into(), false.into()];
    let results = builder.call(aten::LSTM_INPUT, [args, form.to_vec()].concat()).unwrap();
    model.methods["forward"].outputs = results.into_iter().map(Arg::Value).collect();
    model
}

/// Quantizes all linear layers, those of recurrent operators too.
#[derive(Debug)]
struct Linear;

impl Quantizer for Linear {
    fn composites(&self) -> Vec<&'static str> {
        vec![aten::LINEAR]
    }
}

#[test]
fn weights_of_recurrent_operators_are_one_layer_each() {
    for (length, is_loop) in [(3, false), (50, true)] {
        let quantized = |scheme| {
            let mut model = recurrent(length);
            let settings = Settings { scheme, ..Settings::default() };
            let mut calibration = Ramps { engine: Arc::new(Engine::new(1)) };
            let report = quantize(&mut model, &Linear, &settings, &mut calibration).unwrap();
            model.verify().unwrap();
            (model, report)
        };
        let (model, report) = quantized(Scheme::INT8_DYNAMIC);
        let mut layers: Vec<&str> = report.layers.iter().map(|layer| layer.name.as_str()).collect();
        layers.sort_unstable();
        assert_eq!((layers.as_slice(), report.quantized()), (&["rnn.hidden", "rnn.ih"][..], 2), "{report}");
        let graph = &model.methods["forward"];
        let count = |name: &str| {
            let mut count = 0;
            graph.for_each_node(graph.body, &mut |node| count += usize::from(graph.nodes[node].op.name() == name));
            count
        };
        // The inputs are rounded at once, the states step by step.
        let steps = if is_loop { 1 } else { length as usize };
        assert_eq!(count(ops::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC), 1 + steps);
        // All steps share the weights, and a loop computes them before it begins.
        let outside = names(&model).into_iter().filter(|name| *name == ops::DEQUANTIZE_PER_CHANNEL).count();
        assert_eq!((count(ops::DEQUANTIZE_PER_CHANNEL), outside), (2, 2));
        // Scales from a calibration need values that it sees.
        let (_, report) = quantized(Scheme::INT8);
        let kept = report.layers.iter().filter_map(|layer| Some((layer.name.as_str(), layer.kept.as_deref()?)));
        let kept: Vec<_> = kept.collect();
        let unseen = [("rnn.hidden", "the calibration does not see its inputs, in a loop or a branch")];
        assert_eq!(kept, if is_loop { &unseen[..] } else { &[] }, "{report}");
    }
}
