//! Sizes of inputs that PyTorch refuses for an exported program are refused however it runs, and those that it takes are
//! taken. The calls are recorded: `tools/shape_guards.py`.

use std::fs;
use std::path::PathBuf;

use rushlight::{Code, Compiler, Error, Input, Module, ScalarType, TensorView};
use rushlight_compiler::{CompileOptions, compile_pte};
use rushlight_graph::Bytes;
use rushlight_graph::operators::aten;
use serde_json::Value as Json;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/shapes")
}

fn compiled(name: &str, backend: Option<&str>) -> Vec<u8> {
    let mut compiler = Compiler::new().method("forward", folder().join(format!("{name}.pt2")));
    if let Some(backend) = backend {
        compiler = compiler.backend(backend);
    }
    compiler.compile().and_then(|program| program.to_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Lifting knows no minimum and no factor: the results of the first and last have static sizes, which it takes for dynamic ones, and
/// the only operator of the others is a view that has as many elements as it is given if their number is a multiple.
const NOT_LOWERED: [&str; 4] = ["first_five", "in_fours", "in_pairs", "sliced_in_half"];

/// A program in all the ways in which it can run.
fn modules(name: &str) -> Vec<(&'static str, Module)> {
    let portable = compiled(name, None);
    let again = compile_pte(&Bytes::from(portable.clone()), &[], &CompileOptions::default()).expect("it lifts");
    let again = again.program.to_bytes().expect("a small program");
    let load = |lower, bytes: &[u8]| Module::builder().lower(lower).threads(1).load_bytes(bytes).expect("a program");
    let mut lowered = load("cpu", &portable);
    let is_lowered = lowered.report().is_ok();
    assert!(is_lowered != NOT_LOWERED.contains(&name), "{name}: {:?}", lowered.report().err());
    vec![
        ("portable", load("off", &portable)),
        ("lowered", lowered),
        ("compiled for the CPU", load("off", &compiled(name, Some("cpu")))),
        ("lifted and compiled again", load("off", &again)),
    ]
}

/// The inputs of a call: shapes, and the sines of 0, 1, 2 and so on.
fn inputs(call: &Json) -> Vec<(Vec<usize>, Vec<f32>)> {
    let mut start = 0;
    let sizes = |shape: &Json| -> Vec<usize> {
        shape.as_array().expect("a shape").iter().map(|size| size.as_u64().expect("a size") as usize).collect()
    };
    let shapes = call["shapes"].as_array().expect("shapes").iter().map(sizes);
    let mut input = |shape: Vec<usize>| {
        let count = shape.iter().product::<usize>();
        let floats = (start..start + count).map(|at| (at as f64).sin() as f32).collect();
        start += count;
        (shape, floats)
    };
    shapes.map(&mut input).collect()
}

fn run(module: &mut Module, inputs: &[(Vec<usize>, Vec<f32>)]) -> Result<(Vec<usize>, f64), Error> {
    let views: Result<Vec<Input<'_>>, _> =
        inputs.iter().map(|(shape, floats)| TensorView::of(shape, floats).map(Input::from)).collect();
    let outputs = module.forward(&views?)?;
    let output = outputs[0].as_tensor().expect("a tensor");
    Ok((output.shape().to_vec(), output.as_slice::<f32>()?.iter().map(|x| f64::from(*x)).sum()))
}

#[test]
fn sizes_are_refused_as_pytorch_refuses_them() {
    let calls = fs::read_to_string(folder().join("calls.json")).expect("the corpus is part of the repository");
    let calls: Json = serde_json::from_str(&calls).expect("JSON");
    let mut wrong = Vec::new();
    let mut taken = 0;
    for (name, calls) in calls.as_object().expect("programs by name") {
        for (way, mut module) in modules(name) {
            for call in calls.as_array().expect("calls") {
                let (shapes, result) = (&call["shapes"], run(&mut module, &inputs(call)));
                match (result, call["sum"].as_f64()) {
                    (Ok((shape, sum)), Some(expected)) => {
                        taken += 1;
                        assert_eq!(serde_json::json!(shape), call["output"], "{name}, {way}, {shapes}");
                        // Each number was rounded to 6 digits.
                        let tolerance = 1e-4 + 2e-6 * shape.iter().product::<usize>() as f64;
                        assert!((sum - expected).abs() < tolerance, "{name}, {way}, {shapes}: {sum}, not {expected}");
                    }
                    (Err(error), None) => {
                        assert_eq!(error.code(), Code::InvalidArgument, "{name}, {way}, {shapes}: {error}");
                        assert!(error.what_was_expected().is_some() && error.what_came().is_some(), "{error}");
                    }
                    (Ok(_), None) => wrong.push(format!("{name}, {way}, {shapes}: taken")),
                    (Err(error), Some(_)) => wrong.push(format!("{name}, {way}, {shapes}: {error}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} calls\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(taken > 900, "{taken} calls are taken");
}

#[test]
fn errors_say_which_sizes_there_may_be() {
    for (way, mut module) in modules("scaled") {
        let info = module.meta("forward").expect("a method").inputs[0].to_string();
        assert_eq!(info, "f32 [1..=8, 8]", "{way}");
        let error = run(&mut module, &[(vec![3, 1], vec![0.5; 3])]).expect_err("dimension 1 is static");
        let text = error.to_string();
        assert!(text.contains("input 0"), "{way}: {text}");
        assert!(text.contains("expected  f32 [1..=8, 8]   (dimension 0 is dynamic, at most 8)"), "{way}: {text}");
        assert!(text.contains("[3, 1]") && text.contains("fixed at export"), "{way}: {text}");
    }
    let message = |name: &str, shapes: &[&[usize]]| {
        let (_, mut module) = modules(name).remove(0);
        let floats = |shape: &&[usize]| (shape.to_vec(), vec![0.5; shape.iter().product()]);
        run(&mut module, &shapes.iter().map(floats).collect::<Vec<_>>()).expect_err("wrong sizes").to_string()
    };
    let error = message("at_least_three", &[&[2, 8]]);
    assert!(error.contains("f32 [3..=8, 8]") && error.contains("must be at least 3"), "{error}");
    let error = message("twice_as_many", &[&[3, 2], &[5, 2]]);
    assert!(error.contains("input 1") && error.contains("f32 [2*x.size()[0], 2]"), "{error}");
    assert!(error.contains("dimension 0 must be 2*x.size()[0]"), "{error}");
    let error = message("in_fours", &[&[6, 3]]);
    assert!(error.contains("step 4") && error.contains("must be a multiple of 4"), "{error}");
    let error = message("in_pairs", &[&[2, 8]]);
    assert!(error.contains("do not go together") && error.contains("x.size()[0]"), "{error}");
}

/// A program of ExecuTorch's kind: `a + b`, whose sizes have upper bounds alone.
fn bounded_sum(a: &[i32], b: &[i32], sum: &[i32]) -> Vec<u8> {
    use rushlight_format::pte::{PlanModel, ProgramModel, TensorModel, ValueModel};

    let mut plan = PlanModel::new("forward");
    let mut planned = |sizes: &[i32]| plan.planned(TensorModel::new(ScalarType::Float, sizes).dynamic());
    let [a, b, sum] = [a, b, sum].map(&mut planned);
    let (a, b) = (plan.input(ValueModel::Tensor(a)), plan.input(ValueModel::Tensor(b)));
    let sum = plan.push(ValueModel::Tensor(sum));
    let alpha = plan.push(ValueModel::Int(1));
    plan.call(aten::packet::ADD, "out", &[a, b, alpha, sum, sum]);
    plan.outputs = vec![sum];
    let mut program = ProgramModel::new();
    program.methods.push(plan);
    program.to_bytes().expect("a small program")
}

#[test]
fn what_lowering_assumes_of_sizes_is_checked() {
    let program = bounded_sum(&[8, 8], &[8, 8], &[8, 8]);
    let load = |lower| Module::builder().lower(lower).threads(1).load_bytes(&program).expect("a program");
    let (mut reference, mut lowered) = (load("off"), load("cpu"));
    assert!(lowered.report().is_ok(), "{:?}", lowered.report().err());
    let mut refused = 0;
    for a in 1..5usize {
        for b in 1..5usize {
            for (c, d) in [(8, 8), (8, 1), (1, 8), (4, 2), (2, 8)] {
                let inputs = [[a, c], [b, d]].map(|shape| {
                    let count = shape[0] * shape[1];
                    (shape.to_vec(), (0..count).map(|at| at as f32 + 0.5).collect::<Vec<_>>())
                });
                match (run(&mut reference, &inputs), run(&mut lowered, &inputs)) {
                    (Ok(expected), Ok(got)) => assert_eq!(got, expected, "{a}x{c} + {b}x{d}"),
                    // Also sizes that the reference operators broadcast, and that lowering assumed to be equal.
                    (_, Err(_)) => refused += 1,
                    (Err(error), Ok(got)) => panic!("{a}x{c} + {b}x{d}: {got:?} where there is none: {error}"),
                }
            }
        }
    }
    assert!(refused > 0);
}
