//! Level 0. Bytes to meaning and back: ExecuTorch's `.pte` and `.ptd` files and bundled programs.
//!
//! Reading needs neither `std` nor an allocator. What a reader returns has been checked, so the
//! layers above it trust what they get. This crate knows nothing of operators or execution.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod bundled;
pub mod ptd;
pub mod pte;

mod error;
mod flatbuf;
mod header;
#[cfg(feature = "alloc")]
mod image;
mod layout;
mod scalar_type;
mod schema;
mod segments;

pub use bundled::BundledProgram;
pub use error::{ErrorKind, FormatError};
pub use flatbuf::{Element, Vector, VectorIter};
#[cfg(feature = "alloc")]
pub use image::{Image, SEGMENT_ALIGNMENT};
pub use layout::{MAX_RANK, TensorLayout};
pub use ptd::FlatTensor;
pub use pte::Program;
pub use scalar_type::ScalarType;
