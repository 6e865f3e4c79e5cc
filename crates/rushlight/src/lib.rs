//! Compiles PyTorch models and runs them. A model is exported by `torch.export` to a `.pt2` file, which a [`Compiler`] compiles to
//! a program, a `.pte` file in ExecuTorch's format, of which a [`Module`] runs the methods.
//!
//! # Load and run
//!
//! A program knows what it takes. [`Module::load`] maps the file; inputs are slices with a shape. A portable program is compiled for
//! this machine when it is loaded, if that saves time ([`Lower`]).
//!
//! ```
//! use rushlight::{Module, TensorView};
//!
//! # fn main() -> rushlight::Result<()> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m")).unwrap();
//! let mut module = Module::load("digits.pte")?;
//! for input in &module.meta("forward")?.inputs {
//!     println!("{input}"); // f32 [1, 1, 8, 8]
//! }
//!
//! let image = [0.0f32; 64];
//! let outputs = module.forward(&[TensorView::of(&[1, 1, 8, 8], &image)?.into()])?;
//! let logits = outputs[0].as_slice::<f32>()?;
//! assert_eq!(logits.len(), 10);
//!
//! // What does not fit is an error that says what was expected, what came, and what to do.
//! let error = module.forward(&[TensorView::of(&[1, 1, 4, 16], &image)?.into()]).unwrap_err();
//! assert!(error.to_string().contains("wrong shape"));
//! # Ok(())
//! # }
//! ```
//!
//! # Compile
//!
//! With the feature `pt2`, which is on by default. [`Compiler::quantize`] has layers compute in integers, and
//! [`Compiler::language_model`] builds decoders of their published weights.
//!
//! ```
//! # #[cfg(all(feature = "pt2", feature = "cpu-compile"))]
//! # fn main() -> rushlight::Result<()> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m")).unwrap();
//! use rushlight::{Compiler, Module};
//!
//! let program = Compiler::new().method("forward", "digits.pt2").backend("cpu").compile()?;
//! let module = Module::builder().threads(1).load_bytes(&program.to_bytes()?)?; // or `program.save("digits.pte")`
//! assert_eq!(module.method_names().collect::<Vec<_>>(), ["forward"]);
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "pt2", feature = "cpu-compile")))]
//! # fn main() {}
//! ```
//!
//! # A custom operator
//!
//! An operator is a function, its name and the number of its arguments. Programs call the out variant:
//! `example::twice(Tensor x) -> Tensor` in PyTorch is `example::twice.out` with the arguments `x` and `out`.
//!
//! ```
//! use rushlight::runtime::{KernelContext, Result};
//! use rushlight::{Op, OpSet, TensorView};
//!
//! fn twice_out(context: &KernelContext<'_>) -> Result<()> {
//!     let x = context.tensor(0)?;
//!     let mut out = context.out(1)?;
//!     out.resize(x.sizes())?;
//!     for (y, x) in out.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
//!         *y = 2.0 * x;
//!     }
//!     Ok(())
//! }
//!
//! static MY_OPS: OpSet = OpSet { name: "MY_OPS", groups: &[&[&[Op::new("example::twice.out", 2, twice_out)]]] };
//!
//! # #[cfg(feature = "pt2")]
//! # fn main() -> rushlight::Result<()> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/pt2/custom_operator.pt2");
//! // In Python: `torch.library.custom_op("example::twice", mutates_args=())` on a function of a tensor, and `register_fake` for its
//! // shape; `path` is what `torch.export.save` wrote of a model that returns `torch.ops.example.twice(x) + 1`.
//! let program = rushlight::Compiler::new().method("forward", path).compile()?.to_bytes()?;
//! let mut module = rushlight::Module::builder().ops(&MY_OPS).load_bytes(&program)?;
//! let outputs = module.forward(&[TensorView::of(&[4], &[1.0f32, 2.0, 3.0, 4.0])?.into()])?;
//! assert_eq!(outputs[0].as_slice::<f32>()?, [3.0, 5.0, 7.0, 9.0]);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "pt2"))]
//! # fn main() {}
//! ```
//!
//! # A session
//!
//! Methods keep state between calls, such as a KV cache. A [`Session`] is a state of its own over the module's weights: several users
//! take turns, and each continues where it was. This model takes tokens and the position of the first, and returns logits for the next.
//!
//! ```
//! # #[cfg(all(feature = "llm", feature = "cpu", feature = "cpu-compile"))]
//! # fn main() -> rushlight::Result<()> {
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/decoders/llama");
//! use rushlight::{Compiler, LanguageModelOptions, Module, Session, TensorView};
//!
//! let options = LanguageModelOptions { max_context_len: Some(64), ..Default::default() };
//! let program = Compiler::new().language_model(folder, options).backend("cpu").compile()?;
//! let mut module = Module::builder().load_bytes(&program.to_bytes()?)?;
//!
//! let tokens = [15i64, 43, 57, 57];
//! let prompt = [TensorView::of(&[1, 4], &tokens)?.into(), TensorView::of(&[1], &[0i64])?.into()];
//! let mut one = module.session()?;
//! module.call("forward").inputs(&prompt).session(&mut one).run()?;
//!
//! // The other begins with what the first has read, and reads on by itself.
//! let mut other = one.fork()?;
//! let at_4 = TensorView::of(&[1], &[4i64])?;
//! let read = |module: &mut Module, session: &mut Session, token: i64| -> rushlight::Result<Vec<f32>> {
//!     let token = [token];
//!     let inputs = [TensorView::of(&[1, 1], &token)?.into(), at_4.into()];
//!     let outputs = module.call("forward").inputs(&inputs).session(session).run()?;
//!     Ok(outputs[0].as_slice::<f32>()?.to_vec())
//! };
//! let logits = read(&mut module, &mut one, 41)?;
//! assert_ne!(read(&mut module, &mut other, 15)?, logits);
//!
//! // Forget the last token, and read the other session's.
//! other.rewind(4)?;
//! assert_eq!(read(&mut module, &mut other, 41)?, logits);
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "llm", feature = "cpu", feature = "cpu-compile")))]
//! # fn main() {}
//! ```
//!
//! Text in, text out, with tokenizers, chat templates and sampling: the crate `rushlight-llm`, over a [`Module`].
//!
//! # Threads, limits and cancelling
//!
//! A module uses as many threads as the machine runs at once, or [`ModuleBuilder::threads`]. [`ModuleBuilder::memory_limit`] and
//! [`time_limit`](ModuleBuilder::time_limit) are for programs that one does not trust. A tracer ends a call between two steps when
//! its interrupt says so; the module can be called again. Lowering, which comes before the first call, ends when its
//! [`progress`](ModuleBuilder::progress) is cancelled.
//!
//! ```
//! # #[cfg(feature = "std")]
//! # fn main() -> rushlight::Result<()> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m")).unwrap();
//! use rushlight::runtime::{EventTracer, Interrupt, Stop};
//! use rushlight::{Code, Module, TensorView};
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! struct Flag<'f>(&'f AtomicBool);
//!
//! impl Interrupt for Flag<'_> {
//!     fn poll(&self) -> Option<Stop> {
//!         self.0.load(Ordering::Relaxed).then_some(Stop::Cancelled)
//!     }
//! }
//!
//! impl EventTracer for Flag<'_> {
//!     fn interrupt(&self) -> Option<&dyn Interrupt> {
//!         Some(self)
//!     }
//! }
//!
//! // Another thread may set it at any time.
//! static CANCELLED: AtomicBool = AtomicBool::new(true);
//! let mut module = Module::load("digits.pte")?;
//! let input = TensorView::of(&[1, 1, 8, 8], &[0.0f32; 64])?.into();
//! let error = module.call("forward").inputs(&[input]).tracer(&mut Flag(&CANCELLED)).run().unwrap_err();
//! assert_eq!(error.code(), Code::InvalidState);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "std"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | none | [`runtime`], [`kernels`]: `no_std`, no allocator; `Program` and `Method` run programs from static memory with the operators of `kernels::PORTABLE`: see `examples/cortex-m` |
//! | `std` | [`Module`]: files, mapping, owned tensors, explained errors |
//! | `cpu` | the CPU backend: runs what was compiled for it, with threads and vector instructions |
//! | `lower` | portable programs are compiled for the machine when they are loaded; implies `cpu` and `cpu-compile` |
//! | `compile` | [`compiler`] and [`graph`]: backends and passes of one's own |
//! | `cpu-compile` | compiling for the CPU backend |
//! | `cortex-m-compile` | compiling int8 models for microcontrollers |
//! | `pt2` | [`Compiler`] of `.pt2` files; with `cpu`, quantization |
//! | `llm` | [`Compiler::language_model`] |
//!
//! All are on by default. With `default-features = false, features = ["std"]` the crate has 6 dependencies in place of 32. Without
//! `lower`, a portable program runs on the reference operators. The first one with much work is reported on standard error, once in a
//! process.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "compile")]
#[cfg_attr(not(feature = "pt2"), allow(dead_code, reason = "`Compiler` uses all of it, the cache a part"))]
mod atomic;
#[cfg(feature = "std")]
mod backend_options;
#[cfg(any(feature = "compile", feature = "_backends"))]
mod backends;
#[cfg(feature = "std")]
mod batch;
#[cfg(all(doctest, feature = "llm"))]
mod book;
#[cfg(feature = "std")]
mod clock;
#[cfg(feature = "pt2")]
mod compile;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod explain;
#[cfg(feature = "pt2")]
mod exported;
#[cfg(feature = "std")]
mod instance;
#[cfg(feature = "std")]
mod kinds;
#[cfg(feature = "pt2")]
mod kv_cache;
#[cfg(feature = "llm")]
mod language_model;
#[cfg(feature = "lower")]
mod lower;
#[cfg(feature = "std")]
mod meta;
#[cfg(feature = "std")]
mod module;
#[cfg(feature = "std")]
mod names;
#[cfg(feature = "std")]
pub mod options;
#[cfg(feature = "std")]
mod outputs;
#[cfg(feature = "std")]
mod panic;
#[cfg(feature = "_backends")]
mod portability;
#[cfg(all(feature = "pt2", feature = "_backends"))]
mod quantize;
#[cfg(feature = "std")]
mod session;
#[cfg(feature = "std")]
mod source;
#[cfg(feature = "std")]
mod tensor;
#[cfg(feature = "pt2")]
mod tokenizer;
#[cfg(feature = "std")]
mod work;

#[cfg(feature = "compile")]
pub use atomic::{InputFiles, write_file};
#[cfg(all(feature = "_backends", any(feature = "cpu", feature = "cpu-compile")))]
pub use backends::chosen_isa;
#[cfg(feature = "lower")]
pub use backends::program_backends;
#[cfg(feature = "compile")]
pub use backends::{BackendChoice, BackendSpec};
#[cfg(any(feature = "compile", feature = "_backends"))]
pub use backends::{BackendInfo, backends};
#[cfg(feature = "_backends")]
pub use backends::{default_threads, runs_backend};
#[cfg(feature = "std")]
pub use batch::{BatchCall, MethodBatch};
#[cfg(feature = "pt2")]
pub use compile::{CompiledProgram, Compiler};
#[cfg(feature = "std")]
pub use error::{Error, MissingOperator};
#[cfg(feature = "pt2")]
pub use exported::{ExportedMeta, example_inputs, exported_meta};
pub use half::{bf16, f16};
#[cfg(feature = "std")]
pub use instance::{MethodInstance, Submission};
#[cfg(feature = "pt2")]
pub use kv_cache::KvCache;
#[cfg(feature = "llm")]
pub use language_model::is_language_model;
#[cfg(all(feature = "lower", feature = "llm"))]
pub use lower::CachedModel;
#[cfg(feature = "lower")]
pub use lower::{Cache, CacheUse, Fingerprint, Lower};
#[cfg(feature = "std")]
pub use meta::{MethodMeta, OperatorUse, SizeRange, TensorInfo, ValueInfo};
#[cfg(feature = "std")]
pub use module::{Call, DeviceLimits, Module, ModuleBuilder, reference_operators};
#[cfg(feature = "std")]
pub use outputs::OutputMut;
#[cfg(feature = "std")]
pub use panic::{panic_error, panic_message};
#[cfg(feature = "_backends")]
pub use portability::Portability;
#[cfg(all(feature = "pt2", feature = "_backends"))]
pub use quantize::{
    Decibels, Inputs, LOW_SNR, LayerReport, Observer, OutputReport, Quantization, QuantizationProposal,
    QuantizationReport, Rounding, Scheme,
};
#[cfg(feature = "llm")]
pub use rushlight_decoders::{Options as LanguageModelOptions, Output as LanguageModelOutput};
#[cfg(feature = "_backends")]
pub use rushlight_engine::Isa;
#[cfg(feature = "std")]
pub use rushlight_format::signature::{Key, Parameter, RecordKind, Signature, Structure};
#[cfg(feature = "compile")]
pub use rushlight_graph::{Progress, ProgressListener};
pub use rushlight_kernels as kernels;
#[cfg(target_has_atomic = "8")]
pub use rushlight_runtime::Arena;
pub use rushlight_runtime::{
    self as runtime, Code, Input, Method, Op, OpSet, Program, Registry, Scalar, ScalarType, TensorView, TensorViewMut,
};
#[cfg(feature = "std")]
pub use session::Session;
#[cfg(feature = "std")]
pub use source::LoadMode;
#[cfg(feature = "pt2")]
pub use source::{open_exported, open_shared};
#[cfg(feature = "std")]
pub use tensor::{Tensor, Value};
#[cfg(feature = "pt2")]
pub use tokenizer::ProgramTokenizer;

/// The intermediate representation that backends and passes of one's own read and make.
#[cfg(feature = "compile")]
pub mod graph {
    pub use rushlight_graph::{
        Action, Arena, Arg, Block, BlockId, Builder, Bytes, Call, Constant, ConstantData, ConstantId, Def, Delegate,
        DelegateId, Error, ErrorKind, Expr, Granularity, Graph, Id, Input, Kind, Layout, Literal, MemoryFormat, Model,
        Node, NodeId, NodeMetadata, Op, Origin, OriginId, Param, Pass, Quantization, Schema, Schemas, SourceFrame,
        State, StateId, Symbol, SymbolId, Symbols, Target, TensorType, Type, Update, Value, ValueId, operators, text,
    };
}

/// Interfaces for your own backends and passes, and everything that [`Compiler`] does not cover.
#[cfg(feature = "compile")]
pub mod compiler {
    #[cfg(feature = "pt2")]
    pub use rushlight_compiler::compile_pt2;
    pub use rushlight_compiler::{
        CompileOptions, Compiled, ConstantResult, compile, compile_pte, debug_map, partition, passes, quantization,
    };

    /// Options of the program's file.
    pub mod emit {
        pub use rushlight_compiler::emit::{EmitOptions, ExternalWeights};
    }
}

/// The result of the facade's functions.
#[cfg(feature = "std")]
pub type Result<T> = core::result::Result<T, Error>;

/// The bytes of a `.pte` file, aligned as programs need them, in the binary: `include_program!("model.pte")` is a
/// `&'static [u8]`.
#[macro_export]
macro_rules! include_program {
    ($path:literal) => {{
        #[repr(C, align(16))]
        struct Aligned<T: ?Sized>(T);
        static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        &PROGRAM.0
    }};
}
