//! From a lowered model to a program file.
//!
//! A method becomes a list of values and a list of instructions. Blocks are laid out one after the other with jumps
//! (`control`). Calls name the out variants of their operators (`calls`). Every computed tensor gets a place in an arena
//! for as long as it is in use (`lifetimes`). A state is updated in place where that does not change a result
//! (`in_place`).

mod calls;
mod control;
mod deduplicate;
mod external;
mod in_place;
mod lifetimes;
mod method;
mod options;
mod pools;
mod storage;

use rushlight_format::pte::{PlanModel, ProgramModel};

use rushlight_graph::Error;
use rushlight_graph::{Literal, Model};

use crate::debug_map;

pub use crate::debug_map::{InstructionOrigin, MethodMap};
pub use external::{ExternalData, ExternalWeights};
pub use options::EmitOptions;

use external::External;
use method::Method;
use pools::Pools;

/// A program that is ready to be written.
#[derive(Debug)]
pub struct Emitted {
    /// The content of the file.
    pub program: ProgramModel<'static>,
    /// The content of the `.ptd` files that belong to it.
    pub external: Vec<ExternalData>,
    /// The origins of the instructions of each method, in the order of the program.
    pub debug: Vec<MethodMap>,
}

/// Writes a model whose graphs consist of the runtime's operators.
///
/// # Errors
/// - `Unsupported` for an operator without an out variant, or a size without an upper bound.
/// - `InvalidProgram` for a constant that cannot be read.
/// - `Output` for a pattern of external weights that no constant matches.
pub fn emit(model: &Model, options: &EmitOptions) -> Result<Emitted, Error> {
    if let Some(weights) = &options.external_weights {
        weights.check_names(model)?;
    }
    let external = options.external_weights.as_ref().map(External::new).transpose()?;
    let mut pools = Pools { external, ..Pools::default() };
    let mut emitted = Emitted { program: ProgramModel::new(), external: Vec::new(), debug: Vec::new() };
    let shared = storage::shared_states(model);
    for (name, graph) in &model.methods {
        let site = |error: Error| error.at(format!("method `{name}`"));
        let (plan, map) = Method::new(model, graph, &mut pools, options, &shared).finish(name).map_err(site)?;
        emitted.program.methods.push(plan);
        emitted.debug.push(map);
    }
    for (name, values) in &model.constant_methods {
        emitted.program.methods.push(constant_method(model, &mut pools, name, values)?);
        emitted.debug.push(MethodMap { method: name.clone(), instructions: Vec::new() });
    }
    let Pools { constants, initial_values, external } = pools;
    emitted.external = external.map(External::into_data).unwrap_or_default();
    emitted.program.constants = constants.into_data();
    emitted.program.mutable_data = initial_values.into_data();
    emitted.program.named_data.clone_from(&model.named_data);
    if options.debug_map {
        let map = debug_map::to_bytes(&emitted.debug);
        emitted.program.named_data.push((debug_map::DEBUG_MAP_KEY.into(), map.into()));
    }
    Ok(emitted)
}

/// Returns a method without instructions, which returns constants.
fn constant_method(
    model: &Model,
    pools: &mut Pools,
    name: &str,
    values: &[Literal],
) -> Result<PlanModel<'static>, Error> {
    use rushlight_format::pte::ValueModel;
    let mut plan = PlanModel::new(name);
    for value in values {
        plan.output(match value {
            Literal::None => ValueModel::None,
            Literal::Int(int) => ValueModel::Int(*int),
            Literal::Float(float) => ValueModel::Double(*float),
            Literal::Bool(bool) => ValueModel::Bool(*bool),
            Literal::Str(text) => ValueModel::String(text.clone()),
            Literal::Tensor(id) => ValueModel::Tensor(pools.tensor(&model.constants[*id])?),
        });
    }
    Ok(plan)
}
