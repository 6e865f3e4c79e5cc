//! Lifts a `.pte` program back into the graph, so that it can be changed, partitioned and compiled again.
//!
//! A program is a list of instructions that write to memory. `method` walks through them in order, and `scope` knows
//! the value in every place of the planned memory. So each read becomes a use of a value:
//! - Out variants become calls of their functional operators (`calls`).
//! - Tensors that share a place become views.
//! - Arithmetic on numbers becomes expressions (`numbers`).
//! - Jumps become `cond`, `while_loop` and `scan` (`control`).
//!
//! A program leaves some facts open. They are decided like this:
//! - A planned tensor is state if it has an initial value or a fully qualified name, or if it is read before anything
//!   wrote to its place. Methods share a state if it has the same name and the same place in both, in an arena other
//!   than the first. A runtime may share those arenas between methods.
//! - A tensor of bounded size has a symbol for each dimension, until an operator shows that the dimension is fixed. The rules
//!   about sizes that Rushlight writes (`shapes` of the format) name the fixed dimensions of inputs.
//! - The payload of a delegate with an importer ([`payload`](super::payload)) names its results. For other delegates, the
//!   results are the last arguments of the call that no earlier instruction has written.

mod accesses;
mod calls;
mod control;
mod inline;
mod liveness;
mod method;
mod numbers;
mod regions;
mod scope;
mod sources;
mod twins;

use std::collections::HashSet;

use rushlight_format::bundled::BundledProgram;
use rushlight_format::ptd::FlatTensor;
use rushlight_format::pte::{Program, ProgramModel, StorageModel};

use crate::debug_map::DEBUG_MAP_KEY;
use crate::front::part;
use crate::front::payload::{IMPORTERS, Importer};
use rushlight_graph::{Bytes, Error, ErrorKind, Model};

use method::Method;
use sources::Sources;

/// Options of lifting.
#[derive(Clone, Debug)]
pub struct LiftOptions {
    /// The importers of payloads, whose delegates become operators again. Delegates that an importer refuses stay, with
    /// the reason in [`Delegate::refusal`](rushlight_graph::Delegate::refusal).
    pub importers: &'static [Importer],
    /// Ids of backends whose delegates stay although an importer reads them.
    pub keep: Vec<String>,
}

impl Default for LiftOptions {
    fn default() -> Self {
        Self { importers: IMPORTERS, keep: Vec::new() }
    }
}

/// Lifts every method of a program, with the default options. `external` are the `.ptd` files that hold its external
/// tensors.
///
/// # Errors
/// As [`lift_with`].
pub fn lift(file: &Bytes, external: &[Bytes]) -> Result<Model, Error> {
    lift_with(file, external, &LiftOptions::default())
}

/// Lifts every method of a program. `external` are the `.ptd` files that hold its external tensors.
///
/// # Errors
/// `Input` for files that cannot be parsed. `Unsupported` for operators and jumps that have no functional form.
/// `InvalidProgram` for programs that contradict themselves. Each error has the method and the instruction.
pub fn lift_with(file: &Bytes, external: &[Bytes], options: &LiftOptions) -> Result<Model, Error> {
    let damaged = |what: &str, error: &dyn std::fmt::Display| Error::new(ErrorKind::Input, format!("{what}: {error}"));
    let file = match BundledProgram::parse(file) {
        Ok(bundled) => part(file, bundled.program()).unwrap_or_else(|| file.clone()),
        Err(_) => file.clone(),
    };
    let program = Program::parse(&file).map_err(|error| damaged("the program cannot be read", &error))?;
    let parse = |bytes| FlatTensor::parse(bytes).map_err(|error| damaged("an external file cannot be read", &error));
    let tensors = external.iter().map(|bytes| parse(bytes)).collect::<Result<Vec<_>, _>>()?;
    let content = ProgramModel::from_program(&program);
    let external = external.iter().zip(tensors).collect();
    let mut sources = Sources::new(&file, program, external, options.importers, &options.keep);
    let mut model = Model::default();
    // The debug map is dropped: the origins of instructions become origins of nodes, and a new map is made from these.
    for (key, data) in program.named_data().filter(|(key, _)| *key != DEBUG_MAP_KEY) {
        let data = part(&file, data).unwrap_or_else(|| data.to_vec().into());
        model.named_data.push((key.to_owned(), data.into()));
    }
    for plan in &content.methods {
        let site = |error: Error| error.at(format!("method `{}`", plan.name));
        let graph = Method::new(plan, &mut sources, &mut model).and_then(Method::lift).map_err(site)?;
        model.add_method(&plan.name, graph);
    }
    drop_external_tensors(&mut model, &content);
    let inlined = sources.inlined.into_inner();
    if model.delegates.iter().next().is_none() {
        model.named_data.retain(|(key, _)| !inlined.contains(key));
    }
    // A program may call operators with invalid arguments.
    model.verify().map_err(|error| error.with_kind(ErrorKind::InvalidProgram))?;
    Ok(model)
}

/// Keeps the named data of delegates. The named data of tensors has become constants.
fn drop_external_tensors(model: &mut Model, content: &ProgramModel<'_>) {
    let values = content.methods.iter().flat_map(|plan| &plan.values);
    let names: HashSet<&str> = values
        .filter_map(|value| match value {
            rushlight_format::pte::ValueModel::Tensor(tensor) if tensor.storage == StorageModel::External => {
                tensor.fully_qualified_name.as_deref()
            }
            _ => None,
        })
        .collect();
    model.named_data.retain(|(key, _)| !names.contains(key.as_str()));
}
