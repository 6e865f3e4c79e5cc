//! Level 1. Runs the methods of ExecuTorch programs.
//!
//! A [`Method`] is loaded once into memory that the caller gives and then executes without allocating and without
//! locks. This crate knows the five instructions, values, tensors, memory and delegates; what operators compute is
//! the business of the operator sets in its [`Registry`].
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;

mod context;
mod element;
mod error;
mod memory;
mod op;
mod scalar;
mod tensor;
mod value;

pub use context::{IntList, KernelContext, OutList, TensorList};
pub use element::{Bool8, Complex, Element};
pub use error::{Code, Detail, Error, Result, Role, Site};
pub use memory::{ALIGNMENT, Bump};
pub use op::{Kernel, Op, OpGroup, OpSet, Registry, TempBytes};
pub use rushlight_format::{self as format, ScalarType};
pub use scalar::Scalar;
pub use tensor::{MAX_RANK, Tensor, TensorMut};
