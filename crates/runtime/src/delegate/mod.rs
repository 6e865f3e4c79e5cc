//! Delegates: parts of a program that a backend compiled ahead of time and runs itself.
//!
//! A [`Backend`] makes a [`Delegate`] from each payload when a method is loaded. A delegate must implement only
//! [`execute`](Delegate::execute): read host slices, write host slices. Everything else is optional. The runtime asks
//! once, at load, for the features that a delegate uses. A method without optional features takes the same steps as if
//! there were none.
//!
//! # State
//!
//! State that a delegate changes from call to call (a KV cache, an accumulator) is a [`State`]. It is separate from the
//! delegate, which keeps code, weights and scratch memory. A delegate [declares](Delegate::state) its states by key and
//! [makes](Delegate::new_state) them; the same key in two methods of a program is the same state. [`States`] holds the
//! states of one session and is lent to each execution ([`Method::start_in`](crate::Method::start_in)). A state thus
//! has one owner and needs no lock, and many sessions take turns with one loaded method. A method that is executed
//! without [`States`] uses its own.
//!
//! # Memory
//!
//! A [`DeviceDelegate`] names the [`MemoryKind`] of each argument. The runtime allocates a [`DeviceBuffer`] for each
//! tensor and device when the method is loaded, at the tensor's upper bound. It knows at any time whether host and
//! device have a tensor's current data, and copies only when an instruction needs a tensor in a memory that is out of
//! date. A value between two neighbours on one device is therefore never copied, and an output is copied once, at the
//! end. Each copy is an [`Event::Copy`](crate::Event::Copy). A tensor whose host memory has other users (a view, a
//! move, a list, or its name as an attribute) is copied at each use instead.
//!
//! # Completion
//!
//! A [`DeviceDelegate`] is submitted and then polled. [`Method::submit`](crate::Method::submit) executes instructions
//! up to the first that is not complete. It returns a [`Submission`](crate::Submission) to poll, from an event loop or
//! a browser's callback; dropping it cancels the execution. Executing is submitting and completing: the runtime waits
//! if a device supports it. Other delegates complete at once in both cases.
//!
//! # Options and events
//!
//! A backend [declares](Backend::options) its options with name, type and default; undeclared options are errors. A
//! delegate reports its steps to [`Call::events`], with their [`Cost`](crate::Cost), and with times of its own clock if
//! it has one. Profiles, traces and the limits beside them are made from these events and from [`Backend::limits`].
//!
//! # Faulty backends
//!
//! None of this is `unsafe` to implement. A buffer that is too small or of another type is an error, and so is a state
//! of another type. A call that never completes ends with the [interrupt](crate::Interrupt) of its execution.

#[cfg(feature = "alloc")]
pub(crate) mod buffer;
#[cfg(feature = "alloc")]
mod call;
#[cfg(feature = "alloc")]
mod device;
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
pub use buffer::{CallBuffers, DeviceBuffer};
#[cfg(feature = "alloc")]
pub use call::Call;
#[cfg(feature = "alloc")]
pub use device::DeviceDelegate;
pub use memory::{DeviceId, MemoryKind};
#[cfg(feature = "alloc")]
pub use state::{CallStates, State, StateInfo, States};

/// The run-time half of a backend: makes a [`Delegate`] from each payload that its ahead-of-time half wrote.
pub trait Backend: Sync {
    /// The name in programs, such as `XnnpackBackend`.
    fn id(&self) -> &str;

    /// Prepares one payload. Allocates the memory of its executions.
    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>>;

    /// The options of the backend. Other options are errors, at load and later.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// The device and its settings as text, such as `avx512, threads: 2`; `None` if there is nothing to tell.
    fn device(&self) -> Option<&str> {
        None
    }

    /// Measures the peak rates of the device, with which profiles compare steps; `None` if it cannot measure them.
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

    /// As [`execute`](Self::execute), which it calls by default. A delegate with many steps overrides it and checks
    /// `interrupts` before each step.
    fn execute_until(&mut self, context: &DelegateContext<'_>, interrupts: Interrupts<'_>) -> Result<()> {
        let _ = interrupts;
        self.execute(context)
    }

    /// As [`execute_until`](Self::execute_until), which it calls by default. A delegate with states, or with events to
    /// report, overrides it. The runtime calls it for delegates that declare a state, and for others if a tracer
    /// receives [their events](crate::EventTracer::delegate_events).
    #[cfg(feature = "alloc")]
    fn call(&mut self, call: &mut Call<'_, '_>) -> Result<()> {
        self.execute_until(&call.context, call.interrupts)
    }

    /// Runs calls of several sessions, each with its own arguments and states
    /// ([`Execution::finish_batch`](crate::Execution::finish_batch)). By default it runs one call after the other. A
    /// delegate that reads its weights once for all calls is faster. After an error, any of the states may have changed
    /// or not.
    #[cfg(feature = "alloc")]
    fn call_batch(&mut self, calls: &mut [Call<'_, '_>]) -> Result<()> {
        calls.iter_mut().try_for_each(|call| self.call(call))
    }

    /// The delegate as one that uses a device's memory or completes later. The runtime calls that one instead.
    #[cfg(feature = "alloc")]
    fn device(&mut self) -> Option<&mut dyn DeviceDelegate> {
        None
    }

    /// State `index` of the delegate; `None` after the last. Asked at load.
    #[cfg(feature = "alloc")]
    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        let _ = index;
        None
    }

    /// Makes state `index` for one session, with its initial content.
    #[cfg(feature = "alloc")]
    fn new_state(&mut self, index: usize) -> Result<Box<dyn State>> {
        let _ = index;
        Err(Fault::NoState.into())
    }

    /// Changes an option that the backend declares as changeable. The type is right.
    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<()> {
        let _ = (name, value);
        Err(Fault::FixedOption.into())
    }
}

/// A delegate in the method's memory or on the heap.
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
    /// The compiled payload. It is valid as long as the method, and aligned as in the file.
    pub payload: &'m [u8],
    /// The method's memory. Allocations in it live as long as the method. A delegate that allocates on the heap calls
    /// [`Bump::charge`] first.
    pub memory: &'a mut Bump<'m>,
    pub(crate) spec: rushlight_format::pte::DelegateSpec<'m>,
    pub(crate) options: &'a [BackendOption<'a>],
    pub(crate) declared: &'static [OptionSpec],
    pub(crate) named_data: &'a NamedData<'m, 'a>,
}

impl<'a, 'm> InitContext<'a, 'm> {
    /// The key-value pairs that the ahead-of-time half received.
    pub fn compile_specs(&self) -> impl Iterator<Item = CompileSpec<'m>> {
        self.spec.compile_specs()
    }

    /// The options for this backend.
    pub fn options(&self) -> impl Iterator<Item = &'a BackendOption<'a>> + use<'a, 'm> {
        let id = self.spec.id;
        self.options.iter().filter(move |option| option.backend == id)
    }

    /// The value of a declared option: the last value that was given, or the default.
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
