//! Level 3. From an exported program to a `.pte` file: front ends read `.pt2` and `.pte` into one graph, passes lower
//! it to operators that runtimes have, and the emitter writes the file. It knows nothing of files on disk, terminals or
//! Python: callers hand in bytes and get bytes.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod back;
mod bytes;
pub mod debug_map;
pub mod emit;
mod error;
pub mod front;
pub mod graph;
pub mod interpret;
pub mod memory;
mod once;
pub mod ops;
mod parallel;
pub mod partition;
pub mod passes;
mod pattern;
mod pipeline;
pub mod quant;

pub use bytes::Bytes;
pub use error::{Error, ErrorKind};
pub use parallel::parallel_map;
pub use pipeline::{
    CompileOptions, Compiled, ConstantResult, Stage, advance, check_method_names, compile, compile_pt2, compile_pte,
    import_pt2,
};
