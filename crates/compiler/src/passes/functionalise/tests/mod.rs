//! Programs run as PyTorch runs them, on memory that tensors share, before and after the pass: what they return and what
//! they leave in inputs and states must not differ.

mod machine;

use rushlight_format::ScalarType;

use super::Functionalise;
use machine::{Machine, Tensor, numel};
use rushlight_graph::ErrorKind;
use rushlight_graph::Pass;
use rushlight_graph::{
    Arg, Block, BlockId, Constant, ConstantData, Expr, Graph, Model, Op, Origin, OriginId, State, Symbol, Target,
    TensorType, Type, ValueId, bind,
};

/// A program that is run while it is written.
struct Program {
    model: Model,
    machine: Machine,
    inputs: Vec<(ValueId, Vec<f64>)>,
}

impl Program {
    fn new() -> Self {
        let mut model = Model::default();
        model.add_method("forward", Graph::new()).origins.push(Origin::default());
        Self { model, machine: Machine::default(), inputs: Vec::new() }
    }

    fn graph(&mut self) -> &mut Graph {
        &mut self.model.methods["forward"]
    }

    fn input(&mut self, sizes: &[usize]) -> ValueId {
        let ty = tensor(sizes);
        let name = format!("x{}", self.inputs.len());
        let value = self.graph().input(&name, ty);
        let content: Vec<f64> =
            (0..numel(sizes)).map(|at| at as f64 - 3.0 + 100.0 * self.inputs.len() as f64).collect();
        let held = self.machine.fresh(sizes, content.clone());
        self.machine.values.insert(value, held);
        self.inputs.push((value, content));
        value
    }

    fn calls(&mut self, name: &str, args: Vec<Arg>) -> Vec<ValueId> {
        let schema = self.model.schemas.expect(name).unwrap();
        let args = bind(&schema, args, &[]).unwrap();
        let results = self.machine.call(name, &args);
        let graph = &mut self.model.methods["forward"];
        let named = |(at, held): (usize, &Tensor)| (format!("v{}_{at}", graph.values.len()), tensor(&held.shape));
        let types: Vec<_> = results.iter().enumerate().map(named).collect();
        let node = graph.push_node(graph.body, Op::Call(schema), args, OriginId::new(0), types);
        let values = graph.nodes[node].results.clone();
        self.machine.values.extend(values.iter().copied().zip(results));
        values
    }

    fn call(&mut self, name: &str, args: Vec<Arg>) -> ValueId {
        self.calls(name, args)[0]
    }

    fn shape(&self, value: ValueId) -> Vec<usize> {
        self.machine.values[&value].shape.clone()
    }

    /// Runs the pass, checks that the program still does what it did, and gives the names of its operators.
    fn check(mut self, outputs: &[ValueId]) -> Vec<String> {
        self.graph().outputs = outputs.iter().map(|value| Arg::Value(*value)).collect();
        let expected: Vec<_> = outputs.iter().map(|value| self.machine.read(&self.machine.values[value])).collect();
        let left: Vec<_> =
            self.inputs.iter().map(|(value, _)| self.machine.read(&self.machine.values[value])).collect();
        self.model.verify().unwrap();
        Functionalise.run(&mut self.model).unwrap();
        self.model.verify().unwrap();
        let graph = &self.model.methods["forward"];
        let mut machine = Machine::default();
        for (value, content) in &self.inputs {
            let shape = self.machine.values[value].shape.clone();
            let held = machine.fresh(&shape, content.clone());
            machine.values.insert(*value, held);
        }
        let names: Vec<String> =
            graph.blocks[graph.body].nodes.iter().map(|node| graph.nodes[*node].op.name().to_owned()).collect();
        assert!(names.iter().all(|name| !name.ends_with('_') && !name.contains("_.")), "{names:?}");
        let (got, got_left) = machine.run(graph);
        assert_eq!(got, expected, "outputs of {names:?}");
        assert_eq!(got_left, left, "inputs after {names:?}");
        let changed = self.inputs.iter().zip(&left).filter(|((_, before), after)| before != *after).count();
        assert!(graph.updates.len() >= changed);
        names
    }
}

fn tensor(sizes: &[usize]) -> Type {
    let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    Type::Tensor(TensorType::of(ScalarType::Float, &sizes))
}

fn list(items: &[usize]) -> Arg {
    Arg::List(items.iter().map(|item| Arg::from(*item as i64)).collect())
}

#[test]
fn in_place_operators_become_their_twins() {
    let mut p = Program::new();
    let x = p.input(&[2, 3]);
    let y = p.call("aten::clone", vec![x.into()]);
    let z = p.call("aten::add_.Scalar", vec![y.into(), Arg::from(1)]);
    let w = p.call("aten::relu_", vec![z.into()]);
    assert_eq!(p.check(&[y, w, x]), ["aten::clone", "aten::add.Scalar", "aten::relu"]);
}

#[test]
fn a_graph_that_writes_nothing_stays() {
    let mut p = Program::new();
    let x = p.input(&[2, 3]);
    let y = p.call("aten::view", vec![x.into(), list(&[6])]);
    assert_eq!(p.check(&[y]), ["aten::view"]);
}

#[test]
fn what_is_overwritten_is_not_read() {
    let mut p = Program::new();
    let (x, y) = (p.input(&[2, 3]), p.input(&[3]));
    let copied = p.call("aten::copy_", vec![x.into(), y.into()]);
    let z = p.call("aten::clone", vec![y.into()]);
    p.call("aten::fill_.Scalar", vec![z.into(), Arg::from(2.5)]);
    let w = p.call("aten::clone", vec![y.into()]);
    p.call("aten::zero_", vec![w.into()]);
    let names = p.check(&[copied, z, w]);
    assert_eq!(names, ["aten::expand", "aten::clone", "aten::full", "aten::clone", "aten::full"]);
}

#[test]
fn a_write_to_each_kind_of_view_reaches_the_base() {
    let views: [(&str, Vec<Arg>); 17] = [
        ("aten::view", vec![list(&[2, 6])]),
        ("aten::reshape", vec![list(&[12])]),
        ("aten::flatten.using_ints", vec![]),
        ("aten::permute", vec![list(&[1, 0])]),
        ("aten::transpose.int", vec![Arg::from(-1), Arg::from(0)]),
        ("aten::t", vec![]),
        ("aten::unsqueeze", vec![Arg::from(-1)]),
        ("aten::squeeze", vec![]),
        ("aten::alias", vec![]),
        ("aten::detach", vec![]),
        ("aten::dropout", vec![Arg::from(0.5), Arg::Bool(false)]),
        ("aten::expand", vec![list(&[1, 3, 4])]),
        ("aten::select.int", vec![Arg::from(0), Arg::from(-1)]),
        ("aten::slice.Tensor", vec![Arg::from(1), Arg::from(-3), Arg::from(i64::MAX), Arg::from(2)]),
        ("aten::narrow", vec![Arg::from(1), Arg::from(-2), Arg::from(2)]),
        ("aten::diagonal", vec![]),
        ("aten::as_strided", vec![list(&[2, 2]), list(&[5, 2]), Arg::from(1)]),
    ];
    for (name, args) in views {
        let mut p = Program::new();
        let x = p.input(&[3, 4]);
        let before = p.call("aten::view", vec![x.into(), list(&[4, 3])]);
        let view = p.call(name, [vec![x.into()], args].concat());
        let written = p.call("aten::mul_.Scalar", vec![view.into(), Arg::from(3)]);
        let after = p.call("aten::add.Scalar", vec![x.into(), Arg::from(1)]);
        let names = p.check(&[view, written, after, before, x]);
        assert!(names.contains(&"aten::mul.Scalar".to_owned()), "{names:?}");
    }
}

#[test]
fn parts_of_a_division_are_slices_of_it() {
    for (name, arg, dim) in [("aten::split.Tensor", Some(2), 1), ("aten::unbind.int", None, 0)] {
        let mut p = Program::new();
        let x = p.input(&[3, 5]);
        let args = [Some(x.into()), arg.map(Arg::from), Some(Arg::from(dim))];
        let parts = p.calls(name, args.into_iter().flatten().collect());
        p.call("aten::add_.Tensor", vec![parts[1].into(), parts[0].into()]);
        p.call("aten::zero_", vec![parts[2].into()]);
        p.check(&[parts[0], parts[1], parts[2], x]);
    }
}

#[test]
fn chains_and_siblings_of_views_see_each_others_writes() {
    let mut p = Program::new();
    let x = p.input(&[4, 6]);
    let a = p.call("aten::slice.Tensor", vec![x.into(), Arg::from(0), Arg::from(1), Arg::from(4)]);
    let b = p.call("aten::transpose.int", vec![a.into(), Arg::from(0), Arg::from(1)]);
    let c = p.call("aten::select.int", vec![b.into(), Arg::from(0), Arg::from(2)]);
    let d = p.call("aten::view", vec![x.into(), list(&[24])]);
    p.call("aten::fill_.Scalar", vec![c.into(), Arg::from(7.0)]);
    let e = p.call("aten::add.Scalar", vec![d.into(), Arg::from(0)]);
    p.call("aten::mul_.Scalar", vec![d.into(), Arg::from(2)]);
    p.call("aten::add_.Tensor", vec![b.into(), b.into()]);
    let f = p.call("aten::clone", vec![a.into()]);
    p.check(&[a, b, c, d, e, f, x]);
}

#[test]
fn a_change_of_shape_in_place_is_a_view() {
    let mut p = Program::new();
    let x = p.input(&[2, 3]);
    let y = p.call("aten::transpose_", vec![x.into(), Arg::from(0), Arg::from(1)]);
    let z = p.call("aten::unsqueeze_", vec![y.into(), Arg::from(0)]);
    p.call("aten::mul_.Scalar", vec![z.into(), Arg::from(2)]);
    assert_eq!(p.shape(z), [1, 3, 2]);
    p.check(&[z, y]);
}

/// A generator of numbers below a bound.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

#[test]
fn random_programs_do_what_they_did() {
    for seed in 0..600 {
        let mut draw = Draw(seed);
        let mut p = Program::new();
        let mut values = vec![p.input(&[3, 4]), p.input(&[2, 3, 2])];
        for _ in 0..4 + draw.below(16) {
            let value = values[draw.below(values.len())];
            let shape = p.shape(value);
            let rank = shape.len();
            let dim = draw.below(rank);
            let of = |rest: Vec<Arg>| [vec![value.into()], rest].concat();
            let int = |value: usize| Arg::from(value as i64);
            let results = match draw.below(12) {
                0 if rank > 0 => p.calls("aten::select.int", of(vec![int(dim), int(draw.below(shape[dim]))])),
                1 if rank > 0 => {
                    let start = draw.below(shape[dim]);
                    let end = start + 1 + draw.below(shape[dim] - start);
                    p.calls("aten::slice.Tensor", of(vec![int(dim), int(start), int(end), int(1 + draw.below(2))]))
                }
                2 if rank > 1 => p.calls("aten::transpose.int", of(vec![int(dim), int(draw.below(rank))])),
                3 => p.calls("aten::unsqueeze", of(vec![int(draw.below(rank + 1))])),
                4 if rank > 0 => p.calls("aten::split.Tensor", of(vec![int(1 + draw.below(2)), int(dim)])),
                5 => p.calls("aten::clone", of(vec![])),
                6 => p.calls("aten::alias", of(vec![])),
                7 => p.calls("aten::fill_.Scalar", of(vec![int(draw.below(50))])),
                8 => {
                    let same: Vec<_> = values.iter().copied().filter(|other| p.shape(*other) == shape).collect();
                    let other = same[draw.below(same.len())];
                    p.calls(["aten::copy_", "aten::add_.Tensor"][draw.below(2)], of(vec![other.into()]))
                }
                9 => p.calls("aten::mul_.Scalar", of(vec![int(2)])),
                10 if rank > 0 => p.calls("aten::unbind.int", of(vec![int(dim)])),
                _ => p.calls("aten::add_.Scalar", of(vec![int(draw.below(9))])),
            };
            values.extend(results);
        }
        p.check(&values);
    }
}

#[test]
fn a_reshape_that_copies_keeps_its_elements() {
    let mut model = Model::default();
    let graph = model.add_method("forward", Graph::new());
    graph.origins.push(Origin::default());
    let x = graph.input("x", tensor(&[2, 3]));
    let mut b = model.builder("forward", BlockId::new(0), OriginId::new(0)).unwrap();
    let mut push = |name: &str, args: Vec<Arg>, ty| {
        let schema = b.schemas().expect(name).unwrap();
        let args = bind(&schema, args, &[]).unwrap();
        b.push(Op::Call(schema), args, vec![ty])[0]
    };
    let t = push("aten::t", vec![x.into()], tensor(&[3, 2]));
    let copy = push("aten::reshape", vec![t.into(), list(&[6])], tensor(&[6]));
    push("aten::zero_", vec![x.into()], tensor(&[2, 3]));
    let graph = &mut model.methods["forward"];
    graph.outputs = vec![copy.into(), t.into()];
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    assert_eq!(graph.outputs[0], Arg::Value(copy));
    assert_ne!(graph.outputs[1], Arg::Value(t));
}

/// A model whose method calls one operator on a value.
fn one_call(value: impl FnOnce(&mut Model) -> ValueId, name: &str, args: Vec<Arg>) -> Model {
    let mut model = Model::default();
    model.add_method("forward", Graph::new()).origins.push(Origin::default());
    let value = value(&mut model);
    let schema = model.schemas.expect(name).unwrap();
    let args = bind(&schema, [vec![value.into()], args].concat(), &[]).unwrap();
    let graph = &mut model.methods["forward"];
    let ty = graph.ty(value).clone();
    let node = graph.push_node(graph.body, Op::Call(schema), args, OriginId::new(0), [("y".into(), ty)]);
    graph.outputs = vec![graph.nodes[node].results[0].into()];
    model
}

#[test]
fn writes_to_state_become_updates() {
    let state = |model: &mut Model| {
        let ty = TensorType::of(ScalarType::Float, &[2]);
        let id = model.states.push(State { name: "cache".into(), ty, initial: ConstantData::Zeros });
        model.methods["forward"].state(id, &model.states)
    };
    let mut model = one_call(state, "aten::add_.Scalar", vec![Arg::from(1)]);
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    let [update] = graph.updates[..] else { panic!("{:?}", graph.updates) };
    assert!(matches!(update.target, Target::State(_)));
    assert_eq!(graph.outputs, [Arg::Value(update.value)]);
    assert_eq!(graph.producer(update.value).unwrap().op.name(), "aten::add.Scalar");
}

#[test]
fn writes_to_constants_and_unknown_writes_are_errors() {
    let constant = |model: &mut Model| {
        let ty = TensorType::of(ScalarType::Float, &[2]);
        let id = model.constants.push(Constant { name: "weight".into(), ty, data: ConstantData::Zeros });
        model.methods["forward"].constant(id, &model.constants)
    };
    let error = Functionalise.run(&mut one_call(constant, "aten::relu_", vec![])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("`weight`"), "{error}");
    let input = |model: &mut Model| model.methods["forward"].input("x", tensor(&[2]));
    let error = Functionalise.run(&mut one_call(input, "aten::polygamma_", vec![Arg::from(1)])).unwrap_err();
    assert!(error.message().contains("aten::polygamma_"), "{error}");
    let wide = |model: &mut Model| model.methods["forward"].input("x", tensor(&[1]));
    let mut model = one_call(wide, "aten::add_.Tensor", vec![Arg::None]);
    let graph = &mut model.methods["forward"];
    let other = graph.input("other", tensor(&[3]));
    let node = graph.blocks[graph.body].nodes[0];
    graph.nodes[node].args[1] = other.into();
    assert_eq!(Functionalise.run(&mut model).unwrap_err().kind(), ErrorKind::Type);
}

#[test]
fn the_dtype_of_what_is_written_stays() {
    let input =
        |model: &mut Model| model.methods["forward"].input("x", Type::Tensor(TensorType::of(ScalarType::Half, &[2])));
    let mut model = one_call(input, "aten::add_.Tensor", vec![Arg::None]);
    let graph = &mut model.methods["forward"];
    let other = graph.input("other", tensor(&[2]));
    let node = graph.blocks[graph.body].nodes[0];
    graph.nodes[node].args[1] = other.into();
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    let output = graph.outputs[0].as_value().unwrap();
    assert_eq!(graph.tensor(output).unwrap().dtype, ScalarType::Half);
    assert_eq!(graph.producer(output).unwrap().op.name(), "aten::_to_copy");
}

#[test]
fn sizes_may_depend_on_inputs() {
    let mut model = Model::default();
    let graph = model.add_method("forward", Graph::new());
    graph.origins.push(Origin::default());
    let s: Expr = graph.symbols.push(Symbol { name: "s0".into(), min: 1, max: None }).into();
    let ty = |shape: Vec<Expr>| Type::Tensor(TensorType::new(ScalarType::Float, shape));
    let x = graph.input("x", ty(vec![s.clone(), Expr::Int(4)]));
    let mut b = model.builder("forward", BlockId::new(0), OriginId::new(0)).unwrap();
    let mut push = |name: &str, args: Vec<Arg>, ty| {
        let schema = b.schemas().expect(name).unwrap();
        let args = bind(&schema, args, &[]).unwrap();
        b.push(Op::Call(schema), args, vec![ty])[0]
    };
    let flat = push("aten::flatten.using_ints", vec![x.into()], ty(vec![s.mul(4)]));
    let last = push("aten::select.int", vec![flat.into(), Arg::from(0), Arg::from(-1)], ty(vec![]));
    push("aten::zero_", vec![last.into()], ty(vec![]));
    model.methods["forward"].outputs = vec![flat.into()];
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    let scattered = graph.producer(graph.outputs[0].as_value().unwrap()).unwrap();
    assert_eq!(scattered.op.name(), "aten::select_scatter");
    assert_eq!(scattered.args[3], Arg::Int(s.mul(4).sub(1)));
    let stored = graph.updates[0].value;
    assert_eq!(graph.tensor(stored).unwrap().shape, [s, Expr::Int(4)]);
}

#[test]
fn batch_norms_that_train_update_their_statistics() {
    let mut model = Model::default();
    model.add_method("forward", Graph::new()).origins.push(Origin::default());
    let graph = &mut model.methods["forward"];
    let x = graph.input("x", tensor(&[2, 3, 4]));
    let state = |model: &mut Model, name: &str| {
        let ty = TensorType::of(ScalarType::Float, &[3]);
        let id = model.states.push(State { name: name.into(), ty, initial: ConstantData::Zeros });
        model.methods["forward"].state(id, &model.states)
    };
    let (mean, var) = (state(&mut model, "mean"), state(&mut model, "var"));
    let schema = model.schemas.expect("aten::batch_norm").unwrap();
    let args = [x.into(), Arg::None, Arg::None, mean.into(), var.into(), Arg::Bool(true), 0.1.into(), 1e-5.into()];
    let args = bind(&schema, [args.to_vec(), vec![Arg::Bool(false)]].concat(), &[]).unwrap();
    let graph = &mut model.methods["forward"];
    let ty = tensor(&[2, 3, 4]);
    let node = graph.push_node(graph.body, Op::Call(schema), args, OriginId::new(0), [("y".into(), ty)]);
    let y = graph.nodes[node].results[0];
    graph.outputs = vec![y.into()];
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    assert_eq!(graph.nodes[node].op.name(), "aten::_native_batch_norm_legit_functional");
    assert_eq!(graph.outputs, [Arg::Value(y)]);
    let stored: Vec<ValueId> = graph.updates.iter().map(|update| update.value).collect();
    assert_eq!(stored, graph.nodes[node].results[3..]);
}

#[test]
fn out_variants_write_what_their_functional_forms_compute() {
    let input = |model: &mut Model| model.methods["forward"].input("x", tensor(&[2]));
    let mut model =
        one_call(input, "aten::add.out", vec![ValueId::new(0).into(), Arg::from(1), ValueId::new(0).into()]);
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    assert_eq!(graph.producer(graph.outputs[0].as_value().unwrap()).unwrap().op.name(), "aten::add.Tensor");
    assert_eq!(graph.updates.len(), 1);
}

#[test]
fn branches_read_what_was_written_before_and_must_not_write_outside() {
    let build = |in_place: bool| {
        let mut model = Model::default();
        let graph = model.add_method("forward", Graph::new());
        graph.origins.push(Origin::default());
        let x = graph.input("x", tensor(&[2, 2]));
        let schemas = model.schemas.clone();
        let graph = &mut model.methods["forward"];
        let call = |graph: &mut Graph, block, name: &str, args: Vec<Arg>, sizes: &[usize]| {
            let schema = schemas.expect(name).unwrap();
            let args = bind(&schema, args, &[]).unwrap();
            let name = format!("v{}", graph.values.len());
            let node = graph.push_node(block, Op::Call(schema), args, OriginId::new(0), [(name, tensor(sizes))]);
            graph.nodes[node].results[0]
        };
        let (body, then, other) =
            (graph.body, graph.blocks.push(Block::default()), graph.blocks.push(Block::default()));
        let row = call(graph, body, "aten::select.int", vec![x.into(), Arg::from(0), Arg::from(0)], &[2]);
        call(graph, body, "aten::zero_", vec![x.into()], &[2, 2]);
        let name = if in_place { "aten::add_.Scalar" } else { "aten::add.Scalar" };
        let sum = call(graph, then, name, vec![row.into(), Arg::from(1)], &[2]);
        graph.blocks[then].results = vec![sum.into()];
        graph.blocks[other].results = vec![row.into()];
        let args = vec![Arg::Bool(true), Arg::Block(then), Arg::Block(other)];
        let cond = graph.push_node(body, Op::Cond, args, OriginId::new(0), [("cond".into(), tensor(&[2]))]);
        graph.outputs = vec![graph.nodes[cond].results[0].into()];
        (model, row, then, other)
    };
    let (mut model, row, then, other) = build(false);
    Functionalise.run(&mut model).unwrap();
    let graph = &model.methods["forward"];
    let read = graph.blocks[other].results[0].as_value().unwrap();
    assert_ne!(read, row);
    assert_eq!(graph.nodes[graph.blocks[then].nodes[0]].args[0], Arg::Value(read));
    let error = Functionalise.run(&mut build(true).0).unwrap_err();
    assert!(error.message().contains("in control flow"), "{error}");
}
