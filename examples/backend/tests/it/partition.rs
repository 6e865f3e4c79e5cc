//! A model in parts: some for one backend, some for another, the rest for the runtime's own operators.

use std::sync::Arc;

use rushlight::compiler::emit::EmitOptions;
use rushlight::compiler::partition::{Backend, Fate};
use rushlight::compiler::{CompileOptions, Compiled, compile};
use rushlight::graph::{Arg, Graph, Model, Origin, TensorType, Type};
use rushlight::{Module, ScalarType, TensorView};
use rushlight_example_backend::{Chain, ChainRuntime, NAME};

/// `relu(x * y + x) @ x`, then `exp` of it, plus `y`.
fn model() -> Model {
    let mut model = Model::default();
    let mut graph = Graph::new();
    let square = Type::Tensor(TensorType::of(ScalarType::Float, &[2, 2]));
    let (x, y) = (graph.input("x", square.clone()), graph.input("y", square));
    let (block, origin) = (graph.body, graph.origins.push(Origin { node: "chain".into(), ..Origin::default() }));
    model.add_method("forward", graph);
    let mut builder = model.builder("forward", block, origin).unwrap();
    let mut call = |name: &str, args: Vec<Arg>| builder.one(name, args).unwrap();
    let product = call("aten::mul.Tensor", vec![x.into(), y.into()]);
    let sum = call("aten::add.Tensor", vec![product.into(), x.into()]);
    let positive = call("aten::relu", vec![sum.into()]);
    let matrix = call("aten::mm", vec![positive.into(), x.into()]);
    let exponential = call("aten::exp", vec![matrix.into()]);
    let result = call("aten::add.Tensor", vec![exponential.into(), y.into()]);
    model.methods["forward"].outputs = vec![result.into(), positive.into()];
    model
}

fn compiled(backends: Vec<Box<dyn Backend>>) -> Compiled {
    let options = CompileOptions { backends, emit: EmitOptions::default(), ..CompileOptions::default() };
    compile(model(), &options).unwrap()
}

fn run(compiled: &Compiled, names: &[&str]) -> Vec<Vec<f32>> {
    let mut builder = Module::builder();
    for name in names {
        builder = builder.backend(Arc::new(ChainRuntime::new(name)));
    }
    let mut module = builder.load_bytes(&compiled.program.to_bytes().unwrap()).unwrap();
    let (x, y) = ([0.5, -1.0, 0.25, 2.0], [1.0, 3.0, -2.0, 0.5f32]);
    let inputs = [&x, &y].map(|data| TensorView::of(&[2, 2], data).unwrap().into());
    let outputs = module.forward(&inputs).unwrap();
    outputs.iter().map(|output| output.as_slice::<f32>().unwrap().to_vec()).collect()
}

fn takers(compiled: &Compiled) -> Vec<Option<&str>> {
    fn taker(fate: &Fate) -> Option<&str> {
        match fate {
            Fate::Claimed { backend } => Some(backend),
            Fate::Refused { .. } => None,
        }
    }
    compiled.report.entries.iter().map(|entry| taker(&entry.fate)).collect()
}

#[test]
fn what_the_backend_takes_runs_as_delegates() {
    let plain = compiled(Vec::new());
    let chain = compiled(vec![Box::new(Chain::new())]);
    let name = Some(NAME);
    assert_eq!(takers(&chain), [name, name, name, None, None, name]);
    assert_eq!(chain.program.methods[0].delegates.len(), 2);
    assert_eq!(run(&chain, &[NAME]), run(&plain, &[]));
    let text = chain.report.to_string();
    assert!(text.contains("ChainBackend: 4 of 6 nodes"), "{text}");
    let portable = text.lines().skip_while(|line| !line.contains("aten::mm")).take(2).collect::<Vec<_>>();
    assert!(
        portable[0].ends_with("portable") && portable[1].contains("ChainBackend: `aten::mm` is not one of"),
        "{text}"
    );
}

#[test]
fn the_first_backend_in_the_list_comes_first() {
    let plain = run(&compiled(Vec::new()), &[]);
    let all = || Box::new(Chain::only("All", &["aten::add.Tensor", "aten::mul.Tensor", "aten::relu"]));
    let adds = || Box::new(Chain::only("Adds", &["aten::add.Tensor"]));
    let one = compiled(vec![all(), adds()]);
    assert_eq!(takers(&one), [Some("All"), Some("All"), Some("All"), None, None, Some("All")]);
    assert_eq!(run(&one, &["All", "Adds"]), plain);
    let other = compiled(vec![adds(), all()]);
    assert_eq!(takers(&other), [Some("All"), Some("Adds"), Some("All"), None, None, Some("Adds")]);
    assert_eq!(run(&other, &["All", "Adds"]), plain);
}

#[test]
fn a_program_without_its_backend_says_so() {
    let chain = compiled(vec![Box::new(Chain::new())]);
    let mut module = Module::builder().load_bytes(&chain.program.to_bytes().unwrap()).unwrap();
    let error = module.load_method("forward").unwrap_err();
    assert!(error.to_string().contains(NAME), "{error}");
}
