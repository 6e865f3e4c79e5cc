//! The compiler from end to end: what runs, in which order.

use rushlight_format::pte::ProgramModel;

use crate::Bytes;
use crate::emit::{EmitOptions, Emitted, MethodMap, emit};
use crate::error::Error;
use crate::front::pt2::{Archive, ImportOptions, import};
use crate::front::pte::lift;
use crate::graph::{Literal, Model};
use crate::passes::{
    CheckOperators, EliminateDeadCode, FoldBatchNorms, FoldConstants, FreezeStates, Functionalise, LowerComposites,
    LowerSymbolicSizes, MergeCommonSubexpressions, MergeConstants, Pass,
};

/// What to compile, and how.
#[derive(Debug, Default)]
pub struct CompileOptions {
    pub import: ImportOptions,
    pub emit: EmitOptions,
    /// Methods that take nothing and return constants, by name.
    pub constant_methods: Vec<(String, Vec<Literal>)>,
    /// Passes of the user's own. They see a functional graph of operators that kernels have.
    pub passes: Vec<Box<dyn Pass>>,
}

/// A compiled program.
#[derive(Debug)]
pub struct Compiled {
    /// What [`ProgramModel::write`] turns into a file.
    pub program: ProgramModel<'static>,
    /// For each method what its instructions come from.
    pub debug: Vec<MethodMap>,
}

/// Compiles `.pt2` archives, each to a method of the given name.
///
/// # Errors
/// What [`import`] and the passes find.
pub fn compile_pt2(programs: &[(&str, Bytes)], options: &CompileOptions) -> Result<Compiled, Error> {
    let mut archives = Vec::with_capacity(programs.len());
    for (method, bytes) in programs {
        archives.push((*method, Archive::parse(bytes.clone()).map_err(Error::from)?));
    }
    let mut sources = Vec::with_capacity(archives.len());
    for (method, archive) in &archives {
        sources.push((*method, archive.model().map_err(Error::from)?));
    }
    let programs: Vec<_> = sources.iter().map(|(method, source)| (*method, source)).collect();
    compile(import(&programs, options.import)?, options)
}

/// Compiles a `.pte` program again. `external` are the `.ptd` files with its external tensors.
///
/// # Errors
/// What [`lift`] and the passes find.
pub fn compile_pte(file: &Bytes, external: &[Bytes], options: &CompileOptions) -> Result<Compiled, Error> {
    compile(lift(file, external)?, options)
}

/// Compiles a model that a front end made.
///
/// # Errors
/// What the passes find.
pub fn compile(mut model: Model, options: &CompileOptions) -> Result<Compiled, Error> {
    model.constant_methods.extend(options.constant_methods.iter().cloned());
    for pass in canonical().iter().chain(&options.passes).chain(&lowering()) {
        pass.run(&mut model)?;
        // A broken graph shows best at the pass that broke it.
        if cfg!(debug_assertions) {
            model.verify().map_err(|error| error.help(format!("pass `{}` broke it", pass.name())))?;
        }
    }
    let Emitted { program, debug } = emit(&model, &options.emit)?;
    Ok(Compiled { program, debug })
}

/// From what a front end gives to a functional graph of operators that kernels have.
fn canonical() -> Vec<Box<dyn Pass>> {
    vec![
        Box::new(Functionalise),
        Box::new(FreezeStates),
        Box::new(EliminateDeadCode),
        Box::new(LowerComposites),
        Box::new(FoldBatchNorms),
        Box::new(FoldConstants),
        Box::new(MergeConstants),
        Box::new(MergeCommonSubexpressions),
        Box::new(EliminateDeadCode),
        Box::new(CheckOperators),
    ]
}

/// From there to what the emitter writes.
fn lowering() -> Vec<Box<dyn Pass>> {
    vec![Box::new(LowerSymbolicSizes), Box::new(EliminateDeadCode)]
}
