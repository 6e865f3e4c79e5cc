//! Executions of one method in several sessions, side by side, so that a delegate gets their calls together.

use alloc::vec::Vec;
use core::cell::Cell;

use crate::context::DelegateContext;
use crate::delegate::state::StateSlot;
use crate::delegate::{Call, CallBuffers, CallStates, States};
use crate::error::{Error, Result};
use crate::events::{DelegateEvents, Event, EventTracer};
use crate::execution::{Execution, MAX_INSTRUCTIONS, Outputs};
use crate::fault::Fault;
use crate::interrupt::Interrupts;
use crate::step::{Loaded, LoadedDelegate, Step};
use crate::value::Values;

impl<'r, 'm> Execution<'r, 'm> {
    /// Runs the remaining instructions of executions of one method, each in a loaded copy of it and with states that are lent
    /// ([`Method::start_in`](crate::Method::start_in)). Where all are at the same call of a delegate in host memory, the
    /// delegate of the first copy gets the calls of all ([`Delegate::call_batch`](crate::Delegate::call_batch)). Everything
    /// else runs in one execution after the other.
    ///
    /// # Errors
    /// The error of the first execution that fails, which ends all; `InvalidArgument` for executions of different methods.
    pub fn finish_batch(
        mut batch: Vec<Self>,
        tracer: &mut (impl EventTracer + ?Sized),
    ) -> Result<Vec<Outputs<'r, 'm>>> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let (name, len) = (first.loaded.plan.name(), first.loaded.steps.len());
        if batch.iter().any(|other| other.loaded.plan.name() != name || other.loaded.steps.len() != len) {
            return Err(Fault::OtherMethod.into());
        }
        let event = Event::Execute { method: name };
        tracer.begin(event);
        while let Some(index) = batch.iter().find_map(Self::next_instruction) {
            let is_same = batch.iter().all(|execution| execution.next == index);
            if !is_same || !call_batch(&mut batch, index, tracer)? {
                for execution in &mut batch {
                    execution.step_traced(tracer)?;
                }
            }
        }
        tracer.end(event);
        Ok(batch.into_iter().map(|execution| Outputs { execution }).collect())
    }

    /// Instruction `index`, if it calls a delegate in host memory.
    fn host_call(&mut self, index: usize) -> Option<HostCall<'_, 'm>> {
        HostCall::of(self.loaded, self.states.as_deref_mut(), index)
    }
}

/// Runs instruction `index` of all executions if it calls a delegate in host memory. Returns false if it does not.
fn call_batch(batch: &mut [Execution<'_, '_>], index: usize, tracer: &mut (impl EventTracer + ?Sized)) -> Result<bool> {
    if !batch.iter_mut().all(|execution| execution.host_call(index).is_some()) {
        return Ok(false);
    }
    for execution in &mut *batch {
        if execution.executed == MAX_INSTRUCTIONS {
            return Err(Error::from(Fault::EndlessLoop).instruction(index, None));
        }
        let stopped = Interrupts(tracer.interrupt()).check(index, execution.loaded.steps.len());
        stopped.map_err(|error| error.instruction(index, None))?;
        execution.begin_extended();
        execution.executed += 1;
        execution.next = index + 1;
    }
    let mut parts = batch.iter_mut().filter_map(|execution| execution.host_call(index));
    let Some(HostCall { delegate, arguments: first }) = parts.next() else { return Ok(false) };
    let (id, outputs) = (delegate.id, delegate.outputs);
    let event = Event::Delegate { instruction: index, id };
    tracer.begin(event);
    let interrupts = Interrupts(tracer.interrupt());
    let mut calls = Vec::with_capacity(parts.size_hint().1.unwrap_or(0) + 1);
    calls.push(first.call(id, outputs, interrupts, DelegateEvents(tracer.delegate_events())));
    calls.extend(parts.map(|part| part.arguments.call(id, outputs, interrupts, DelegateEvents(None))));
    let done = delegate.handle.get().call_batch(&mut calls);
    drop(calls);
    done.map_err(|error| error.instruction(index, None))?;
    tracer.end(event);
    Ok(true)
}

/// A call of a delegate that reads and writes host memory alone.
struct HostCall<'c, 'm> {
    delegate: &'c mut LoadedDelegate<'m>,
    arguments: Arguments<'c, 'm>,
}

struct Arguments<'c, 'm> {
    values: Values<'m>,
    indices: &'m [u32],
    taken: &'m [Cell<usize>],
    slots: &'c mut [StateSlot],
    states: Option<&'c mut States>,
}

impl<'c, 'm> Arguments<'c, 'm> {
    fn call(
        self,
        backend: &'c str,
        outputs: usize,
        interrupts: Interrupts<'c>,
        events: DelegateEvents<'c>,
    ) -> Call<'c, 'm> {
        let Self { values, indices, taken, slots, states } = self;
        Call {
            context: DelegateContext::new(values, indices, outputs, taken),
            states: CallStates { backend, slots, states },
            buffers: CallBuffers { places: &[], values: &mut [] },
            interrupts,
            events,
        }
    }
}

impl<'c, 'm> HostCall<'c, 'm> {
    /// Instruction `index` of a method, with the states that are lent to the execution, if it is such a call.
    fn of(loaded: &'c mut Loaded<'m>, lent: Option<&'c mut States>, index: usize) -> Option<Self> {
        let Loaded { steps, extended, delegates, values, taken, .. } = loaded;
        let (step, slots, states) = match *steps.get(index)? {
            Step::Extended { step } => {
                let (step, slots, own) = extended.as_deref_mut()?.host_step(step)?;
                (step, slots, Some(lent.unwrap_or(own)))
            }
            step => (step, &mut [][..], None),
        };
        let Step::Delegate { delegate, arguments: indices } = step else { return None };
        let delegate = delegates.get_mut(delegate)?;
        if delegate.handle.get().device().is_some() {
            return None;
        }
        Some(Self { delegate, arguments: Arguments { values, indices, taken, slots, states } })
    }
}
