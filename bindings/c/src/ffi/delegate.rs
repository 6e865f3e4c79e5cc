//! One call of a delegate that is written in C.

use std::ffi::c_void;
use std::ptr;

use rushlight::Scalar;
use rushlight::runtime::{
    Call, CallBuffers, CallStates, Cost, DelegateContext, DelegateEvent, DelegateEvents, Interrupts,
};

use super::device::CustomBuffer;
use super::kernel::{Scratch, new_sizes, read, written};
use super::state::CustomState;
use super::value::{rl_string, rl_tensor, rl_value};
use super::{Growing, Result, guard, guard_or, null, options, reference, rl_status, set};
use crate::status::Status;

/// The arguments of one call of a delegate. They live until the function that gets them returns, and belong to its
/// thread.
pub struct rl_delegate_context<'a, 'c, 'm> {
    context: &'a DelegateContext<'m>,
    interrupts: Interrupts<'a>,
    lent: Scratch,
    states: Option<&'a mut CallStates<'c>>,
    buffers: Option<&'a CallBuffers<'c>>,
    events: DelegateEvents<'a>,
}

impl<'a, 'c, 'm> rl_delegate_context<'a, 'c, 'm> {
    /// The context of a call with states, buffers and events.
    pub fn of(call: &'a mut Call<'c, 'm>) -> Self {
        Self {
            context: &call.context,
            interrupts: call.interrupts,
            lent: Scratch::default(),
            states: Some(&mut call.states),
            buffers: Some(&call.buffers),
            events: call.events,
        }
    }

    /// The context of a call without them.
    pub fn plain(context: &'a DelegateContext<'m>, interrupts: Interrupts<'a>) -> Self {
        let (lent, events) = (Scratch::default(), DelegateEvents(None));
        Self { context, interrupts, lent, states: None, buffers: None, events }
    }
}

/// Something that a delegate does in a call: a step, a kernel of a device, a wait. `RL_DELEGATE_EVENT_INIT` has the
/// defaults.
#[repr(C)]
pub struct rl_delegate_event {
    /// `sizeof(rl_delegate_event)`.
    pub struct_size: usize,
    /// The kind of step, the kernel or the wait. Required.
    pub name: rl_string,
    /// The value of the graph that the step computes; empty if it is not known.
    pub value: rl_string,
    /// Index of the step in the payload; negative for something else.
    pub step: i64,
    /// 1 if `flops` and `bytes` are known, else 0.
    pub has_cost: u32,
    /// Additions and multiplications, counted by the definition of the operator.
    pub flops: f64,
    /// Bytes of the tensors that are read and written, each counted once.
    pub bytes: f64,
}

// SAFETY: numbers and pointers.
unsafe impl Growing for rl_delegate_event {}

impl rl_delegate_event {
    /// Describes an event. The texts live as long as those of the event.
    pub fn of(event: DelegateEvent<'_>) -> Self {
        let Cost { flops, bytes } = event.cost.unwrap_or_default();
        Self {
            struct_size: size_of::<Self>(),
            name: rl_string::of(event.name),
            value: rl_string::of(event.value),
            step: event.step.and_then(|step| i64::try_from(step).ok()).unwrap_or(-1),
            has_cost: event.cost.is_some().into(),
            flops,
            bytes,
        }
    }
}

/// Returns the number of inputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_num_inputs(context: *const rl_delegate_context<'_, '_, '_>) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or the context of this call.
        unsafe { context.as_ref() }.map_or(0, |context| context.context.num_inputs())
    })
}

/// Reads an input: a tensor or a number. Memory that the value points at lives until the delegate returns, and must not
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_input(
    context: *mut rl_delegate_context<'_, '_, '_>,
    index: usize,
    value: *mut rl_value,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let context = unsafe { context.as_mut() }.ok_or_else(|| null("context"))?;
        let input = match context.context.input_scalar(index) {
            Ok(Scalar::Int(value)) => rl_value::int(value),
            Ok(Scalar::Double(value)) => rl_value::double(value),
            Ok(Scalar::Bool(value)) => rl_value::bool(value),
            Err(_) => read(&context.context.input(index)?, &mut context.lent),
        };
        // SAFETY: the caller's variable.
        unsafe { set(value, "value", input) }
    })
}

/// Sets the sizes of an output and returns its memory for writing, once in a call, as `rl_kernel_output` does. Outputs
/// are counted from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_output(
    context: *mut rl_delegate_context<'_, '_, '_>,
    index: usize,
    sizes: *const i64,
    rank: usize,
    tensor: *mut rl_tensor,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let context = unsafe { context.as_mut() }.ok_or_else(|| null("context"))?;
        // SAFETY: as the caller promises.
        let sizes = unsafe { new_sizes(sizes, rank) }?;
        let written = written(context.context.output(index)?, sizes, &mut context.lent)?;
        // SAFETY: the caller's variable.
        unsafe { set(tensor, "tensor", written) }
    })
}

/// Checks, between steps of a long call, whether the call must end: its interrupt is set, or its time limit is reached.
/// If so, the delegate returns the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_check(context: *const rl_delegate_context<'_, '_, '_>) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call.
        let context = unsafe { context.as_ref() }.ok_or_else(|| null("context"))?;
        Ok(context.interrupts.check(0, 1)?)
    })
}

/// Returns the address of a state: its bytes, or what `rl_state_functions.create` made. States are those that the
/// delegate describes, by their index. NULL if there is no such state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_state(context: *mut rl_delegate_context<'_, '_, '_>, index: usize) -> *mut c_void {
    guard_or(ptr::null_mut(), || {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let states = unsafe { context.as_mut() }.and_then(|context| context.states.as_mut());
        let state = states.and_then(|states| states.get::<CustomState>(index).ok());
        state.map_or(ptr::null_mut(), CustomState::address)
    })
}

/// Returns the buffer of an argument in device memory, as `rl_device_functions.allocate` made it. Inputs come first, then
/// outputs. NULL for an argument in host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_buffer(
    context: *const rl_delegate_context<'_, '_, '_>,
    argument: usize,
) -> *mut c_void {
    guard_or(ptr::null_mut(), || {
        // SAFETY: NULL or the context of this call.
        let buffers = unsafe { context.as_ref() }.and_then(|context| context.buffers);
        let buffer = buffers.and_then(|buffers| buffers.get::<CustomBuffer>(argument).ok());
        buffer.map_or(ptr::null_mut(), CustomBuffer::address)
    })
}

/// Returns true if anyone receives the events of the delegate. Ask before doing anything for them that costs time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_has_tracer(context: *const rl_delegate_context<'_, '_, '_>) -> bool {
    guard_or(false, || {
        // SAFETY: NULL or the context of this call.
        unsafe { context.as_ref() }.is_some_and(|context| context.events.is_on())
    })
}

/// Reports the beginning of an event, for profiles and traces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_begin(
    context: *const rl_delegate_context<'_, '_, '_>,
    event: *const rl_delegate_event,
) -> *mut rl_status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { report(context, event, |events, event| events.begin(event)) })
}

/// Reports the end of an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_end(
    context: *const rl_delegate_context<'_, '_, '_>,
    event: *const rl_delegate_event,
) -> *mut rl_status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { report(context, event, |events, event| events.end(event)) })
}

/// Reports an event that a device timed by its own clock, in nanoseconds. It may come after the call in which it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_timed(
    context: *const rl_delegate_context<'_, '_, '_>,
    event: *const rl_delegate_event,
    start: u64,
    end: u64,
) -> *mut rl_status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { report(context, event, |events, event| events.timed(event, start, end)) })
}

/// Reads an event and passes it to the tracer, if there is one.
///
/// # Safety
/// The context is NULL or that of this call. The event is NULL or as its description says.
unsafe fn report(
    context: *const rl_delegate_context<'_, '_, '_>,
    event: *const rl_delegate_event,
    to: impl FnOnce(DelegateEvents<'_>, DelegateEvent<'_>),
) -> Result<()> {
    // SAFETY: as the caller promises.
    let context = unsafe { reference(context, "context") }?;
    if event.is_null() {
        return Err(null("event"));
    }
    // SAFETY: a structure that says its size.
    let event: rl_delegate_event = unsafe { options(event, "event") }?;
    // SAFETY: the caller's texts live for the call.
    let (name, value) = unsafe { (event.name.as_str("event->name")?, event.value.as_str("event->value")?) };
    if name.is_empty() {
        return Err(Status::invalid("`event->name` is empty"));
    }
    let cost = (event.has_cost != 0).then_some(Cost { flops: event.flops, bytes: event.bytes });
    to(context.events, DelegateEvent { name, value, step: usize::try_from(event.step).ok(), cost });
    Ok(())
}
