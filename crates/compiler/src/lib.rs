//! Compiles exported programs to `.pte` files: front ends read `.pt2` and `.pte` programs into one [graph](rushlight_graph),
//! passes lower it to operators that runtimes have, backends claim parts of it, and the emitter writes the file.
//!
//! [`compile_pt2`] and [`compile_pte`] do all of it; [`pipeline`](advance) lists the passes. The compiler knows no backend:
//! they come in as values that implement [`partition::Backend`]. It knows nothing of files on disk, terminals or Python
//! either: callers hand in bytes and get bytes.
//!
//! # The stages
//!
//! 1. **Read.** `front/pt2` reads the output of `torch.export.save`: a zip archive, a program in JSON, weights as entries or in a
//!    pickle. Only `import` there knows operators and the graph. It is a feature; without it, neither the compiler nor lowering at
//!    load depends on serde. `front/pte` lifts a `.pte` program. It follows the instructions, knows which value each place of
//!    planned memory holds, and turns out variants into functional calls and jumps into `cond`, `while_loop` and `scan`. Delegates
//!    of XNNPACK become operators there too: `format/payload` reads the payload, and an importer of `front/payload` translates its
//!    nodes. Quantized tensors become integers between operators that quantize and dequantize. A payload with an untranslated node
//!    stays a delegate, with the reason in `Delegate::refusal`. The crate `rushlight-decoders` builds graphs of language models from
//!    checkpoints.
//! 2. **Canonical** (`passes/`). `Functionalise` replaces writes by new values and makes their effects on views, states and inputs
//!    explicit. `FreezeStates` turns states that nothing updates into constants, and drops updates of states that nothing reads.
//!    `decompose` replaces the operators that kernels do not have. It keeps those that accelerators compute in one step, such as
//!    attention and norms ([`CANONICAL_COMPOSITES`](passes::CANONICAL_COMPOSITES), a fixed table). Dead code goes.
//! 3. **Simplify.** `FoldBatchNorms`, `FoldConstants`, `MergeConstants`, `MergeCommonSubexpressions`, and dead code again. The
//!    reference operators compute constants (`interpret.rs`). Passes of the user's own follow.
//! 4. **Claims** (`partition/`). Each backend, in order of priority, is shown the canonical form with its constants and states, and
//!    claims nodes. The framework gathers them into as few parts as the order of computation allows and extracts each as a model of
//!    its own. The backend legalizes and compiles it. A call of a delegate, or the operators that the backend gives, take its place.
//!    If no backend claims a composite, it is decomposed in the functional graph, stages 2 and 3 run again, and the backends claim
//!    anew. A backend that claims only the parts gets what it would get without composites. Values computed from constants alone can
//!    be copied into the parts that use them. The inner nodes of a pattern join the part of its last node. A part takes an input of
//!    the method if its own inputs lack a size that it needs. Unclaimed nodes stay exactly canonical: `testing/tests/it/claims.rs`
//!    has a backend that refuses everything and changes no byte. The report says for each node who claimed it, or why each backend
//!    refused it.
//! 5. **Lower.** Composites of parts that a backend could not compile are decomposed, `CheckOperators` reports all missing
//!    operators, and `LowerSymbolicSizes` makes the nodes that compute sizes. `AssignDimOrders` lets nodes compute on channels-last
//!    images where that copies less, by a minimum cut (`cut.rs`). `ReorderNodes` changes the order of the source where another
//!    order needs less memory.
//! 6. **Plan** (`memory/`). Sizes and lifetimes in, places out. Several greedy orders are tried, ExecuTorch's among them. Random
//!    improvement follows until the plan meets the bound that no plan can beat, or the work is spent. `check` verifies a plan by
//!    another algorithm. `recover` finds sizes and lifetimes in a finished program, for drawings.
//! 7. **Emit** (`emit/`). Values, instructions, jumps, constants stored once, and the debug map (`debug_map.rs`): the node and the
//!    line of Python of each instruction. It is named data, which runtimes ignore. Constants go to the program or, where a rule
//!    says so, to `.ptd` files under their names (`external.rs`). Large constants are read from the archive when their turn to be
//!    written comes, by one thread while another writes. Payloads of the CPU backend that go to a file are parsed and checked; a
//!    payload that is lowered at load is checked when it is loaded. Debug builds load the whole program, up to 256 MiB. A
//!    contradiction is an error where it is made, not where it is read.
//!
//! # Decisions
//!
//! - **A backend is a pair.** [`partition::Backend`] claims and compiles; `runtime::Backend` of the same name makes `Delegate`s
//!   from the payload. Nothing else joins them, so the compiling half may run on another machine. A backend may give operators
//!   instead ([`partition::Compiled`]): their kernels are its other half. Backends are given as objects, from Rust or Python.
//! - **Options are declared** (`Backend::options`) by each half of a backend, as the same `OptionSpec`: name, type, default,
//!   documentation. Another name or value is an error that lists them. The ahead-of-time half gets its options before it sees a
//!   graph (`partition/options.rs`).
//! - **Operators of other namespaces are the user's own.** Their result types come from the export. The runtime finds the kernel or
//!   says that it is missing.
//! - **Expert layers are one matrix.** The layers of all experts of a mixture are one weight, concatenated along its rows, and one
//!   operator, `rushlight::experts_linear`, which quantization treats as a linear layer. Exported programs look up a matrix for
//!   each row, or sort rows by their experts. `raise/experts.rs` and `raise/ungroup_experts.rs` of the passes find both forms, for
//!   quantization and where the CPU backend legalizes. Other backends see the exported form.
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
pub mod quantization;

pub use pipeline::{
    CompileOptions, Compiled, ConstantResult, Stage, advance, check_method_names, compile, compile_pte, prepare_layers,
};
#[cfg(feature = "pt2")]
pub use pipeline::{compile_pt2, import_pt2};
