//! Lifts a `.pte` program back into the graph, so that it can be changed, partitioned and compiled again.
//!
//! A program is a list of instructions that write to memory. `method` walks through them in order, and `scope` knows
//! the value in every place of the planned memory. So each read becomes a use of a value:
//! - Out variants become calls of their functional operators (`calls`).
//! - Tensors that share a place become views.
//! - Arithmetic on numbers becomes expressions (`numbers`).
//! - Jumps become `cond`, `while_loop` and `scan` (`control`).
//!
//! A program leaves some facts open. They are decided like this:
//! - A planned tensor is state if it has an initial value or a fully qualified name, or if it is read before anything
//!   wrote to its place. Methods share a state if it has the same name and the same place in both, in an arena other
//!   than the first. A runtime may share those arenas between methods.
//! - A tensor of bounded size has a symbol for each dimension, until an operator shows that the dimension is fixed.
//! - The payload of a delegate with an importer ([`payload`](super::payload)) names its results. For other delegates, the
//!   results are the last arguments of the call that no earlier instruction has written.

mod accesses;
mod calls;
mod control;
mod inline;
mod liveness;
mod method;
mod numbers;
mod regions;
mod scope;
mod twins;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use rushlight_format::ScalarType;
use rushlight_format::bundled::BundledProgram;
use rushlight_format::ptd::FlatTensor;
use rushlight_format::pte::{Program, ProgramModel, StorageModel, TensorModel};

use crate::debug_map::MethodMap;
use crate::debug_map::{self, DEBUG_MAP_KEY};
use crate::front::part;
use crate::front::payload::{Arguments, IMPORTERS, Importer, NamedData};
use rushlight_graph::Bytes;
use rushlight_graph::{Error, ErrorKind};

use rushlight_graph::{
    Constant, ConstantData, ConstantId, Delegate, Model, State, StateId, TensorType, row_major_strides,
};

use method::Method;

/// Options of lifting.
#[derive(Clone, Debug)]
pub struct LiftOptions {
    /// The importers of payloads, whose delegates become operators again. Delegates that an importer refuses stay, with
    /// the reason in [`Delegate::refusal`].
    pub importers: &'static [Importer],
    /// Ids of backends whose delegates stay although an importer reads them.
    pub keep: Vec<String>,
}

impl Default for LiftOptions {
    fn default() -> Self {
        Self { importers: IMPORTERS, keep: Vec::new() }
    }
}

/// Lifts every method of a program, with the default options. `external` are the `.ptd` files that hold its external
/// tensors.
///
/// # Errors
/// As [`lift_with`].
pub fn lift(file: &Bytes, external: &[Bytes]) -> Result<Model, Error> {
    lift_with(file, external, &LiftOptions::default())
}

/// Lifts every method of a program. `external` are the `.ptd` files that hold its external tensors.
///
/// # Errors
/// `Input` for files that cannot be parsed. `Unsupported` for operators and jumps that have no functional form.
/// `InvalidProgram` for programs that contradict themselves. Each error has the method and the instruction.
pub fn lift_with(file: &Bytes, external: &[Bytes], options: &LiftOptions) -> Result<Model, Error> {
    let damaged = |what: &str, error: &dyn std::fmt::Display| Error::new(ErrorKind::Input, format!("{what}: {error}"));
    let file = match BundledProgram::parse(file) {
        Ok(bundled) => part(file, bundled.program()).unwrap_or_else(|| file.clone()),
        Err(_) => file.clone(),
    };
    let program = Program::parse(&file).map_err(|error| damaged("the program cannot be read", &error))?;
    let parse = |bytes| FlatTensor::parse(bytes).map_err(|error| damaged("an external file cannot be read", &error));
    let tensors = external.iter().map(|bytes| parse(bytes)).collect::<Result<Vec<_>, _>>()?;
    let content = ProgramModel::from_program(&program);
    let external = external.iter().zip(tensors).collect();
    let (constants, states, inlined) = (HashMap::new(), HashMap::new(), RefCell::default());
    let maps = debug_map::of_program(&program);
    let mut sources = Sources { options, file: &file, program, maps, external, constants, states, inlined };
    let mut model = Model::default();
    // The debug map is dropped: the origins of instructions become origins of nodes, and a new map is made from these.
    for (key, data) in program.named_data().filter(|(key, _)| *key != DEBUG_MAP_KEY) {
        let data = part(&file, data).unwrap_or_else(|| data.to_vec().into());
        model.named_data.push((key.to_owned(), data.into()));
    }
    for plan in &content.methods {
        let site = |error: Error| error.at(format!("method `{}`", plan.name));
        let graph = Method::new(plan, &mut sources, &mut model).and_then(Method::lift).map_err(site)?;
        model.add_method(&plan.name, graph);
    }
    drop_external_tensors(&mut model, &content);
    let inlined = sources.inlined.into_inner();
    if model.delegates.iter().next().is_none() {
        model.named_data.retain(|(key, _)| !inlined.contains(key));
    }
    // A program may call operators with invalid arguments.
    model.verify().map_err(|error| error.with_kind(ErrorKind::InvalidProgram))?;
    Ok(model)
}

/// Keeps the named data of delegates. The named data of tensors has become constants.
fn drop_external_tensors(model: &mut Model, content: &ProgramModel<'_>) {
    let values = content.methods.iter().flat_map(|plan| &plan.values);
    let names: HashSet<&str> = values
        .filter_map(|value| match value {
            rushlight_format::pte::ValueModel::Tensor(tensor) if tensor.storage == StorageModel::External => {
                tensor.fully_qualified_name.as_deref()
            }
            _ => None,
        })
        .collect();
    model.named_data.retain(|(key, _)| !names.contains(key.as_str()));
}

/// The data of tensors, with the constants and states that earlier methods made from it.
struct Sources<'f> {
    options: &'f LiftOptions,
    file: &'f Bytes,
    program: Program<'f>,
    /// The program's debug maps; empty if it has none.
    maps: Vec<MethodMap>,
    external: Vec<(&'f Bytes, FlatTensor<'f>)>,
    constants: HashMap<ConstantKey, ConstantId>,
    /// State that methods may share.
    states: HashMap<SharedKey, StateId>,
    /// Keys of named data that became constants of inlined delegates.
    inlined: RefCell<HashSet<String>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ConstantKey {
    data: DataKey,
    dtype: ScalarType,
    sizes: Vec<i32>,
    dim_order: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum DataKey {
    Constant(u32),
    External(String),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SharedKey {
    name: String,
    memory_id: u32,
    offset: u64,
    dtype: ScalarType,
    sizes: Vec<i32>,
}

/// The arena of a method's intermediate results, which is never shared.
const OWN_ARENA: u32 = 1;

impl Sources<'_> {
    /// Returns the constant of a tensor; `None` if its memory is planned or given by the caller.
    fn constant(&mut self, tensor: &TensorModel, model: &mut Model) -> Result<Option<ConstantId>, Error> {
        let name = tensor.fully_qualified_name.as_deref();
        let (data, bytes) = match tensor.storage {
            StorageModel::Constant { index } => (DataKey::Constant(index), self.program.constant(index)),
            StorageModel::External => {
                let name = name.unwrap_or_default();
                (DataKey::External(name.to_owned()), self.external(name))
            }
            _ => return Ok(None),
        };
        let (dtype, sizes, dim_order) = (tensor.scalar_type, tensor.sizes.clone(), tensor.dim_order.clone());
        let key = ConstantKey { data, dtype, sizes, dim_order };
        if let Some(known) = self.constants.get(&key) {
            return Ok(Some(*known));
        }
        let bytes = bytes.ok_or_else(|| {
            Error::invalid(format!("the data of `{}` is missing", name.unwrap_or("a constant")))
                .help("give the .ptd file that was saved with the program")
        })?;
        let data = self.dense(tensor, bytes)?;
        let name = name.map_or_else(|| format!("constant_{}", model.constants.len()), ToOwned::to_owned);
        let id = model.constants.push(Constant { name, ty: static_type(tensor), data });
        self.constants.insert(key, id);
        Ok(Some(id))
    }

    /// Returns the state of a tensor, with its initial value.
    fn state(&mut self, tensor: &TensorModel, model: &mut Model) -> Result<StateId, Error> {
        let (bytes, memory_id, offset) = match tensor.storage {
            StorageModel::PlannedInit { memory_id, offset, index } => {
                (Some(self.program.mutable_data(index)), memory_id, offset)
            }
            StorageModel::ExternalPlanned { memory_id, offset } => {
                (Some(self.external(tensor.fully_qualified_name.as_deref().unwrap_or_default())), memory_id, offset)
            }
            StorageModel::Planned { memory_id, offset } => (None, memory_id, offset),
            _ => (None, 0, 0),
        };
        let key = tensor.fully_qualified_name.clone().filter(|_| memory_id > OWN_ARENA).map(|name| {
            let (dtype, sizes) = (tensor.scalar_type, tensor.sizes.clone());
            SharedKey { name, memory_id, offset, dtype, sizes }
        });
        if let Some(known) = key.as_ref().and_then(|key| self.states.get(key)) {
            return Ok(*known);
        }
        let initial = match bytes {
            Some(bytes) => self.dense(tensor, bytes.ok_or_else(|| Error::invalid("an initial value is missing"))?)?,
            None => ConstantData::Zeros,
        };
        let unique = |name: &String| model.states.iter().all(|(_, state)| state.name != *name);
        let name = tensor.fully_qualified_name.clone().filter(unique);
        let name = name.unwrap_or_else(|| format!("state_{}", model.states.len()));
        let id = model.states.push(State { name, ty: static_type(tensor), initial });
        if let Some(key) = key {
            self.states.insert(key, id);
        }
        Ok(id)
    }

    /// A delegate with its payload.
    fn delegate(&self, method: &str, index: u32) -> Option<Delegate> {
        let spec = self.program.method_named(method)?.delegate(index as usize)?;
        let payload = self.program.delegate_data(spec.data)?;
        let payload = part(self.file, payload).unwrap_or_else(|| payload.to_vec().into());
        let compile_specs = spec.compile_specs().map(|spec| (spec.key.to_owned(), spec.value.to_vec())).collect();
        Some(Delegate { backend: spec.id.to_owned(), payload, compile_specs, refusal: None, nodes: Vec::new() })
    }

    /// Returns the inputs and outputs of a delegate, if its payload has them.
    fn arguments(&self, method: &str, index: u32) -> Option<Arguments> {
        let spec = self.program.method_named(method)?.delegate(index as usize)?;
        let importer = self.importer(spec.id)?;
        (importer.arguments)(&self.delegate(method, index)?, self)
    }

    /// The importer of a backend's payloads.
    fn importer(&self, backend: &str) -> Option<Importer> {
        self.options.importers.iter().find(|importer| importer.backend == backend).copied()
    }

    /// The importer of a delegate that does not stay.
    fn inlining(&self, delegate: &Delegate) -> Option<Importer> {
        let is_kept = self.options.keep.iter().any(|backend| *backend == delegate.backend);
        if is_kept { None } else { self.importer(&delegate.backend) }
    }

    /// Bytes of one of the files, which share its memory.
    fn shared(&self, bytes: &[u8]) -> Bytes {
        let files = std::iter::once(self.file).chain(self.external.iter().map(|(file, _)| *file));
        let shared = files.into_iter().find_map(|file| part(file, bytes).filter(|shared| **shared == *bytes));
        shared.unwrap_or_else(|| bytes.to_vec().into())
    }

    /// The content of an external tensor.
    fn external(&self, name: &str) -> Option<&[u8]> {
        let external = self.external.iter().find_map(|(_, tensors)| tensors.get(name)).map(|tensor| tensor.data);
        external.or_else(|| self.program.named(name))
    }

    /// Returns the data of a tensor, in its dim order.
    fn dense(&self, tensor: &TensorModel, bytes: &[u8]) -> Result<ConstantData, Error> {
        let length = usize::try_from(tensor.nbytes()).ok();
        let bytes = length.and_then(|length| bytes.get(..length));
        let bytes = bytes.ok_or_else(|| Error::invalid("a tensor is larger than its data"))?;
        let storage = self.shared(bytes);
        if tensor.dim_order.is_sorted() {
            return Ok(ConstantData::Dense(storage));
        }
        let size = |dim: &u8| tensor.sizes.get(usize::from(*dim)).and_then(|size| usize::try_from(*size).ok());
        let ordered: Option<Vec<usize>> = tensor.dim_order.iter().map(size).collect();
        let in_memory = row_major_strides(&ordered.ok_or_else(|| Error::invalid("an order of other dimensions"))?);
        let mut strides = vec![0; tensor.sizes.len()];
        for (dim, stride) in tensor.dim_order.iter().zip(in_memory) {
            if let Some(slot) = strides.get_mut(usize::from(*dim)) {
                *slot = stride;
            }
        }
        Ok(ConstantData::Strided { storage, offset: 0, strides })
    }
}

impl NamedData for Sources<'_> {
    fn named(&self, key: &str) -> Option<Bytes> {
        self.external(key).map(|bytes| self.shared(bytes))
    }
}

/// Returns the type of a tensor with its maximum sizes. It is contiguous, as all tensors in graphs.
fn static_type(tensor: &TensorModel) -> TensorType {
    let sizes: Vec<i64> = tensor.sizes.iter().map(|size| i64::from(*size)).collect();
    TensorType::of(tensor.scalar_type, &sizes)
}
