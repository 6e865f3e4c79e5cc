//! Runs the methods of ExecuTorch programs.
//!
//! A [`Method`] is loaded once into memory that the caller gives and then executes without allocating and without
//! locks. This crate knows the five instructions, values, tensors, memory and delegates; what operators compute is
//! the business of the operator sets in its [`Registry`].
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;

mod alias;
#[cfg(feature = "alloc")]
mod batch;
mod context;
mod data;
mod delegate;
mod element;
mod error;
mod events;
mod execution;
#[cfg(feature = "alloc")]
mod extended;
mod fault;
mod footprint;
mod interrupt;
mod io;
mod load;
mod memory;
mod method;
mod op;
mod options;
mod program;
mod scalar;
mod strided;
mod tensor;
mod value;

pub use context::{DelegateContext, IntList, KernelContext, OutList, TensorList};
pub use data::DataMap;
pub use delegate::{Backend, Delegate, DelegateHandle, DeviceId, InitContext, MemoryKind};
#[cfg(feature = "alloc")]
pub use delegate::{Call, CallBuffers, CallStates, DeviceBuffer, DeviceDelegate, State, StateInfo, States};
pub use element::{Bool8, Complex, Element};
pub use error::{Code, Detail, Error, Result, Role, Site};
pub use events::{DelegateEvent, DelegateEvents, DelegateTracer, Event, EventTracer};
pub use execution::{Execution, MAX_INSTRUCTIONS, Outputs};
#[cfg(feature = "alloc")]
pub use extended::Submission;
pub use fault::{Fault, Kind};
pub use interrupt::{Interrupt, Interrupts, Stop};
pub use io::{Input, Output, OutputBuffer, TensorView, TensorViewMut};
pub use load::{LoadOptions, MemoryUse};
#[cfg(target_has_atomic = "8")]
pub use memory::Arena;
pub use memory::{ALIGNMENT, Bump, Memory, SharedArenas};
#[cfg(feature = "alloc")]
pub use memory::{HeapBlock, StableBytes};
pub use method::Method;
#[cfg(feature = "alloc")]
pub use op::OpData;
pub use op::{Kernel, Op, OpGroup, OpSet, Registry, TempBytes};
pub use options::{BackendOption, OptionSpec, OptionValue};
pub use program::Program;
pub use rushlight_format::{self as format, ScalarType};
pub use scalar::Scalar;
pub use strided::{copy_bytes, dense_strides};
pub use tensor::{MAX_RANK, Tensor, TensorMut};
