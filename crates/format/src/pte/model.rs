//! Programs as owned, editable values. [`write`](super::write) turns them into a file, and a parsed file can be turned
//! into them.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::{Blob, ScalarType};

use super::{
    CompileSpec, DelegateSpec, Device, Frame, Instruction, OperatorName, Plan, Program, ShapeDynamism, TensorSpec,
    TensorStorage, ValueSpec,
};

/// Planned tensors made by [`PlanModel::planned`] start at multiples of this many bytes.
const PLAN_ALIGNMENT: u64 = 16;

/// A program. Indices and sizes are checked when the written file is parsed, not here.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramModel<'a> {
    pub methods: Vec<PlanModel<'a>>,
    /// Data of constant tensors. Entry 0 is empty and means no data.
    pub constants: Vec<Blob<'a>>,
    /// Initial values of mutable buffers. Entry 0 is empty and means none.
    pub mutable_data: Vec<Blob<'a>>,
    /// Blobs that delegates and external tensors look up by key.
    pub named_data: Vec<(String, Blob<'a>)>,
}

/// A method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanModel<'a> {
    pub name: String,
    pub values: Vec<ValueModel>,
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
    pub instructions: Vec<InstructionModel>,
    pub operators: Vec<OperatorModel>,
    pub delegates: Vec<DelegateModel<'a>>,
    /// Bytes of each planned buffer by memory id. Entry 0 stands for no buffer.
    pub buffer_sizes: Vec<u64>,
    /// Memory ids whose buffers are not in host memory.
    pub buffer_devices: Vec<(u32, Device)>,
    /// Pytree text of the inputs and outputs; may be empty.
    pub input_encoding: String,
    pub output_encoding: String,
    /// Frames of each instruction; empty for a program without stack traces.
    pub stacktrace: Vec<Vec<FrameModel>>,
}

/// A value; see [`ValueSpec`].
#[derive(Clone, Debug, PartialEq)]
pub enum ValueModel {
    None,
    Int(i64),
    Bool(bool),
    Double(f64),
    String(String),
    Tensor(TensorModel),
    IntList(Vec<u32>),
    DoubleList(Vec<f64>),
    BoolList(Vec<bool>),
    TensorList(Vec<u32>),
    OptionalTensorList(Vec<Option<u32>>),
}

/// A tensor; see [`TensorSpec`].
#[derive(Clone, Debug, PartialEq)]
pub struct TensorModel {
    pub scalar_type: ScalarType,
    pub sizes: Vec<i32>,
    pub dim_order: Vec<u8>,
    pub shape_dynamism: ShapeDynamism,
    pub storage: StorageModel,
    pub requires_grad: bool,
    pub device: Device,
    /// Required for external data, whose key it is.
    pub fully_qualified_name: Option<String>,
}

/// The storage of a tensor's data; see [`TensorStorage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageModel {
    Constant { index: u32 },
    Planned { memory_id: u32, offset: u64 },
    PlannedInit { memory_id: u32, offset: u64, index: u32 },
    Unplanned,
    External,
    ExternalPlanned { memory_id: u32, offset: u64 },
}

/// An instruction; see [`Instruction`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstructionModel {
    Kernel { operator: u32, args: Vec<u32> },
    Delegate { delegate: u32, args: Vec<u32> },
    Move { from: u32, to: u32 },
    JumpFalse { cond: u32, destination: u32 },
    Free { value: u32 },
}

/// An operator's name, such as `aten::add`, and overload, such as `out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorModel {
    pub name: String,
    pub overload: String,
}

/// A delegate and its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateModel<'a> {
    pub id: String,
    pub data: Cow<'a, [u8]>,
    pub compile_specs: Vec<(String, Cow<'a, [u8]>)>,
}

/// A line of a stack trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameModel {
    pub filename: String,
    pub lineno: i32,
    pub name: String,
    pub context: String,
}

impl Default for ProgramModel<'_> {
    fn default() -> Self {
        let placeholder = || vec![Blob::from([].as_slice())];
        Self { methods: Vec::new(), constants: placeholder(), mutable_data: placeholder(), named_data: Vec::new() }
    }
}

impl<'a> ProgramModel<'a> {
    /// A program without methods.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds constant data and returns its index. Equal data is stored once.
    pub fn constant(&mut self, data: impl Into<Blob<'a>>) -> u32 {
        intern(&mut self.constants, data.into())
    }

    /// Adds the initial value of a mutable buffer and returns its index, like [`constant`](Self::constant).
    pub fn initial_value(&mut self, data: impl Into<Blob<'a>>) -> u32 {
        intern(&mut self.mutable_data, data.into())
    }

    /// The content of a parsed program. Data is borrowed from the file.
    pub fn from_program(program: &Program<'a>) -> Self {
        let methods: Vec<PlanModel<'a>> = program.methods().map(|plan| PlanModel::from_plan(&plan, program)).collect();
        // Stored data may be padded, therefore it is cut to the size of its largest tensor.
        let mut constants = vec![None; program.num_constants().max(1)];
        let mut mutable_data = vec![None; program.num_mutable_data().max(1)];
        for value in program.methods().flat_map(|plan| plan.values()) {
            let ValueSpec::Tensor(tensor) = value else { continue };
            let used = match tensor.storage {
                TensorStorage::Constant { index } => constants.get_mut(index as usize),
                TensorStorage::PlannedInit { index, .. } => mutable_data.get_mut(index as usize),
                _ => None,
            };
            if let Some(used) = used {
                *used = (*used).max(Some(tensor.nbytes));
            }
        }
        Self {
            methods,
            constants: exact(&constants, |index| program.constant(index)),
            mutable_data: exact(&mutable_data, |index| program.mutable_data(index)),
            named_data: program.named_data().map(|(key, data)| (key.to_string(), data.into())).collect(),
        }
    }
}

/// Returns the index of `data` in a pool, and adds it if it is new.
fn intern<'a>(pool: &mut Vec<Blob<'a>>, data: Blob<'a>) -> u32 {
    if pool.is_empty() {
        pool.push(Blob::from([].as_slice()));
    }
    // Entry 0 means no data, and so cannot serve an empty tensor.
    let known = pool.iter().skip(1).position(|entry| *entry == data);
    let index = known.map_or(pool.len(), |at| at + 1);
    if known.is_none() {
        pool.push(data);
    }
    index as u32
}

/// The entries of a pool, cut to their used bytes if those are known.
fn exact<'a>(used: &[Option<usize>], get: impl Fn(u32) -> Option<&'a [u8]>) -> Vec<Blob<'a>> {
    let entry = |(index, used): (usize, &Option<usize>)| {
        let data = if index == 0 { None } else { get(index as u32) }.unwrap_or_default();
        Blob::from(used.and_then(|len| data.get(..len)).unwrap_or(data))
    };
    used.iter().enumerate().map(entry).collect()
}

impl<'a> PlanModel<'a> {
    /// A method without values.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), buffer_sizes: vec![0], ..Self::default() }
    }

    /// Adds a value and returns its index.
    pub fn push(&mut self, value: impl Into<ValueModel>) -> u32 {
        self.values.push(value.into());
        self.values.len() as u32 - 1
    }

    /// Adds a value and makes it the next input.
    pub fn input(&mut self, value: impl Into<ValueModel>) -> u32 {
        let index = self.push(value);
        self.inputs.push(index);
        index
    }

    /// Adds a value and makes it the next output.
    pub fn output(&mut self, value: impl Into<ValueModel>) -> u32 {
        let index = self.push(value);
        self.outputs.push(index);
        index
    }

    /// Adds a list of integers, with a value for each.
    pub fn int_list(&mut self, items: &[i64]) -> u32 {
        let items = items.iter().map(|item| self.push(*item)).collect();
        self.push(ValueModel::IntList(items))
    }

    /// Reserves room for a tensor at the end of planned buffer 1, and returns the tensor planned there.
    #[must_use]
    pub fn planned(&mut self, mut tensor: TensorModel) -> TensorModel {
        self.buffer_sizes.resize(self.buffer_sizes.len().max(2), 0);
        let mut offset = 0;
        if let Some(buffer) = self.buffer_sizes.get_mut(1) {
            offset = buffer.next_multiple_of(PLAN_ALIGNMENT);
            *buffer = offset.saturating_add(tensor.nbytes());
        }
        tensor.storage = StorageModel::Planned { memory_id: 1, offset };
        tensor
    }

    /// Index of an operator, which is added if it is new.
    pub fn operator(&mut self, name: &str, overload: &str) -> u32 {
        let known = self.operators.iter().position(|operator| operator.name == name && operator.overload == overload);
        let index = known.unwrap_or(self.operators.len());
        if known.is_none() {
            self.operators.push(OperatorModel { name: name.into(), overload: overload.into() });
        }
        index as u32
    }

    /// Adds a call of an operator. `args` are its arguments in schema order with the out arguments, then the results
    /// again.
    pub fn call(&mut self, name: &str, overload: &str, args: &[u32]) {
        let operator = self.operator(name, overload);
        self.instructions.push(InstructionModel::Kernel { operator, args: args.to_vec() });
    }

    fn from_plan(plan: &Plan<'a>, program: &Program<'a>) -> Self {
        let ids = 0..plan.num_buffers() as u32;
        let instructions = 0..plan.num_instructions();
        Self {
            name: plan.name().to_string(),
            values: plan.values().map(ValueModel::from).collect(),
            inputs: plan.inputs().iter().collect(),
            outputs: plan.outputs().iter().collect(),
            instructions: plan.instructions().map(InstructionModel::from).collect(),
            operators: (0..plan.num_operators()).filter_map(|i| Some(plan.operator(i)?.into())).collect(),
            delegates: (0..plan.num_delegates())
                .filter_map(|i| Some(DelegateModel::from_spec(&plan.delegate(i)?, program)))
                .collect(),
            buffer_sizes: ids.clone().map(|id| plan.buffer_size(id)).collect(),
            buffer_devices: ids
                .map(|id| (id, plan.buffer_device(id)))
                .filter(|(_, device)| *device != Device::default())
                .collect(),
            input_encoding: plan.input_encoding().to_string(),
            output_encoding: plan.output_encoding().to_string(),
            stacktrace: if plan.has_stacktrace() {
                instructions.map(|i| plan.frames(i).map(FrameModel::from).collect()).collect()
            } else {
                Vec::new()
            },
        }
    }
}

impl TensorModel {
    /// A static, contiguous tensor whose data is provided at run time.
    pub fn new(scalar_type: ScalarType, sizes: &[i32]) -> Self {
        Self {
            scalar_type,
            sizes: sizes.to_vec(),
            dim_order: (0..sizes.len() as u8).collect(),
            shape_dynamism: ShapeDynamism::Static,
            storage: StorageModel::Unplanned,
            requires_grad: false,
            device: Device::default(),
            fully_qualified_name: None,
        }
    }

    /// The tensor with another storage.
    #[must_use]
    pub fn stored(self, storage: StorageModel) -> Self {
        Self { storage, ..self }
    }

    /// The tensor with its sizes as upper bounds.
    #[must_use]
    pub fn dynamic(self) -> Self {
        Self { shape_dynamism: ShapeDynamism::DynamicBound, ..self }
    }

    /// The tensor with another dimension order.
    #[must_use]
    pub fn ordered(self, dim_order: &[u8]) -> Self {
        Self { dim_order: dim_order.to_vec(), ..self }
    }

    /// Bytes of the data; saturates.
    pub fn nbytes(&self) -> u64 {
        let size = self.scalar_type.size() as u64;
        self.sizes.iter().fold(size, |n, size| n.saturating_mul(u64::try_from(*size).unwrap_or(0)))
    }
}

impl<'a> DelegateModel<'a> {
    fn from_spec(spec: &DelegateSpec<'a>, program: &Program<'a>) -> Self {
        let compile_spec = |CompileSpec { key, value }| (key.to_string(), value.into());
        Self {
            id: spec.id.to_string(),
            data: program.delegate_data(spec.data).unwrap_or_default().into(),
            compile_specs: spec.compile_specs().map(compile_spec).collect(),
        }
    }
}

impl From<ValueSpec<'_>> for ValueModel {
    fn from(value: ValueSpec<'_>) -> Self {
        match value {
            ValueSpec::None => Self::None,
            ValueSpec::Int(int) => Self::Int(int),
            ValueSpec::Bool(bool) => Self::Bool(bool),
            ValueSpec::Double(double) => Self::Double(double),
            ValueSpec::String(text) => Self::String(text.to_string()),
            ValueSpec::Tensor(tensor) => Self::Tensor(tensor.into()),
            ValueSpec::IntList(items) => Self::IntList(items.iter().collect()),
            ValueSpec::DoubleList(items) => Self::DoubleList(items.iter().collect()),
            ValueSpec::BoolList(items) => Self::BoolList(items.iter().collect()),
            ValueSpec::TensorList(items) => Self::TensorList(items.iter().collect()),
            ValueSpec::OptionalTensorList(items) => Self::OptionalTensorList(items.iter().collect()),
        }
    }
}

impl From<TensorSpec<'_>> for TensorModel {
    fn from(spec: TensorSpec<'_>) -> Self {
        Self {
            scalar_type: spec.scalar_type,
            sizes: spec.sizes.iter().collect(),
            dim_order: spec.dim_order.to_vec(),
            shape_dynamism: spec.shape_dynamism,
            storage: spec.storage.into(),
            requires_grad: spec.requires_grad,
            device: spec.device,
            fully_qualified_name: spec.fully_qualified_name.map(ToString::to_string),
        }
    }
}

impl From<TensorStorage<'_>> for StorageModel {
    fn from(storage: TensorStorage<'_>) -> Self {
        match storage {
            TensorStorage::Constant { index } => Self::Constant { index },
            TensorStorage::Planned { memory_id, offset } => Self::Planned { memory_id, offset },
            TensorStorage::PlannedInit { memory_id, offset, index } => Self::PlannedInit { memory_id, offset, index },
            TensorStorage::Unplanned => Self::Unplanned,
            TensorStorage::External { .. } => Self::External,
            TensorStorage::ExternalPlanned { memory_id, offset, .. } => Self::ExternalPlanned { memory_id, offset },
        }
    }
}

impl From<Instruction<'_>> for InstructionModel {
    fn from(instruction: Instruction<'_>) -> Self {
        match instruction {
            Instruction::Kernel { operator, args } => Self::Kernel { operator, args: args.iter().collect() },
            Instruction::Delegate { delegate, args } => Self::Delegate { delegate, args: args.iter().collect() },
            Instruction::Move { from, to } => Self::Move { from, to },
            Instruction::JumpFalse { cond, destination } => Self::JumpFalse { cond, destination },
            Instruction::Free { value } => Self::Free { value },
        }
    }
}

impl From<OperatorName<'_>> for OperatorModel {
    fn from(operator: OperatorName<'_>) -> Self {
        Self { name: operator.name.to_string(), overload: operator.overload.to_string() }
    }
}

impl From<Frame<'_>> for FrameModel {
    fn from(frame: Frame<'_>) -> Self {
        Self {
            filename: frame.filename.to_string(),
            lineno: frame.lineno,
            name: frame.name.to_string(),
            context: frame.context.to_string(),
        }
    }
}

impl From<i64> for ValueModel {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<bool> for ValueModel {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<f64> for ValueModel {
    fn from(double: f64) -> Self {
        Self::Double(double)
    }
}

impl From<&str> for ValueModel {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<TensorModel> for ValueModel {
    fn from(tensor: TensorModel) -> Self {
        Self::Tensor(tensor)
    }
}
