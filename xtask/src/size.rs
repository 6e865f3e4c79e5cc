//! Code size on a Cortex-M4.

use anyhow::Result;

use crate::command::{command, root, run};
use crate::setup;

/// Prints the sections of the digits firmware, and of the same firmware without operators.
pub fn report() -> Result<()> {
    setup::one("cross")?;
    run(command("cargo", &["run", "--quiet", "--release", "--bin", "size"])
        .current_dir(root().join("examples/cortex-m")))
}
