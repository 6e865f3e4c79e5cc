//! Converts a graph to the view that a page or a script shows.

use std::collections::HashMap;

use rushlight_compiler::debug_map::without_folder;
use rushlight_format::signature::Signature;
use rushlight_graph::types::dtype_name;
use rushlight_graph::{Arg, BlockId, Def, Graph, Input, Layout, Model, NodeId, Op, Target, Type, Update, ValueId};

use super::{ConstantView, MethodView, NodeKind, NodeView, ResultView};

/// Texts of arguments are cut to this many characters.
const LONGEST: usize = 400;

pub fn method(name: &str, graph: &Graph, model: &Model) -> MethodView {
    let mut writer = Writer { graph, model, nodes: Vec::new(), given: HashMap::new() };
    let signature = model.signature(name);
    let input_names = signature.as_ref().map(Signature::input_names).unwrap_or_default();
    let output_names = signature.as_ref().map(Signature::output_names).unwrap_or_default();
    // A single output has no name in the signature: its position identifies it.
    let name_of = |names: &[String], position| names.get(position).filter(|name: &&String| !name.is_empty()).cloned();
    for (position, input) in graph.inputs.iter().enumerate() {
        let known = name_of(&input_names, position);
        let mut node = blank(NodeKind::Input, &known.clone().unwrap_or_else(|| format!("input {position}")));
        match input {
            Input::Value(value) => {
                if known.is_none() {
                    node.name.clone_from(&graph.values[*value].name);
                }
                node.results = vec![writer.result(*value)];
                writer.given.insert(*value, (writer.nodes.len(), 0));
            }
            Input::Literal(arg) => node.arguments.push(("always".into(), writer.text(arg))),
        }
        writer.nodes.push(node);
    }
    writer.block(graph.body, "");
    for (position, output) in graph.outputs.iter().enumerate() {
        let known = name_of(&output_names, position);
        let mut node = blank(NodeKind::Output, &known.unwrap_or_else(|| format!("output {position}")));
        writer.take(output, &mut node);
        node.arguments.push(("value".into(), writer.text(output)));
        writer.nodes.push(node);
    }
    for Update { target, value } in &graph.updates {
        let target = match target {
            Target::State(id) => model.states.get(*id).map_or("state", |state| &state.name).to_owned(),
            Target::Input(position) => {
                name_of(&input_names, *position as usize).unwrap_or_else(|| format!("input {position}"))
            }
        };
        let mut node = blank(NodeKind::Update, &target);
        writer.take(&Arg::Value(*value), &mut node);
        node.arguments.push(("value".into(), writer.text(&Arg::Value(*value))));
        writer.nodes.push(node);
    }
    MethodView { name: name.to_owned(), nodes: writer.nodes }
}

struct Writer<'m> {
    graph: &'m Graph,
    model: &'m Model,
    nodes: Vec<NodeView>,
    /// The node of a value, and the index of the value among the node's results.
    given: HashMap<ValueId, (usize, usize)>,
}

impl Writer<'_> {
    fn block(&mut self, block: BlockId, group: &str) {
        for id in &self.graph.blocks[block].nodes {
            self.node(*id, group);
        }
    }

    /// Adds a node, after those of its blocks. `group` is that of the surrounding block; it is empty in the body of the
    /// method.
    fn node(&mut self, id: NodeId, group: &str) {
        let node = &self.graph.nodes[id];
        let origin = &self.graph.origins[node.origin];
        let name = node.result().map_or(origin.node.as_str(), |result| &self.graph.values[result].name);
        let mut view = blank(NodeKind::Operator, name);
        node.op.name().clone_into(&mut view.operator);
        view.module.clone_from(&origin.module);
        if let Op::Delegate(id) = node.op {
            view.arguments.extend(self.model.delegates.get(id).map(|d| ("backend".into(), d.backend.clone())));
        }
        group_of(&origin.module, group).clone_into(&mut view.group);
        view.source = origin.line().map(|line| without_folder(&line).to_owned());
        for (index, arg) in node.args.iter().enumerate() {
            self.take(arg, &mut view);
            if !matches!(arg, Arg::Block(_)) {
                let param = node.op.schema().and_then(|schema| schema.params.get(index));
                let name = param.map_or_else(|| format!("argument {index}"), |param| param.name.clone());
                view.arguments.push((name, self.text(arg)));
            }
        }
        for (position, block) in node.blocks().enumerate() {
            self.bind(block, &node.args);
            let group = format!("{} {}", joined(&view.group, name), part(&node.op, position));
            self.block(block, &group);
            for result in &self.graph.blocks[block].results {
                self.take(result, &mut view);
            }
        }
        for (index, result) in node.results.iter().enumerate() {
            view.results.push(self.result(*result));
            self.given.insert(*result, (self.nodes.len(), index));
        }
        self.nodes.push(view);
    }

    /// Maps the parameters of a block to the values that its node passes.
    fn bind(&mut self, block: BlockId, args: &[Arg]) {
        let items = args.iter().filter_map(|arg| if let Arg::List(items) = arg { Some(items) } else { None }).flatten();
        for (param, arg) in self.graph.blocks[block].params.iter().zip(items) {
            if let Arg::Value(value) = arg
                && let Some(source) = self.given.get(value)
            {
                self.given.insert(*param, *source);
            }
        }
    }

    /// Records the values that an argument contains.
    fn take(&self, arg: &Arg, node: &mut NodeView) {
        arg.for_each_value(&mut |value| {
            let kind = match (self.given.get(&value), self.graph.values[value].def) {
                (Some(source), _) => return node.inputs.push(*source),
                (None, Def::Constant(_)) => "constant",
                (None, Def::State(_)) => "state",
                (None, _) => return,
            };
            node.constants.push(ConstantView { kind, value: self.result(value) });
        });
    }

    fn result(&self, value: ValueId) -> ResultView {
        let value = &self.graph.values[value];
        let bytes = match &value.ty {
            Type::Tensor(ty) => ty.max_bytes(&self.graph.symbols),
            _ => None,
        };
        ResultView { name: value.name.clone(), ty: value.ty.display(&self.graph.symbols).to_string(), bytes }
    }

    /// An argument in the text form, cut if it is long.
    fn text(&self, arg: &Arg) -> String {
        let mut out = String::new();
        self.write(arg, &mut out);
        if let Some((at, _)) = out.char_indices().nth(LONGEST) {
            out.truncate(at);
            out.push('…');
        }
        out
    }

    fn write(&self, arg: &Arg, out: &mut String) {
        let text = match arg {
            Arg::None => "none".to_owned(),
            Arg::Value(value) => {
                let value = &self.graph.values[*value];
                let sign = match value.def {
                    Def::Constant(_) => '@',
                    Def::State(_) => '$',
                    Def::Param(_) | Def::Result(..) => '%',
                };
                format!("{sign}{}", value.name)
            }
            Arg::Int(expr) => expr.display(&self.graph.symbols).to_string(),
            Arg::Float(value) => value.to_string(),
            Arg::Bool(value) => value.to_string(),
            Arg::Str(text) => format!("{text:?}"),
            Arg::Complex(re, im) => format!("complex({re}, {im})"),
            Arg::DType(dtype) => dtype_name(*dtype).to_owned(),
            Arg::Layout(Layout::Strided) => "strided".to_owned(),
            Arg::Layout(Layout::Sparse) => "sparse".to_owned(),
            Arg::Device(name) => name.clone(),
            Arg::MemoryFormat(format) => format.to_string(),
            Arg::Block(_) => "{…}".to_owned(),
            Arg::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    // The rest would be cut.
                    if out.len() > 4 * LONGEST {
                        break;
                    }
                    out.push_str(if index == 0 { "" } else { ", " });
                    self.write(item, out);
                }
                "]".to_owned()
            }
        };
        out.push_str(&text);
    }
}

/// A node without any details.
fn blank(kind: NodeKind, name: &str) -> NodeView {
    let operator = match kind {
        NodeKind::Input => "input",
        NodeKind::Output => "output",
        NodeKind::Update => "update",
        NodeKind::Operator => "",
    };
    NodeView {
        kind,
        name: name.to_owned(),
        operator: operator.to_owned(),
        module: String::new(),
        group: String::new(),
        source: None,
        inputs: Vec::new(),
        arguments: Vec::new(),
        constants: Vec::new(),
        results: Vec::new(),
    }
}

/// The group of a node: its module in the body of a method, else the nested block.
fn group_of<'g>(module: &'g str, group: &'g str) -> &'g str {
    if group.is_empty() { module } else { group }
}

fn joined(group: &str, name: &str) -> String {
    // A dot in the name would add a level.
    let name = name.replace('.', "_");
    if group.is_empty() { name } else { format!("{group}.{name}") }
}

/// The role of a block in its node.
fn part(op: &Op, position: usize) -> &'static str {
    match (op, position) {
        (Op::Cond, 0) => "then",
        (Op::Cond, _) => "else",
        (Op::While, 0) => "condition",
        _ => "body",
    }
}
