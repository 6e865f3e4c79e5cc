//! Running a loaded method: binding inputs, the instruction loop, reading outputs.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ptr::NonNull;

use rushlight_format::ScalarType;
use rushlight_format::pte::ShapeDynamism;
use rushlight_format::shapes::{Rule, Shapes};

use crate::context::{DelegateContext, KernelContext};
#[cfg(feature = "alloc")]
use crate::delegate::{Call, CallBuffers, CallStates, States};
use crate::error::{Detail, Error, Result, Role};
#[cfg(feature = "alloc")]
use crate::events::DelegateEvents;
use crate::events::{Event, EventTracer};
use crate::fault::{Checked, Fault, Kind, Report, Reported, Shortage};
use crate::interrupt::Interrupts;
use crate::io::{Input, Output, OutputBuffer, TensorView};
use crate::memory::{Hold, SharedRef, bind_borrowed};
#[cfg(feature = "alloc")]
use crate::step::Phase;
use crate::step::{Loaded, Step};
use crate::strided;
use crate::tensor::{Access, Tensor, TensorState};
use crate::value::EValue;

/// Maximum instructions of one execution, as in ExecuTorch. It stops endless loops.
pub const MAX_INSTRUCTIONS: u32 = 10_000_000;

/// The parts of a method that an execution borrows.
pub(crate) struct Borrowed<'r, 'm> {
    pub(crate) loaded: &'r mut Loaded<'m>,
    pub(crate) shared: Option<&'r SharedRef<'m>>,
}

/// An execution in progress: inputs are bound, and instructions run one by one or all together.
pub struct Execution<'r, 'm> {
    pub(crate) loaded: &'r mut Loaded<'m>,
    _hold: Option<Hold<'r>>,
    pub(crate) next: usize,
    pub(crate) executed: u32,
    #[cfg(feature = "alloc")]
    pub(crate) phase: Phase,
    /// The states that this execution uses; `None` for the method's own.
    #[cfg(feature = "alloc")]
    pub(crate) states: Option<&'r mut States>,
}

impl<'r, 'm> Execution<'r, 'm> {
    pub(crate) fn start(
        method: Borrowed<'r, 'm>,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
    ) -> Result<Self> {
        let execution = Self::hold(method)?;
        execution.bind_all(inputs, outputs)?;
        Ok(execution)
    }

    /// Like [`start`](Self::start), with states of the caller's instead of the method's own.
    #[cfg(feature = "alloc")]
    pub(crate) fn start_in(
        method: Borrowed<'r, 'm>,
        states: &'r mut States,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
    ) -> Result<Self> {
        let mut execution = Self::start(method, inputs, outputs)?;
        execution.states = Some(states);
        Ok(execution)
    }

    /// [`start`](Self::start) and [`finish_traced`](Self::finish_traced) in one, without a move of the execution in between.
    pub(crate) fn whole(
        method: Borrowed<'r, 'm>,
        inputs: &[Input<'r>],
        outputs: &mut [OutputBuffer<'r>],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Outputs<'r, 'm>> {
        let mut execution = Self::hold(method)?;
        let done = execution.bind_all(inputs, outputs).and_then(|()| execution.run(tracer));
        done.map(|()| Outputs { execution })
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn hold(method: Borrowed<'r, 'm>) -> Result<Self> {
        let Borrowed { loaded, shared } = method;
        let hold = shared.map(SharedRef::hold).transpose()?;
        release(loaded);
        Ok(Self {
            loaded,
            _hold: hold,
            next: 0,
            executed: 0,
            #[cfg(feature = "alloc")]
            phase: Phase::Fresh,
            #[cfg(feature = "alloc")]
            states: None,
        })
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn bind_all(&self, inputs: &[Input<'r>], outputs: &mut [OutputBuffer<'r>]) -> Result<()> {
        let mut report = Report::new();
        self.bind(inputs, outputs, &mut report).map_err(|Reported| report.take(Shortage::default()))
    }

    fn bind(&self, inputs: &[Input<'r>], outputs: &mut [OutputBuffer<'r>], report: &mut Report) -> Checked<()> {
        let expected = self.loaded.inputs.len();
        if inputs.len() != expected {
            return Err(report.fault(Fault::Inputs, expected, inputs.len()));
        }
        for (i, input) in inputs.iter().enumerate() {
            if self.bind_input(i, input, report).is_err() {
                return Err(report.at(Role::Input, i));
            }
        }
        if !cfg!(target_os = "none")
            && let Some(shapes) = self.loaded.shapes
        {
            check_shapes(shapes, inputs, report)?;
        }
        for output in outputs {
            if self.bind_output(output, report).is_err() {
                return Err(report.at(Role::Output, output.index));
            }
        }
        Ok(())
    }

    #[cfg_attr(target_os = "none", inline(never))]
    fn bind_input(&self, index: usize, input: &Input<'r>, report: &mut Report) -> Checked<()> {
        let Some(value) = self.loaded.value_of(self.loaded.inputs, index) else {
            return Err(report.plain(Fault::UnknownInput));
        };
        if let EValue::Tensor(state) = value {
            let writable_view;
            // The view is not copied: a copy of its padding would stall on store forwarding.
            let (view, writable) = match input {
                Input::Tensor(view) => (view, None),
                Input::TensorMut(input) => {
                    writable_view = input.view();
                    (&writable_view, Some(input.start()))
                }
                input => return Err(report.detail(Detail::Kind { expected: Kind::Tensor, got: input.kind() })),
            };
            return self.bind_tensor(index, state, view, writable, report);
        }
        let is_same = match (value, input) {
            (EValue::Int(expected), Input::Int(got)) => expected == *got,
            (EValue::Double(expected), Input::Double(got)) => is_close(expected, *got),
            (EValue::Bool(expected), Input::Bool(got)) => expected == *got,
            (EValue::String(expected), Input::String(got)) => expected == *got,
            (EValue::None, Input::None) => true,
            (value, input) => {
                let expected = Some(value.kind()).filter(|kind| *kind <= Kind::Tensor).unwrap_or(Kind::Input);
                return Err(report.detail(Detail::Kind { expected, got: input.kind() }));
            }
        };
        if is_same { Ok(()) } else { Err(report.plain(Fault::FixedInput)) }
    }

    /// Binds or copies the data of `view`, which is borrowed for 'r. `writable` is its address if it is borrowed mutably.
    #[inline]
    fn bind_tensor(
        &self,
        index: usize,
        state: &'m TensorState<'m>,
        view: &TensorView<'_>,
        writable: Option<NonNull<u8>>,
        report: &mut Report,
    ) -> Checked<()> {
        check_input(state, view, report)?;
        if state.access != Access::Bound {
            return view.copy_to(state).ok_or_else(|| report.plain(Fault::NoMemory));
        }
        if writable.is_none() && self.loaded.input_written.get(index) == Some(&true) {
            return Err(report.plain(Fault::WrittenInput));
        }
        if !strided::is_dense(view.sizes, view.strides, state.strides()) {
            return Err(report.plain(Fault::InputStrides));
        }
        let start = writable.unwrap_or(NonNull::from(view.data).cast());
        // SAFETY: the data is borrowed for 'r, which outlives this execution and its outputs. Both release the binding
        // when they are dropped. If they are leaked, the next execution releases it before it runs anything.
        unsafe { bind_borrowed(state, start, state.nbytes(), report) }
    }

    fn bind_output(&self, output: &mut OutputBuffer<'r>, report: &mut Report) -> Checked<()> {
        let outputs = self.loaded.outputs;
        let Some(value) = self.loaded.value_of(outputs, output.index) else {
            return Err(report.detail(Detail::Index { index: output.index as i64, size: outputs.len() }));
        };
        let EValue::Tensor(state) = value else {
            return Err(report.detail(Detail::Kind { expected: Kind::Tensor, got: value.kind() }));
        };
        if state.access != Access::Bound || state.memory().is_some() {
            return Err(report.plain(Fault::OutputHasMemory));
        }
        if output.data.len() < state.bound {
            return Err(report.fault(Fault::OutputMemory, state.bound, output.data.len()));
        }
        // SAFETY: as for inputs; the data is borrowed mutably for 'r.
        unsafe { bind_borrowed(state, NonNull::from(&mut *output.data).cast(), output.data.len(), report) }
    }

    /// Index of the instruction that runs next; `None` after the last.
    pub fn next_instruction(&self) -> Option<usize> {
        Some(self.next).filter(|&next| next < self.loaded.steps.len())
    }

    /// Runs one instruction. False if there was none left.
    pub fn step(&mut self) -> Result<bool> {
        self.step_traced(&mut ())
    }

    /// Runs one instruction and reports it to `tracer`. False if there was none left.
    #[inline]
    pub fn step_traced(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<bool> {
        self.take_step(tracer)
    }

    /// Inlined into the loop of instructions: a call would cost about as much as the smallest operators.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn take_step(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<bool> {
        let index = self.next;
        let Some(step) = self.loaded.steps.get(index) else { return Ok(false) };
        if self.executed == MAX_INSTRUCTIONS {
            return Err(Error::from(Fault::EndlessLoop).instruction(index, None));
        }
        if let Err(error) = Interrupts(tracer.interrupt()).check(index, self.loaded.steps.len()) {
            return Err(self.stopped(index, error));
        }
        self.executed += 1;
        self.next = index + 1;
        let step = *step;
        self.run_step(step, index, tracer)?;
        Ok(true)
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub(crate) fn run_step(
        &mut self,
        step: Step<'m>,
        index: usize,
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<()> {
        let values = self.loaded.values;
        match step {
            Step::Kernel { op, arguments } => {
                let event = Event::Operator { instruction: index, operator: op.name };
                tracer.begin(event);
                let context = KernelContext::new(values, arguments, op, self.loaded.temp);
                (op.kernel)(&context).map_err(|e| e.instruction(index, Some(op.name)))?;
                drop(context);
                tracer.end(event);
                if tracer.wants_tensors() {
                    trace_written(values, arguments, |i| op.writes_argument(i), index, tracer);
                }
            }
            Step::Delegate { delegate, arguments } => self.run_delegate(index, delegate, arguments, tracer)?,
            Step::Move { from, to } => {
                tracer.begin(Event::Move { instruction: index });
                if let (Some(from), Some(to)) = (values.get(from as usize), values.get(to as usize)) {
                    set(to, from.get());
                }
                tracer.end(Event::Move { instruction: index });
            }
            Step::JumpFalse { condition, destination } => {
                tracer.begin(Event::JumpFalse { instruction: index });
                let condition = values.get(condition as usize).map_or(EValue::None, Cell::get);
                if !is_true(condition).map_err(|e| e.instruction(index, None))? {
                    self.next = destination as usize;
                }
                tracer.end(Event::JumpFalse { instruction: index });
            }
            Step::Free { value } => {
                tracer.begin(Event::Free { instruction: index });
                if let Some(EValue::Tensor(tensor)) = values.get(value as usize).map(Cell::get)
                    && tensor.is_rebound()
                {
                    tensor.unbind();
                }
                tracer.end(Event::Free { instruction: index });
            }
            Step::Nothing => {}
            #[cfg(feature = "alloc")]
            Step::Extended { step } => self.run_extended(index, step, tracer)?,
        }
        Ok(())
    }

    /// Adds the instruction before which an execution stopped to the error.
    #[cold]
    #[inline(never)]
    fn stopped(&self, index: usize, error: Error) -> Error {
        let operator = match self.loaded.steps.get(index) {
            Some(Step::Kernel { op, .. }) => Some(op.name),
            _ => None,
        };
        error.instruction(index, operator)
    }

    #[inline(never)]
    fn run_delegate(
        &mut self,
        index: usize,
        delegate: u32,
        arguments: &'m [u32],
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<()> {
        let (values, taken) = (self.loaded.values, self.loaded.taken);
        let Some(delegate) = self.loaded.delegates.get_mut(delegate) else {
            return Err(Fault::UnknownDelegate.into());
        };
        let event = Event::Delegate { instruction: index, id: delegate.id };
        tracer.begin(event);
        let context = DelegateContext::new(values, arguments, delegate.outputs, taken);
        let interrupts = Interrupts(tracer.interrupt());
        let handle = delegate.handle.get();
        let done = match tracer.delegate_events() {
            #[cfg(feature = "alloc")]
            Some(events) => handle.call(&mut Call {
                context,
                states: CallStates { backend: delegate.id, slots: &mut [], states: None },
                buffers: CallBuffers { places: &[], values: &mut [] },
                interrupts,
                events: DelegateEvents(Some(events)),
            }),
            _ => handle.execute_until(&context, interrupts),
        };
        done.map_err(|e| e.instruction(index, None))?;
        tracer.end(event);
        if tracer.wants_tensors() {
            let first = arguments.len() - delegate.outputs;
            trace_written(values, arguments, |i| i >= first, index, tracer);
        }
        Ok(())
    }

    /// Runs the remaining instructions.
    pub fn finish(self) -> Result<Outputs<'r, 'm>> {
        self.finish_traced(&mut ())
    }

    /// Runs the remaining instructions and reports them to `tracer`.
    pub fn finish_traced(mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Outputs<'r, 'm>> {
        self.run(tracer)?;
        Ok(Outputs { execution: self })
    }

    #[cfg_attr(not(target_os = "none"), inline(always))]
    fn run(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<()> {
        let event = Event::Execute { method: self.loaded.plan.name() };
        tracer.begin(event);
        while self.take_step(tracer)? {}
        tracer.end(event);
        Ok(())
    }
}

impl Drop for Execution<'_, '_> {
    fn drop(&mut self) {
        release(self.loaded);
    }
}

impl core::fmt::Debug for Execution<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Execution").field("next", &self.next).finish_non_exhaustive()
    }
}

/// The outputs of a finished execution. They are in the method's memory, or in the caller's.
#[derive(Debug)]
pub struct Outputs<'r, 'm> {
    pub(crate) execution: Execution<'r, 'm>,
}

impl Outputs<'_, '_> {
    pub fn len(&self) -> usize {
        self.execution.loaded.outputs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Output `index`.
    pub fn get(&self, index: usize) -> Result<Output<'_>> {
        let loaded = &*self.execution.loaded;
        match loaded.value_of(loaded.outputs, index) {
            None => Err(Detail::Index { index: index as i64, size: self.len() }.into()),
            Some(EValue::Tensor(state)) => state.tensor().map(Output::Tensor).map_err(|e| e.at(Role::Output, index)),
            Some(EValue::Int(v)) => Ok(Output::Int(v)),
            Some(EValue::Double(v)) => Ok(Output::Double(v)),
            Some(EValue::Bool(v)) => Ok(Output::Bool(v)),
            Some(EValue::String(v)) => Ok(Output::String(v)),
            Some(EValue::None) => Ok(Output::None),
            Some(other) => {
                let detail = Detail::Kind { expected: Kind::Output, got: other.kind() };
                Err(Error::from(detail).at(Role::Output, index))
            }
        }
    }

    /// Output `index`, which must be a tensor.
    pub fn tensor(&self, index: usize) -> Result<Tensor<'_>> {
        let loaded = &*self.execution.loaded;
        match loaded.value_of(loaded.outputs, index) {
            Some(EValue::Tensor(state)) => state.tensor().map_err(|e| e.at(Role::Output, index)),
            _ => Err(Error::from(Fault::NotATensor).at(Role::Output, index)),
        }
    }
}

impl<'m> Loaded<'m> {
    fn value_of(&self, list: &[u32], index: usize) -> Option<EValue<'m>> {
        list.get(index).and_then(|&value| self.values.get(value as usize)).map(Cell::get)
    }
}

/// Unbinds the caller's memory from the method, and binds the outputs of views to their own memory again.
fn release(loaded: &Loaded<'_>) {
    for rebound in loaded.rebound {
        rebound.restore();
    }
}

/// Reports the tensors that an instruction wrote to `tracer`.
pub(crate) fn trace_written(
    values: crate::value::Values<'_>,
    arguments: &[u32],
    writes: impl Fn(usize) -> bool,
    instruction: usize,
    tracer: &mut (impl EventTracer + ?Sized),
) {
    let value = |index: u32| values.get(index as usize).map_or(EValue::None, Cell::get);
    for (i, &argument) in arguments.iter().enumerate().filter(|(i, _)| writes(*i)) {
        match value(argument) {
            EValue::Tensor(state) => {
                if let Ok(tensor) = state.tensor() {
                    tracer.tensor(instruction, i, tensor);
                }
            }
            EValue::TensorList(items) => {
                for &item in items {
                    if let EValue::Tensor(state) = value(item)
                        && let Ok(tensor) = state.tensor()
                    {
                        tracer.tensor(instruction, i, tensor);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Not inlined: as a parameter, `value` is known not to overlap the slot.
#[inline(never)]
fn set<'m>(slot: &Cell<EValue<'m>>, value: EValue<'m>) {
    slot.set(value);
}

/// ExecuTorch's tolerance for doubles that were fixed at export. Bare-metal targets demand the same bits: arithmetic on
/// doubles would take a tenth of the runtime's code there.
fn is_close(a: f64, b: f64) -> bool {
    if cfg!(target_os = "none") {
        return a.to_bits() == b.to_bits();
    }
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-4 + 1e-5 * b.abs()
}

/// Returns the value of a condition: a bool, or a bool tensor, which is true if all of its elements are.
fn is_true(value: EValue<'_>) -> Result<bool> {
    match value {
        EValue::Bool(v) => Ok(v),
        EValue::Tensor(state) if state.dtype == ScalarType::Bool => {
            Ok(state.tensor()?.bytes().iter().all(|&byte| byte != 0))
        }
        other => Err(Detail::Kind { expected: Kind::Condition, got: other.kind() }.into()),
    }
}

/// Checks the program's rules about the sizes of its inputs.
#[inline(never)]
fn check_shapes(shapes: Shapes<'_>, inputs: &[Input<'_>], report: &mut Report) -> Checked<()> {
    let size = |input: u16, dim: u8| {
        let sizes = inputs.get(usize::from(input))?.sizes()?;
        sizes.get(usize::from(dim)).map(|&size| size as u64)
    };
    let Some((index, rule)) = shapes.broken(&size) else { return Ok(()) };
    let got = rule.place().and_then(|place| size(place.input, place.dim)).unwrap_or(0) as usize;
    match rule {
        Rule::Fixed { place, size } => {
            report.detail(Detail::Size { dim: usize::from(place.dim), expected: size as usize, got })
        }
        _ => report.fault(Fault::SizeRule, index, got),
    };
    Err(match rule.place() {
        Some(place) => report.at(Role::Input, usize::from(place.input)),
        None => Reported,
    })
}

/// Checks type, rank and bounds of an input, and sets the tensor's sizes to the input's.
fn check_input(state: &TensorState<'_>, view: &TensorView<'_>, report: &mut Report) -> Checked<()> {
    if view.dtype != state.dtype {
        return Err(report.detail(Detail::ElementType { expected: state.dtype, got: view.dtype }));
    }
    if view.sizes.len() != state.rank() {
        return Err(report.fault(Fault::InputRank, state.rank(), view.sizes.len()));
    }
    let is_static = state.dynamism == ShapeDynamism::Static;
    let mut nbytes = state.dtype.size();
    for (dim, (&got, &bound)) in view.sizes.iter().zip(state.bounds()).enumerate() {
        if is_static && got != bound {
            return Err(report.detail(Detail::Size { dim, expected: bound, got }));
        }
        if got > bound {
            return Err(report.detail(Detail::Bound { dim, bound, got }));
        }
        // The sizes are at most the bounds, whose product was checked.
        nbytes = nbytes.wrapping_mul(got);
    }
    if !is_static {
        state.set_sizes(view.sizes, nbytes);
    }
    Ok(())
}
