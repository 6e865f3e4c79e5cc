//! Rushlight's facade: the crate that users depend on.
//!
//! With the feature `std` (the default) a [`Module`] loads a `.pte` file and runs its methods:
//!
//! ```no_run
//! # fn main() -> Result<(), rushlight::Error> {
//! let mut module = rushlight::Module::load("model.pte")?;
//! let image = vec![0.0f32; 3 * 224 * 224];
//! let outputs = module.forward(&[rushlight::TensorView::of(&[1, 3, 224, 224], &image)?.into()])?;
//! println!("{:?}", outputs[0].as_slice::<f32>()?);
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `pt2` (also the default) a [`Compiler`] makes `.pte` files of the `.pt2` files that
//! `torch.export.save` writes:
//!
//! ```no_run
//! # fn main() -> Result<(), rushlight::Error> {
//! rushlight::Compiler::new().method("forward", "model.pt2").compile()?.save("model.pte")?;
//! # Ok(())
//! # }
//! ```
//!
//! Without `std`, [`runtime`] and [`kernels`] run programs from static memory: see `examples/cortex-m`.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "compile")]
#[cfg_attr(not(feature = "pt2"), allow(dead_code, reason = "`Compiler` uses all of it, the cache a part"))]
mod atomic;
#[cfg(any(feature = "compile", feature = "backends"))]
mod backends;
#[cfg(feature = "std")]
mod batch;
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
mod options;
#[cfg(all(feature = "pt2", feature = "backends"))]
mod quantize;
#[cfg(feature = "std")]
mod session;
#[cfg(feature = "std")]
mod source;
#[cfg(feature = "std")]
mod tensor;
#[cfg(feature = "pt2")]
mod tokenizer;

#[cfg(feature = "compile")]
pub use atomic::{InputFiles, write_file};
#[cfg(feature = "compile")]
pub use backends::{BackendChoice, BackendSpec};
#[cfg(any(feature = "compile", feature = "backends"))]
pub use backends::{BackendInfo, backends};
#[cfg(feature = "backends")]
pub use backends::{chosen_isa, default_threads, runs_backend};
#[cfg(feature = "std")]
pub use batch::{BatchCall, MethodBatch};
#[cfg(feature = "pt2")]
pub use compile::{CompiledProgram, Compiler, open_exported, open_shared};
#[cfg(feature = "std")]
pub use error::{Error, MissingOperator};
#[cfg(feature = "pt2")]
pub use exported::exported_inputs;
pub use half::{bf16, f16};
#[cfg(feature = "std")]
pub use instance::{MethodInstance, Submission};
#[cfg(feature = "pt2")]
pub use kv_cache::KvCache;
#[cfg(feature = "llm")]
pub use language_model::is_language_model;
#[cfg(feature = "lower")]
pub use lower::{Cache, CacheUse, Lower};
#[cfg(feature = "std")]
pub use meta::{MethodMeta, OperatorUse, SizeRange, TensorInfo, ValueInfo};
#[cfg(feature = "std")]
pub use module::{Module, ModuleBuilder};
#[cfg(all(feature = "pt2", feature = "backends"))]
pub use quantize::{
    Decibels, Inputs, LOW_SNR, LayerReport, Observer, OutputReport, Quantization, QuantizationReport, Rounding, Scheme,
};
#[cfg(feature = "llm")]
pub use rushlight_compiler::front::llm::{Options as LanguageModelOptions, Output as LanguageModelOutput};
#[cfg(feature = "backends")]
pub use rushlight_engine::Isa;
#[cfg(feature = "backends")]
pub use rushlight_engine::hwbench::Limits;
#[cfg(feature = "backends")]
pub use rushlight_engine::profile::{Cost, StepProfile, StepRun, StepTime};
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
#[cfg(feature = "std")]
pub use tensor::{Tensor, Value};
#[cfg(feature = "pt2")]
pub use tokenizer::ProgramTokenizer;

/// The intermediate representation that backends and passes of one's own read and make.
#[cfg(feature = "compile")]
pub mod graph {
    pub use rushlight_graph::{
        Action, Arena, Arg, Block, BlockId, Builder, Bytes, Constant, ConstantData, ConstantId, Def, Delegate,
        DelegateId, Error, ErrorKind, Expr, Granularity, Graph, Id, Input, Kind, Layout, Literal, MemoryFormat, Model,
        Node, NodeId, Op, Origin, OriginId, Param, Pass, Quantization, Schema, Schemas, SourceFrame, State, StateId,
        Symbol, SymbolId, Symbols, Target, TensorType, Type, Update, Value, ValueId, operators, text,
    };
}

/// What backends and passes of one's own are written against, and what [`Compiler`] does not cover.
#[cfg(feature = "compile")]
pub mod compiler {
    #[cfg(feature = "pt2")]
    pub use rushlight_compiler::compile_pt2;
    pub use rushlight_compiler::{
        CompileOptions, Compiled, ConstantResult, compile, compile_pte, debug_map, partition, passes,
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
