//! What the compiler makes for the CPU back end, seen in its payload, and run.

use rushlight::{Input, Lower, Module, TensorView};
use rushlight_compiler::back::cpu::Cpu;
use rushlight_compiler::emit::emit;
use rushlight_compiler::graph::{Arg, Graph, Model, Origin, TensorType, Type, ValueId};
use rushlight_compiler::{CompileOptions, Stage, advance};
use rushlight_format::ScalarType;
use rushlight_format::cpu::{CpuProgram, Step};

/// A method with an input of so many numbers.
fn model(size: i64, build: impl FnOnce(&mut dyn FnMut(&str, Vec<Arg>) -> ValueId, ValueId) -> Vec<Arg>) -> Model {
    let mut model = Model::default();
    model.add_method("forward", Graph::new());
    let graph = &mut model.methods["forward"];
    let x = graph.input("x", Type::Tensor(TensorType::of(ScalarType::Float, &[size])));
    let (body, origin) = (graph.body, graph.origins.push(Origin { node: "test".into(), ..Origin::default() }));
    let mut builder = model.builder("forward", body, origin).unwrap();
    let outputs = build(&mut |name, args| builder.one(name, args).unwrap(), x);
    model.methods["forward"].outputs = outputs;
    model
}

/// The program as the reference operators run it, that of the back end, and the back end's own.
fn compiled(model: &Model) -> (Vec<u8>, Vec<u8>, CpuProgram) {
    let options = CompileOptions { backends: vec![Box::new(Cpu::default())], ..CompileOptions::default() };
    let portable = emit(model, &options.emit).unwrap().program.to_bytes().unwrap();
    let mut model = model.clone();
    advance(&mut model, &options, Stage::Final).unwrap();
    let program = emit(&model, &options.emit).unwrap().program;
    let payload = CpuProgram::parse(&program.methods[0].delegates[0].data).unwrap();
    (portable, program.to_bytes().unwrap(), payload)
}

fn run(program: &[u8], numbers: &[f32]) -> Vec<Vec<f32>> {
    let mut module = Module::builder().lower(Lower::Off).load_bytes(program).unwrap();
    let sizes = [numbers.len()];
    let input = Input::from(TensorView::of(&sizes, numbers).unwrap());
    let outputs = module.run("forward", &[input]).unwrap();
    outputs.iter().map(|output| output.as_slice::<f32>().unwrap().to_vec()).collect()
}

#[test]
fn outputs_that_are_read_again_are_not_copied() {
    let model = model(5, |call, x| {
        let exponential = call("aten::exp", vec![x.into()]);
        let flipped = call("aten::reciprocal", vec![exponential.into()]);
        let sum = call("aten::cumsum", vec![exponential.into(), Arg::from(0)]);
        let last = call("aten::mul.Tensor", vec![sum.into(), flipped.into()]);
        // Results that are read by others come before and after them.
        vec![last.into(), exponential.into(), sum.into()]
    });
    let (portable, ours, payload) = compiled(&model);
    let copies = payload.steps.iter().filter(|step| matches!(step, Step::Copy(_))).count();
    assert_eq!(copies, 0, "{:?}", payload.names);
    let numbers = [0.5, -1.0, 2.0, 0.0, 1.25];
    for (got, wanted) in run(&ours, &numbers).into_iter().zip(run(&portable, &numbers)) {
        assert!(got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-5), "{got:?} {wanted:?}");
    }
}

#[test]
fn the_same_output_twice_is_copied() {
    let model = model(3, |call, x| {
        let sum = call("aten::add.Tensor", vec![x.into(), x.into()]);
        vec![sum.into(), sum.into()]
    });
    let (portable, ours, _) = compiled(&model);
    let numbers = [1.0, -2.0, 0.25];
    assert_eq!(run(&ours, &numbers), run(&portable, &numbers));
}
