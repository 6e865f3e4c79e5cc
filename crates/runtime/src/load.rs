//! Loading a method: values, tensors and steps are laid out in the method's memory and checked once.

use core::cell::Cell;

use rushlight_format::pte::{self, Instruction, Plan, ShapeDynamism, TensorSpec, TensorStorage};

use crate::alias;
use crate::context::KernelContext;
use crate::data::{DataMap, NamedData};
use crate::delegate::{Backend, BackendOption, DelegateHandle, InitContext};
use crate::error::{Code, Detail, Error, Result, Role};
use crate::memory::{ALIGNMENT, Bump, Memory, PlannedBuffer, Temp, bind_constant, bind_planned};
use crate::op::{Op, Registry};
use crate::program::Program;
use crate::tensor::{Access, Rebound, TensorState};
use crate::value::{ABSENT, Value, Values};

/// What a method is loaded with besides its program and memory.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a, 'p> {
    pub registry: Registry<'a>,
    pub backends: &'a [&'a dyn Backend],
    pub backend_options: &'a [BackendOption<'a>],
    /// Files with constants that the program does not hold.
    pub external_data: &'a [&'a DataMap<'p>],
}

impl<'a> LoadOptions<'a, '_> {
    pub const fn new(registry: Registry<'a>) -> Self {
        Self { registry, backends: &[], backend_options: &[], external_data: &[] }
    }
}

impl core::fmt::Debug for LoadOptions<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LoadOptions").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// One instruction, resolved.
#[derive(Clone, Copy)]
pub(crate) enum Step<'m> {
    Kernel {
        op: &'static Op,
        arguments: &'m [u32],
    },
    Delegate {
        delegate: u32,
        arguments: &'m [u32],
    },
    Move {
        from: u32,
        to: u32,
    },
    JumpFalse {
        condition: u32,
        destination: u32,
    },
    Free {
        value: u32,
    },
    /// An operator that would copy a tensor onto itself.
    Nothing,
}

/// A delegate and the name of its backend.
pub(crate) struct LoadedDelegate<'m> {
    pub(crate) id: &'m str,
    pub(crate) outputs: usize,
    pub(crate) handle: DelegateHandle<'m>,
}

/// Everything of a method that lives in its memory.
pub(crate) struct Loaded<'m> {
    pub(crate) plan: Plan<'m>,
    pub(crate) values: Values<'m>,
    pub(crate) inputs: &'m [u32],
    pub(crate) outputs: &'m [u32],
    /// For each input: true if an instruction writes it.
    pub(crate) input_written: &'m [bool],
    pub(crate) steps: &'m [Step<'m>],
    /// `None` only after the method was dropped.
    pub(crate) delegates: &'m mut [Option<LoadedDelegate<'m>>],
    pub(crate) rebound: &'m [Rebound<'m>],
    pub(crate) temp: &'m Temp<'m>,
    pub(crate) sizes: MemoryUse,
}

/// The memory that a loaded method takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Values, tensors, steps and delegates.
    pub method: usize,
    /// Planned buffers, all memory ids together.
    pub planned: usize,
    /// The most that one operator takes while it runs.
    pub temp: usize,
    /// The block that holds all of it, with padding and what only loading needs. Buffers that were given apart or are
    /// shared do not count.
    pub total: usize,
}

pub(crate) fn load<'m>(
    program: &Program<'m>,
    name: &str,
    memory: &mut Memory<'m>,
    options: &LoadOptions<'_, 'm>,
) -> Result<Loaded<'m>> {
    let plan = program.plan(name)?;
    let named_data = NamedData { program: *program.inner(), external: options.external_data };
    named_data.check_unique()?;
    let operators = operators(&mut memory.bump, &plan, &options.registry)?;
    let planned = memory.plan(&plan)?;
    let bump = &mut memory.bump;
    // A file can name one large table many times; what it describes then takes far more memory than the file. Honest
    // programs stay below their own size.
    let rest = bump.set_budget(usize::MAX);
    let structures = program.inner().bytes().len().saturating_mul(2).saturating_add(64 * 1024);
    bump.set_budget(rest.min(structures));

    let inputs = indices(bump, plan.inputs().iter())?;
    let outputs = indices(bump, plan.outputs().iter())?;
    let loader = Loader { plan, program: *program.inner(), named_data: &named_data, planned };
    let tensors = loader.tensors(bump)?;
    let values = loader.values(bump, tensors)?;
    let delegates = loader.delegates(bump, options)?;
    let steps = loader.steps(bump, operators)?;
    let rebound = rebound(bump, values, tensors, steps)?;
    let input_written = bump.slice(inputs.len(), |_| false)?;
    bump.scratch(|scratch| alias::check(scratch, values, steps, delegates, inputs, input_written))?;
    let temp: &'m Temp<'m> = bump.value(Temp::new(&mut []))?;
    let temp_bytes = temp_bytes(values, steps, temp)?;
    let unused = bump.set_budget(usize::MAX);
    bump.set_budget(rest.saturating_sub(rest.min(structures) - unused));
    let method = bump.used() - planned.iter().map(|buffer| buffer.in_block).sum::<usize>();
    temp.set_block(bump.bytes(temp_bytes, ALIGNMENT)?);
    let planned_bytes = planned.iter().map(|buffer| buffer.len).sum();
    let sizes = MemoryUse { method, planned: planned_bytes, temp: temp_bytes, total: bump.peak() };
    Ok(Loaded { plan, values, inputs, outputs, input_written, steps, delegates, rebound, temp, sizes })
}

/// The operators of the plan, which must all be in the registry.
fn operators<'m>(bump: &mut Bump<'m>, plan: &Plan<'_>, registry: &Registry<'_>) -> Result<&'m [Option<&'static Op>]> {
    let find = |i| plan.operator(i).and_then(|op| registry.find(op.name, op.overload));
    let found = bump.slice(plan.num_operators(), find)?;
    let mut missing = found.iter().enumerate().filter(|(_, op)| op.is_none());
    match missing.next() {
        Some((first, _)) => Err(Detail::MissingOperators { count: 1 + missing.count(), first: first as u32 }.into()),
        None => Ok(found),
    }
}

fn indices<'m>(bump: &mut Bump<'m>, mut from: impl ExactSizeIterator<Item = u32>) -> Result<&'m [u32]> {
    Ok(bump.slice(from.len(), |_| from.next().unwrap_or(0))?)
}

struct Loader<'m, 'a> {
    plan: Plan<'m>,
    program: rushlight_format::Program<'m>,
    named_data: &'a NamedData<'m, 'a>,
    planned: &'m [PlannedBuffer],
}

impl<'m> Loader<'m, '_> {
    fn tensors(&self, bump: &mut Bump<'m>) -> Result<&'m [TensorState<'m>]> {
        let ranks = (0..self.plan.num_values()).filter_map(|i| self.plan.tensor_rank(i));
        let (count, dims) = ranks.fold((0, 0), |(n, dims), rank| (n + 1, dims + 3 * rank));
        let mut dims: &'m [Cell<usize>] = bump.slice(dims, |_| Cell::new(0))?;
        let mut specs = self.plan.values().enumerate().filter_map(|(i, value)| match value {
            pte::Value::Tensor(spec) => Some((i, spec)),
            _ => None,
        });
        let tensors = bump.try_slice(count, |_| {
            let Some((index, spec)) = specs.next() else {
                return Err(Error::program("the program changed while it was read"));
            };
            let (own, rest) = dims.split_at_checked(3 * spec.sizes.len()).unwrap_or((&[], &[]));
            dims = rest;
            self.tensor(&spec, own).map_err(|e| e.at(Role::Value, index))
        })?;
        Ok(tensors)
    }

    fn tensor(&self, spec: &TensorSpec<'m>, dims: &'m [Cell<usize>]) -> Result<TensorState<'m>> {
        for (cell, size) in dims.iter().zip(spec.sizes.iter()) {
            cell.set(usize::try_from(size).map_err(|_| Error::program("a size is negative"))?);
        }
        if spec.shape_dynamism == ShapeDynamism::DynamicUnbound {
            let text = "tensors without an upper bound of their size are not supported";
            return Err(Error::new(Code::NotSupported, Detail::Text(text)));
        }
        let bound = usize::try_from(spec.nbytes).map_err(|_| too_large(spec.nbytes))?;
        let access = match spec.storage {
            TensorStorage::Constant { .. } | TensorStorage::External { .. } => Access::ReadOnly,
            TensorStorage::Planned { .. }
            | TensorStorage::PlannedInit { .. }
            | TensorStorage::ExternalPlanned { .. } => Access::ReadWrite,
            TensorStorage::Unplanned => Access::Bound,
        };
        let state = TensorState::new(spec.scalar_type, spec.shape_dynamism, spec.dim_order, dims, bound, access);
        match spec.storage {
            TensorStorage::Unplanned => {}
            TensorStorage::Constant { index } => {
                let data = self.program.constant(index).unwrap_or_default();
                bind_constant(&state, data)?;
            }
            TensorStorage::External { name } => bind_constant(&state, self.external(spec, name)?)?,
            TensorStorage::Planned { memory_id, offset } => {
                bind_planned(&state, self.buffer(memory_id)?, offset, None)?;
            }
            TensorStorage::PlannedInit { memory_id, offset, index } => {
                let data = self.program.mutable_data(index).unwrap_or_default();
                bind_planned(&state, self.buffer(memory_id)?, offset, Some(data))?;
            }
            TensorStorage::ExternalPlanned { name, memory_id, offset } => {
                let data = self.external(spec, name)?;
                bind_planned(&state, self.buffer(memory_id)?, offset, Some(data))?;
            }
        }
        Ok(state)
    }

    fn buffer(&self, memory_id: u32) -> Result<&PlannedBuffer> {
        let buffer = memory_id.checked_sub(1).and_then(|i| self.planned.get(i as usize));
        buffer.ok_or(Error::program("a tensor is planned in a buffer that the method does not have"))
    }

    /// The external data called `name`, if it has the layout of the tensor.
    fn external(&self, spec: &TensorSpec<'m>, name: &str) -> Result<&'m [u8]> {
        let external = |text| Error::new(Code::InvalidExternalData, Detail::Text(text));
        let Some(tensor) = self.named_data.tensor(name) else {
            let text = "the program needs external data of this name, which no data file holds";
            return Err(Error::new(Code::NotFound, Detail::Text(text)));
        };
        if let Some(layout) = tensor.layout {
            let same = layout.scalar_type == spec.scalar_type
                && layout.sizes.iter().eq(spec.sizes.iter())
                && layout.dim_order == spec.dim_order;
            if !same {
                return Err(external("the external tensor has another type, size or dim order"));
            }
        }
        if (tensor.data.len() as u64) < spec.nbytes {
            return Err(external("the external tensor has too few bytes"));
        }
        Ok(tensor.data)
    }

    fn values(&self, bump: &mut Bump<'m>, tensors: &'m [TensorState<'m>]) -> Result<Values<'m>> {
        let mut tensors = tensors.iter();
        let count = self.plan.num_values();
        let values: &'m mut [Cell<Value<'m>>] = bump.slice(count, |_| Cell::new(Value::None))?;
        for (i, cell) in values.iter_mut().enumerate() {
            if self.plan.tensor_rank(i).is_some() {
                cell.set(tensors.next().map_or(Value::None, Value::Tensor));
                continue;
            }
            cell.set(match self.plan.value(i) {
                pte::Value::None | pte::Value::Tensor(_) => Value::None,
                pte::Value::Int(v) => Value::Int(v),
                pte::Value::Double(v) => Value::Double(v),
                pte::Value::Bool(v) => Value::Bool(v),
                pte::Value::String(v) => Value::String(v),
                pte::Value::IntList(items) => Value::IntList(indices(bump, items.iter())?),
                pte::Value::TensorList(items) => Value::TensorList(indices(bump, items.iter())?),
                pte::Value::OptionalTensorList(items) => {
                    let mut items = items.iter();
                    let list = bump.slice(items.len(), |_| items.next().flatten().unwrap_or(ABSENT))?;
                    Value::OptionalTensorList(list)
                }
                pte::Value::DoubleList(items) => {
                    let mut items = items.iter();
                    Value::DoubleList(bump.slice(items.len(), |_| items.next().unwrap_or(0.0))?)
                }
                pte::Value::BoolList(items) => {
                    let mut items = items.iter();
                    Value::BoolList(bump.slice(items.len(), |_| items.next().unwrap_or(false))?)
                }
            });
        }
        Ok(values)
    }

    fn delegates(
        &self,
        bump: &mut Bump<'m>,
        options: &LoadOptions<'_, 'm>,
    ) -> Result<&'m mut [Option<LoadedDelegate<'m>>]> {
        let slots = bump.slice(self.plan.num_delegates(), |_| None)?;
        for (i, slot) in slots.iter_mut().enumerate() {
            *slot = Some(self.delegate(bump, options, i).map_err(|e| e.at(Role::Delegate, i))?);
        }
        Ok(slots)
    }

    fn delegate(&self, bump: &mut Bump<'m>, options: &LoadOptions<'_, 'm>, index: usize) -> Result<LoadedDelegate<'m>> {
        let Some(spec) = self.plan.delegate(index) else {
            return Err(Error::program("the program changed while it was read"));
        };
        let Some(backend) = options.backends.iter().find(|backend| backend.id() == spec.id) else {
            let text = "the program needs a backend that is not registered";
            return Err(Error::new(Code::NotFound, Detail::Text(text)));
        };
        let mut context = InitContext {
            method: self.plan.name(),
            payload: self.program.delegate_data(spec.data).unwrap_or_default(),
            memory: bump,
            spec,
            options: options.backend_options,
            named_data: self.named_data,
        };
        let mut handle = backend.init(&mut context)?;
        let outputs = handle.get().num_outputs();
        Ok(LoadedDelegate { id: spec.id, outputs, handle })
    }

    fn steps(&self, bump: &mut Bump<'m>, operators: &[Option<&'static Op>]) -> Result<&'m mut [Step<'m>]> {
        let steps = bump.slice(self.plan.num_instructions(), |_| Step::Nothing)?;
        for (i, (step, instruction)) in steps.iter_mut().zip(self.plan.instructions()).enumerate() {
            *step = match instruction {
                Instruction::Kernel { operator, args } => {
                    let Some(Some(op)) = operators.get(operator as usize).copied() else {
                        return Err(Error::program("an instruction names an operator that the plan does not have"));
                    };
                    let arguments = indices(bump, args.iter())?;
                    check_arity(op, arguments.len()).map_err(|e| e.instruction(i, Some(op.name)))?;
                    Step::Kernel { op, arguments }
                }
                Instruction::Delegate { delegate, args } => {
                    Step::Delegate { delegate, arguments: indices(bump, args.iter())? }
                }
                Instruction::Move { from, to } => Step::Move { from, to },
                Instruction::JumpFalse { cond, destination } => Step::JumpFalse { condition: cond, destination },
                Instruction::Free { value } => Step::Free { value },
            };
        }
        Ok(steps)
    }
}

fn too_large(nbytes: u64) -> Error {
    let needed = usize::try_from(nbytes).unwrap_or(usize::MAX);
    Detail::Memory { what: "a tensor in this address space", needed, available: isize::MAX as usize }.into()
}

/// Programs list the return value once more behind the arguments; symbolic operators do not.
fn check_arity(op: &Op, got: usize) -> Result<()> {
    let expected = op.arity as usize;
    if got == expected || got == expected + 1 {
        return Ok(());
    }
    let detail = Detail::Count { what: "arguments of the operator", expected, got };
    Err(Error::new(Code::InvalidProgram, detail))
}

/// The tensors whose memory is bound for each execution or changes during it: unplanned inputs and outputs, outputs of
/// views, freed values.
fn rebound<'m>(
    bump: &mut Bump<'m>,
    values: Values<'m>,
    tensors: &'m [TensorState<'m>],
    steps: &[Step<'m>],
) -> Result<&'m [Rebound<'m>]> {
    let has_moves = steps.iter().any(|step| matches!(step, Step::Move { .. }));
    let mut has_views = false;
    let mark = |value: u32| {
        if let Some(Value::Tensor(tensor)) = values.get(value as usize).map(Cell::get) {
            tensor.mark_rebound();
        }
    };
    for step in steps {
        match *step {
            Step::Kernel { op, arguments } if op.is_view => {
                has_views = true;
                arguments
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| op.writes_argument(*i))
                    .for_each(|(_, &value)| mark(value));
            }
            Step::Free { value } => {
                has_views = true;
                mark(value);
            }
            _ => {}
        }
    }
    // After a move, the output of a view may be any tensor.
    let is_rebound = |tensor: &&TensorState<'m>| tensor.is_rebound() || (has_views && has_moves);
    let count = tensors.iter().filter(is_rebound).count();
    let mut marked = tensors.iter().filter(is_rebound);
    let list = bump.try_slice(count, |_| match marked.next() {
        Some(tensor) => Ok(Rebound::new(tensor)),
        None => Err(Error::program("the program changed while it was read")),
    })?;
    Ok(list)
}

/// The most temporary memory that one instruction asks for.
fn temp_bytes<'m>(values: Values<'m>, steps: &[Step<'m>], temp: &'m Temp<'m>) -> Result<usize> {
    let mut most = 0;
    for (i, step) in steps.iter().enumerate() {
        if let Step::Kernel { op, arguments } = *step
            && let Some(bytes) = op.temp_bytes
        {
            let context = KernelContext::sizing(values, arguments, op.writes, temp);
            most = most.max(bytes(&context).map_err(|e| e.instruction(i, Some(op.name)))?);
        }
    }
    Ok(most)
}
