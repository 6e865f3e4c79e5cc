//! A wrong pass is found at the node where it went wrong.

use rushlight::{Module, ScalarType, TensorView};
use rushlight_compiler::{CompileOptions, Compiled, compile, debug_map};
use rushlight_devtools::compare::{Comparison, trace};
use rushlight_graph::Error;
use rushlight_graph::Pass;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Graph, Model, Origin, SourceFrame, TensorType, Type};

/// Five operators in a row, each from a line of its own.
fn model() -> Model {
    let mut model = Model::default();
    let mut graph = Graph::new();
    let mut value = graph.input("x", Type::Tensor(TensorType::of(ScalarType::Float, &[4])));
    let block = graph.body;
    model.add_method("forward", graph);
    for (line, name) in [aten::EXP, aten::NEG, aten::ABS, aten::SQRT, aten::RELU].iter().enumerate() {
        let frame = SourceFrame {
            file: "model.py".into(),
            line: line as u32 + 1,
            function: "forward".into(),
            code: (*name).into(),
        };
        let node = format!("step_{line}");
        let origin = Origin { node: node.clone(), module: "net".into(), frames: [frame].into(), ..Origin::default() };
        let origin = model.methods["forward"].origins.push(origin);
        value = model.builder("forward", block, origin).unwrap().one(name, vec![value.into()]).unwrap();
        model.methods["forward"].values[value].name = node;
    }
    model.methods["forward"].outputs = vec![value.into()];
    model
}

/// A pass that takes `exp` for `sqrt`.
#[derive(Debug)]
struct Wrong;

impl Pass for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        model.rewrite(|builder, node| {
            let node = &builder.graph.nodes[node];
            if node.op.name() != aten::SQRT {
                return Ok(Action::Keep);
            }
            let args: Vec<Arg> = node.args.clone();
            builder.call(aten::EXP, args).map(Action::Replace)
        })?;
        Ok(())
    }
}

fn compiled(passes: Vec<Box<dyn Pass>>, keep_nodes: bool) -> Compiled {
    compile(model(), &CompileOptions { passes, keep_nodes, ..CompileOptions::default() }).unwrap()
}

fn compared(candidate: &Compiled) -> Comparison {
    let reference = compiled(Vec::new(), true);
    let data = [0.5f32, -1.0, 2.0, 0.0];
    let traced = |compiled: &Compiled| {
        let file = compiled.program.to_bytes().unwrap();
        let mut module = Module::builder().load_bytes(&file).unwrap();
        let map = debug_map::of_program(&module.program().parsed()).swap_remove(0);
        let input = TensorView::of(&[4], &data).unwrap().into();
        trace(&mut module, "forward", &[input], &map).unwrap()
    };
    Comparison::of(&traced(&reference), &traced(candidate))
}

#[test]
fn the_wrong_node_is_named() {
    let comparison = compared(&compiled(vec![Box::new(Wrong)], false));
    let row = comparison.first_difference(1e-6).unwrap();
    assert_eq!((row.result.as_str(), row.op.as_str(), row.module.as_str()), ("step_3", aten::SQRT, "net"));
    assert_eq!(row.source.as_deref(), Some("model.py:4 in forward: aten::sqrt"));
    assert_eq!(comparison.worst(1)[0].result, "step_3");
    assert!(row.difference.snr_db < 10.0, "{row:?}");
}

#[test]
fn equal_programs_do_not_differ() {
    let comparison = compared(&compiled(Vec::new(), false));
    assert_eq!(comparison.rows.len(), 5);
    assert_eq!(comparison.first_difference(0.0), None);
}
