//! What a process prints.

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
