//! Rushlight's intermediate representation (IR): what front ends produce, passes and back ends transform and the emitter
//! writes.
//!
//! A [`Model`] has methods, each a [`Graph`], and what they share: constants and states. A graph is in SSA form: nodes
//! call operators on values and define new ones, nothing is written twice, and tensors never alias. Control flow nests
//! [`Block`]s, which may use the values of the blocks around them.
//!
//! Sizes are [`Expr`]essions over the graph's symbols, and stand directly in arguments: no node computes a size until
//! the last passes of the compiler make the ones that the program needs.
//!
//! Models have a text form ([`text`]), which is read back as it was printed, and a verifier ([`Model::verify`]).
//! [`Schema`]s have the arguments of operators, and [`ops`] their inference and lowering.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arena;
mod bytes;
mod constant;
mod error;
pub mod expr;
mod gather;
mod graph;
mod model;
mod node;
mod once;
pub mod operators;
pub mod ops;
mod origin;
mod parameters;
mod pass;
mod progress;
pub mod quantization;
mod rewrite;
pub mod schema;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod types;
mod verify;

pub use arena::{Arena, Id};
pub use bytes::Bytes;
pub use constant::{Computed, Constant, ConstantData, QuantizedConstant, row_major_strides};
pub use error::{Error, ErrorKind};
pub use expr::{Expr, MAX_NODES, Symbol, SymbolId, Symbols};
pub use graph::{Block, BlockId, Def, Graph, Input, NodeId, OriginId, Target, Update, Value, ValueId};
pub use model::{ConstantId, Delegate, DelegateId, Literal, Model, PartNode, State, StateId};
pub use node::{Arg, Layout, MemoryFormat, Node, Op};
pub use once::once;
pub use ops::{Builder, bind};
pub use origin::{Origin, SourceFrame};
pub use parameters::{Parameters, Products};
pub use pass::Pass;
pub use progress::{Progress, ProgressListener};
pub use rewrite::{Action, substitute, substitute_outputs};
pub use schema::{Kind, Param, Schema, Schemas};
pub use types::{Granularity, Quantization, TensorType, Type};
