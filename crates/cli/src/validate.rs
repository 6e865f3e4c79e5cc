//! `rushlight validate`.

use clap::Args;
use rushlight::compiler::passes::CheckTypes;
use rushlight::graph::{Bytes, Pass};
use rushlight::open_shared;
use rushlight_compiler::front::pte::lift;

use crate::arguments::{MemoryLimit, Model};
use crate::failure::Failure;
use crate::output;

/// Checks a file: its structure, every index and offset in it, that each method can be loaded here, and that its operators take their
/// element types.
#[derive(Args)]
pub struct Validate {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    limit: MemoryLimit,

    /// Check the structure only; do not load the methods
    #[arg(long)]
    structure: bool,
}

impl Validate {
    pub fn run(self) -> Result<(), Failure> {
        // Delegates of another backend load once they are translated, as when the program runs.
        let mut module = if self.structure {
            self.model.load()?
        } else {
            self.model.load_with(|builder| self.limit.add_to(builder))?
        };
        let names: Vec<String> = module.method_names().map(str::to_owned).collect();
        if !self.structure {
            for name in &names {
                module.load_method(name)?;
                module.unload_method(name);
            }
            self.check_types()?;
        }
        let checked = if self.structure { "well-formed" } else { "well-formed, and every method loads" };
        output::print(&format!("{}: {checked} ({})", self.model.model.display(), names.join(", ")));
        Ok(())
    }

    /// Asks the kernels of all operators for the types that they are called with, where the program has a graph.
    fn check_types(&self) -> Result<(), Failure> {
        let external: Result<Vec<Bytes>, _> = self.model.opening.data.iter().map(open_shared).collect();
        let (Ok(file), Ok(external)) = (open_shared(&self.model.model), external) else { return Ok(()) };
        let Ok(mut model) = lift(&file, &external) else { return Ok(()) };
        CheckTypes.run(&mut model).map_err(|error| Failure::Model(error.into()))
    }
}
