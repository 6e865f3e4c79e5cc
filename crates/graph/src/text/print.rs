//! Writing the text form.

use std::collections::HashMap;
use std::fmt::Write;

use crate::{
    Arg, Block, BlockId, Constant, ConstantData, ConstantId, Def, Expr, Graph, Input, Layout, Literal, Model, Node, Op,
    Origin, Schema, Schemas, State, StateId, Symbols, Target, ValueId, types,
};
use crate::{Bytes, Error};

use super::names::{Names, is_operator, plain_symbols, quoted, word};
use super::{Contents, Detail, content, schema};

/// The text of a model and the content that it refers to.
pub(super) fn print(model: &Model, detail: Detail) -> Result<(String, Contents), Error> {
    let mut printer = Printer {
        model,
        detail,
        out: String::new(),
        contents: Contents::default(),
        constants: Names::new(),
        states: Names::new(),
    };
    printer.model()?;
    Ok((printer.out, printer.contents))
}

struct Printer<'m> {
    model: &'m Model,
    detail: Detail,
    out: String,
    contents: Contents,
    constants: Names<ConstantId>,
    states: Names<StateId>,
}

impl Printer<'_> {
    fn line(&mut self, depth: usize, text: impl AsRef<str>) {
        self.out.extend(std::iter::repeat_n("  ", depth));
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    fn model(&mut self) -> Result<(), Error> {
        let Model { methods, constants, states, delegates, constant_methods, named_data, .. } = self.model;
        for schema in self.unknown_schemas() {
            self.line(0, format!("operator {}", quoted(&schema::Line(&schema).to_string())));
        }
        for id in self.used_constants() {
            let constant = &constants[id];
            self.constants.add(id, &constant.name);
            let data = self.content(constant)?;
            let ty = types::Type::Tensor(constant.ty.clone());
            let line = format!("constant @{} : {}{data}", self.constants.get(&id), ty.display(&Symbols::new()));
            self.line(0, line);
        }
        for (id, State { name, ty, initial }) in states.iter() {
            self.states.add(id, name);
            let data = self.content(&Constant { name: name.clone(), ty: ty.clone(), data: initial.clone() })?;
            let ty = types::Type::Tensor(ty.clone());
            let line = format!("state ${} : {}{data}", self.states.get(&id), ty.display(&Symbols::new()));
            self.line(0, line);
        }
        for (id, delegate) in delegates.iter() {
            let data = self.bytes(&delegate.payload);
            let specs = delegate.compile_specs.iter();
            let specs: Vec<_> = specs.map(|(key, value)| format!("{} {}", quoted(key), content::hex(value))).collect();
            let backend = quoted(&delegate.backend);
            self.line(0, format!("delegate {} {backend}{data} specs [{}]", id.index(), specs.join(", ")));
        }
        for (key, blob) in named_data {
            let unmade = || Error::invalid(format!("the data `{key}` could not be made"));
            let data = self.bytes(&Bytes::of_blob(blob).ok_or_else(unmade)?);
            self.line(0, format!("data {}{data}", quoted(key)));
        }
        for (name, values) in constant_methods {
            let values: Vec<String> = values.iter().map(|value| self.literal(value)).collect();
            self.line(0, format!("constant_method {} = [{}]", quoted(name), values.join(", ")));
        }
        for (name, graph) in methods {
            if !self.out.is_empty() {
                self.line(0, "");
            }
            let names = value_names(graph);
            let symbols = plain_symbols(&graph.symbols);
            MethodPrinter { printer: self, graph, names, symbols, origins: Vec::new(), numbers: HashMap::new() }
                .print(name);
        }
        Ok(())
    }

    /// The operators in use that the built-in table does not have as they are.
    fn unknown_schemas(&self) -> Vec<Schema> {
        let table = Schemas::new();
        let mut unknown: Vec<Schema> = Vec::new();
        for graph in self.model.methods.values() {
            for block in graph.live_blocks() {
                for node in &graph.blocks[block].nodes {
                    if let Some(schema) = graph.nodes[*node].op.schema()
                        && table.get(&schema.name).as_ref() != Some(schema)
                        && unknown.iter().all(|known| known.name != schema.name)
                    {
                        unknown.push((**schema).clone());
                    }
                }
            }
        }
        unknown
    }

    fn used_constants(&self) -> Vec<ConstantId> {
        let mut used = Vec::new();
        for graph in self.model.methods.values() {
            graph.for_each_use(&mut |value| used.extend(graph.constant_of(value)));
        }
        for literal in self.model.constant_methods.values().flatten() {
            if let Literal::Tensor(id) = literal {
                used.push(*id);
            }
        }
        used.sort_unstable();
        used.dedup();
        used
    }

    fn content(&mut self, constant: &Constant) -> Result<String, Error> {
        if let Some(short) = content::short(constant)? {
            return Ok(format!(" = {short}"));
        }
        if self.detail == Detail::Review {
            return Ok(String::new());
        }
        let hash = content::tensor_hash(constant)?;
        self.contents.0.insert(hash, constant.data.clone());
        Ok(format!(" = content {hash:016x}"))
    }

    fn bytes(&mut self, bytes: &Bytes) -> String {
        if let Some(short) = content::short_bytes(bytes) {
            return format!(" = {short}");
        }
        let hash = content::hash(bytes);
        self.contents.0.insert(hash, ConstantData::Dense(bytes.clone()));
        format!(" = content {hash:016x}")
    }

    fn literal(&self, literal: &Literal) -> String {
        match literal {
            Literal::None => "none".into(),
            Literal::Int(value) => value.to_string(),
            Literal::Float(value) => float(*value),
            Literal::Bool(value) => value.to_string(),
            Literal::Str(text) => quoted(text),
            Literal::Tensor(id) => format!("@{}", self.constants.get(id)),
        }
    }
}

/// The name of each value that is defined in what runs.
fn value_names(graph: &Graph) -> Names<ValueId> {
    let mut names = Names::new();
    let mut blocks = vec![graph.body];
    while let Some(block) = blocks.pop() {
        let Block { params, nodes, .. } = &graph.blocks[block];
        let mut note = |values: &[ValueId]| {
            for value in values {
                names.add(*value, &graph.values[*value].name);
            }
        };
        note(params);
        for node in nodes {
            let node = &graph.nodes[*node];
            note(&node.results);
            blocks.extend(node.blocks());
        }
    }
    names
}

struct MethodPrinter<'p, 'm, 'g> {
    printer: &'p mut Printer<'m>,
    graph: &'g Graph,
    names: Names<ValueId>,
    symbols: Symbols,
    /// The origins in use, in the order in which the text numbers them.
    origins: Vec<&'g Origin>,
    numbers: HashMap<&'g Origin, usize>,
}

impl MethodPrinter<'_, '_, '_> {
    fn print(mut self, name: &str) {
        let graph = self.graph;
        self.printer.line(0, format!("method {} {{", quoted(name)));
        for ((_, symbol), (_, plain)) in graph.symbols.iter().zip(self.symbols.iter()) {
            let original = if symbol.name == plain.name { String::new() } else { format!(" {}", quoted(&symbol.name)) };
            let max = symbol.max.map_or(String::new(), |max| format!("={max}"));
            self.printer.line(1, format!("symbol {}{original} in {}..{max}", plain.name, symbol.min));
        }
        for (kind, encoding) in [("inputs", &graph.input_encoding), ("outputs", &graph.output_encoding)] {
            if !encoding.is_empty() {
                self.printer.line(1, format!("encoding {kind} {}", quoted(encoding)));
            }
        }
        for input in &graph.inputs {
            let text = match input {
                Input::Value(value) => format!("input {}", self.defined(*value)),
                Input::Literal(arg) => format!("input literal {}", self.arg(arg, 1)),
            };
            self.printer.line(1, text);
        }
        self.nodes(graph.body, 1);
        let outputs = self.args(&graph.outputs, 1);
        self.printer.line(1, format!("return {outputs}").trim_end());
        for update in &graph.updates {
            let target = match update.target {
                Target::State(id) => format!("${}", self.printer.states.get(&id)),
                Target::Input(position) => format!("input {position}"),
            };
            let value = self.value(update.value);
            self.printer.line(1, format!("update {target} = {value}"));
        }
        for (index, origin) in std::mem::take(&mut self.origins).into_iter().enumerate() {
            let line = format!("origin {index} {} {}", quoted(&origin.node), quoted(&origin.module));
            self.printer.line(1, line);
            for frame in origin.frames.iter() {
                let (file, function, code) = (quoted(&frame.file), quoted(&frame.function), quoted(&frame.code));
                self.printer.line(2, format!("frame {file} {} {function} {code}", frame.line));
            }
        }
        self.printer.line(0, "}");
    }

    fn nodes(&mut self, block: BlockId, depth: usize) {
        let graph = self.graph;
        for id in &graph.blocks[block].nodes {
            let node = &graph.nodes[*id];
            let results: Vec<String> = node.results.iter().map(|value| self.value(*value)).collect();
            let types: Vec<String> =
                node.results.iter().map(|value| graph.ty(*value).display(&self.symbols).to_string()).collect();
            let operator = match &node.op {
                Op::Delegate(id) => format!("delegate {}", id.index()),
                op => word(op.name(), |name| is_operator(name) || op.schema().is_none()),
            };
            let mut text = String::new();
            if !results.is_empty() {
                text = format!("{} = ", results.join(", "));
            }
            let args = self.args(&node.args, depth);
            // Writing to a string cannot fail.
            let _ = write!(text, "{operator}({args})");
            if !types.is_empty() {
                let _ = write!(text, " : {}", types.join(", "));
            }
            text.push_str(&self.origin(node));
            self.printer.line(depth, text.trim_end());
        }
    }

    /// The comment that says where a node comes from.
    fn origin(&mut self, node: &Node) -> String {
        let origin = &self.graph.origins[node.origin];
        let frame = origin.frame();
        let place = frame.map_or(String::new(), |frame| {
            let file = frame.file.rsplit(['/', '\\']).next().unwrap_or_default();
            format!("{file}:{}", frame.line)
        });
        let parts = [origin.module.as_str(), &place].map(|part| part.escape_debug().to_string());
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let text = parts.join("  ");
        if self.printer.detail == Detail::Review {
            return if text.is_empty() { String::new() } else { format!("  # {text}") };
        }
        let next = self.origins.len();
        let number = *self.numbers.entry(origin).or_insert_with(|| {
            self.origins.push(origin);
            next
        });
        format!("  # {number}: {text}")
    }

    fn args(&mut self, args: &[Arg], depth: usize) -> String {
        let args: Vec<String> = args.iter().map(|arg| self.arg(arg, depth)).collect();
        args.join(", ")
    }

    fn arg(&mut self, arg: &Arg, depth: usize) -> String {
        match arg {
            Arg::None => "none".into(),
            Arg::Value(value) => self.value(*value),
            Arg::Int(expr) => self.expr(expr),
            Arg::Float(value) => float(*value),
            Arg::Bool(value) => value.to_string(),
            Arg::Str(text) => quoted(text),
            Arg::Complex(re, im) => format!("complex({}, {})", float(*re), float(*im)),
            Arg::DType(dtype) => types::dtype_name(*dtype).into(),
            Arg::Layout(Layout::Strided) => "strided".into(),
            Arg::Layout(Layout::Sparse) => "sparse".into(),
            Arg::Device(name) => format!("device({})", quoted(name)),
            Arg::MemoryFormat(format) => format.to_string(),
            Arg::List(items) => format!("[{}]", self.args(items, depth)),
            Arg::Block(block) => self.block(*block, depth),
        }
    }

    /// A nested block; its lines stand between those of the node that it belongs to.
    fn block(&mut self, id: BlockId, depth: usize) -> String {
        let Block { params, results, .. } = &self.graph.blocks[id];
        let params: Vec<String> = params.iter().map(|param| self.defined(*param)).collect();
        let params = if params.is_empty() { String::new() } else { format!("({}) ", params.join(", ")) };
        let outer = std::mem::take(&mut self.printer.out);
        self.nodes(id, depth + 1);
        let results = self.args(results, depth + 1);
        self.printer.line(depth + 1, format!("yield {results}").trim_end());
        self.printer.out.extend(std::iter::repeat_n("  ", depth));
        let inner = std::mem::replace(&mut self.printer.out, outer);
        format!("{params}{{\n{inner}}}")
    }

    fn defined(&self, value: ValueId) -> String {
        format!("{} : {}", self.value(value), self.graph.ty(value).display(&self.symbols))
    }

    fn value(&self, value: ValueId) -> String {
        match self.graph.values[value].def {
            Def::Constant(id) => format!("@{}", self.printer.constants.get(&id)),
            Def::State(id) => format!("${}", self.printer.states.get(&id)),
            Def::Param(_) | Def::Result(..) => format!("%{}", self.names.get(&value)),
        }
    }

    fn expr(&self, expr: &Expr) -> String {
        expr.display(&self.symbols).to_string()
    }
}

/// A number that reads back as the same bits.
fn float(value: f64) -> String {
    if value.is_nan() {
        return if value.to_bits() == f64::NAN.to_bits() {
            "nan".into()
        } else {
            format!("nan(\"{:016x}\")", value.to_bits())
        };
    }
    format!("{value:?}")
}
