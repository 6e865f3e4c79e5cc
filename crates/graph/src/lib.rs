//! Rushlight's intermediate representation (IR): front ends produce it, passes and backends transform it, and the
//! emitter writes it.
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
//!
//! # Decisions
//!
//! - **Sizes are expressions until the end.** They stand in types and arguments, in a normal form, so that equal sizes compare
//!   equal. No node computes a size before the last passes. Passes need not distinguish static from dynamic shapes.
//! - **The graph is functional and contiguous.** Nothing is written twice, tensors never alias, and all are row-major. Sharing
//!   memory is the emitter's decision, and a backend never meets a stride. Inputs in another order (channels last) are reordered
//!   where they enter. Only the last passes move or drop these copies.
//! - **Weights are strided views of bytes.** A transposed or sliced weight is another view of the mapped file. Its bytes are
//!   gathered when the program is written, and large folded weights are computed then. A compilation takes far less memory than its
//!   model.
//! - **Decomposition ends at the set of the kernels.** A definition in [`ops`] infers result types. Where kernels lack the
//!   operator, it builds it from operators closer to them. There is no list of legal operators beside the kernels themselves.
//!   Inference and decomposition stand here because builders and the verifier infer types by them.
//! - **Inference is checked against the operator cases.** The inferred type of each case must be the one that PyTorch returned.
//! - **Schemas are a table** that `tools/op_schemas.py` writes. A few operators are Rushlight's own (`rushlight::`, in
//!   `schema.rs`). They are decomposed to PyTorch's where no backend claims them.
//! - **The verifier runs after every pass** in debug builds.
//! - **Quantized programs are the ones that PyTorch's quantizers leave**: integers between `quantize` and `dequantize`
//!   ([`quantization`]). Every operator between them is a float operator. Passes, the interpreter and other backends need no
//!   knowledge of quantization, and there is one meaning to compare with. Dequantized constants know their integers
//!   ([`QuantizedConstant`]).
//! - **Long work reports its progress and can be cancelled** ([`Progress`], handed in with the options). Passes, calibrations,
//!   roundings, comparisons and the writing of files report to it. They end with an error of the kind `Cancelled` when it says so.
//!   The command line draws a bar and ends on Ctrl-C. Python works on another thread, so that the caller's thread handles signals.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arena;
mod bytes;
mod call;
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
pub use call::Call;
pub use constant::{Computed, Constant, ConstantData, QuantizedConstant, row_major_strides};
pub use error::{Error, ErrorKind};
pub use expr::{Expr, MAX_NODES, Symbol, SymbolId, Symbols};
pub use graph::{Block, BlockId, Def, Graph, Input, NodeId, OriginId, Target, Update, Value, ValueId};
pub use model::{ConstantId, Delegate, DelegateId, Literal, Model, PartNode, State, StateId};
pub use node::{Arg, Layout, MemoryFormat, Node, Op};
pub use once::once;
pub use ops::{Builder, bind};
pub use origin::{NodeMetadata, Origin, SourceFrame};
pub use parameters::{Parameters, Products};
pub use pass::Pass;
pub use progress::{Progress, ProgressListener};
pub use rewrite::{Action, substitute, substitute_outputs};
pub use schema::{Kind, Param, Schema, Schemas};
pub use types::{Granularity, Quantization, TensorType, Type};
