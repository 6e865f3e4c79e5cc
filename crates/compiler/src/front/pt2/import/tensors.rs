//! Tensors of a program: their types, and the contents of parameters, buffers and constants.

use std::collections::{HashMap, HashSet};

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::MAX_RANK;
use rushlight_graph::{Arg, Constant, ConstantData, Expr, Param, Schema, Schemas, State, StateId, TensorType};

use super::super::pickle;
use super::super::schema::{
    Argument, Graph as Source, InputSpec, Layout, NamedArgument, Node, OutputSpec, SymInt, TensorMeta,
};
use super::super::{ExportedProgram, StorageData, StoredTensor, Weight, Weights};
use super::{Binding, Importer, unknown_name};

/// Maximum bytes of an archive's weights beyond those that it stores.
const MAX_REPEATED: usize = 1 << 30;

impl<'a> Importer<'_, '_, 'a> {
    /// The type of a tensor of the outermost graph. `keep_order` keeps an order that is not row-major.
    pub(super) fn tensor_type(&mut self, name: &str, keep_order: bool) -> Result<TensorType, Error> {
        self.tensor_type_in(&self.program.graph_module.graph, name, keep_order)
    }

    pub(super) fn tensor_type_in(
        &mut self,
        source: &Source<'a>,
        name: &str,
        keep_order: bool,
    ) -> Result<TensorType, Error> {
        let meta = source.tensor_values.get(name).ok_or_else(|| unknown_name(name))?;
        self.type_of(meta, name, keep_order)
    }

    fn type_of(&mut self, meta: &TensorMeta<'a>, name: &str, keep_order: bool) -> Result<TensorType, Error> {
        if meta.layout != Layout::STRIDED {
            return Err(
                Error::unsupported(format!("`{name}` is a sparse tensor")).help("only strided tensors can be compiled")
            );
        }
        let unknown = || {
            Error::unsupported(format!("`{name}` has a dtype that programs cannot hold"))
                .got(format!("code {}", meta.dtype.0))
        };
        let dtype = meta.dtype.scalar_type().ok_or_else(unknown)?;
        if meta.sizes.len() > MAX_RANK {
            return Err(Error::invalid(format!("`{name}` has too many dimensions"))
                .expected(format!("at most {MAX_RANK}"))
                .got(meta.sizes.len().to_string()));
        }
        let shape = meta.sizes.iter().map(|size| self.size(size, name)).collect::<Result<Vec<_>, _>>()?;
        let mut ty = TensorType::new(dtype, shape);
        if keep_order && let Some(order) = channels_last(meta) {
            ty.dim_order = order;
        }
        Ok(ty)
    }

    fn size(&mut self, size: &SymInt<'a>, name: &str) -> Result<Expr, Error> {
        match size {
            SymInt::Int(value) => Ok(Expr::Int(*value)),
            SymInt::Expr(expr) => self.sizes.parse(&expr.expr_str).ok_or_else(|| {
                Error::unsupported(format!("`{name}` has a size that is not understood")).got(&*expr.expr_str)
            }),
            SymInt::Unknown { tag } => Err(Error::unsupported(format!("a size of the unknown kind `{tag}`"))),
        }
    }

    pub(super) fn parameter(&mut self, path: &str) -> Result<Binding, Error> {
        let weight = self.weights.get(path)?;
        self.weight(path, weight)
    }

    /// A constant, or a state if the program writes to it, by this name or by that of a buffer.
    pub(super) fn tensor_constant(&mut self, path: &str) -> Result<Binding, Error> {
        let weight = if self.constants.contains(path) { self.constants.get(path)? } else { self.weights.get(path)? };
        let named = self.twins.get(path).cloned().unwrap_or_else(|| path.to_owned());
        if self.written.contains(&named) { self.written_tensor(&named, weight) } else { self.weight(path, weight) }
    }

    pub(super) fn buffer(&mut self, path: &str, is_persistent: bool) -> Result<Binding, Error> {
        let in_weights = is_persistent && self.weights.contains(path) || !self.constants.contains(path);
        let weight = if in_weights { self.weights.get(path)? } else { self.constants.get(path)? };
        if self.written.contains(path) { self.written_tensor(path, weight) } else { self.weight(path, weight) }
    }

    /// A tensor that the program writes to, as a state with this name.
    fn written_tensor(&mut self, path: &str, weight: Weight) -> Result<Binding, Error> {
        let Weight::Tensor(tensor) = weight else {
            return Err(Error::unsupported(format!("buffer `{path}` is written to, and is no plain tensor")));
        };
        self.count_repeated(path, &tensor)?;
        let Constant { name, ty, data } = constant(path, tensor);
        let name = if self.options.share_state { name } else { format!("{}{name}", self.state_prefix()) };
        let known = self.model.states.iter().find(|(_, state)| state.name == name);
        let state = match known {
            Some((id, known)) if known.ty == ty => {
                let given = Constant { name, ty, data };
                let before = Constant { name: known.name.clone(), ty: known.ty.clone(), data: known.initial.clone() };
                if given.read()? != before.read()? {
                    return Err(Error::invalid(format!(
                        "methods that share state disagree on the initial value of buffer `{path}`"
                    ))
                    .expected("the value that the methods before have")
                    .got(format!("another in method `{}`", self.method))
                    .help(
                        "export all methods from one module, or set the buffer to the same value before each export",
                    ));
                }
                id
            }
            Some((_, known)) => {
                return Err(Error::invalid(format!(
                    "methods that share state disagree on the type of buffer `{path}`"
                ))
                .expected(format!("{:?} {:?}", known.ty.dtype, known.ty.shape))
                .got(format!("{:?} {:?} in method `{}`", ty.dtype, ty.shape, self.method)));
            }
            None => self.model.states.push(State { name, ty, initial: data }),
        };
        Ok(Binding::Arg(Arg::Value(self.graph.state(state, &self.model.states))))
    }

    /// Methods that do not share state have their own buffers, distinguished by the method's name.
    fn state_prefix(&self) -> String {
        let is_first = self.model.methods.is_empty();
        if is_first { String::new() } else { format!("{}:", self.method) }
    }

    /// The state of a buffer that the program writes to.
    pub(super) fn state_named(&mut self, path: &str) -> Result<StateId, Error> {
        let name = if self.options.share_state { path.to_owned() } else { format!("{}{path}", self.state_prefix()) };
        let found = self.model.states.iter().find(|(_, state)| state.name == name).map(|(id, _)| id);
        found.ok_or_else(|| unknown_name(path))
    }

    /// A parameter, buffer or constant that does not change.
    fn weight(&mut self, path: &str, weight: Weight) -> Result<Binding, Error> {
        match weight {
            Weight::Tensor(tensor) => self.stored(path, tensor),
            Weight::Subclass(subclass) => Ok(Binding::Subclass(subclass)),
            Weight::Object(object) => Err(Error::unsupported(format!("`{path}` is not a tensor"))
                .got(format!("an object of class {}", object.class))),
        }
    }

    pub(super) fn stored(&mut self, path: &str, tensor: StoredTensor) -> Result<Binding, Error> {
        self.count_repeated(path, &tensor)?;
        let id = self.model.constants.push(constant(path, tensor));
        Ok(Binding::Arg(Arg::Value(self.graph.constant(id, &self.model.constants))))
    }

    /// Refuses weights that have many more bytes than the archive. Strides of 0 repeat elements, and fake tensors store
    /// none.
    fn count_repeated(&mut self, path: &str, tensor: &StoredTensor) -> Result<(), Error> {
        let held = match &tensor.storage.data {
            StorageData::Zeros => 0,
            StorageData::Bytes(bytes) => bytes.len(),
        };
        self.repeated = self.repeated.saturating_add(tensor.nbytes().saturating_sub(held));
        if self.repeated <= MAX_REPEATED {
            return Ok(());
        }
        Err(Error::unsupported(format!("`{path}` is larger than what the archive holds of it"))
            .expected(format!("at most {MAX_REPEATED} bytes, of all weights together, that are not in the archive"))
            .got(format!("{} bytes of a storage of {held}", tensor.nbytes()))
            .help("export the model with its weights, not in `FakeTensorMode`, and expand tensors in `forward`"))
    }

    /// Imports the attribute of a tensor subclass.
    pub(super) fn inner_tensor(&mut self, subclass: &pickle::Subclass, attribute: &str) -> Result<Binding, Error> {
        match subclass.attribute(attribute) {
            Some(pickle::PickleValue::Tensor(tensor)) => self.stored(attribute, (**tensor).clone()),
            Some(pickle::PickleValue::Subclass(inner)) => Ok(Binding::Subclass((**inner).clone())),
            _ => Err(Error::unsupported(format!("`{}` has no tensor `{attribute}`", subclass.class)).help(
                "unwrap the model's tensor subclasses before exporting: torchao.utils.unwrap_tensor_subclass(model)",
            )),
        }
    }
}

fn constant(path: &str, tensor: StoredTensor) -> Constant {
    let sizes: Vec<i64> = tensor.sizes.iter().map(|size| *size as i64).collect();
    let data = match tensor.storage.data {
        StorageData::Zeros => ConstantData::Zeros,
        StorageData::Bytes(storage) => {
            ConstantData::Strided { storage, offset: tensor.storage_offset, strides: tensor.strides }
        }
    };
    Constant { name: path.into(), ty: TensorType::of(tensor.dtype, &sizes), data }
}

/// The order of a tensor in channels-last memory; `None` for other tensors.
fn channels_last(meta: &TensorMeta<'_>) -> Option<Vec<u8>> {
    let order: &[u8] = match meta.sizes.len() {
        4 => &[0, 2, 3, 1],
        5 => &[0, 2, 3, 4, 1],
        _ => return None,
    };
    let strides = meta.strides.iter().map(SymInt::as_int).collect::<Option<Vec<_>>>()?;
    let is_row_major = strides.windows(2).all(|pair| matches!(pair, [a, b] if a >= b));
    let mut last = i64::MAX;
    let is_in_order = order.iter().all(|dim| {
        let stride = strides.get(*dim as usize).copied().unwrap_or(0);
        let fits = stride <= last && stride > 0;
        last = stride;
        fits
    });
    (is_in_order && !is_row_major && strides.get(1) == Some(&1)).then(|| order.to_vec())
}

/// The constants of a program that are aliases of its buffers, with the buffers' paths. Export lifts a tensor to a
/// constant if the model reaches it as a plain attribute, such as a cache that no module holds, even if it is a buffer
/// too. The archive stores both as one.
pub(super) fn twins(program: &ExportedProgram<'_>, constants: &Weights<'_>) -> HashMap<String, String> {
    let specs = &program.graph_module.signature.input_specs;
    let mut buffers: HashMap<&str, &str> = HashMap::new();
    for spec in specs {
        if let InputSpec::Buffer(spec) = spec
            && let Some(storage) = constants.storage(&spec.buffer_name)
        {
            buffers.entry(storage).or_insert(&spec.buffer_name);
        }
    }
    let meta = |path: &str| match constants.get(path) {
        Ok(Weight::Tensor(tensor)) => Some((tensor.dtype, tensor.sizes, tensor.strides, tensor.storage_offset)),
        _ => None,
    };
    let twin = |path: &str| {
        let buffer = *buffers.get(constants.storage(path)?)?;
        (meta(buffer).is_some() && meta(path) == meta(buffer)).then(|| (path.to_owned(), buffer.to_owned()))
    };
    let constants = specs.iter().filter_map(|spec| match spec {
        InputSpec::TensorConstant(spec) => twin(&spec.tensor_constant_name),
        _ => None,
    });
    constants.collect()
}

/// The buffers and constants that a program writes to, by path: those that its signature names, and those that in-place
/// operators reach through views. A constant that is an alias of a buffer has the buffer's path.
pub(super) fn written_buffers(program: &ExportedProgram<'_>, twins: &HashMap<String, String>) -> HashSet<String> {
    let module = &program.graph_module;
    let mut buffers: HashMap<&str, &str> = HashMap::new();
    for spec in &module.signature.input_specs {
        match spec {
            InputSpec::Buffer(spec) => drop(buffers.insert(&spec.arg.name, &spec.buffer_name)),
            InputSpec::TensorConstant(spec) => {
                let path: &str = &spec.tensor_constant_name;
                buffers.insert(&spec.arg.name, twins.get(path).map_or(path, String::as_str));
            }
            _ => {}
        }
    }
    let mut written: HashSet<String> = HashSet::new();
    for spec in &module.signature.output_specs {
        if let OutputSpec::BufferMutation(spec) = spec {
            written.insert(spec.buffer_name.to_string());
        }
    }
    let schemas = Schemas::new();
    // The buffer with which each name shares memory.
    let mut roots: HashMap<String, String> = buffers.keys().map(|name| ((*name).into(), (*name).into())).collect();
    for node in &module.graph.nodes {
        let Some(schema) = super::nodes::operator_name(&node.target).and_then(|name| schemas.get(&name)) else {
            continue;
        };
        let updates = updates_statistics(&schema, node);
        let is_reached = |param: &&Param| param.aliased || updates && param.name.starts_with("running_");
        for param in schema.params.iter().filter(is_reached) {
            let given = node.inputs.iter().find(|input| input.name == *param.name);
            let Some(Argument::Tensor(tensor)) = given.map(|input| &input.arg) else { continue };
            let Some(root) = roots.get(&*tensor.name).cloned() else { continue };
            if (param.writes || !param.aliased)
                && let Some(path) = buffers.get(root.as_str())
            {
                written.insert((*path).to_owned());
            }
            for output in node.outputs.iter().filter(|_| param.aliased) {
                match output {
                    Argument::Tensor(tensor) => drop(roots.insert(tensor.name.to_string(), root.clone())),
                    Argument::Tensors(tensors) => {
                        roots.extend(tensors.iter().map(|tensor| (tensor.name.to_string(), root.clone())));
                    }
                    _ => {}
                }
            }
        }
    }
    written
}

/// True if a node is a batch normalization in training mode. It writes its statistics although its schema does not say
/// so.
fn updates_statistics(schema: &Schema, node: &Node<'_>) -> bool {
    let trains = |input: &NamedArgument<'_>| input.name == *"training" && input.arg == Argument::Bool(true);
    matches!(schema.name.as_str(), aten::BATCH_NORM | aten::NATIVE_BATCH_NORM) && node.inputs.iter().any(trains)
}
