//! `rushlight validate`.

use clap::Args;

use crate::arguments::{MemoryLimit, Model};
use crate::failure::Failure;
use crate::output;

/// Checks a file: its structure, every index and offset in it, and that each method can be loaded here.
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
        }
        let checked = if self.structure { "well-formed" } else { "well-formed, and every method loads" };
        output::print(&format!("{}: {checked} ({})", self.model.model.display(), names.join(", ")));
        Ok(())
    }
}
