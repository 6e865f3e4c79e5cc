//! Lowering when a program is loaded: portable programs at the speed of compiled ones.

use std::sync::Arc;

use rushlight_compiler::back::cpu::Cpu;
use rushlight_compiler::emit::EmitOptions;
use rushlight_compiler::{Bytes, CompileOptions, compile_pte};
use rushlight_runtime::StableBytes;

use crate::error::Error;
use crate::source::{self, Shared};

/// What is done with a portable program when it is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lower {
    /// It runs on the reference operators.
    #[default]
    Off,
    /// It is lifted into the compiler's graph, optimised, and compiled for the CPU back end. What that does not take
    /// runs on the reference operators. A program that cannot be lifted runs as it is;
    /// [`Module::not_lowered`](crate::Module::not_lowered) says why.
    Auto,
}

/// The program compiled again for this machine; constants of `external` become part of it.
pub(crate) fn lower(
    program: Arc<dyn StableBytes>,
    external: Vec<Arc<dyn StableBytes>>,
) -> Result<Arc<dyn StableBytes>, Error> {
    let bytes = |bytes| Bytes::new(Shared(bytes));
    let external: Vec<Bytes> = external.into_iter().map(bytes).collect();
    let options = CompileOptions {
        backends: vec![Box::new(Cpu)],
        emit: EmitOptions { debug_map: false, ..EmitOptions::default() },
        ..CompileOptions::default()
    };
    let compiled = compile_pte(&bytes(program), &external, &options)?;
    let file = compiled.program.to_bytes().map_err(|error| Error::invalid(error.to_string()))?;
    source::copy(&file)
}
