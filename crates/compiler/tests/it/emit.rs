//! Graphs built by hand, written as programs and run by the reference runtime.

use std::collections::BTreeMap;

use rushlight_compiler::emit::{EmitOptions, emit};
use rushlight_compiler::interpret::{Datum, TensorData, run};
use rushlight_compiler::passes::LowerSymbolicSizes;
use rushlight_format::ScalarType;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{
    Arg, Block, BlockId, Builder, Constant, ConstantData, Expr, Graph, Id, Model, Op, Origin, State, Symbol, Target,
    TensorType, Type, Update, ValueId,
};

/// A model with one method, which `build` fills.
fn model(build: impl FnOnce(&mut Model, &str)) -> Model {
    let mut model = Model::default();
    model.add_method("forward", Graph::new());
    build(&mut model, "forward");
    model
}

fn graph(model: &mut Model) -> &mut Graph {
    &mut model.methods["forward"]
}

/// A builder at the end of a block.
fn at(model: &mut Model, block: BlockId) -> Builder<'_> {
    let origin: Id<Origin> = graph(model).origins.push(Origin { node: "test".into(), ..Origin::default() });
    model.builder("forward", block, origin).unwrap()
}

fn body(model: &mut Model) -> Builder<'_> {
    let block = graph(model).body;
    at(model, block)
}

fn floats(sizes: &[usize], values: &[f32]) -> Datum {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Datum::Tensor(TensorData { dtype: ScalarType::Float, sizes: sizes.to_vec(), bytes })
}

fn f32s(sizes: &[i64]) -> Type {
    Type::Tensor(TensorType::of(ScalarType::Float, sizes))
}

/// The outputs for each call, with inputs and outputs planned and left to the caller, and all results kept.
fn outputs(model: &mut Model, calls: &[Vec<Datum>]) -> Vec<Vec<Datum>> {
    LowerSymbolicSizes.run(model).unwrap();
    let variants = [
        EmitOptions::default(),
        EmitOptions { plan_inputs: false, ..EmitOptions::default() },
        EmitOptions { keep_results: true, stack_traces: true, ..EmitOptions::default() },
    ];
    let mut results: BTreeMap<usize, Vec<Vec<Datum>>> = BTreeMap::new();
    for (index, options) in variants.iter().enumerate() {
        let file = emit(model, options).unwrap().program.to_bytes().unwrap();
        let run = |call: &Vec<Datum>| run(&file, "forward", call).unwrap();
        results.insert(index, calls.iter().map(run).collect());
    }
    let first = results.remove(&0).unwrap();
    for (index, other) in results {
        assert_eq!(other, first, "variant {index}");
    }
    first
}

fn call(model: &mut Model, name: &str, args: Vec<Arg>) -> ValueId {
    body(model).one(name, args).unwrap()
}

#[test]
fn a_chain_of_calls_with_a_constant() {
    let mut model = model(|model, _| {
        let x = graph(model).input("x", f32s(&[2]));
        let weight =
            Constant::dense("w", TensorType::of(ScalarType::Float, &[2]), [1f32, -2.0].map(f32::to_le_bytes).concat());
        let weight = body(model).constant(weight.unwrap());
        let sum = call(model, aten::ADD_TENSOR, vec![x.into(), weight.into()]);
        let result = call(model, aten::RELU, vec![sum.into()]);
        graph(model).outputs = vec![result.into(), x.into(), Arg::from(7)];
    });
    let results = outputs(&mut model, &[vec![floats(&[2], &[0.5, 1.0])]]);
    assert_eq!(results[0], [floats(&[2], &[1.5, 0.0]), floats(&[2], &[0.5, 1.0]), Datum::Int(7)]);
}

#[test]
fn a_view_of_changing_size() {
    let mut model = model(|model, _| {
        let symbol = graph(model).symbols.push(Symbol { name: "s0".into(), min: 1, max: Some(4) });
        let rows: Expr = symbol.into();
        let ty = TensorType::new(ScalarType::Float, vec![rows.mul(2).add(1), Expr::Int(2)]);
        let x = graph(model).input("x", Type::Tensor(ty));
        let size = rows.mul(4).add(2);
        let flat = Type::Tensor(TensorType::new(ScalarType::Float, vec![size.clone()]));
        let schema = model.schemas.get(aten::VIEW_COPY).unwrap();
        let args = vec![x.into(), Arg::from(vec![size])];
        let view = body(model).push(Op::Call(schema), args, vec![flat])[0];
        let result = call(model, aten::RELU, vec![view.into()]);
        graph(model).outputs = vec![result.into(), Arg::Int(rows)];
    });
    let calls =
        [vec![floats(&[3, 2], &[1.0; 6])], vec![floats(&[9, 2], &[2.0; 18])], vec![floats(&[5, 2], &[3.0; 10])]];
    let results = outputs(&mut model, &calls);
    assert_eq!(results[0], [floats(&[6], &[1.0; 6]), Datum::Int(1)]);
    assert_eq!(results[1], [floats(&[18], &[2.0; 18]), Datum::Int(4)]);
    assert_eq!(results[2], [floats(&[10], &[3.0; 10]), Datum::Int(2)]);
}

#[test]
fn one_of_two_branches() {
    let mut model = model(|model, _| {
        let x = graph(model).input("x", f32s(&[2]));
        let predicate = graph(model).input("p", Type::Tensor(TensorType::of(ScalarType::Bool, &[])));
        let (yes, no) = (graph(model).blocks.push(Block::default()), graph(model).blocks.push(Block::default()));
        let doubled = at(model, yes).one(aten::ADD_TENSOR, vec![x.into(), x.into()]).unwrap();
        // The other branch returns a value from outside, and one value twice.
        graph(model).blocks[yes].results = vec![doubled.into(), doubled.into()];
        let negative = at(model, no).one(aten::NEG, vec![x.into()]).unwrap();
        graph(model).blocks[no].results = vec![x.into(), negative.into()];
        let args = vec![predicate.into(), Arg::Block(yes), Arg::Block(no)];
        let results = body(model).push(Op::Cond, args, vec![f32s(&[2]), f32s(&[2])]);
        let sum = call(model, aten::SUB_TENSOR, vec![results[0].into(), results[1].into()]);
        graph(model).outputs = vec![sum.into(), results[0].into()];
    });
    let flag =
        |value| Datum::Tensor(TensorData { dtype: ScalarType::Bool, sizes: vec![], bytes: vec![u8::from(value)] });
    let x = floats(&[2], &[1.0, -3.0]);
    let results = outputs(&mut model, &[vec![x.clone(), flag(true)], vec![x.clone(), flag(false)]]);
    assert_eq!(results[0], [floats(&[2], &[0.0, 0.0]), floats(&[2], &[2.0, -6.0])]);
    assert_eq!(results[1], [floats(&[2], &[2.0, -6.0]), x]);
}

#[test]
fn a_loop_that_swaps_what_it_carries() {
    // while n > 0: n, a, b = n - 1, b, a + b
    let mut model = model(|model, _| {
        let count = Type::Tensor(TensorType::of(ScalarType::Long, &[]));
        let n = graph(model).input("n", count.clone());
        let (a, b) = (graph(model).input("a", f32s(&[2])), graph(model).input("b", f32s(&[2])));
        let types = [count.clone(), f32s(&[2]), f32s(&[2])];
        let [condition, round] = [(); 2].map(|()| {
            let block = graph(model).blocks.push(Block::default());
            types.iter().for_each(|ty| {
                graph(model).param(block, "carried", ty.clone());
            });
            block
        });
        let params = graph(model).blocks[condition].params.clone();
        let zero = body(model).scalar(0.0, ScalarType::Long).unwrap();
        let done = at(model, condition).one(aten::EQ_TENSOR, vec![params[0].into(), zero.into()]).unwrap();
        let not = at(model, condition).call(aten::LOGICAL_NOT, vec![done.into()]);
        let not = match not {
            Ok(values) => values[0],
            // The family that has it may be added later.
            Err(_) => {
                let schema = model.schemas.get(aten::LOGICAL_NOT).unwrap();
                let ty = Type::Tensor(TensorType::of(ScalarType::Bool, &[]));
                at(model, condition).push(Op::Call(schema), vec![done.into()], vec![ty])[0]
            }
        };
        graph(model).blocks[condition].results = vec![not.into()];
        let params = graph(model).blocks[round].params.clone();
        let one = body(model).scalar(1.0, ScalarType::Long).unwrap();
        let next = at(model, round).one(aten::SUB_TENSOR, vec![params[0].into(), one.into()]).unwrap();
        let sum = at(model, round).one(aten::ADD_TENSOR, vec![params[1].into(), params[2].into()]).unwrap();
        graph(model).blocks[round].results = vec![next.into(), params[2].into(), sum.into()];
        let initial = Arg::List(vec![n.into(), a.into(), b.into()]);
        let args = vec![Arg::Block(condition), Arg::Block(round), initial];
        let results = body(model).push(Op::While, args, types.to_vec());
        graph(model).outputs = results.into_iter().map(Arg::Value).collect();
    });
    let long = |value: i64| {
        Datum::Tensor(TensorData { dtype: ScalarType::Long, sizes: vec![], bytes: value.to_le_bytes().to_vec() })
    };
    let call = |n| vec![long(n), floats(&[2], &[0.0, 1.0]), floats(&[2], &[1.0, 1.0])];
    let results = outputs(&mut model, &[call(0), call(1), call(10)]);
    assert_eq!(results[0], call(0));
    assert_eq!(results[1], [long(0), floats(&[2], &[1.0, 1.0]), floats(&[2], &[1.0, 2.0])]);
    assert_eq!(results[2], [long(0), floats(&[2], &[55.0, 89.0]), floats(&[2], &[89.0, 144.0])]);
}

#[test]
fn a_scan_with_state_and_a_stack() {
    // carry, running sums = scan(carry + x, xs)
    let mut model = model(|model, _| {
        let start = graph(model).input("start", f32s(&[2]));
        let xs = graph(model).input("xs", f32s(&[3, 2]));
        let step = graph(model).blocks.push(Block::default());
        let carry = graph(model).param(step, "carry", f32s(&[2]));
        let x = graph(model).param(step, "x", f32s(&[2]));
        let sum = at(model, step).one(aten::ADD_TENSOR, vec![carry.into(), x.into()]).unwrap();
        graph(model).blocks[step].results = vec![sum.into(), sum.into()];
        let args = vec![Arg::Block(step), Arg::List(vec![start.into()]), Arg::List(vec![xs.into()])];
        let results = body(model).push(Op::Scan, args, vec![f32s(&[2]), f32s(&[3, 2])]);
        graph(model).outputs = results.into_iter().map(Arg::Value).collect();
    });
    let call = vec![floats(&[2], &[1.0, 2.0]), floats(&[3, 2], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0])];
    let results = outputs(&mut model, &[call.clone(), call]);
    let expected = [floats(&[2], &[7.0, 8.0]), floats(&[3, 2], &[2.0, 3.0, 4.0, 5.0, 7.0, 8.0])];
    assert_eq!(results, [expected.clone(), expected]);
}

#[test]
fn state_is_kept_and_shared_by_methods() {
    let mut model = Model::default();
    let ty = TensorType::of(ScalarType::Float, &[2]);
    let initial = ConstantData::Dense([3f32, 4.0].map(f32::to_le_bytes).concat().into());
    let state = model.states.push(State { name: "counter".into(), ty, initial });
    for name in ["add", "peek"] {
        let mut graph = Graph::new();
        let value = graph.state(state, &model.states);
        graph.outputs = vec![value.into()];
        model.add_method(name, graph);
        if name == "add" {
            let graph = &mut model.methods[name];
            let origin = graph.origins.push(Origin::default());
            let block = graph.body;
            let x = graph.input("x", f32s(&[2]));
            let sum = model
                .builder(name, block, origin)
                .unwrap()
                .one(aten::ADD_TENSOR, vec![value.into(), x.into()])
                .unwrap();
            let graph = &mut model.methods[name];
            graph.outputs = vec![sum.into()];
            graph.updates = vec![Update { target: Target::State(state), value: sum }];
        }
    }
    let emitted = emit(&model, &EmitOptions::default()).unwrap();
    let sizes: Vec<_> = emitted.program.methods.iter().map(|plan| plan.buffer_sizes.get(2).copied()).collect();
    assert_eq!(sizes, [Some(8), Some(8)]);
    let file = emitted.program.to_bytes().unwrap();
    let results = run(&file, "add", &[floats(&[2], &[1.0, 1.0])]).unwrap();
    assert_eq!(results, [floats(&[2], &[4.0, 5.0])]);
    assert_eq!(run(&file, "peek", &[]).unwrap(), [floats(&[2], &[3.0, 4.0])]);
}

/// A cache `[4, 2]`, of whose rows a call replaces one and returns all, multiplied by two; `first` runs before.
fn cache(first: impl FnOnce(&mut Model, ValueId)) -> Model {
    model(|model, _| {
        let ty = TensorType::of(ScalarType::Float, &[4, 2]);
        let initial = ConstantData::Dense((0..8u8).flat_map(|x| f32::from(x).to_le_bytes()).collect::<Vec<_>>().into());
        let state = model.states.push(State { name: "cache".into(), ty, initial });
        let cache = model.methods["forward"].state(state, &model.states);
        let at = graph(model).input("at", Type::Tensor(TensorType::of(ScalarType::Long, &[1])));
        let row = graph(model).input("row", f32s(&[1, 2]));
        first(model, cache);
        let indices = Arg::List(vec![at.into()]);
        let put = body(model).one(aten::INDEX_PUT, vec![cache.into(), indices, row.into(), false.into()]).unwrap();
        let twice = body(model).one(aten::ADD_TENSOR, vec![put.into(), put.into()]).unwrap();
        graph(model).outputs.push(twice.into());
        graph(model).updates = vec![Update { target: Target::State(state), value: put }];
    })
}

fn put_row(at: i64, row: [f32; 2]) -> Vec<Datum> {
    let bytes = at.to_le_bytes().to_vec();
    let at = Datum::Tensor(TensorData { dtype: ScalarType::Long, sizes: vec![1], bytes });
    vec![at, floats(&[1, 2], &row)]
}

#[test]
fn rows_of_state_are_written_in_place() {
    let mut model = cache(|_, _| {});
    let results = outputs(&mut model, &[put_row(1, [9.0, 9.0]), put_row(-1, [5.0, 5.0])]);
    let expected = [[0.0, 2.0, 18.0, 18.0, 8.0, 10.0, 12.0, 14.0], [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 10.0, 10.0]];
    assert_eq!(results, expected.map(|expected| vec![floats(&[4, 2], &expected)]));
}

#[test]
fn state_that_is_needed_as_it_was_is_written_at_the_end() {
    // The old content is an output, seen through a view.
    let mut model = cache(|model, cache| {
        let old = body(model).one(aten::VIEW_COPY, vec![cache.into(), vec![Expr::Int(8)].into()]).unwrap();
        graph(model).outputs.push(old.into());
    });
    let results = outputs(&mut model, &[put_row(0, [9.0, 9.0])]);
    assert_eq!(results[0][0], floats(&[8], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
}
