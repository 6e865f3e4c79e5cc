//! Programs that microcontrollers run.

use std::path::Path;

use rushlight::{MethodMeta, Program, backends};

use crate::failure::Failure;
use crate::output;

/// Refuses programs for backends of Rushlight, which need an operating system. Warns about those of others, whose memory is unknown.
pub fn check(path: &Path, program: &Program<'_>) -> Result<(), Failure> {
    for plan in program.parsed().methods() {
        for backend in MethodMeta::of(&plan).backends {
            let path = path.display();
            if backends().any(|known| known.id() == Some(&*backend)) {
                return Err(Failure::Other(format!(
                    "`{path}` is compiled for the backend `{backend}`, which no microcontroller runs\n  help      compile the model \
                     with `--backend portable`"
                )));
            }
            output::warn(&format!("memory and operators of the backend `{backend}` in `{path}` are not counted"));
        }
    }
    Ok(())
}
