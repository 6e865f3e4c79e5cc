//! JavaScript bindings: convert, call, map errors. Everything else belongs to the crate `rushlight`. `package/` is the
//! interface for JavaScript programs, and the only caller of the exports here. `bindings/README.md` has the decisions.
//!
//! Tensors and files are written and read by JavaScript where they are in this module's memory: their `address` is the offset of
//! a typed array. It stays valid until they are freed, but the array does not: it is detached when the memory grows.
#![expect(clippy::needless_pass_by_value, reason = "JavaScript hands over copies of texts, and objects whole")]

#[cfg(feature = "compile")]
mod compile;
#[cfg(feature = "llm")]
mod llm;
mod memory;
mod module;
mod operators;
mod panic;
mod plain;
#[cfg(target_feature = "atomics")]
mod thread;
mod values;

pub use memory::Bytes;
pub use module::Module;
pub use values::{Tensor, Values};
