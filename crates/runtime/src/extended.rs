//! Methods whose delegates use more than host slices: state, device memory, asynchronous completion.
//!
//! At load, [`extend`] replaces the steps that use any of these by [`Step::Extended`], which refers to the tables in
//! this module. All other steps run as before. For each tensor that a delegate has in device memory, the module tracks
//! which copies are current: the host's, and one on each device.
//!
//! A step has three phases. It updates the copies that it reads, runs, and marks the copies that it did not write as
//! outdated. Each phase can be pending; the next poll resumes it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::task::Poll;

use rushlight_format::pte::{self, Instruction, Plan, TensorStorage};

use crate::alias;
use crate::context::DelegateContext;
use crate::delegate::buffer::{DeviceCopy, Place, PlacedValue};
use crate::delegate::state::{StateSlot, States};
use crate::delegate::{Call, CallBuffers, CallStates, MemoryKind};
use crate::error::{Error, Result, Role};
use crate::events::{DelegateEvents, Event, EventTracer};
use crate::execution::{Execution, MAX_INSTRUCTIONS, Outputs, trace_written};
use crate::fault::{Checked, Fault, Report};
use crate::interrupt::Interrupts;
use crate::memory::Bump;
use crate::step::{Delegates, Extended, ExtendedStep, Loaded, Phase, Step};
use crate::tensor::Access;
use crate::value::{ABSENT, EValue, Values, tensor};

/// Returns `Pending` from the function unless the operation is complete.
macro_rules! ready {
    ($poll:expr) => {
        if $poll?.is_pending() {
            return Ok(Poll::Pending);
        }
    };
}

impl<'m> Extended<'m> {
    /// Begins an execution: marks the device copies of the last one as outdated, and abandons its pending work.
    fn begin(&mut self, delegates: &mut Delegates<'m>) {
        self.abandon(delegates);
        for placed in self.placed.iter_mut().filter(|placed| !placed.is_constant) {
            placed.host_is_current = true;
            placed.copies.iter_mut().for_each(|copy| copy.is_current = false);
        }
    }

    /// Abandons all pending work.
    fn abandon(&mut self, delegates: &mut Delegates<'m>) {
        if let Some(device) = self.device_in_flight(delegates) {
            device.cancel();
        }
        self.in_flight = None;
        for copy in self.placed.iter_mut().flat_map(|placed| &mut placed.copies).filter(|copy| copy.is_reading) {
            copy.is_reading = false;
            copy.buffer.cancel_read();
        }
    }

    fn device_in_flight<'d>(
        &self,
        delegates: &'d mut Delegates<'m>,
    ) -> Option<&'d mut (dyn crate::delegate::DeviceDelegate + 'd)> {
        delegates.get_mut(self.in_flight?)?.handle.get().device()
    }

    /// Waits until the pending work may continue.
    fn wait(&mut self, delegates: &mut Delegates<'m>) -> Result<()> {
        if let Some(device) = self.device_in_flight(delegates) {
            return device.wait();
        }
        let mut copies = self.placed.iter_mut().flat_map(|placed| &mut placed.copies);
        copies.find(|copy| copy.is_reading).map_or(Ok(()), |copy| copy.buffer.wait())
    }
}

impl PlacedValue {
    /// Updates the host's memory.
    fn download(
        &mut self,
        values: Values<'_>,
        instruction: usize,
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Poll<()>> {
        let (false, Some(tensor)) = (self.host_is_current, tensor(values, self.value)) else {
            return Ok(Poll::Ready(()));
        };
        let Some(copy) = self.copies.iter_mut().find(|copy| copy.is_current) else {
            return Ok(Poll::Ready(()));
        };
        let bytes = copy.checked(tensor.nbytes())?;
        let event = Event::Copy { instruction, bytes, from: MemoryKind::Device(copy.device), to: MemoryKind::Host };
        if !copy.is_reading {
            copy.is_reading = true;
            tracer.begin(event);
        }
        // Nothing else accesses a tensor between two steps.
        ready!(copy.buffer.read(tensor.tensor_mut()?.bytes_mut()));
        copy.is_reading = false;
        self.host_is_current = true;
        tracer.end(event);
        Ok(Poll::Ready(()))
    }

    /// Updates a copy on a device.
    fn upload(
        &mut self,
        copy: u32,
        values: Values<'_>,
        instruction: usize,
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Poll<()>> {
        if self.copies.get(copy as usize).is_some_and(|copy| copy.is_current) {
            return Ok(Poll::Ready(()));
        }
        ready!(self.download(values, instruction, tracer));
        let (Some(copy), Some(tensor)) = (self.copies.get_mut(copy as usize), tensor(values, self.value)) else {
            return Err(Fault::NoBuffer.into());
        };
        let bytes = copy.checked(tensor.nbytes())?;
        let event = Event::Copy { instruction, bytes, from: MemoryKind::Host, to: MemoryKind::Device(copy.device) };
        tracer.begin(event);
        copy.buffer.write(tensor.tensor()?.bytes())?;
        tracer.end(event);
        copy.is_current = true;
        Ok(Poll::Ready(()))
    }

    /// Marks one copy as current, and all others as outdated: that with index `written`, or the host's if it is `None`.
    fn mark_written(&mut self, written: Option<u32>) {
        self.host_is_current = written.is_none();
        for (index, copy) in self.copies.iter_mut().enumerate() {
            copy.is_current = written == Some(index as u32);
        }
    }
}

/// Downloads the outputs of a delegate that are pinned or that the tracer wants. Marks the device copies of all pinned
/// arguments as outdated, because others may write the host's memory.
fn download_outputs(
    step: &ExtendedStep<'_>,
    placed: &mut [PlacedValue],
    first_output: usize,
    values: Values<'_>,
    instruction: usize,
    tracer: &mut (impl EventTracer + ?Sized),
) -> Result<Poll<()>> {
    for place in step.places.iter().skip(first_output).flatten() {
        if let Some(placed) = placed.get_mut(place.value as usize)
            && (placed.is_pinned || tracer.wants_tensors())
        {
            ready!(placed.download(values, instruction, tracer));
        }
    }
    for place in step.places.iter().flatten() {
        if let Some(placed) = placed.get_mut(place.value as usize)
            && placed.is_pinned
        {
            placed.mark_written(None);
        }
    }
    Ok(Poll::Ready(()))
}

impl DeviceCopy {
    /// Returns `bytes` if they fit the buffer. A move can give a value a larger tensor than it had at load.
    fn checked(&self, bytes: usize) -> Result<usize> {
        let room = self.buffer.len();
        if bytes <= room { Ok(bytes) } else { Err(Error::fault(Fault::ShortBuffer, bytes, room)) }
    }
}

impl<'r, 'm> Execution<'r, 'm> {
    /// Runs an extended step to its end.
    #[inline(never)]
    pub(crate) fn run_extended(
        &mut self,
        index: usize,
        step: u32,
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<()> {
        loop {
            let result = self.poll_extended(index, step, tracer).and_then(|poll| {
                if poll.is_pending() {
                    Interrupts(tracer.interrupt()).check(index, self.loaded.steps.len())?;
                    let Loaded { extended, delegates, .. } = &mut *self.loaded;
                    extended.as_mut().map_or(Ok(()), |extended| extended.wait(delegates))?;
                }
                Ok(poll)
            });
            match result {
                Ok(Poll::Ready(())) => return Ok(()),
                Ok(Poll::Pending) => {}
                Err(error) => {
                    self.abandon();
                    return Err(error.instruction(index, error.site.operator));
                }
            }
        }
    }

    /// Abandons all pending work. Instructions that still run read the host's memory.
    fn abandon(&mut self) {
        self.phase = Phase::Fresh;
        let Loaded { extended, delegates, .. } = &mut *self.loaded;
        if let Some(extended) = extended {
            extended.abandon(delegates);
        }
    }

    /// Starts the tracking of extended steps, unless one ran already.
    pub(crate) fn begin_extended(&mut self) {
        if self.phase == Phase::Fresh
            && let Loaded { extended: Some(extended), delegates, .. } = &mut *self.loaded
        {
            extended.begin(delegates);
            self.phase = Phase::Inputs;
        }
    }

    /// Continues the extended step `at`, which is instruction `index`.
    fn poll_extended(&mut self, index: usize, at: u32, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Poll<()>> {
        self.begin_extended();
        let Loaded { extended, delegates, values, taken, .. } = &mut *self.loaded;
        let (values, taken) = (*values, *taken);
        let Some(extended) = extended.as_deref_mut() else { return Err(Fault::Changed.into()) };
        let Extended { steps, placed, states, in_flight } = extended;
        let Some(step) = steps.get_mut(at as usize) else { return Err(Fault::Changed.into()) };
        if self.phase == Phase::Inputs {
            for &read in &step.reads {
                if let Some(placed) = placed.get_mut(read as usize) {
                    ready!(placed.download(values, index, tracer));
                }
            }
        }
        let Step::Delegate { delegate: callee, arguments } = step.plain else {
            let plain = step.plain;
            return self.run_on_host(index, at, plain, tracer);
        };
        let Some(delegate) = delegates.get_mut(callee) else { return Err(Fault::UnknownDelegate.into()) };
        let first_output = arguments.len().saturating_sub(delegate.outputs);
        let event = Event::Delegate { instruction: index, id: delegate.id };
        if self.phase == Phase::Inputs {
            for &place in step.places.iter().take(first_output).flatten() {
                if let Some(placed) = placed.get_mut(place.value as usize) {
                    ready!(placed.upload(place.copy, values, index, tracer));
                }
            }
            tracer.begin(event);
        }
        if matches!(self.phase, Phase::Inputs | Phase::Submitted) {
            let mut call = Call {
                context: DelegateContext::new(values, arguments, delegate.outputs, taken),
                states: CallStates {
                    backend: delegate.id,
                    slots: &mut step.slots,
                    states: Some(self.states.as_deref_mut().unwrap_or(states)),
                },
                buffers: CallBuffers { places: &step.places, values: placed },
                interrupts: Interrupts(tracer.interrupt()),
                events: DelegateEvents(tracer.delegate_events()),
            };
            let handle = delegate.handle.get();
            if let Some(device) = handle.device() {
                if self.phase == Phase::Inputs {
                    device.submit(&mut call)?;
                    *in_flight = Some(callee);
                    self.phase = Phase::Submitted;
                    // A new context, so that `poll` can take the outputs again.
                    call.context = DelegateContext::new(values, arguments, delegate.outputs, taken);
                }
                ready!(device.poll(&mut call));
                *in_flight = None;
            } else {
                handle.call(&mut call)?;
            }
            tracer.end(event);
            for &write in &step.writes {
                placed.get_mut(write as usize).into_iter().for_each(|placed| placed.mark_written(None));
            }
            for place in step.places.iter().skip(first_output).flatten() {
                placed
                    .get_mut(place.value as usize)
                    .into_iter()
                    .for_each(|placed| placed.mark_written(Some(place.copy)));
            }
            self.phase = Phase::Outputs;
        }
        ready!(download_outputs(step, placed, first_output, values, index, tracer));
        if tracer.wants_tensors() {
            trace_written(values, arguments, |i| i >= first_output, index, tracer);
        }
        self.phase = Phase::Inputs;
        Ok(Poll::Ready(()))
    }

    /// Runs a step on the host. Its operands must be up to date there.
    fn run_on_host(
        &mut self,
        index: usize,
        step: u32,
        plain: Step<'m>,
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Poll<()>> {
        self.run_step(plain, index, tracer)?;
        if let Some(Extended { steps, placed, .. }) = self.loaded.extended.as_deref_mut() {
            for &write in steps.get(step as usize).map(|step| &step.writes[..]).unwrap_or_default() {
                placed.get_mut(write as usize).into_iter().for_each(|placed| placed.mark_written(None));
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Runs the remaining instructions until one would wait. Poll the result to run the others.
    pub fn submit(self) -> Result<Submission<'r, 'm>> {
        self.submit_traced(&mut ())
    }

    /// Like [`submit`](Self::submit), and reports events to `tracer`.
    pub fn submit_traced(self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Submission<'r, 'm>> {
        tracer.begin(Event::Execute { method: self.loaded.plan.name() });
        let mut submission = Submission { execution: Some(self), failed: None, is_complete: false };
        let _ = submission.poll_traced(tracer)?;
        Ok(submission)
    }

    /// Continues the current instruction. Ready with false if no instruction is left.
    fn poll_step(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Poll<bool>> {
        let index = self.next;
        let Some(&Step::Extended { step }) = self.loaded.steps.get(index) else {
            return self.step_traced(tracer).map(Poll::Ready);
        };
        if self.executed == MAX_INSTRUCTIONS {
            return Err(Error::from(Fault::EndlessLoop).instruction(index, None));
        }
        let stopped = Interrupts(tracer.interrupt()).check(index, self.loaded.steps.len());
        stopped.map_err(|error| error.instruction(index, None))?;
        self.next = index + 1;
        match self.poll_extended(index, step, tracer) {
            Ok(Poll::Ready(())) => {
                self.executed += 1;
                Ok(Poll::Ready(true))
            }
            Ok(Poll::Pending) => {
                self.next = index;
                Ok(Poll::Pending)
            }
            Err(error) => Err(error.instruction(index, error.site.operator)),
        }
    }
}

/// A submitted execution: [`poll`](Self::poll) it until it is ready, then take the outputs with
/// [`complete`](Self::complete). Between polls the host may do anything else. Dropping it cancels the incomplete work.
#[derive(Debug)]
pub struct Submission<'r, 'm> {
    /// `None` after its completion.
    execution: Option<Execution<'r, 'm>>,
    failed: Option<Error>,
    is_complete: bool,
}

impl<'r, 'm> Submission<'r, 'm> {
    /// Continues as far as possible without waiting. Ready when all outputs are available. After an error it returns
    /// that error again.
    pub fn poll(&mut self) -> Result<Poll<()>> {
        self.poll_traced(&mut ())
    }

    /// Like [`poll`](Self::poll), and reports events to `tracer`, which may stop the execution.
    pub fn poll_traced(&mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Poll<()>> {
        self.advance(tracer, Execution::poll_step)
    }

    /// Waits until the execution is complete, which takes no time after [`poll`](Self::poll) was ready.
    pub fn complete(self) -> Result<Outputs<'r, 'm>> {
        self.complete_traced(&mut ())
    }

    /// Like [`complete`](Self::complete), and reports events to `tracer`.
    pub fn complete_traced(mut self, tracer: &mut (impl EventTracer + ?Sized)) -> Result<Outputs<'r, 'm>> {
        let _ = self.advance(tracer, |execution, tracer| execution.step_traced(tracer).map(Poll::Ready))?;
        match self.execution.take() {
            Some(execution) => Ok(Outputs { execution }),
            None => Err(Fault::Abandoned.into()),
        }
    }

    /// Runs steps until one is pending or none is left.
    fn advance<T: EventTracer + ?Sized>(
        &mut self,
        tracer: &mut T,
        step: impl Fn(&mut Execution<'r, 'm>, &mut T) -> Result<Poll<bool>>,
    ) -> Result<Poll<()>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Some(execution) = &mut self.execution else { return Err(Fault::Abandoned.into()) };
        while !self.is_complete {
            match step(execution, tracer) {
                Ok(Poll::Ready(true)) => {}
                Ok(Poll::Ready(false)) => {
                    self.is_complete = true;
                    tracer.end(Event::Execute { method: execution.loaded.plan.name() });
                }
                Ok(Poll::Pending) => return Ok(Poll::Pending),
                Err(error) => {
                    execution.abandon();
                    self.failed = Some(error);
                    return Err(error);
                }
            }
        }
        Ok(Poll::Ready(()))
    }
}

impl Drop for Submission<'_, '_> {
    fn drop(&mut self) {
        if let Some(execution) = &mut self.execution {
            execution.abandon();
        }
    }
}

/// The parts of a method that is being loaded.
pub(crate) struct Parts<'a, 'm> {
    pub(crate) plan: &'a Plan<'m>,
    pub(crate) values: Values<'m>,
    pub(crate) inputs: &'m [u32],
    pub(crate) outputs: &'m [u32],
    pub(crate) without_states: bool,
}

/// Finds the steps that use states, device memory or asynchronous completion, allocates their buffers and states, and
/// replaces them. `None` if there are no such steps.
#[inline(never)]
pub(crate) fn extend<'m>(
    parts: Parts<'_, 'm>,
    steps: &mut [Step<'m>],
    delegates: &mut Delegates<'m>,
    bump: &mut Bump<'m>,
    report: &mut Report,
) -> Checked<Option<Box<Extended<'m>>>> {
    let is_extended =
        |delegate: &mut dyn crate::delegate::Delegate| delegate.device().is_some() || delegate.state(0).is_some();
    let count = delegates.len() as u32;
    if !(0..count).any(|i| delegates.get_mut(i).is_some_and(|delegate| is_extended(delegate.handle.get()))) {
        return Ok(None);
    }
    let states = states(&parts, delegates, bump, report)?;
    let mut builder = Builder { positions: vec![ABSENT; parts.values.len()], placed: Vec::new(), parts, bump, report };
    let mut places = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        places.push(builder.places(index, step, delegates)?);
    }
    builder.pin(steps, delegates);
    let mut extended = Vec::new();
    for (index, (step, places)) in steps.iter_mut().zip(places).enumerate() {
        let (reads, writes) = builder.on_host(step, &places, delegates, index);
        let delegate = match *step {
            Step::Delegate { delegate, .. } => delegates.get_mut(delegate),
            _ => None,
        };
        let mut slots = None;
        if let Some(delegate) = delegate
            && is_extended(delegate.handle.get())
        {
            slots = Some(StateSlot::of(delegate.handle.get()));
        }
        if slots.is_none() && reads.is_empty() && writes.is_empty() {
            continue;
        }
        let plain = core::mem::replace(step, Step::Extended { step: extended.len() as u32 });
        extended.push(ExtendedStep { plain, reads, writes, places, slots: slots.unwrap_or_default() });
    }
    let placed = builder.placed.into_iter().map(|placing| placing.placed).collect();
    Ok(Some(Box::new(Extended { steps: extended, placed, states, in_flight: None })))
}

/// Makes the method's own states, within its memory limit.
fn states(
    parts: &Parts<'_, '_>,
    delegates: &mut Delegates<'_>,
    bump: &mut Bump<'_>,
    report: &mut Report,
) -> Checked<States> {
    let mut states = States::with_limit(bump.limit());
    let count = if parts.without_states { 0 } else { delegates.len() as u32 };
    for index in 0..count {
        let Some(delegate) = delegates.get_mut(index) else { continue };
        if let Err(error) = states.add(delegate.id, delegate.handle.get()) {
            report.error(error);
            return Err(report.at(Role::Delegate, index as usize));
        }
    }
    bump.charge(states.size()).map_err(|error| report.error(error))?;
    Ok(states)
}

/// A value that gets buffers, with the program's use of it.
struct Placing {
    placed: PlacedValue,
    /// True if a device writes it.
    is_written_by_device: bool,
    /// True once an access was found. If the first access reads the value, it is kept from one execution to the next.
    is_accessed: bool,
}

struct Builder<'a, 'b, 'm> {
    parts: Parts<'a, 'm>,
    /// For each value its position in `placed`, or [`ABSENT`].
    positions: Vec<u32>,
    placed: Vec<Placing>,
    bump: &'b mut Bump<'m>,
    report: &'b mut Report,
}

impl<'m> Builder<'_, '_, 'm> {
    /// Allocates the buffers of a delegate's arguments and returns their places.
    fn places(&mut self, index: usize, step: &Step<'m>, delegates: &mut Delegates<'m>) -> Checked<Vec<Option<Place>>> {
        let Step::Delegate { delegate, arguments } = *step else { return Ok(Vec::new()) };
        let outputs = delegates.outputs(delegate);
        let delegate = delegates.get_mut(delegate).map(|delegate| delegate.handle.get());
        let Some(delegate) = delegate else { return Ok(Vec::new()) };
        let Some(device) = delegate.device() else { return Ok(Vec::new()) };
        let mut places = Vec::with_capacity(arguments.len());
        for (argument, &value) in arguments.iter().enumerate() {
            let (MemoryKind::Device(id), Some(tensor)) = (device.memory(argument), tensor(self.parts.values, value))
            else {
                places.push(None);
                continue;
            };
            let Some(position) = self.positions.get_mut(value as usize) else {
                places.push(None);
                continue;
            };
            if *position == ABSENT {
                *position = self.placed.len() as u32;
                let is_constant = tensor.access == Access::ReadOnly;
                let placed =
                    PlacedValue { value, copies: Vec::new(), host_is_current: true, is_pinned: false, is_constant };
                self.placed.push(Placing { placed, is_written_by_device: false, is_accessed: false });
            }
            let position = *position;
            let Some(placing) = self.placed.get_mut(position as usize) else { continue };
            placing.is_written_by_device |= argument >= arguments.len().saturating_sub(outputs);
            let copies = &mut placing.placed.copies;
            let copy = match copies.iter().position(|copy| copy.device == id) {
                Some(copy) => copy,
                None => {
                    let bound = tensor.bound;
                    let allocated = self.bump.charge(bound).and_then(|()| device.allocate(bound));
                    let buffer = allocated.and_then(|buffer| match buffer.len() {
                        room if room >= bound => Ok(buffer),
                        room => Err(Error::fault(Fault::ShortBuffer, bound, room)),
                    });
                    let buffer =
                        buffer.map_err(|error| self.report.error(error.instruction(index, None).arg(argument)))?;
                    copies.push(DeviceCopy { device: id, buffer, is_current: false, is_reading: false });
                    copies.len() - 1
                }
            };
            places.push(Some(Place { value: position, copy: copy as u32 }));
        }
        Ok(places)
    }

    fn placing(&mut self, value: u32) -> Option<&mut Placing> {
        let position = *self.positions.get(value as usize)?;
        self.placed.get_mut(position as usize)
    }

    fn pin_value(&mut self, value: u32) {
        if let Some(placing) = self.placing(value) {
            placing.placed.is_pinned = true;
            placing.placed.is_constant = false;
        }
    }

    /// Pins the values whose host memory is also reached through other values, or is kept after the execution.
    fn pin(&mut self, steps: &[Step<'m>], delegates: &mut Delegates<'m>) {
        for value in self.parts.values {
            if let EValue::TensorList(items) | EValue::OptionalTensorList(items) = value.get() {
                items.iter().for_each(|&item| self.pin_value(item));
            }
        }
        // Pins a value that a device writes, if its first access does not.
        let note_access = |builder: &mut Self, value: u32, is_written_by_device: bool| {
            if let Some(placing) = builder.placing(value)
                && !core::mem::replace(&mut placing.is_accessed, true)
                && !is_written_by_device
                && placing.is_written_by_device
            {
                builder.pin_value(value);
            }
        };
        for &input in self.parts.inputs {
            note_access(self, input, false);
        }
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Kernel { arguments, .. } => {
                    if let Some((view, base)) = alias::view(step) {
                        self.pin_value(view);
                        self.pin_value(base);
                    }
                    arguments.iter().for_each(|&argument| note_access(self, argument, false));
                }
                Step::Delegate { delegate, arguments } => {
                    let first_output = arguments.len().saturating_sub(delegates.outputs(delegate));
                    let mut device = delegates.get_mut(delegate).and_then(|delegate| delegate.handle.get().device());
                    for (argument, &value) in arguments.iter().enumerate() {
                        let in_device_memory =
                            device.as_mut().is_some_and(|device| device.memory(argument) != MemoryKind::Host);
                        note_access(self, value, argument >= first_output && in_device_memory);
                    }
                }
                Step::Move { from, to } => {
                    self.pin_value(from);
                    self.pin_value(to);
                }
                Step::Free { value } => self.pin_value(value),
                Step::JumpFalse { condition, .. } => note_access(self, condition, false),
                // An operator was dropped here because its tensors are in the same memory.
                Step::Nothing => {
                    if let Some(Instruction::Kernel { args, .. }) = self.parts.plan.instruction(index) {
                        args.iter().for_each(|argument| self.pin_value(argument));
                    }
                }
                Step::Extended { .. } => {}
            }
        }
        for index in 0..self.placed.len() {
            let value = self.placed[index].placed.value;
            let pte::ValueSpec::Tensor(spec) = self.parts.plan.value(value as usize) else { continue };
            let is_constant = matches!(spec.storage, TensorStorage::Constant { .. } | TensorStorage::External { .. });
            let has_data =
                matches!(spec.storage, TensorStorage::PlannedInit { .. } | TensorStorage::ExternalPlanned { .. });
            if has_data || (!is_constant && spec.fully_qualified_name.is_some()) {
                self.pin_value(value);
            }
        }
    }

    /// Returns the tracked values that a step reads and writes on the host, by their positions in `placed`.
    fn on_host(
        &mut self,
        step: &Step<'m>,
        places: &[Option<Place>],
        delegates: &Delegates<'m>,
        index: usize,
    ) -> (Vec<u32>, Vec<u32>) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut note = |value: u32, is_written: bool| {
            let Some(&position) = self.positions.get(value as usize) else { return };
            let Some(placing) = self.placed.get(position as usize) else { return };
            if placing.placed.is_pinned || placing.placed.is_constant {
                return;
            }
            // A written value counts as read: the step may write only a part of it.
            if placing.is_written_by_device {
                reads.push(position);
            }
            if is_written {
                writes.push(position);
            }
        };
        match *step {
            Step::Kernel { op, arguments } => {
                arguments.iter().enumerate().for_each(|(i, &value)| note(value, op.writes_argument(i)));
            }
            Step::Delegate { delegate, arguments } => {
                let first_output = arguments.len().saturating_sub(delegates.outputs(delegate));
                for (argument, &value) in arguments.iter().enumerate() {
                    if places.get(argument).copied().flatten().is_none() {
                        note(value, argument >= first_output);
                    }
                }
            }
            Step::JumpFalse { condition, .. } => note(condition, false),
            Step::Nothing if index == self.parts.plan.num_instructions() => {
                self.parts.outputs.iter().for_each(|&output| note(output, false));
            }
            _ => {}
        }
        (reads, writes)
    }
}
