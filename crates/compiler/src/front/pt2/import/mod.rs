//! Imports an exported program as a graph.
//!
//! Names become values, sizes become expressions, and nodes that only compute sizes are removed. In-place operators and
//! views stay as they are: a pass makes the graph functional.

mod args;
mod bounds;
mod control;
mod effects;
mod formula;
mod guards;
mod nodes;
mod origin;
mod python;
mod pytree;
mod signature;
mod sizes;
mod tensors;

use std::collections::{HashMap, HashSet};

use rushlight_format::shapes::{self, SHAPES_KEY};
use rushlight_format::signature::{self as names, SHARED_STATE, SHARED_STATE_KEY, SIGNATURE_KEY};

use rushlight_graph::operators::dim_order_ops;
use rushlight_graph::quantization;
use rushlight_graph::{Arg, Block, BlockId, Graph, Input, Model, Target, Type, Update, ValueId};
use rushlight_graph::{Error, ErrorKind};

use super::schema::{Argument, ConstantValue, InputSpec, OutputSpec, Text};
use super::{ExportedProgram, Weights};

use args::literal;
use formula::Formula;
use sizes::Sizes;

/// Options of the import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// True if methods share the buffers that have the same name: a write of one method is visible to the others.
    pub share_state: bool,
    /// True to read PyTorch's metadata of each node ([`Origin::metadata`](rushlight_graph::Origin)). A backend that
    /// [reads it](crate::partition::Backend::reads_metadata) needs it.
    pub metadata: bool,
}

/// Makes a model of exported programs. Each becomes a method with the given name.
///
/// # Errors
/// `Input` for archives that are damaged, `Unsupported` for programs with features that the format lacks (sparse
/// tensors, custom objects, training), `InvalidProgram` for a program that contradicts itself. Each names the node and
/// its line of Python.
pub fn import(programs: &[(&str, &super::Model<'_>)], options: ImportOptions) -> Result<Model, Error> {
    let mut model = Model::default();
    let mut parsed = Vec::with_capacity(programs.len());
    for (method, source) in programs {
        let site = |error: super::Error| Error::from(error).at(format!("method `{method}`"));
        parsed.push((*method, source.program().map_err(site)?, *source));
    }
    let mut shared = HashSet::new();
    if options.share_state {
        for (_, program, source) in &parsed {
            let twins = tensors::twins(program, &source.constants()?);
            shared.extend(tensors::written_buffers(program, &twins));
        }
    }
    let mut rules = Vec::new();
    let mut signatures = Vec::new();
    for (method, program, source) in &parsed {
        let site = |error: Error| error.at(format!("method `{method}`"));
        let (graph, asserted) = import_method(&mut model, method, program, source, options, &shared).map_err(site)?;
        quantization::check(&graph, &model.constants).map_err(site)?;
        rules.push((*method, guards::rules(&graph, program, asserted).map_err(site)?));
        signatures.push((*method, signature::of(program, &graph).map_err(site)?));
        model.add_method(method, graph);
    }
    let blob = names::write(signatures.iter().map(|(method, signature)| (*method, signature)));
    model.named_data.push((SIGNATURE_KEY.to_owned(), blob.into()));
    if !shared.is_empty() && programs.len() > 1 {
        model.named_data.push((SHARED_STATE_KEY.to_owned(), SHARED_STATE.to_vec().into()));
    }
    if rules.iter().any(|(_, rules)| !rules.is_empty()) {
        let blob = shapes::write(rules.iter().map(|(method, rules)| (*method, rules.as_slice())));
        let blob = blob.map_err(|method| {
            Error::unsupported("the method's name or the rules about its sizes are too long")
                .at(format!("method `{method}`"))
        })?;
        model.named_data.push((SHAPES_KEY.to_owned(), blob.into()));
    }
    // A damaged archive may declare wrong types. They must not reach the passes, which trust the graph.
    model.verify().map_err(|error| error.with_kind(ErrorKind::InvalidProgram))?;
    Ok(model)
}

fn import_method(
    model: &mut Model,
    method: &str,
    program: &ExportedProgram<'_>,
    source: &super::Model<'_>,
    options: ImportOptions,
    shared: &HashSet<String>,
) -> Result<(Graph, Vec<(Formula, String)>), Error> {
    let constants = source.constants()?;
    let twins = tensors::twins(program, &constants);
    let mut written = tensors::written_buffers(program, &twins);
    written.extend(shared.iter().cloned());
    let mut importer = Importer {
        model,
        method,
        program,
        weights: source.weights()?,
        constants,
        options,
        twins,
        written,
        sizes: Sizes::new(&program.range_constraints),
        graph: Graph::new(),
        origins: HashMap::new(),
        is_channels_last: false,
        repeated: 0,
        asserted: Vec::new(),
        is_autocast: false,
        corrected: HashSet::new(),
        custom: HashSet::new(),
    };
    importer.run()?;
    let Importer { mut graph, sizes, asserted, .. } = importer;
    graph.symbols = sizes.into_symbols();
    Ok((graph, asserted))
}

/// The meaning of a name in the exported graph.
#[derive(Clone, Debug)]
enum Binding {
    /// A value or a literal.
    Arg(Arg),
    /// A tensor that wraps others.
    Subclass(super::pickle::Subclass),
    /// The order of side effects.
    Token,
}

/// The names that are defined in a graph of the program.
type Scope = HashMap<String, Binding>;

struct Importer<'m, 'p, 'a> {
    model: &'m mut Model,
    method: &'m str,
    program: &'p ExportedProgram<'a>,
    weights: Weights<'p>,
    constants: Weights<'p>,
    options: ImportOptions,
    /// Constants that are aliases of buffers, with the buffers' paths.
    twins: HashMap<String, String>,
    /// Buffers and constants that the program writes to, by path.
    written: HashSet<String>,
    sizes: Sizes,
    graph: Graph,
    origins: HashMap<(String, Option<String>), rushlight_graph::OriginId>,
    /// True if an input is in channels-last order. Outputs then keep that order.
    is_channels_last: bool,
    /// Bytes of weights beyond those in the archive.
    repeated: usize,
    /// Conditions on the sizes of inputs that nodes assert, with their texts.
    asserted: Vec<(Formula, String)>,
    /// True in a region of `torch.autocast`.
    is_autocast: bool,
    /// Values whose recorded shapes were wrong.
    corrected: HashSet<ValueId>,
    /// Operators that are in no table.
    custom: HashSet<String>,
}

impl<'a> Importer<'_, '_, 'a> {
    fn run(&mut self) -> Result<(), Error> {
        let module = &self.program.graph_module;
        let mut scope = Scope::new();
        let specs = &module.signature.input_specs;
        if specs.len() != module.graph.inputs.len() {
            return Err(Error::invalid("the signature does not fit the graph")
                .expected(format!("{} inputs", module.graph.inputs.len()))
                .got(format!("{} specifications", specs.len())));
        }
        for (input, spec) in module.graph.inputs.iter().zip(specs) {
            self.input(&mut scope, input, spec)?;
        }
        let body = self.graph.body;
        self.nodes(&mut scope, body, &module.graph)?;
        for (output, spec) in module.graph.outputs.iter().zip(&module.signature.output_specs) {
            self.output(&scope, output, spec)?;
        }
        let (inputs, outputs) = pytree::encodings(self.program)?;
        (self.graph.input_encoding, self.graph.output_encoding) = (inputs, outputs);
        Ok(())
    }

    fn input(&mut self, scope: &mut Scope, input: &Argument<'a>, spec: &InputSpec<'a>) -> Result<(), Error> {
        match spec {
            InputSpec::Parameter(spec) => {
                let binding = self.parameter(&spec.parameter_name)?;
                scope.insert(spec.arg.name.to_string(), binding);
            }
            InputSpec::Buffer(spec) => {
                let binding = self.buffer(&spec.buffer_name, spec.persistent)?;
                scope.insert(spec.arg.name.to_string(), binding);
            }
            InputSpec::TensorConstant(spec) => {
                let binding = self.tensor_constant(&spec.tensor_constant_name)?;
                scope.insert(spec.arg.name.to_string(), binding);
            }
            InputSpec::UserInput(_) => self.user_input(scope, input)?,
            InputSpec::ConstantInput(spec) => self.graph.inputs.push(Input::Literal(constant_input(&spec.value)?)),
            InputSpec::CustomObj(spec) => {
                return Err(Error::unsupported(format!("the model holds a custom object, `{}`", spec.custom_obj_name))
                    .got(format!("an object of class {}", spec.arg.class_fqn))
                    .help("remove the object from the model before exporting it"));
            }
            InputSpec::Token(spec) => {
                scope.insert(spec.arg.name.to_string(), Binding::Token);
            }
            InputSpec::Unknown { tag } => {
                return Err(Error::unsupported(format!("an input of the unknown kind `{tag}`"))
                    .help("the archive is from a newer torch than this reader knows"));
            }
        }
        Ok(())
    }

    fn user_input(&mut self, scope: &mut Scope, input: &Argument<'a>) -> Result<(), Error> {
        let (name, ty) = match input {
            Argument::Tensor(tensor) => (&tensor.name, Type::Tensor(self.tensor_type(&tensor.name, true)?)),
            Argument::SymInt(super::schema::SymIntArgument::Name(name)) => {
                let number = self.sym_int(&self.program.graph_module.graph, name)?;
                if !number.is_static() {
                    return Err(open_number(name));
                }
                (name, Type::Int(number))
            }
            Argument::SymFloat(super::schema::SymFloatArgument::Name(name))
            | Argument::SymBool(super::schema::SymBoolArgument::Name(name)) => return Err(open_number(name)),
            other => {
                self.graph.inputs.push(Input::Literal(literal(other)?));
                return Ok(());
            }
        };
        let value = self.graph.input(name, ty.clone());
        let arg = match ty {
            Type::Int(expr) => Arg::Int(expr),
            Type::Tensor(tensor) if !tensor.is_contiguous() => {
                self.is_channels_last = true;
                Arg::Value(self.reorder(value, rushlight_graph::types::contiguous(tensor.rank()))?)
            }
            _ => Arg::Value(value),
        };
        scope.insert(name.to_string(), Binding::Arg(arg));
        Ok(())
    }

    fn output(&mut self, scope: &Scope, output: &Argument<'a>, spec: &OutputSpec<'a>) -> Result<(), Error> {
        match spec {
            OutputSpec::UserOutput(_) | OutputSpec::LossOutput(_) => {
                let graph = &self.program.graph_module.graph;
                let mut arg = self.argument(scope, graph, output)?;
                if let (true, Argument::Tensor(tensor), Arg::Value(value)) = (self.is_channels_last, output, &arg) {
                    let order = self.tensor_type(&tensor.name, true)?.dim_order;
                    if order != self.graph.tensor(*value)?.dim_order {
                        arg = Arg::Value(self.reorder(*value, order)?);
                    }
                }
                self.graph.outputs.push(arg);
            }
            OutputSpec::BufferMutation(spec) => {
                let value = args::value_named(scope, &spec.arg.name)?;
                let state = self.state_named(&spec.buffer_name)?;
                self.graph.updates.push(Update { target: Target::State(state), value });
            }
            OutputSpec::UserInputMutation(spec) => {
                let value = args::value_named(scope, &spec.arg.name)?;
                let is_named = |input: &Input| matches!(input, Input::Value(id) if self.graph.values[*id].name == *spec.user_input_name);
                let position = self.graph.inputs.iter().position(is_named);
                let position = position.ok_or_else(|| unknown_name(&spec.user_input_name))? as u32;
                self.graph.updates.push(Update { target: Target::Input(position), value });
            }
            OutputSpec::Token(_) => {}
            OutputSpec::ParameterMutation(spec) => {
                return Err(Error::unsupported(format!("the program changes its parameter `{}`", spec.parameter_name))
                    .help("register what changes as a buffer"));
            }
            OutputSpec::GradientToParameter(_) | OutputSpec::GradientToUserInput(_) => {
                return Err(Error::unsupported("the program computes gradients").help("export the model for inference"));
            }
            OutputSpec::Unknown { tag } => {
                return Err(Error::unsupported(format!("an output of the unknown kind `{tag}`")));
            }
        }
        Ok(())
    }

    /// A tensor whose elements have another order in memory.
    fn reorder(&mut self, value: ValueId, dim_order: Vec<u8>) -> Result<ValueId, Error> {
        let mut ty = self.graph.tensor(value)?.clone();
        let order: Vec<i64> = dim_order.iter().map(|dim| i64::from(*dim)).collect();
        ty.dim_order = dim_order;
        let schema = self.model.schemas.expect(dim_order_ops::_TO_DIM_ORDER_COPY)?;
        let args = rushlight_graph::bind(&schema, vec![value.into()], &[("dim_order", Arg::from(order.as_slice()))])?;
        let origin = self.graph.origins.push(rushlight_graph::Origin::default());
        let name = format!("{}_reordered", self.graph.values[value].name);
        let (body, op) = (self.graph.body, rushlight_graph::Op::Call(schema));
        let node = self.graph.push_node(body, op, args, origin, [(name, Type::Tensor(ty))]);
        self.graph.nodes[node].result().ok_or_else(|| Error::invalid("a copy without a result"))
    }

    /// A separate block for a graph that control flow runs.
    fn new_block(&mut self) -> BlockId {
        self.graph.blocks.push(Block::default())
    }
}

/// The error for an input that is a number and was exported as dynamic: the format has no such inputs.
fn open_number(name: &str) -> Error {
    Error::unsupported(format!("the input `{name}` is a number that was exported as dynamic"))
        .expected("a tensor, or a number that stays as it was exported")
        .help("pass a tensor, as `torch.tensor(3)`, and read it with `.item()`, or leave the number out of `dynamic_shapes`")
}

/// A literal input.
fn constant_input(value: &ConstantValue<'_>) -> Result<Arg, Error> {
    Ok(match value {
        ConstantValue::None => Arg::None,
        ConstantValue::Int(int) => Arg::from(*int),
        ConstantValue::Float(float) => Arg::Float(*float),
        ConstantValue::Bool(bool) => Arg::Bool(*bool),
        ConstantValue::String(text) => Arg::Str(text.to_string()),
        ConstantValue::Unknown { tag } => {
            return Err(Error::unsupported(format!("an input of the unknown kind `{tag}`")));
        }
    })
}

fn unknown_name(name: &str) -> Error {
    Error::invalid(format!("the program uses `{name}`, which nothing defines"))
}

/// The text of a name.
fn owned(name: &Text<'_>) -> String {
    name.to_string()
}
