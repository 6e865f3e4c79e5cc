//! A backend's quantization policy, on the classifier of digits.

use std::fs;
use std::sync::{Arc, Mutex};

use rushlight::compiler::partition::{Backend, Canonical, Claims, Compiled, Part};
use rushlight::compiler::quantization::{Quantizer, Scheme};
use rushlight::graph::operators::{aten, quantized_decomposed};
use rushlight::graph::{Arg, Error, Graph, NodeId};
use rushlight::{Code, CompiledProgram, Compiler, Module, Quantization, ScalarType, Tensor, Value};
use rushlight_example_backend::{SHIFT8, SHIFT16, Shift};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cortex-m/digits.pt2");
const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cortex-m/images/images.bin");

/// A node of the graph that backends are shown: its operator, and how it quantizes or dequantizes.
type Shown = (String, Option<Parameters>);

#[derive(Clone, Debug, PartialEq)]
struct Parameters {
    dtype: ScalarType,
    /// `None` for one scale per channel.
    scale: Option<f64>,
    zero_point: i64,
    range: [i64; 2],
}

/// [`Shift`], which records the nodes that it is shown.
#[derive(Debug, Default)]
struct Recorder {
    nodes: Arc<Mutex<Vec<Shown>>>,
}

impl Backend for Recorder {
    fn name(&self) -> &str {
        Shift.name()
    }

    fn quantizer(&self) -> Option<&dyn Quantizer> {
        Some(&Shift)
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        // Composites are shown whole first.
        let mut nodes = self.nodes.lock().unwrap();
        if nodes.is_empty() {
            *nodes = canonical.nodes().map(|node| shown(canonical.graph, node)).collect();
        }
        Shift.claim(canonical, claims)
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        Shift.compile(part)
    }
}

fn shown(graph: &Graph, id: NodeId) -> Shown {
    let node = &graph.nodes[id];
    let int = |name: &str| match node.arg(name) {
        Some(Arg::Int(int)) => int.as_int(),
        _ => None,
    };
    let scale = match node.arg("scale") {
        Some(Arg::Float(scale)) => Some(*scale),
        _ => None,
    };
    let parameters = match (node.arg("dtype"), int("quant_min"), int("quant_max")) {
        (Some(Arg::DType(dtype)), Some(min), Some(max)) => {
            Some(Parameters { dtype: *dtype, scale, zero_point: int("zero_point").unwrap_or(0), range: [min, max] })
        }
        _ => None,
    };
    (node.op.name().to_owned(), parameters)
}

fn digits() -> Vec<Vec<Value>> {
    let bytes = fs::read(IMAGES).unwrap();
    let image = |bytes: &[u8]| Value::Tensor(Tensor::from_bytes(ScalarType::Float, &[1, 1, 8, 8], bytes).unwrap());
    bytes.chunks_exact(256).map(|bytes| vec![image(bytes)]).collect()
}

fn compiled(scheme: Scheme) -> (CompiledProgram, Vec<Shown>) {
    let recorder = Recorder::default();
    let nodes = recorder.nodes.clone();
    let quantization = Quantization::new(scheme).calibrate("forward", digits());
    let compiler = Compiler::new().method("forward", MODEL).quantize(quantization).backend(Box::new(recorder));
    let program = compiler.compile().unwrap();
    let nodes = nodes.lock().unwrap().clone();
    (program, nodes)
}

fn is_power_of_two(scale: f64) -> bool {
    scale.log2().fract() == 0.0
}

#[test]
fn nodes_have_the_types_of_the_policy() {
    use quantized_decomposed::{DEQUANTIZE_PER_CHANNEL, DEQUANTIZE_PER_TENSOR, QUANTIZE_PER_TENSOR};
    for (scheme, dtype, range, least) in
        [(SHIFT8, ScalarType::Char, [-128, 127], 20.0), (SHIFT16, ScalarType::Short, [-32767, 32767], 30.0)]
    {
        let (program, nodes) = compiled(scheme);
        let names: Vec<&str> = nodes.iter().map(|(name, _)| name.as_str()).collect();
        let [q, dq, of_channels] = [QUANTIZE_PER_TENSOR, DEQUANTIZE_PER_TENSOR, DEQUANTIZE_PER_CHANNEL];
        let convolution = [q, dq, of_channels, of_channels, aten::CONVOLUTION, aten::RELU];
        let pool = [q, dq, aten::MAX_POOL2D];
        // No quantization is between a layer and its ReLU, and none is lacking elsewhere.
        let linear = [q, dq, aten::VIEW_COPY, q, dq, dq, dq, aten::LINEAR, q, dq];
        let expected = [&convolution[..], &pool, &convolution, &pool, &linear].concat();
        assert_eq!(names, expected);
        // The scale of an activation, with those of the weights and biases of 32 bits that dequantize beside it.
        let mut scales = Vec::new();
        for (name, parameters) in &nodes {
            let Some(Parameters { dtype: of, scale, zero_point, range: integers }) = parameters else { continue };
            assert_eq!(*zero_point, 0);
            assert!(scale.is_none_or(is_power_of_two), "{name}: {scale:?}");
            match of {
                ScalarType::Int => assert_eq!(*integers, [i64::from(i32::MIN), i64::from(i32::MAX)]),
                _ if *integers == [-127, 127] => assert_eq!(*of, ScalarType::Char),
                _ => assert_eq!((*of, *integers), (dtype, range)),
            }
            if name == q {
                scales.extend(*scale);
            }
        }
        // Pooling and flattening keep the scale.
        assert_eq!(scales.len(), 7);
        assert_eq!(scales[1], scales[2]);
        assert_eq!((scales[3], scales[3]), (scales[4], scales[5]));
        let report = program.quantization().unwrap();
        assert_eq!((report.scheme.name, report.quantized()), (scheme.name, 3));
        assert!(report.output_snr.is_some_and(|ratio| ratio > least), "{report}");
        let mut module = Module::builder().lower("off").load_bytes(&program.to_bytes().unwrap()).unwrap();
        for (digit, image) in digits().into_iter().enumerate() {
            let outputs = module.forward(&[image[0].as_tensor().and_then(Tensor::view).unwrap().into()]).unwrap();
            let logits = outputs[0].as_slice::<f32>().unwrap();
            let best = (0..10).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            assert_eq!(best, Some(digit));
        }
    }
}

#[test]
fn schemes_of_others_are_refused_with_names() {
    let quantization = Quantization::new(Scheme::INT4);
    let compiler = Compiler::new().method("forward", MODEL).quantize(quantization).backend(Box::new(Shift));
    let error = compiler.compile().unwrap_err();
    assert_eq!(error.code(), Code::NotSupported);
    assert_eq!(error.what_was_expected(), Some("`shift8`, `shift16`"), "{error}");
    // Without a backend with a policy, that of the CPU backend is used.
    let compiler = Compiler::new().method("forward", MODEL).quantize(Quantization::new(SHIFT8)).backend("portable");
    let error = compiler.compile().unwrap_err();
    assert!(error.what_was_expected().is_some_and(|names| names.contains("`int8-dynamic`")), "{error}");
}
