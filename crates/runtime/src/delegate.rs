//! Delegates: parts of a program that a backend compiled ahead of time and runs itself.

#[cfg(feature = "alloc")]
use alloc::boxed::Box;

use rushlight_format::pte::CompileSpec;

use crate::context::DelegateContext;
use crate::data::NamedData;
use crate::error::Result;
use crate::interrupt::Interrupts;
use crate::memory::Bump;

/// The run-time half of a backend: makes a [`Delegate`] from the payload that its ahead-of-time half wrote.
pub trait Backend: Sync {
    /// The name in programs, such as `XnnpackBackend`.
    fn id(&self) -> &str;

    /// Prepares one payload. What is needed during execution is allocated here.
    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> Result<DelegateHandle<'m>>;
}

/// One prepared payload.
pub trait Delegate: Send {
    /// How many of the arguments, counted from the last, are outputs.
    fn num_outputs(&self) -> usize;

    /// Reads the inputs and writes the outputs.
    fn execute(&mut self, context: &DelegateContext<'_>) -> Result<()>;

    /// As [`execute`](Self::execute), which it calls unless a delegate has many steps and checks `interrupts` before each.
    fn execute_until(&mut self, context: &DelegateContext<'_>, interrupts: Interrupts<'_>) -> Result<()> {
        let _ = interrupts;
        self.execute(context)
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

/// A setting for one backend, given when a method is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendOption<'a> {
    /// Id of the backend it is for.
    pub backend: &'a str,
    pub key: &'a str,
    pub value: OptionValue<'a>,
}

/// Value of a [`BackendOption`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue<'a> {
    Bool(bool),
    Int(i64),
    String(&'a str),
}

/// What a backend may use to prepare a payload.
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

    /// Named data of the program and of the external data files.
    pub fn named_data(&self, key: &str) -> Option<&'m [u8]> {
        self.named_data.get(key)
    }

    /// The keys of all named data, the program's first.
    pub fn named_data_keys(&self) -> impl Iterator<Item = &'m str> + use<'a, 'm> {
        self.named_data.keys()
    }
}
