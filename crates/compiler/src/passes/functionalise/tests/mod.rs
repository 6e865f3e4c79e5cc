//! Runs programs before and after the pass, on a machine where tensors share memory as in PyTorch. Outputs, and the
//! contents of inputs and states afterwards, must be equal.

mod machine;

use rushlight_format::ScalarType;

use super::Functionalise;
use machine::{Machine, Tensor, numel};
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Graph, Model, Op, Origin, OriginId, TensorType, Type, ValueId, bind};

/// A program under construction; the machine executes each call when it is added.
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

    /// Runs the pass, compares outputs and inputs with those before it, and returns the names of the operators.
    fn check(mut self, outputs: &[ValueId]) -> Vec<String> {
        self.graph().outputs = outputs.iter().map(|value| Arg::Value(*value)).collect();
        let expected: Vec<_> = outputs.iter().map(|value| self.machine.read(&self.machine.values[value])).collect();
        let expected_inputs: Vec<_> =
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
        let (got, got_inputs) = machine.run(graph);
        assert_eq!(got, expected, "outputs of {names:?}");
        assert_eq!(got_inputs, expected_inputs, "inputs after {names:?}");
        let changed = self.inputs.iter().zip(&expected_inputs).filter(|((_, before), after)| before != *after).count();
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
fn a_write_to_each_kind_of_view_reaches_the_base() {
    let views: [(&str, Vec<Arg>); 17] = [
        (aten::VIEW, vec![list(&[2, 6])]),
        (aten::RESHAPE, vec![list(&[12])]),
        (aten::FLATTEN_USING_INTS, vec![]),
        (aten::PERMUTE, vec![list(&[1, 0])]),
        (aten::TRANSPOSE_INT, vec![Arg::from(-1), Arg::from(0)]),
        (aten::T, vec![]),
        (aten::UNSQUEEZE, vec![Arg::from(-1)]),
        (aten::SQUEEZE, vec![]),
        (aten::ALIAS, vec![]),
        (aten::DETACH, vec![]),
        (aten::DROPOUT, vec![Arg::from(0.5), Arg::Bool(false)]),
        (aten::EXPAND, vec![list(&[1, 3, 4])]),
        (aten::SELECT_INT, vec![Arg::from(0), Arg::from(-1)]),
        (aten::SLICE_TENSOR, vec![Arg::from(1), Arg::from(-3), Arg::from(i64::MAX), Arg::from(2)]),
        (aten::NARROW, vec![Arg::from(1), Arg::from(-2), Arg::from(2)]),
        (aten::DIAGONAL, vec![]),
        (aten::AS_STRIDED, vec![list(&[2, 2]), list(&[5, 2]), Arg::from(1)]),
    ];
    for (name, args) in views {
        let mut p = Program::new();
        let x = p.input(&[3, 4]);
        let before = p.call(aten::VIEW, vec![x.into(), list(&[4, 3])]);
        let view = p.call(name, [vec![x.into()], args].concat());
        let written = p.call(aten::MUL__SCALAR, vec![view.into(), Arg::from(3)]);
        let after = p.call(aten::ADD_SCALAR, vec![x.into(), Arg::from(1)]);
        let names = p.check(&[view, written, after, before, x]);
        assert!(names.contains(&aten::MUL_SCALAR.to_owned()), "{names:?}");
    }
}

#[test]
fn chains_and_siblings_of_views_see_each_others_writes() {
    let mut p = Program::new();
    let x = p.input(&[4, 6]);
    let a = p.call(aten::SLICE_TENSOR, vec![x.into(), Arg::from(0), Arg::from(1), Arg::from(4)]);
    let b = p.call(aten::TRANSPOSE_INT, vec![a.into(), Arg::from(0), Arg::from(1)]);
    let c = p.call(aten::SELECT_INT, vec![b.into(), Arg::from(0), Arg::from(2)]);
    let d = p.call(aten::VIEW, vec![x.into(), list(&[24])]);
    p.call(aten::FILL__SCALAR, vec![c.into(), Arg::from(7.0)]);
    let e = p.call(aten::ADD_SCALAR, vec![d.into(), Arg::from(0)]);
    p.call(aten::MUL__SCALAR, vec![d.into(), Arg::from(2)]);
    p.call(aten::ADD__TENSOR, vec![b.into(), b.into()]);
    let f = p.call(aten::CLONE, vec![a.into()]);
    p.check(&[a, b, c, d, e, f, x]);
}

/// A pseudorandom generator.
struct Random(u64);

impl Random {
    /// Returns an integer below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

#[test]
fn random_programs_keep_their_results() {
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut p = Program::new();
        let mut values = vec![p.input(&[3, 4]), p.input(&[2, 3, 2])];
        for _ in 0..4 + random.below(16) {
            let value = values[random.below(values.len())];
            let shape = p.shape(value);
            let rank = shape.len();
            let dim = random.below(rank);
            let of = |rest: Vec<Arg>| [vec![value.into()], rest].concat();
            let int = |value: usize| Arg::from(value as i64);
            let results = match random.below(12) {
                0 if rank > 0 => p.calls(aten::SELECT_INT, of(vec![int(dim), int(random.below(shape[dim]))])),
                1 if rank > 0 => {
                    let start = random.below(shape[dim]);
                    let end = start + 1 + random.below(shape[dim] - start);
                    p.calls(aten::SLICE_TENSOR, of(vec![int(dim), int(start), int(end), int(1 + random.below(2))]))
                }
                2 if rank > 1 => p.calls(aten::TRANSPOSE_INT, of(vec![int(dim), int(random.below(rank))])),
                3 => p.calls(aten::UNSQUEEZE, of(vec![int(random.below(rank + 1))])),
                4 if rank > 0 => p.calls(aten::SPLIT_TENSOR, of(vec![int(1 + random.below(2)), int(dim)])),
                5 => p.calls(aten::CLONE, of(vec![])),
                6 => p.calls(aten::ALIAS, of(vec![])),
                7 => p.calls(aten::FILL__SCALAR, of(vec![int(random.below(50))])),
                8 => {
                    let same: Vec<_> = values.iter().copied().filter(|other| p.shape(*other) == shape).collect();
                    let other = same[random.below(same.len())];
                    p.calls([aten::COPY_, aten::ADD__TENSOR][random.below(2)], of(vec![other.into()]))
                }
                9 => p.calls(aten::MUL__SCALAR, of(vec![int(2)])),
                10 if rank > 0 => p.calls(aten::UNBIND_INT, of(vec![int(dim)])),
                _ => p.calls(aten::ADD__SCALAR, of(vec![int(random.below(9))])),
            };
            values.extend(results);
        }
        p.check(&values);
    }
}
