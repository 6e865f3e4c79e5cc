//! Processes: their cores and their output.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;

/// The last line that a process prints, which is JSON.
pub fn answer(command: &mut Command) -> Result<Json> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

/// The command of a process that stays on the first cores.
pub fn on_cores(program: impl AsRef<OsStr>, cores: usize) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(format!("0-{}", cores - 1)).arg(program);
    command
}
