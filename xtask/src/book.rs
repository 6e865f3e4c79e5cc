//! The book of `docs`.

use anyhow::Result;

use crate::command::{command, run};
use crate::setup::{self, tool};

/// Builds it in `target/book`.
pub fn build() -> Result<()> {
    setup::one("mdbook")?;
    run(&mut command(tool("mdbook")?, &["build", "docs"]))
}
