//! A backend that gives operators. Its program calls them, and a registered kernel runs them. Reports, memory plans and debug maps
//! treat them like any other node.

use rushlight::compiler::partition::{Backend, Claim, Claims, Compiled as Given, Part};
use rushlight::compiler::partition::{Canonical, Fate};
use rushlight::compiler::{CompileOptions, Compiled, compile, compile_pte};
use rushlight::graph::operators::aten;
use rushlight::graph::{Arg, Call, Error, ErrorKind, Graph, Model, Origin, TensorType, Type};
use rushlight::{Code, Module, ScalarType, TensorView};
use rushlight_devtools::describe;
use rushlight_example_backend::{Chain, ChainRuntime, NAME, SCALE_ADD_OPS, ScaleAdd};
use rushlight_format::Program;

/// `relu(x + y * 3) @ x`, and the product.
fn model() -> Model {
    let mut model = Model::default();
    let mut graph = Graph::new();
    let square = Type::Tensor(TensorType::of(ScalarType::Float, &[2, 2]));
    let (x, y) = (graph.input("x", square.clone()), graph.input("y", square));
    let (block, origin) = (graph.body, graph.origins.push(Origin { node: "sum".into(), ..Origin::default() }));
    model.add_method("forward", graph);
    let mut builder = model.builder("forward", block, origin).unwrap();
    let mut call = |name: &str, args: Vec<Arg>| builder.one(name, args).unwrap();
    let product = call(aten::MUL_SCALAR, vec![y.into(), 3.0.into()]);
    let sum = call(aten::ADD_TENSOR, vec![x.into(), product.into()]);
    let positive = call(aten::RELU, vec![sum.into()]);
    let matrix = call(aten::MM, vec![positive.into(), x.into()]);
    model.methods["forward"].outputs = vec![matrix.into(), positive.into()];
    model
}

fn compiled(backends: Vec<Box<dyn Backend>>) -> Compiled {
    compile(model(), &CompileOptions { backends, ..CompileOptions::default() }).unwrap()
}

fn run(compiled: &Compiled) -> Vec<Vec<f32>> {
    let builder = Module::builder().ops(&SCALE_ADD_OPS).backend(std::sync::Arc::new(ChainRuntime::new(NAME)));
    let mut module = builder.load_bytes(&compiled.program.to_bytes().unwrap()).unwrap();
    let (x, y) = ([0.5, -1.0, 0.25, 2.0], [1.0, 3.0, -2.0, 0.5f32]);
    let inputs = [&x, &y].map(|data| TensorView::of(&[2, 2], data).unwrap().into());
    let outputs = module.forward(&inputs).unwrap();
    outputs.iter().map(|output| output.as_slice::<f32>().unwrap().to_vec()).collect()
}

/// The operators that a program calls.
fn operators(compiled: &Compiled) -> Vec<String> {
    let name = |operator: &rushlight_format::pte::OperatorModel| format!("{}.{}", operator.name, operator.overload);
    compiled.program.methods[0].operators.iter().map(name).collect()
}

#[test]
fn operators_take_the_place_of_the_part() {
    let scaled = compiled(vec![Box::new(ScaleAdd)]);
    assert_eq!(operators(&scaled), ["testing::scale_add.out", "aten::relu.out", "aten::mm.out"]);
    assert!(scaled.program.methods[0].delegates.is_empty());
    assert_eq!(run(&scaled), run(&compiled(Vec::new())));
    let fates: Vec<_> = scaled.report.entries.iter().map(|entry| matches!(entry.fate, Fate::Claimed { .. })).collect();
    assert_eq!(fates, [true, true, true, false]);
    assert!(scaled.report.to_string().contains("ScaleAdd: 3 of 4 nodes"), "{}", scaled.report);
    let origins: Vec<_> = scaled.debug[0].instructions.iter().flatten().collect();
    let names: Vec<_> = origins.iter().map(|origin| (origin.op.as_str(), origin.node.as_str())).collect();
    assert_eq!(names, [("testing::scale_add", "sum"), (aten::RELU, "sum"), (aten::MM, "sum")]);
}

#[test]
fn tools_show_the_operators_and_programs_are_compiled_again() {
    let scaled = compiled(vec![Box::new(ScaleAdd)]);
    let bytes = scaled.program.to_bytes().unwrap();
    let shown = describe::program(&Program::parse(&bytes).unwrap()).to_string();
    assert!(shown.contains("testing::scale_add.out"), "{shown}");
    let again = compile_pte(&bytes.into(), &[], &CompileOptions::default()).unwrap();
    assert_eq!(operators(&again), operators(&scaled));
    assert_eq!(run(&again), run(&scaled));
}

#[test]
fn other_backends_claim_the_rest() {
    let both = compiled(vec![Box::new(ScaleAdd), Box::new(Chain::new())]);
    assert_eq!(run(&both), run(&compiled(Vec::new())));
    let other = compiled(vec![Box::new(Chain::new()), Box::new(ScaleAdd)]);
    assert_eq!(operators(&other), ["aten::mul.Scalar_out", "aten::mm.out"]);
    assert_eq!(run(&other), run(&compiled(Vec::new())));
}

#[test]
fn a_program_without_the_kernel_says_so() {
    let scaled = compiled(vec![Box::new(ScaleAdd)]);
    let mut module = Module::builder().load_bytes(&scaled.program.to_bytes().unwrap()).unwrap();
    let error = module.load_method("forward").unwrap_err();
    assert_eq!(error.code(), Code::OperatorMissing);
    assert!(error.to_string().contains("testing::scale_add.out"), "{error}");
}

/// Gives a changed model.
#[derive(Debug)]
struct Wrong(fn(&mut Model));

impl Backend for Wrong {
    fn name(&self) -> &'static str {
        "Wrong"
    }

    fn operators(&self) -> &'static [&'static str] {
        &[aten::MUL_SCALAR, aten::ADD_TENSOR]
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        let is_taken = |name: &str| self.operators().contains(&name);
        let nodes = canonical.nodes().filter(|node| is_taken(Call::new(canonical.graph, *node).name()));
        nodes.for_each(|node| claims.set(node, Claim::Take));
        Ok(())
    }

    fn compile(&self, part: &Part) -> Result<Given, Error> {
        let mut model = part.model.clone();
        self.0(&mut model);
        Ok(Given::Operators(model))
    }
}

#[test]
fn models_that_do_not_fit_the_part_are_refused() {
    fn body(model: &mut Model) -> &mut Graph {
        &mut model.methods[Part::METHOD]
    }
    let cases: [(fn(&mut Model), &str); 5] = [
        (|model| body(model).outputs.clear(), "its model has other outputs than the part"),
        (
            |model| {
                body(model).input("z", Type::Int(4.into()));
            },
            "its model has other inputs than the part",
        ),
        (|model| model.methods.clear(), "its model has no method `forward`"),
        (
            |model| {
                let (block, origin) = (body(model).body, body(model).origins.ids().next().unwrap());
                let value = body(model).outputs[0].as_value().unwrap();
                let mut builder = model.builder(Part::METHOD, block, origin).unwrap();
                let value = builder.one(aten::RELU, vec![value.into()]).unwrap();
                body(model).outputs = vec![value.into()];
            },
            "its model calls `aten::relu`, which it does not declare",
        ),
        (
            |model| {
                let ty = TensorType::of(ScalarType::Float, &[2, 2]);
                let initial = rushlight::graph::ConstantData::Zeros;
                model.states.push(rushlight::graph::State { name: "s".into(), ty, initial });
            },
            "its model has states or updates",
        ),
    ];
    for (change, message) in cases {
        let backends: Vec<Box<dyn Backend>> = vec![Box::new(Wrong(change))];
        let error = compile(model(), &CompileOptions { backends, ..CompileOptions::default() }).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Backend, message));
        assert_eq!(error.site(), Some("backend `Wrong`"), "{error}");
    }
    let backends: Vec<Box<dyn Backend>> = vec![Box::new(Wrong(|_| {}))];
    assert!(compile(model(), &CompileOptions { backends, ..CompileOptions::default() }).is_ok());
}
