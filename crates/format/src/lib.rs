//! Bytes to meaning and back: ExecuTorch's `.pte` and `.ptd` files and bundled programs.
//!
//! Reading needs neither `std` nor an allocator. A reader returns checked values, so the
//! layers above it trust them. This crate knows nothing of operators or execution.
//!
//! ```
//! # #[cfg(feature = "alloc")] {
//! use rushlight_format::pte::{PlanModel, ProgramModel, TensorModel};
//! use rushlight_format::{Program, ScalarType};
//!
//! let mut plan = PlanModel::new("forward");
//! let tensor = TensorModel::new(ScalarType::Float, &[2, 3]);
//! let x = plan.input(tensor.clone());
//! let result = plan.planned(tensor);
//! let out = plan.output(result);
//! plan.call("aten::relu", "out", &[x, out, out]);
//! let mut model = ProgramModel::new();
//! model.methods.push(plan);
//!
//! let file = model.to_bytes()?;
//! let program = Program::parse(&file)?;
//! let plan = program.method_named("forward").unwrap();
//! assert_eq!(plan.operator(0).unwrap().name, "aten::relu");
//! assert_eq!(plan.buffer_size(1), 24);
//! # }
//! # Ok::<(), rushlight_format::FormatError>(())
//! ```
//!
//! # Decisions
//!
//! - **Verification is not optional.** ExecuTorch's minimal verification trusts the file. This crate has no such mode. The work of
//!   parsing is bounded by the size of the file.
//! - **Names are beside the program.** ExecuTorch numbers inputs and outputs. The names of the exported function's parameters, and
//!   the containers of inputs and outputs (`signature`), are a blob of named data. `front/pt2` of the compiler writes it
//!   (`import/signature.rs`) and lifting passes it on. A method has none if a pass changed its inputs or outputs. The runtime does
//!   not read it; the facade does (`MethodMeta`, `names.rs`), and Python arranges arguments and builds results by it
//!   (`_signature.py`).
//! - **A language model's program carries its tokenizer** as named data (`tokenizer` has the keys), which runtimes ignore.
//! - **A wrong kind of file is detected by its content** ([`FileKind`]), and the error names the next command.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod bundled;
pub mod dlpack;
#[cfg(feature = "payload")]
pub mod payload;
pub mod ptd;
pub mod pte;
pub mod shapes;
#[cfg(feature = "alloc")]
pub mod signature;
pub mod tokenizer;

#[cfg(feature = "alloc")]
mod blob;
mod blob_reader;
mod error;
mod flatbuf;
mod formula;
mod header;
#[cfg(feature = "alloc")]
mod image;
mod kind;
mod layout;
mod scalar_type;
mod schema;
mod segments;
mod sentence;

#[cfg(feature = "alloc")]
pub use blob::{Blob, Make};
pub use bundled::BundledProgram;
pub use error::{ErrorKind, Feature, FormatError};
pub use flatbuf::{Element, Vector, VectorIter};
#[cfg(feature = "alloc")]
pub use image::{Image, Part, SEGMENT_ALIGNMENT};
pub use kind::FileKind;
pub use layout::{MAX_RANK, TensorLayout};
pub use ptd::FlatTensor;
pub use pte::Program;
pub use scalar_type::ScalarType;
pub use sentence::Sentence;
