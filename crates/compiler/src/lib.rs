//! Compiles exported programs to `.pte` files: front ends read `.pt2` and `.pte` programs into one [graph](rushlight_graph),
//! passes lower it to operators that runtimes have, back ends claim parts of it, and the emitter writes the file.
//!
//! [`compile_pt2`] and [`compile_pte`] do all of it; [`pipeline`](advance) lists the passes. The compiler knows no back end:
//! they come in as values that implement [`partition::Backend`]. It knows nothing of files on disk, terminals or Python
//! either: callers hand in bytes and get bytes.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod debug_map;
pub mod emit;
pub mod front;
pub mod interpret;
mod json;
pub mod memory;
pub mod partition;
pub mod passes;
pub mod pattern;
mod pipeline;

pub use pipeline::{
    CompileOptions, Compiled, ConstantResult, Stage, advance, check_method_names, compile, compile_pte, prepare_layers,
};
#[cfg(feature = "pt2")]
pub use pipeline::{compile_pt2, import_pt2};
