//! `rushlight completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Failure;
use crate::output;

/// Prints the completion script of a shell: `rushlight completions bash > ~/.local/share/bash-completion/completions/rushlight`.
#[derive(Args)]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "rushlight", &mut script);
        output::print(String::from_utf8_lossy(&script).trim_end());
        Ok(())
    }
}
