//! Loading of a method: values, tensors and steps are laid out in the method's memory and checked once.

use core::cell::Cell;

use rushlight_format::pte::{self, Instruction, Plan, ShapeDynamism, TensorSpec, TensorStorage};

use crate::alias;
use crate::context::KernelContext;
use crate::data::{DataMap, NamedData};
use crate::delegate::{Backend, InitContext};
use crate::error::{Result, Role};
#[cfg(feature = "alloc")]
use crate::extended::{Parts, extend};
use crate::fault::{Checked, Fault, Report, Reported};
use crate::memory::{ALIGNMENT, Bump, Memory, PlannedBuffer, Temp, bind_constant, bind_planned};
use crate::op::{Op, Registry};
#[cfg(feature = "alloc")]
use crate::options;
use crate::options::BackendOption;
use crate::program::Program;
use crate::step::{Delegates, Loaded, LoadedDelegate, MemoryUse, Step, max_outputs};
use crate::tensor::{Access, Rebound, TensorState};
use crate::value::{ABSENT, EValue, Values, tensor};

/// Options of loading a method: operators, backends, external data, limits.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a, 'p> {
    pub registry: Registry<'a>,
    pub backends: &'a [&'a dyn Backend],
    /// Values of options of the backends. Without the feature `alloc`, unknown names and wrong types are not refused.
    pub backend_options: &'a [BackendOption<'a>],
    /// Files with constants that are not in the program.
    pub external_data: &'a [&'a DataMap<'p>],
    /// True if the method makes no delegate states of its own: each execution gets its states from the caller.
    pub without_states: bool,
}

impl<'a> LoadOptions<'a, '_> {
    pub const fn new(registry: Registry<'a>) -> Self {
        Self { registry, backends: &[], backend_options: &[], external_data: &[], without_states: false }
    }
}

impl core::fmt::Debug for LoadOptions<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LoadOptions").field("registry", &self.registry).finish_non_exhaustive()
    }
}

pub(crate) fn load<'m>(
    program: &Program<'m>,
    name: &str,
    memory: &mut Memory<'m>,
    options: &LoadOptions<'_, 'm>,
) -> Result<Loaded<'m>> {
    let plan = program.plan(name)?;
    let named_data = NamedData { program: program.inner(), external: options.external_data };
    let mut report = Report::new();
    let loaded = load_plan(plan, memory, options, &named_data, &mut report);
    loaded.map_err(|Reported| report.take(memory.bump.shortage))
}

fn load_plan<'m>(
    plan: Plan<'m>,
    memory: &mut Memory<'m>,
    options: &LoadOptions<'_, 'm>,
    named_data: &NamedData<'m, '_>,
    report: &mut Report,
) -> Checked<Loaded<'m>> {
    if !named_data.is_unique() {
        return Err(report.plain(Fault::DuplicateKey));
    }
    // Bare-metal callers know the sizes of their inputs, and code size matters there.
    let shapes = if cfg!(target_os = "none") { Ok(None) } else { plan.input_shapes() };
    let Ok(shapes) = shapes else { return Err(report.plain(Fault::DamagedShapes)) };
    let operators = operators(&mut memory.bump, &plan, &options.registry, report)?;
    let planned = memory.plan(&plan, report)?;
    let has_states = memory.has_states();
    let bump = &mut memory.bump;
    // A file can name one large table many times, and then describes far more memory than its size. Real programs stay
    // below their own size.
    bump.set_budget(named_data.program.bytes().len().saturating_mul(2).saturating_add(64 * 1024));

    // On bare metal, callers know their options and code is scarce: options are not checked.
    #[cfg(feature = "alloc")]
    check_options(options, report)?;
    let inputs = indices(bump, &mut plan.inputs().iter())?;
    let outputs = indices(bump, &mut plan.outputs().iter())?;
    let mut loader = Loader { plan: &plan, named_data, planned, has_states, bump, report };
    let values = loader.values()?;
    let (delegates, has_device) = loader.delegates(options)?;
    let steps = loader.steps(operators, has_device)?;
    let Loader { bump, report, .. } = loader;
    let rebound = rebound(bump, values, steps)?;
    let input_written = bump.zeros(inputs.len())?;
    bump.scratch(|scratch| alias::check(scratch, values, steps, &delegates, inputs, input_written, report))?;
    // At this point the number of outputs is known to be at most that of the arguments.
    let taken = bump.zeros(max_outputs(&*steps, &delegates).div_ceil(usize::BITS as usize))?;
    let temp: &'m Temp<'m> = bump.one(Temp::new(&mut []))?;
    let temp_bytes = temp_bytes(values, steps, temp, report)?;
    bump.set_budget(usize::MAX);
    #[cfg(feature = "alloc")]
    let (extended, delegates) = {
        let parts = Parts { plan: &plan, values, inputs, outputs, without_states: options.without_states };
        let mut delegates = delegates;
        (extend(parts, steps, &mut delegates, bump, report)?, delegates)
    };
    let (mut in_block, mut planned_bytes) = (0, 0);
    for buffer in planned {
        in_block += buffer.in_block;
        planned_bytes += buffer.len;
    }
    let method = bump.used() - in_block;
    temp.set_block(bump.raw(temp_bytes, ALIGNMENT)?);
    let sizes = MemoryUse { method, planned: planned_bytes, temp: temp_bytes, total: bump.peak() };
    Ok(Loaded {
        plan,
        values,
        inputs,
        outputs,
        shapes,
        input_written,
        steps,
        delegates,
        #[cfg(feature = "alloc")]
        extended,
        taken,
        rebound,
        temp,
        sizes,
    })
}

/// Checks that the options are for registered backends, and that these declare them.
#[cfg(feature = "alloc")]
#[inline(never)]
fn check_options(options: &LoadOptions<'_, '_>, report: &mut Report) -> Checked<()> {
    for option in options.backend_options {
        let Some(backend) = options.backends.iter().find(|backend| backend.id() == option.backend) else {
            return Err(report.plain(Fault::NoOptionBackend));
        };
        options::find(backend.options(), option.key, option.value).map_err(|error| report.error(error))?;
    }
    Ok(())
}

/// The operators of the plan, which must all be in the registry.
#[inline(never)]
fn operators<'m>(
    bump: &mut Bump<'m>,
    plan: &Plan<'_>,
    registry: &Registry<'_>,
    report: &mut Report,
) -> Checked<&'m [&'static Op]> {
    let mut found = bump.room(plan.num_operators())?;
    let (mut missing, mut first) = (0, 0);
    for i in 0..plan.num_operators() {
        match plan.operator(i).and_then(|operator| registry.find(operator.name, operator.overload)) {
            Some(op) => found.push(op),
            None => {
                first = if missing == 0 { i } else { first };
                missing += 1;
            }
        }
    }
    if missing > 0 { Err(report.fault(Fault::MissingOperators, missing, first)) } else { Ok(found.finish()) }
}

/// Copies the indices into the method's memory.
fn indices<'m>(bump: &mut Bump<'m>, from: &mut dyn ExactSizeIterator<Item = u32>) -> Checked<&'m [u32]> {
    let mut room = bump.room(from.len())?;
    for index in from {
        room.push(index);
    }
    Ok(room.finish())
}

struct Loader<'m, 'a> {
    plan: &'a Plan<'m>,
    named_data: &'a NamedData<'m, 'a>,
    planned: &'m [PlannedBuffer],
    /// True if states already have their values.
    has_states: bool,
    bump: &'a mut Bump<'m>,
    report: &'a mut Report,
}

impl<'m> Loader<'m, '_> {
    fn values(&mut self) -> Checked<Values<'m>> {
        let count = self.plan.num_values();
        let mut values = self.bump.room(count)?;
        for i in 0..count {
            values.push(Cell::new(self.value(i)?));
        }
        Ok(values.finish())
    }

    fn value(&mut self, index: usize) -> Checked<EValue<'m>> {
        let bump = &mut *self.bump;
        Ok(match self.plan.value(index) {
            pte::ValueSpec::None => EValue::None,
            pte::ValueSpec::Int(v) => EValue::Int(v),
            pte::ValueSpec::Double(v) => EValue::Double(v),
            pte::ValueSpec::Bool(v) => EValue::Bool(v),
            pte::ValueSpec::String(v) => EValue::String(v),
            pte::ValueSpec::Tensor(spec) => match self.tensor(&spec) {
                Ok(state) => EValue::Tensor(state),
                Err(Reported) => return Err(self.report.at(Role::Value, index)),
            },
            pte::ValueSpec::IntList(items) => EValue::IntList(indices(bump, &mut items.iter())?),
            pte::ValueSpec::TensorList(items) => EValue::TensorList(indices(bump, &mut items.iter())?),
            pte::ValueSpec::OptionalTensorList(items) => {
                EValue::OptionalTensorList(indices(bump, &mut items.iter().map(|item| item.unwrap_or(ABSENT)))?)
            }
            pte::ValueSpec::DoubleList(items) => {
                let mut list = bump.room(items.len())?;
                items.iter().for_each(|item| list.push(item));
                EValue::DoubleList(list.finish())
            }
            pte::ValueSpec::BoolList(items) => {
                let mut list = bump.room(items.len())?;
                items.iter().for_each(|item| list.push(item));
                EValue::BoolList(list.finish())
            }
        })
    }

    fn tensor(&mut self, spec: &TensorSpec<'m>) -> Checked<&'m TensorState<'m>> {
        let dims: &'m [Cell<usize>] = self.bump.zeros(3 * spec.sizes.len())?;
        for (cell, size) in dims.iter().zip(spec.sizes.iter()) {
            let Ok(size) = usize::try_from(size) else { return Err(self.report.plain(Fault::NegativeSize)) };
            cell.set(size);
        }
        if spec.shape_dynamism == ShapeDynamism::DynamicUnbound {
            return Err(self.report.plain(Fault::Unbounded));
        }
        let program = self.named_data.program;
        let (access, home, data) = match spec.storage {
            TensorStorage::Unplanned => (Access::Bound, None, None),
            TensorStorage::Constant { index } => (Access::ReadOnly, None, program.constant(index)),
            TensorStorage::External { name } => {
                (Access::ReadOnly, None, Some(self.named_data.tensor(spec, name, self.report)?))
            }
            TensorStorage::Planned { memory_id, offset } => (Access::ReadWrite, Some((memory_id, offset)), None),
            TensorStorage::PlannedInit { memory_id, offset, index } => {
                let initial = || program.mutable_data(index).unwrap_or_default();
                (Access::ReadWrite, Some((memory_id, offset)), (!self.has_states).then(initial))
            }
            TensorStorage::ExternalPlanned { name, memory_id, offset } => {
                (Access::ReadWrite, Some((memory_id, offset)), Some(self.named_data.tensor(spec, name, self.report)?))
            }
        };
        let state = TensorState::new(spec.scalar_type, spec.shape_dynamism, spec.dim_order, dims, spec.nbytes, access);
        let state = self.bump.one(state)?;
        if let Some((memory_id, offset)) = home {
            let buffer = memory_id.checked_sub(1).and_then(|i| self.planned.get(i as usize));
            let Some(buffer) = buffer else { return Err(self.report.plain(Fault::UnknownBuffer)) };
            bind_planned(state, buffer, offset, data, self.report)?;
        } else if access == Access::ReadOnly {
            bind_constant(state, data.unwrap_or_default(), self.report)?;
        }
        Ok(state)
    }

    /// Loads the delegates, and returns true if one of them uses a device.
    fn delegates(&mut self, options: &LoadOptions<'_, 'm>) -> Checked<(Delegates<'m>, bool)> {
        let count = self.plan.num_delegates();
        let mut slots = self.bump.room(count)?;
        (0..count).for_each(|_| slots.push(None));
        let mut delegates = Delegates::new(slots.finish());
        #[cfg_attr(not(feature = "alloc"), allow(unused_mut, reason = "devices need the feature"))]
        let mut has_device = false;
        for (i, slot) in delegates.slots().iter_mut().enumerate() {
            match self.delegate(options, i) {
                Ok(delegate) => {
                    #[cfg_attr(not(feature = "alloc"), allow(unused_variables, reason = "devices need the feature"))]
                    let delegate = slot.insert(delegate);
                    #[cfg(feature = "alloc")]
                    {
                        has_device |= delegate.handle.get().device().is_some();
                    }
                }
                Err(Reported) => return Err(self.report.at(Role::Delegate, i)),
            }
        }
        Ok((delegates, has_device))
    }

    fn delegate(&mut self, options: &LoadOptions<'_, 'm>, index: usize) -> Checked<LoadedDelegate<'m>> {
        let Some(spec) = self.plan.delegate(index) else { return Err(self.report.plain(Fault::Changed)) };
        let Some(backend) = options.backends.iter().find(|backend| backend.id() == spec.id) else {
            return Err(self.report.plain(Fault::NoBackend));
        };
        let mut context = InitContext {
            method: self.plan.name(),
            payload: self.named_data.program.delegate_data(spec.data).unwrap_or_default(),
            memory: self.bump,
            spec,
            options: options.backend_options,
            declared: backend.options(),
            named_data: self.named_data,
        };
        match backend.init(&mut context) {
            Ok(mut handle) => {
                let outputs = handle.get().num_outputs();
                Ok(LoadedDelegate { id: spec.id, outputs, options: backend.options(), handle })
            }
            Err(error) => Err(self.report.error(error)),
        }
    }

    /// The instructions, and a last step if outputs may be on a device.
    fn steps(&mut self, operators: &[&'static Op], has_device: bool) -> Checked<&'m mut [Step<'m>]> {
        let mut steps = self.bump.room(self.plan.num_instructions() + usize::from(has_device))?;
        for (i, instruction) in self.plan.instructions().enumerate() {
            steps.push(match instruction {
                Instruction::Kernel { operator, args } => {
                    let Some(&op) = operators.get(operator as usize) else {
                        return Err(self.report.plain(Fault::UnknownOperator));
                    };
                    let arguments = indices(self.bump, &mut args.iter())?;
                    // Programs repeat the return value after the arguments; symbolic operators do not.
                    let arity = op.arity as usize;
                    if arguments.len() != arity && arguments.len() != arity + 1 {
                        self.report.fault(Fault::Arguments, arity, arguments.len());
                        return Err(self.report.instruction(i, Some(op.name)));
                    }
                    Step::Kernel { op, arguments }
                }
                Instruction::Delegate { delegate, args } => {
                    Step::Delegate { delegate, arguments: indices(self.bump, &mut args.iter())? }
                }
                Instruction::Move { from, to } => Step::Move { from, to },
                Instruction::JumpFalse { cond, destination } => Step::JumpFalse { condition: cond, destination },
                Instruction::Free { value } => Step::Free { value },
            });
        }
        if has_device {
            steps.push(Step::Nothing);
        }
        Ok(steps.finish())
    }
}

/// The tensors whose memory is bound for each execution or changes during it: unplanned inputs and outputs, outputs of
/// views, freed values.
fn rebound<'m>(bump: &mut Bump<'m>, values: Values<'m>, steps: &[Step<'m>]) -> Checked<&'m [Rebound<'m>]> {
    let (mut has_moves, mut has_views) = (false, false);
    for step in steps {
        let changed = match step {
            Step::Kernel { op, .. } if op.is_view => alias::view(step).map(|(view, _)| view),
            Step::Free { value } => Some(*value),
            Step::Move { .. } => {
                has_moves = true;
                None
            }
            _ => None,
        };
        if let Some(value) = changed {
            has_views = true;
            if let Some(tensor) = tensor(values, value) {
                tensor.mark_rebound();
            }
        }
    }
    // After a move, the output of a view may be any tensor.
    let any = has_views && has_moves;
    let marked = || {
        let tensors = (0..values.len() as u32).filter_map(|value| tensor(values, value));
        tensors.filter(|tensor| tensor.is_rebound() || any)
    };
    let mut list = bump.room(marked().count())?;
    marked().for_each(|tensor| list.push(Rebound::new(tensor)));
    Ok(list.finish())
}

/// Maximum temporary memory of one instruction.
fn temp_bytes<'m>(values: Values<'m>, steps: &[Step<'m>], temp: &'m Temp<'m>, report: &mut Report) -> Checked<usize> {
    let mut max_bytes = 0;
    for (i, step) in steps.iter().enumerate() {
        if let Step::Kernel { op, arguments } = *step
            && let Some(bytes) = op.temp_bytes
        {
            let context = KernelContext::sizing(values, arguments, op, temp);
            match bytes(&context) {
                Ok(bytes) => max_bytes = max_bytes.max(bytes),
                Err(error) => {
                    report.error(error);
                    return Err(report.instruction(i, Some(op.name)));
                }
            }
        }
    }
    Ok(max_bytes)
}
