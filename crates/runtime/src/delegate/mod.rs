//! Delegates: parts of a program that a backend compiled ahead of time and runs itself.
//!
//! A [`Backend`] makes a [`Delegate`] of each payload when a method is loaded. The least that a delegate does is
//! [`execute`](Delegate::execute): read host slices, write host slices. Everything else is optional, and what a delegate uses
//! is asked once, at load. A method whose delegates use nothing else takes the same steps as if there were nothing else.
//!
//! # State
//!
//! What a delegate changes from call to call (a KV cache, an accumulator) is a [`State`], apart from the delegate, which keeps
//! code, weights and scratch memory. A delegate [declares](Delegate::state) its states by key and [makes](Delegate::new_state)
//! them; the same key in two methods of a program is the same state. [`States`] holds those of one session: it is lent to each
//! execution ([`Method::start_in`](crate::Method::start_in)), so that a state has one owner, needs no lock, and many sessions
//! take turns with one loaded method. A method that is executed without any uses its own.
//!
//! # Memory
//!
//! A [`DeviceDelegate`] names the [`MemoryKind`] of each argument. The runtime allocates a [`DeviceBuffer`] for each tensor and
//! device when the method is loaded, at the tensor's upper bound, and knows at any time which of host and device hold its
//! current data. It copies only when an instruction needs a tensor in a memory that is out of date, so that a value between two
//! neighbours on one device is never copied, and an output is copied once, at the end. Each copy is an
//! [`Event::Copy`](crate::Event::Copy). A tensor whose host memory is also reached otherwise (by a view, a move, a list, or its
//! name as an attribute) is copied at each use instead.
//!
//! # Completion
//!
//! A [`DeviceDelegate`] is submitted and then polled. [`Method::submit`](crate::Method::submit) goes through the instructions up
//! to the first that is not complete and returns a [`Submission`](crate::Submission) to poll, from an event loop or a
//! browser's callback; dropping it cancels. Executing is submitting and completing: the runtime waits where a device lets it.
//! Other delegates complete at once either way.
//!
//! # Options and events
//!
//! A backend [declares](Backend::options) its options with name, type and default; those that are not declared are errors. A
//! delegate reports its steps to [`Call::events`], with their [`Cost`](crate::Cost) and times of its own clock if it has them.
//! Profiles, traces and the limits beside them are made from these events and from [`Backend::limits`].
//!
//! # What a backend may get wrong
//!
//! Nothing of this is `unsafe` to implement. A buffer that is too small, of another type, or a state of another type is an
//! error; a call that never completes ends with the [interrupt](crate::Interrupt) of its execution.

#[cfg(feature = "alloc")]
mod call;
#[cfg(feature = "alloc")]
pub(crate) mod device;
mod memory;
#[cfg(feature = "alloc")]
pub(crate) mod state;

#[cfg(feature = "alloc")]
use alloc::boxed::Box;

use rushlight_format::pte::CompileSpec;

use crate::context::DelegateContext;
use crate::cost::Limits;
use crate::data::NamedData;
use crate::error::Result;
use crate::fault::Fault;
use crate::interrupt::Interrupts;
use crate::memory::Bump;
use crate::options::{BackendOption, OptionSpec, OptionValue};

#[cfg(feature = "alloc")]
pub use call::Call;
#[cfg(feature = "alloc")]
pub use device::{CallBuffers, DeviceBuffer, DeviceDelegate};
pub use memory::{DeviceId, MemoryKind};
#[cfg(feature = "alloc")]
pub use state::{CallStates, State, StateInfo, States};

/// The run-time half of a backend: makes a [`Delegate`] from the payload that its ahead-of-time half wrote.
pub trait Backend: Sync {
    /// The name in programs, such as `XnnpackBackend`.
    fn id(&self) -> &str;

    /// Prepares one payload. What is needed during execution is allocated here.
    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>>;

    /// The options that the backend has. Others are errors, in what is given at load and later.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// The device and its settings as text, such as `avx512, threads: 2`; `None` if there is nothing to tell.
    fn device(&self) -> Option<&str> {
        None
    }

    /// Measures the peak rates of the device, which profiles compare steps with; `None` if it cannot.
    fn limits(&self) -> Option<Limits> {
        None
    }
}

/// One prepared payload.
pub trait Delegate: Send {
    /// Number of outputs, which are the last arguments.
    fn num_outputs(&self) -> usize;

    /// Reads the inputs and writes the outputs. Every delegate has it, unless it overrides [`call`](Self::call) or is a
    /// [`device`](Self::device)'s.
    fn execute(&mut self, context: &DelegateContext<'_>) -> Result<()> {
        let _ = context;
        Err(Fault::NoExecute.into())
    }

    /// As [`execute`](Self::execute), which it calls unless a delegate has many steps and checks `interrupts` before each.
    fn execute_until(&mut self, context: &DelegateContext<'_>, interrupts: Interrupts<'_>) -> Result<()> {
        let _ = interrupts;
        self.execute(context)
    }

    /// As [`execute_until`](Self::execute_until), which it calls unless a delegate has states, or events to report. It is used
    /// for delegates that declare a state, and for others where a tracer receives
    /// [their events](crate::EventTracer::delegate_events).
    #[cfg(feature = "alloc")]
    fn call(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        self.execute_until(&call.context, call.interrupts)
    }

    /// Runs calls of several sessions, each with arguments and states of its own
    /// ([`Execution::finish_batch`](crate::Execution::finish_batch)). A delegate that reads its weights once for all of them is
    /// faster than one call after the other, which is what it does by default. After an error, any of the states may have
    /// changed or not.
    #[cfg(feature = "alloc")]
    fn call_batch(&mut self, calls: &mut [Call<'_, '_>]) -> Result<()> {
        calls.iter_mut().try_for_each(|call| self.call(call))
    }

    /// The delegate as one that uses the memory of a device or completes later, which is called instead then.
    #[cfg(feature = "alloc")]
    fn device(&mut self) -> Option<&mut dyn DeviceDelegate> {
        None
    }

    /// State `index` of those that the delegate uses; `None` after the last. Asked at load.
    #[cfg(feature = "alloc")]
    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        let _ = index;
        None
    }

    /// Makes state `index` for one session, as it is at the beginning.
    #[cfg(feature = "alloc")]
    fn new_state(&mut self, index: usize) -> Result<Box<dyn State>> {
        let _ = index;
        Err(Fault::NoState.into())
    }

    /// Changes an option that the backend declares and that can change. The type is right.
    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<()> {
        let _ = (name, value);
        Err(Fault::FixedOption.into())
    }
}

/// A delegate in the method's memory, or on the heap.
pub enum DelegateHandle<'m> {
    Lent(&'m mut dyn Delegate),
    #[cfg(feature = "alloc")]
    Boxed(Box<dyn Delegate + 'm>),
}

impl<'m> DelegateHandle<'m> {
    pub(crate) fn get(&mut self) -> &mut (dyn Delegate + 'm) {
        match self {
            Self::Lent(delegate) => *delegate,
            #[cfg(feature = "alloc")]
            Self::Boxed(delegate) => delegate.as_mut(),
        }
    }
}

impl core::fmt::Debug for DelegateHandle<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DelegateHandle")
    }
}

/// Payload, memory and options from which a backend makes a delegate.
#[derive(Debug)]
pub struct InitContext<'a, 'm> {
    /// Name of the method that is loaded.
    pub method: &'m str,
    /// The compiled payload. Valid as long as the method, aligned as in the file.
    pub payload: &'m [u8],
    /// The method's memory; what is allocated here lives as long as the method. What a delegate takes of the heap is
    /// counted with [`Bump::charge`] first.
    pub memory: &'a mut Bump<'m>,
    pub(crate) spec: rushlight_format::pte::DelegateSpec<'m>,
    pub(crate) options: &'a [BackendOption<'a>],
    pub(crate) declared: &'static [OptionSpec],
    pub(crate) named_data: &'a NamedData<'m, 'a>,
}

impl<'a, 'm> InitContext<'a, 'm> {
    /// The key-value pairs that were given to the ahead-of-time half.
    pub fn compile_specs(&self) -> impl Iterator<Item = CompileSpec<'m>> {
        self.spec.compile_specs()
    }

    /// The options for this backend.
    pub fn options(&self) -> impl Iterator<Item = &'a BackendOption<'a>> + use<'a, 'm> {
        let id = self.spec.id;
        self.options.iter().filter(move |option| option.backend == id)
    }

    /// The value of a declared option: the last that was given, or its default.
    pub fn option(&self, name: &str) -> Option<OptionValue<'a>> {
        let given = self.options().filter(|option| option.key == name).last().map(|option| option.value);
        given.or_else(|| self.declared.iter().find(|spec| spec.name == name).map(|spec| spec.default))
    }

    /// Named data of the program and of the external data files.
    pub fn named_data(&self, key: &str) -> Option<&'m [u8]> {
        self.named_data.get(key)
    }

    /// The keys of all named data, the program's first.
    pub fn named_data_keys(&self) -> impl Iterator<Item = &'m str> + use<'a, 'm> {
        self.named_data.keys()
    }
}
