//! The files of a program, and the constants, states and payloads that its methods share.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use rushlight_format::ScalarType;
use rushlight_format::ptd::FlatTensor;
use rushlight_format::pte::{Program, StorageModel, TensorModel};

use rushlight_graph::{
    Bytes, Constant, ConstantData, ConstantId, Delegate, Error, Model, State, StateId, TensorType, row_major_strides,
};

use crate::debug_map::{self, MethodMap};
use crate::front::part;
use crate::front::payload::{Arguments, Importer, NamedData};

/// The data of tensors, with the constants and states that earlier methods made from it.
pub(super) struct Sources<'f> {
    importers: &'static [Importer],
    /// Ids of backends whose delegates stay.
    keep: &'f [String],
    file: &'f Bytes,
    program: Program<'f>,
    /// The program's debug maps; empty if it has none.
    pub maps: Vec<MethodMap>,
    external: Vec<(&'f Bytes, FlatTensor<'f>)>,
    constants: HashMap<ConstantKey, ConstantId>,
    /// State that methods may share.
    states: HashMap<SharedKey, StateId>,
    /// Keys of named data that became constants of inlined delegates.
    pub inlined: RefCell<HashSet<String>>,
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

impl<'f> Sources<'f> {
    /// The sources of a program in `file`, with its `.ptd` files. Delegates of the backends in `keep` stay.
    pub fn new(
        file: &'f Bytes,
        program: Program<'f>,
        external: Vec<(&'f Bytes, FlatTensor<'f>)>,
        importers: &'static [Importer],
        keep: &'f [String],
    ) -> Self {
        let (constants, states, inlined) = (HashMap::new(), HashMap::new(), RefCell::default());
        let maps = debug_map::of_program(&program);
        Self { importers, keep, file, program, maps, external, constants, states, inlined }
    }

    /// Returns the constant of a tensor; `None` if its memory is planned or given by the caller.
    pub fn constant(&mut self, tensor: &TensorModel, model: &mut Model) -> Result<Option<ConstantId>, Error> {
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
    pub fn state(&mut self, tensor: &TensorModel, model: &mut Model) -> Result<StateId, Error> {
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
    pub fn delegate(&self, method: &str, index: u32) -> Option<Delegate> {
        let spec = self.program.method_named(method)?.delegate(index as usize)?;
        let payload = self.program.delegate_data(spec.data)?;
        let payload = part(self.file, payload).unwrap_or_else(|| payload.to_vec().into());
        let compile_specs = spec.compile_specs().map(|spec| (spec.key.to_owned(), spec.value.to_vec())).collect();
        Some(Delegate { backend: spec.id.to_owned(), payload, compile_specs, refusal: None, nodes: Vec::new() })
    }

    /// Returns the inputs and outputs of a delegate, if its payload has them.
    pub fn arguments(&self, method: &str, index: u32) -> Option<Arguments> {
        let spec = self.program.method_named(method)?.delegate(index as usize)?;
        let importer = self.importer(spec.id)?;
        (importer.arguments)(&self.delegate(method, index)?, self)
    }

    /// The importer of a backend's payloads.
    fn importer(&self, backend: &str) -> Option<Importer> {
        self.importers.iter().find(|importer| importer.backend == backend).copied()
    }

    /// The importer of a delegate that does not stay.
    pub fn inlining(&self, delegate: &Delegate) -> Option<Importer> {
        let is_kept = self.keep.contains(&delegate.backend);
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
pub(super) fn static_type(tensor: &TensorModel) -> TensorType {
    let sizes: Vec<i64> = tensor.sizes.iter().map(|size| i64::from(*size)).collect();
    TensorType::of(tensor.scalar_type, &sizes)
}
