//! Level 0. Bytes to meaning and back: ExecuTorch's `.pte` and `.ptd` files and bundled programs.
//!
//! Reading needs neither `std` nor an allocator. What a reader returns has been checked, so the
//! layers above it trust what they get. This crate knows nothing of operators or execution.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod pte;
pub mod ptd;

mod error;
mod flatbuf;
mod scalar_type;

pub use error::{ErrorKind, FormatError};
pub use flatbuf::{Element, Vector, VectorIter};
pub use pte::Program;
pub use scalar_type::ScalarType;
