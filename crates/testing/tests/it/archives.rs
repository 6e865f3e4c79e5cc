//! Archives that several versions of torch and torchao wrote compile and give what PyTorch gave, however they run. They are
//! made by `tools/archive_samples.py`.

use std::fs;
use std::path::PathBuf;

use rushlight::runtime::{self, KernelContext};
use rushlight::{Compiler, Input, Module, Op, OpSet, TensorView};
use serde_json::Value as Json;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives")
}

/// The shape and elements of a recorded tensor.
fn tensor(json: &Json) -> (Vec<usize>, Vec<f32>) {
    let shape = json["shape"].as_array().expect("a shape").iter().map(|size| size.as_u64().expect("a size") as usize);
    let values = json["values"].as_array().expect("values").iter();
    // JSON has no infinities and no NaN.
    let value = |value: &Json| {
        value.as_f64().map_or_else(|| value.as_str().expect("text").parse().expect("a number"), |x| x as f32)
    };
    (shape.collect(), values.map(value).collect())
}

#[test]
fn archives_of_every_writer_agree_with_pytorch() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).expect("the archives are part of the repository") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "pt2") {
            continue;
        }
        count += 1;
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let recorded = fs::read_to_string(path.with_extension("json")).expect("beside the archive");
        let recorded: Json = serde_json::from_str(&recorded).expect("JSON");
        let tolerance = recorded["tolerance"].as_f64().expect("a number") as f32;
        let inputs: Vec<_> = recorded["inputs"].as_array().expect("inputs").iter().map(tensor).collect();
        let expected: Vec<_> = recorded["outputs"].as_array().expect("outputs").iter().map(tensor).collect();
        for (backend, lower) in [(None, "off"), (None, "cpu"), (Some("cpu"), "off")] {
            let way = format!("{name}, compiled for {backend:?}, lowered: {lower}");
            let mut compiler = Compiler::new().method("forward", &path);
            if let Some(backend) = backend {
                compiler = compiler.backend(backend);
            }
            let program = compiler.compile().and_then(|program| program.to_bytes());
            let program = program.unwrap_or_else(|error| panic!("{way}: {error}"));
            let module = Module::builder().lower(lower).threads(1).load_bytes(&program);
            let mut module = module.unwrap_or_else(|error| panic!("{way}: {error}"));
            let views: Vec<Input<'_>> = inputs
                .iter()
                .map(|(shape, values)| TensorView::of(shape, values).expect("as many values").into())
                .collect();
            let outputs = module.forward(&views).unwrap_or_else(|error| panic!("{way}: {error}"));
            assert_eq!(outputs.len(), expected.len(), "{way}");
            for (output, (shape, values)) in outputs.iter().zip(&expected) {
                let output = output.as_tensor().expect("a tensor");
                assert_eq!(output.shape(), shape, "{way}");
                let got = output.as_slice::<f32>().expect("floats");
                let scale =
                    values.iter().filter(|value| value.is_finite()).fold(1.0, |most: f32, value| most.max(value.abs()));
                for (got, wanted) in got.iter().zip(values) {
                    let agrees =
                        got == wanted || got.is_nan() && wanted.is_nan() || (got - wanted).abs() <= tolerance * scale;
                    assert!(agrees, "{way}: {got}, not {wanted}");
                }
            }
        }
    }
    assert!(count >= 10, "{count} archives");
}

/// `scaled_and_shifted.out(Tensor x, float by, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))`
fn scaled_and_shifted(context: &KernelContext<'_>) -> runtime::Result<()> {
    let (x, by) = (context.tensor(0)?, context.double(1)? as f32);
    let (mut scaled, mut shifted) = (context.out(2)?, context.out(3)?);
    scaled.resize(x.sizes())?;
    shifted.resize(x.sizes())?;
    for (y, x) in scaled.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
        *y = x * by;
    }
    for (y, x) in shifted.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
        *y = x + by;
    }
    Ok(())
}

static CUSTOM: OpSet = OpSet {
    name: "CUSTOM",
    groups: &[&[&[Op::new("example::scaled_and_shifted.out", 4, scaled_and_shifted).outs(2)]]],
};

#[test]
fn custom_operators_have_several_results() {
    let path = folder().join("../corpus/pt2/custom_results.pt2");
    for backend in [None, Some("cpu")] {
        let mut compiler = Compiler::new().method("forward", &path);
        if let Some(backend) = backend {
            compiler = compiler.backend(backend);
        }
        let program = compiler.compile().and_then(|program| program.to_bytes()).expect("it compiles");
        let mut module = Module::builder().ops(&CUSTOM).load_bytes(&program).expect("all operators are there");
        let x = TensorView::of(&[4], &[0.0f32, 1.0, 2.0, 3.0]).expect("four elements");
        let outputs = module.forward(&[x.into()]).expect("it runs");
        assert_eq!(outputs[0].as_slice::<f32>().expect("floats"), [-3.0, -1.0, 1.0, 3.0], "{backend:?}");
        assert_eq!(outputs[1].as_slice::<f32>().expect("floats"), [3.0, 4.0, 5.0, 6.0], "{backend:?}");
    }
}

#[test]
fn a_compiled_program_names_the_operators_without_a_kernel() {
    let corpus = folder().join("../corpus/pt2");
    let missing = |name: &str| {
        let compiled = Compiler::new().method("forward", corpus.join(name)).compile().expect("it compiles");
        // The compiler and the loader must agree.
        let program = compiled.to_bytes().expect("a program");
        let mut module = Module::builder().lower("off").load_bytes(&program).expect("the file is sound");
        let names = |missing: &[rushlight::MissingOperator]| -> Vec<String> {
            missing.iter().map(|operator| format!("{} {}", operator.name, operator.uses)).collect()
        };
        let at_load = module.load_method("forward").err().map(|error| names(error.missing_operators()));
        assert_eq!(names(&compiled.missing_operators()), at_load.unwrap_or_default(), "{name}");
        compiled.missing_operators()
    };
    let [operator] = &missing("custom_results.pt2")[..] else { panic!("one operator has no kernel") };
    let text = operator.warning("register it");
    assert!(text.starts_with("`example::scaled_and_shifted.out` has no kernel in Rushlight"), "{text}");
    assert!(text.contains("pt2_samples.py") && text.ends_with("register it"), "{text}");
    assert_eq!(missing("custom_operator.pt2").len(), 1);
    assert!(missing("misc.pt2").is_empty());
}
