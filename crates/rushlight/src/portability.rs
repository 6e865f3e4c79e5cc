//! The targets that a program was compiled for. The compiler is not needed.

use rushlight_format::Program;

use crate::backends::runs_backend;
use crate::work::{WORTHWHILE, work};

/// Targets that a program was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Portability {
    /// Compiled for a backend that is built in, or given to the module.
    Compiled,
    /// Compiled for the reference operators, and so small that lowering takes longer than it saves.
    Small,
    /// Compiled for the reference operators.
    Portable,
    /// Compiled at least partly for a missing backend. It may run once it is lowered.
    Foreign,
}

impl Portability {
    /// Classifies a program. `is_own` returns true if the caller has a backend with a name.
    pub(crate) fn of(program: &Program<'_>, is_own: impl Fn(&str) -> bool) -> Self {
        let mut is_compiled = false;
        for plan in program.methods() {
            for delegate in (0..plan.num_delegates()).filter_map(|index| plan.delegate(index)) {
                if !is_own(delegate.id) && !runs_backend(delegate.id) {
                    return Self::Foreign;
                }
                is_compiled = true;
            }
        }
        match is_compiled {
            true => Self::Compiled,
            false if work(program) < WORTHWHILE => Self::Small,
            false => Self::Portable,
        }
    }
}
