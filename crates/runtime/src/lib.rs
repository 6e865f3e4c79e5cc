//! Runs the methods of ExecuTorch programs.
//!
//! A [`Method`] is loaded once into memory that the caller gives and then executes without allocating and without
//! locks. This crate knows the five instructions, values, tensors, memory and delegates; what operators compute is
//! the business of the operator sets in its [`Registry`].
//!
//! # Decisions
//!
//! - **A kernel is a function of a [`KernelContext`].** It asks for arguments by position. The context checks their kind and hands
//!   out each written tensor once. An operator is a constant ([`Op`]) with its name, its arity and the arguments that it writes; a
//!   set is a slice of them. There are no static constructors and no global tables: a build links the sets that it names.
//! - **Aliasing is settled at load** (`alias.rs`). For each instruction, every written argument is compared with every other
//!   argument. Planned ranges count at their upper bounds, and are followed through views (`et_view`) and moves. Overlap is an
//!   error, except that a copy of a tensor onto itself is dropped.
//! - **Operators are looked up once**, at load, and kept as function pointers. One error reports all that are missing.
//! - **Calls end.** An instruction cap of 10 million ends endless loops. An [`Interrupt`] ends a call earlier: tracers hand it
//!   over, and it is asked before each instruction and each step of a delegate. A module's time limit is one.
//! - **Tensors are dense in a dim order.** As in ExecuTorch, sizes can change up to a bound; the rank and the dim order stay.
//!   Inputs with other strides are converted when they enter, never reinterpreted.
//! - **Memory is one block or the heap.** `Memory::new(block)` serves a microcontroller: values, planned buffers and temporary
//!   memory are carved from it. `Memory::heap()` serves hosts. Planned buffers may be given separately by memory id, or shared
//!   between methods. A flag guards sharing; a running method and its outputs hold it.
//! - **Temporary memory is sized at load**, from the upper bounds, so that `rushlight size` can print it.
//! - **Sizes that were not exported are refused.** ExecuTorch's dynamic tensors have an upper bound for each size and nothing else.
//!   `torch.export` knows more: static dimensions, minima, equal or computed sizes, guards. The front end writes these as rules
//!   (`front/pt2/import/guards.rs` of the compiler) to a blob of named data (`format::shapes`). ExecuTorch ignores it; lifting and
//!   lowering pass it on. The runtime checks the rules where inputs are bound, so that no path goes around them, and refuses the
//!   inputs that `ExportedProgram.module()` refuses. Programs of ExecuTorch's compiler have bounds and static tensors only. The
//!   same holds on bare metal, where callers know their inputs and code is scarce.
//! - **A delegate can be more than host slices** (the head of `delegate` is the contract). The runtime asks once, at load, which features it
//!   uses. State is separate from the delegate's code and weights. It is found by key, so that the methods of a program share it,
//!   and lent to an execution by `&mut`: a session is a `States`, and there is no lock. A device's delegates name the memory of
//!   their arguments. The runtime allocates a buffer for each tensor and device at load, tracks which copy is current, and copies
//!   only when an instruction needs another one (`extended.rs`). Some tensors are also reached past the value: by views, moves,
//!   lists, attributes or state. These are pinned to host memory and copied at each use. `submit` and `poll` need no thread and
//!   never wait; `execute` does the same and waits. Steps that use any of this are replaced by `Step::Extended` at load. Other
//!   steps, and methods whose delegates only execute, run the same code as without. All of it needs the feature `alloc`, for the
//!   boxes of states and buffers, which are made at load. Implementing it needs no `unsafe`.
//! - **Errors carry data** ([`Error`]: code with ExecuTorch's number, site, detail). The facade turns them into text with names and
//!   hints; `no_std` crates build no strings.
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;

mod alias;
#[cfg(feature = "alloc")]
mod batch;
mod context;
mod cost;
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
mod step;
mod strided;
mod tensor;
mod value;

pub use context::{DelegateContext, IntList, KernelContext, OutList, TensorList};
pub use cost::{Bound, Cost, Limits};
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
pub use load::LoadOptions;
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
pub use step::MemoryUse;
pub use strided::{copy_bytes, dense_strides};
pub use tensor::{MAX_RANK, Tensor, TensorMut};
