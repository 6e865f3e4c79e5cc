//! Names and nesting of inputs and outputs, for the program's [signatures](rushlight_format::signature).

use rushlight_format::signature::{Key, Parameter, RecordKind, Signature, Structure};
use rushlight_graph::operators::dim_order_ops;
use rushlight_graph::{Arg, Def, Error, Graph, Input, ValueId};

use super::super::ExportedProgram;
use super::super::schema::{Text, TreeKey, TreeSpec};

/// Returns the signature of a method. If the export has no structure, or one that does not match the graph, the result is
/// flat, and inputs and outputs have the names of their nodes.
pub(super) fn of(program: &ExportedProgram<'_>, graph: &Graph) -> Result<Signature, Error> {
    let named = |arg: &Arg| match arg {
        Arg::Value(value) => graph.values.get(exported(graph, *value)).map(|value| value.name.clone()),
        _ => None,
    };
    let outputs: Vec<Option<String>> = graph.outputs.iter().map(named).collect();
    if let (Some(inputs), Some(results)) = (program.in_spec(), program.out_spec()) {
        let arguments = program.signature().and_then(|signature| signature.forward_arg_names.as_deref());
        let (inputs, results) = (inputs?, results?);
        let is_whole = inputs.num_leaves() == graph.inputs.len() && results.num_leaves() == outputs.len();
        if let (true, Some(parameters)) = (is_whole, parameters(&inputs, arguments.unwrap_or_default())) {
            let outputs = structure(&results, &mut Names { rest: &outputs, keys: 0 });
            return Ok(Signature { parameters, outputs });
        }
    }
    let input = |(index, input): (usize, &Input)| {
        match input {
            Input::Value(value) => graph.values.get(*value).map(|value| value.name.clone()),
            Input::Literal(_) => None,
        }
        .unwrap_or_else(|| format!("input_{index}"))
    };
    Ok(Signature::flat(graph.inputs.iter().enumerate().map(input), outputs))
}

/// Returns the exported value of an output. The import may return a copy of it in another dim order; the name is that of
/// the original.
fn exported(graph: &Graph, value: ValueId) -> ValueId {
    match graph.values.get(value).map(|value| &value.def) {
        Some(Def::Result(node, 0)) if graph.nodes[*node].op.name() == dim_order_ops::_TO_DIM_ORDER_COPY => {
            graph.nodes[*node].args.first().and_then(Arg::as_value).unwrap_or(value)
        }
        _ => value,
    }
}

/// Returns the parameters of a call: the positional arguments, named by the exported function, then the keyword
/// arguments. `None` if `spec` is not a pair of a tuple and a dictionary, or if two parameters have the same name.
fn parameters(spec: &TreeSpec, arguments: &[Text<'_>]) -> Option<Vec<Parameter>> {
    let TreeSpec::Tuple(parts) = spec else { return None };
    let [TreeSpec::Tuple(positional), TreeSpec::Dict(keywords)] = parts.as_slice() else { return None };
    let mut parameters = Vec::with_capacity(positional.len() + keywords.len());
    for (index, spec) in positional.iter().enumerate() {
        let name = arguments.get(index).map_or_else(|| format!("input_{index}"), ToString::to_string);
        parameters.push(Parameter { name, structure: without_names(spec) });
    }
    for (key, spec) in keywords {
        let TreeKey::String(name) = key else { return None };
        parameters.push(Parameter { name: name.clone(), structure: without_names(spec) });
    }
    let mut names: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    (names.len() == parameters.len()).then_some(parameters)
}

/// The names of the leaves of a structure, in order.
struct Names<'n> {
    /// The names of the leaves that are not visited yet.
    rest: &'n [Option<String>],
    /// Number of keys on the path to the current place.
    keys: usize,
}

impl Names<'_> {
    /// Returns the name of the next leaf. `None` below a key, which names it already.
    fn next(&mut self) -> Option<String> {
        let (name, rest) = self.rest.split_first()?;
        self.rest = rest;
        name.clone().filter(|_| self.keys == 0)
    }

    /// Visits what is below a key.
    fn below_key<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        self.keys += 1;
        let result = read(self);
        self.keys -= 1;
        result
    }
}

fn without_names(spec: &TreeSpec) -> Structure {
    structure(spec, &mut Names { rest: &[], keys: 0 })
}

fn structure(spec: &TreeSpec, names: &mut Names<'_>) -> Structure {
    let mut record = |kind, class: &str, fields: &[String], children: &[TreeSpec]| {
        let fields = fields.iter().zip(children);
        let fields = fields.map(|(field, child)| (field.clone(), names.below_key(|names| structure(child, names))));
        Structure::Record { kind, class: class.to_owned(), fields: fields.collect() }
    };
    match spec {
        TreeSpec::Leaf => Structure::Leaf(names.next()),
        TreeSpec::NamedTuple { name, fields, children } if fields.len() == children.len() => {
            record(RecordKind::NamedTuple, name, fields, children)
        }
        TreeSpec::Other { kind, context, children } => match fields(context, children.len()) {
            Some(fields) => record(RecordKind::Registered, kind, &fields, children),
            None => Structure::Tuple(children.iter().map(|child| structure(child, names)).collect()),
        },
        TreeSpec::Tuple(children) | TreeSpec::NamedTuple { children, .. } => {
            Structure::Tuple(children.iter().map(|child| structure(child, names)).collect())
        }
        TreeSpec::List(children) => Structure::List(children.iter().map(|child| structure(child, names)).collect()),
        TreeSpec::Dict(entries) => {
            let entry = |(key, child): &(TreeKey, TreeSpec)| {
                let key = match key {
                    TreeKey::String(text) => Key::Text(text.clone()),
                    TreeKey::Int(number) => Key::Int(*number),
                    TreeKey::Other(json) => Key::Other(json.clone()),
                };
                (key, names.below_key(|names| structure(child, names)))
            };
            Structure::Dict(entries.iter().map(entry).collect())
        }
    }
}

/// Returns the names of the `count` fields of a registered class.
///
/// The context is their list for `ModelOutput`s of transformers. For `torch.export.register_dataclass` it is a pair: their
/// list, and that of the fields that are `None`. Returns `None` for any other context.
fn fields(context: &str, count: usize) -> Option<Vec<String>> {
    let fields = serde_json::from_str::<Vec<String>>(context)
        .or_else(|_| serde_json::from_str::<(Vec<String>, Vec<String>)>(context).map(|(fields, _)| fields))
        .ok()?;
    (fields.len() == count).then_some(fields)
}
