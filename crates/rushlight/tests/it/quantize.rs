//! Quantization without PyTorch: the classifier of digits, and models that cannot be quantized.
#![cfg(all(feature = "compile", feature = "_backends"))]

use rushlight_graph::operators::aten;
use std::fs;
use std::path::Path;

use rushlight::{
    Code, CompiledProgram, Compiler, Error, Inputs, Module, Observer, Quantization, Rounding, Scheme, Tensor,
    TensorView, Value,
};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m/digits.pt2");
const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m/images/images.bin");

/// Returns an image of each digit, each as the input of a call.
fn digits() -> Vec<Vec<Value>> {
    let bytes = fs::read(IMAGES).expect("the images of the example");
    let image =
        |bytes: &[u8]| Tensor::from_bytes(rushlight::ScalarType::Float, &[1, 1, 8, 8], bytes).expect("an image");
    bytes.chunks_exact(256).map(|bytes| vec![Value::Tensor(image(bytes))]).collect()
}

fn compile(quantization: Quantization) -> Result<CompiledProgram, Error> {
    Compiler::new().method("forward", MODEL).quantize(quantization).backend("cpu").compile()
}

/// Returns the class of each digit, and all logits.
fn classified(program: &[u8]) -> (Vec<usize>, Vec<f32>) {
    let mut module = Module::from_bytes(program).expect("a program");
    let (mut classes, mut all) = (Vec::new(), Vec::new());
    for image in digits() {
        let input = image[0].as_tensor().and_then(Tensor::view).expect("an image");
        let outputs = module.forward(&[input.into()]).expect("a call");
        let logits = outputs[0].as_slice::<f32>().expect("logits");
        let best = (0..10).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("ten logits");
        classes.push(best);
        all.extend_from_slice(logits);
    }
    (classes, all)
}

#[test]
fn every_observer_and_rounding_knows_the_digits() {
    let floats = Compiler::new().method("forward", MODEL).compile().and_then(|program| program.to_bytes());
    let (expected, logits) = classified(&floats.expect("the model"));
    assert_eq!(expected, (0..10).collect::<Vec<_>>());
    for observer in Observer::ALL {
        for rounding in Rounding::ALL {
            let quantization =
                Quantization::new(Scheme::INT8).observer(observer).rounding(rounding).calibrate("forward", digits());
            let program = compile(quantization).expect("a quantized model");
            let report = program.quantization().expect("a report");
            assert_eq!((report.layers.len(), report.quantized(), report.samples), (3, 3, 10));
            let entries = &program.compiled().report.entries;
            let products = entries.iter().filter(|entry| matches!(&*entry.op, aten::CONVOLUTION | aten::ADDMM));
            let precisions: Vec<_> = products.filter_map(|entry| entry.precision.as_deref()).collect();
            assert_eq!(precisions, ["int8, weights of 8 bits"; 3]);
            let ratio = report.output_snr.expect("outputs to compare");
            // Values beyond an average or a percentile are clipped.
            assert!(ratio > 20.0, "{observer:?} {rounding:?}: {ratio}");
            assert!(report.layers.iter().all(|layer| layer.snr.is_some_and(|ratio| ratio > 15.0)), "{report}");
            let (classes, got) = classified(&program.to_bytes().expect("bytes"));
            assert_eq!(classes, expected, "{observer:?} {rounding:?}");
            let signal: f32 = logits.iter().map(|logit| logit * logit).sum();
            let noise: f32 = logits.iter().zip(&got).map(|(float, integer)| (float - integer).powi(2)).sum();
            let measured = 10.0 * f64::from(signal / noise).log10();
            assert!((measured - ratio).abs() < 0.5, "the report says {ratio} dB, it is {measured}");
        }
    }
}

#[test]
fn layers_stay_floats_by_name_or_for_a_budget() {
    let kept = |program: &CompiledProgram| -> Vec<String> {
        let layers = &program.quantization().expect("a report").layers;
        layers.iter().filter(|layer| layer.kept.is_some()).map(|layer| layer.name.clone()).collect()
    };
    let int8 = || Quantization::new(Scheme::INT8).calibrate("forward", digits());
    assert_eq!(kept(&compile(int8().keep("conv*")).expect("a model")).len(), 2);
    assert_eq!(kept(&compile(int8().keep("classifier")).expect("a model")), ["classifier"]);
    let all = compile(int8()).expect("a model");
    let reached = all.quantization().and_then(|report| report.output_snr).expect("outputs");
    let some = compile(int8().min_snr(reached + 2.0)).expect("a model");
    let report = some.quantization().expect("a report");
    assert!((1..3).contains(&kept(&some).len()), "{report}");
    assert!(report.output_snr.is_some_and(|ratio| ratio >= reached + 2.0), "{report}");
    // No int8 model is this accurate.
    let none = compile(int8().min_snr(200.0)).expect("a model");
    assert_eq!(kept(&none).len(), 3);
    assert!(none.size().expect("a size") > all.size().expect("a size"));
}

#[test]
fn schemes_without_inputs_need_none() {
    // The model has two convolutions and a linear layer.
    for (scheme, layers) in [(Scheme::INT8_DYNAMIC, 3), (Scheme::INT8_WEIGHT, 1)] {
        let program = compile(Quantization::new(scheme)).expect("a model");
        let report = program.quantization().expect("a report");
        assert_eq!((report.quantized(), report.samples), (layers, 0), "{report}");
        // The inputs are the image that the model was exported with.
        assert_eq!((report.compared_on, &report.not_compared), (Some(Inputs::Example), &None), "{report}");
        assert!(report.output_snr.is_some_and(|ratio| ratio > 20.0) && report.warnings.is_empty(), "{report}");
        assert!(report.layers.iter().all(|layer| layer.kept.is_some() || layer.snr.is_some()), "{report}");
        assert!(report.layers[0].weight_snr.is_some_and(|ratio| ratio > 30.0), "{report}");
        assert_eq!(classified(&program.to_bytes().expect("bytes")).0, (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn scales_follow_inputs_however_small_they_are() {
    let ratio_of = |factor: f32| {
        let scaled = |sample: Vec<Value>| {
            let image = sample[0].as_slice::<f32>().expect("an image");
            let image: Vec<f32> = image.iter().map(|pixel| pixel * factor).collect();
            vec![Value::Tensor(Tensor::of(&[1, 1, 8, 8], &image).expect("an image"))]
        };
        let samples: Vec<_> = digits().into_iter().map(scaled).collect();
        let program = compile(Quantization::new(Scheme::INT8).observer(Observer::MinMax).calibrate("forward", samples));
        let report = program.expect("a model").quantization().expect("a report").clone();
        report.layers.iter().find(|layer| layer.name == "conv1").and_then(|layer| layer.range).expect("a range").1
    };
    let whole = ratio_of(1.0);
    for factor in [1e-2f32, 1e-4] {
        let range = ratio_of(factor) / (whole * factor);
        assert!((range - 1.0).abs() < 1e-3, "pixels up to {factor} are rounded within {range} times that");
    }
}

#[test]
fn outputs_that_are_mostly_noise_are_warned_of() {
    let fine = compile(Quantization::new(Scheme::INT8).calibrate("forward", digits())).expect("a model");
    let report = fine.quantization().expect("a report");
    assert!(report.warnings.is_empty() && report.compared_on == Some(Inputs::Calibration), "{report}");
    // A running average that begins with a dark image clips most of the others.
    let quantization = || {
        let dark = vec![Value::Tensor(Tensor::of(&[1, 1, 8, 8], &[1e-3f32; 64]).expect("an image"))];
        let samples = [dark].into_iter().chain(digits()).collect();
        Quantization::new(Scheme::INT8).observer(Observer::Average).calibrate("forward", samples)
    };
    let noisy = compile(quantization()).expect("a model");
    let report = noisy.quantization().expect("a report");
    assert!(report.outputs.len() == 1 && report.outputs[0].is_below(rushlight::LOW_SNR), "{report}");
    let [warning] = report.warnings.as_slice() else { panic!("{report}") };
    for part in ["below 10 dB", "the inputs of the calibration", "keep the worst layers", "min-snr", "int8-dynamic"] {
        assert!(warning.contains(part), "{warning}");
    }
    assert!(report.to_string().contains(&format!("warning: {warning}")), "{report}");
    // The advice of the warning helps.
    let better = compile(quantization().min_snr(20.0)).expect("a model");
    let report = better.quantization().expect("a report");
    assert!(report.warnings.is_empty() && report.output_snr.is_some_and(|ratio| ratio >= 20.0), "{report}");
}

#[test]
fn patterns_that_no_module_fits_are_errors() {
    let int8 = || Quantization::new(Scheme::INT8_DYNAMIC);
    for (pattern, near) in [("nothing*", "`"), ("clasifier", "`classifier`"), ("Conv1", "`conv1`")] {
        let error = compile(int8().keep("conv2").keep(pattern)).unwrap_err();
        assert_eq!(
            (error.code(), error.what_came()),
            (Code::InvalidArgument, Some(&*format!("`{pattern}`"))),
            "{error}"
        );
        assert!(error.to_string().contains(near), "{error}");
    }
    let model = compile(int8().keep("classifier")).expect("a model");
    assert!(model.quantization().is_some_and(|report| report.warnings.is_empty()));
}

#[test]
fn no_scheme_makes_a_file_larger() {
    /// Maximum bytes of steps and their names.
    const MOST: u64 = 512;
    const TIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/tied.pt2");
    for model in [MODEL, TIED] {
        // The debug map is larger for a quantized program, which has more nodes. It is not part of the code that runs.
        let compiler = || {
            let mut compiler = Compiler::new().method("forward", model).backend("cpu");
            compiler.options().emit.debug_map = false;
            compiler
        };
        let floats = compiler().compile().and_then(|program| program.size()).expect("a size");
        for scheme in [Scheme::INT8_DYNAMIC, Scheme::INT8_WEIGHT, Scheme::FOUR_BIT_DYNAMIC, Scheme::INT4] {
            match compiler().quantize(Quantization::new(scheme)).compile() {
                Ok(program) => {
                    let size = program.size().expect("a size");
                    assert!(size <= floats + MOST, "{scheme:?} of {model}: {size} of {floats} bytes");
                }
                Err(error) => assert_eq!(error.code(), Code::NotSupported, "{error}"),
            }
        }
    }
}

#[test]
fn tables_of_embeddings_become_integers() {
    const TIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/tied.pt2");
    let compile = |quantization: Option<Quantization>, backend: &str| {
        let mut compiler = Compiler::new().method("forward", TIED);
        if let Some(quantization) = quantization {
            compiler = compiler.quantize(quantization);
        }
        compiler.backend(backend).compile()
    };
    let run = |program: &CompiledProgram| {
        let mut module = Module::from_bytes(&program.to_bytes().expect("bytes")).expect("a program");
        let (tokens, image) = ([5i64, 2], vec![0.25f32; 32]);
        let tokens = TensorView::of(&[1, 2], &tokens).expect("tokens");
        let image = TensorView::of(&[1, 2, 4, 4], &image).expect("an image");
        let outputs = module.forward(&[tokens.into(), image.into()]).expect("a call");
        outputs[0].as_slice::<f32>().expect("floats").to_vec()
    };
    let ratio = |wanted: &[f32], got: &[f32]| -> f32 {
        let square = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|number| number * number).sum::<f32>();
        let noise = square(&mut wanted.iter().zip(got).map(|(wanted, got)| wanted - got));
        10.0 * (square(&mut wanted.iter().copied()) / noise).log10()
    };
    let floats = run(&compile(None, "cpu").expect("a model"));
    for (bits, said) in [(8, "f32, rows of 8 bits"), (4, "f32, rows of 8 bits")] {
        // Rows of four numbers have no groups of 32, and stay at 8 bits.
        let quantization = || Quantization::new(Scheme::INT8_WEIGHT).embeddings(bits);
        let program = compile(Some(quantization()), "cpu").expect("a quantized model");
        let report = program.quantization().expect("a report");
        let table = report.layers.iter().find(|layer| layer.op == aten::EMBEDDING).expect("a table");
        assert_eq!((table.name.as_str(), &table.sizes[..], table.bytes_after), ("embedding", &[6, 4][..], 48));
        let entries = &program.compiled().report.entries;
        let embedding = entries.iter().find(|entry| &*entry.op == aten::EMBEDDING).expect("an embedding");
        assert_eq!(embedding.precision.as_deref(), Some(said));
        let got = run(&program);
        assert!(ratio(&floats, &got) > 35.0, "{floats:?} {got:?}");
        let portable = run(&compile(Some(quantization()), "portable").expect("a quantized model"));
        assert!(ratio(&portable, &got) > 100.0, "{portable:?} {got:?}");
    }
    let kept = compile(Some(Quantization::new(Scheme::INT8_WEIGHT).embeddings(8).keep("embedding")), "cpu");
    let kept = kept.expect("a quantized model");
    assert!(kept.quantization().is_some_and(|report| report.layers.iter().all(|layer| layer.name != "embedding")));
    let sample = || {
        vec![
            Value::Tensor(Tensor::of(&[1, 2], &[5i64, 2]).expect("tokens")),
            Value::Tensor(Tensor::of(&[1, 2, 4, 4], &[0.25f32; 32]).expect("an image")),
        ]
    };
    let budget = |least: f64| {
        let quantization = Quantization::new(Scheme::INT8_WEIGHT).embeddings(8).min_snr(least);
        let program = compile(Some(quantization.calibrate("forward", vec![sample()])), "cpu").expect("a model");
        let report = program.quantization().expect("a report");
        let kept =
            report.layers.iter().filter(|layer| layer.kept.as_deref().is_some_and(|why| why.contains("dB"))).count();
        (kept, ratio(&floats, &run(&program)))
    };
    assert_eq!(budget(20.0).0, 0);
    let (kept, reached) = budget(200.0);
    assert!(kept >= 2 && reached > 100.0, "{kept} {reached}");
    let five = compile(Some(Quantization::new(Scheme::INT8_WEIGHT).embeddings(5)), "cpu").unwrap_err();
    assert_eq!((five.what_came(), five.code()), (Some("5"), Code::NotSupported), "{five}");
}

/// A compiler of the archive of digits whose example inputs have another name, so that none are found.
fn without_example() -> Compiler {
    const NAMES: [&[u8]; 2] = [b"sample_inputs", b"other_inputs_"];
    let mut archive = fs::read(MODEL).expect("the archive");
    let places = archive.windows(NAMES[0].len()).enumerate().filter(|(_, window)| *window == NAMES[0]);
    for place in places.map(|(place, _)| place).collect::<Vec<_>>() {
        archive[place..place + NAMES[1].len()].copy_from_slice(NAMES[1]);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("digits_without_example.pt2");
    fs::write(&path, archive).expect("a file");
    Compiler::new().method("forward", path).backend("cpu")
}

#[test]
fn an_example_serves_where_there_is_no_calibration() {
    let program = compile(Quantization::new(Scheme::INT8)).expect("a program");
    assert_eq!(program.quantization().and_then(|report| report.calibrated_on), Some(Inputs::Example));
}

#[test]
fn what_cannot_be_quantized_is_said() {
    let none = without_example().quantize(Quantization::new(Scheme::INT8)).compile().unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument, "{none}");
    assert!(none.message().contains("scales of activations"), "{none}");
    let gptq = compile(Quantization::new(Scheme::INT4).rounding(Rounding::Gptq)).unwrap_err();
    assert!(gptq.message().contains("GPTQ"), "{gptq}");
    let nothing = compile(Quantization::new(Scheme::INT4).keep("*")).unwrap_err();
    assert_eq!(nothing.code(), Code::NotSupported, "{nothing}");
    assert!(nothing.message().contains("int4"), "{nothing}");
    let method = compile(Quantization::new(Scheme::INT8).calibrate("encode", digits())).unwrap_err();
    assert_eq!(method.what_came(), Some("`encode`"));
    let sample = |sizes: &[usize], number: f32| {
        let numbers = vec![number; sizes.iter().product()];
        vec![vec![Value::Tensor(Tensor::of(sizes, &numbers).expect("a tensor"))]]
    };
    let shape = compile(Quantization::new(Scheme::INT8).calibrate("forward", sample(&[1, 1, 9, 9], 0.0))).unwrap_err();
    assert!(shape.location().is_some_and(|site| site.contains("input 0 of the calibration")), "{shape}");
    let wild =
        compile(Quantization::new(Scheme::INT8).calibrate("forward", sample(&[1, 1, 8, 8], f32::NAN))).unwrap_err();
    assert!(wild.message().contains("NaN or infinite"), "{wild}");
    let missing = compile(Quantization::new(Scheme::INT8).calibrate("forward", vec![Vec::new()])).unwrap_err();
    assert!(missing.location().is_some_and(|site| site.contains("input 0")), "{missing}");
}
