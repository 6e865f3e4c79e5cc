//! Paths that `cargo xtask bench` passes in environment variables.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The path in the variable `name`.
pub fn variable(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os(name).with_context(|| format!("{name} is not set: `cargo xtask bench` sets it"))?;
    Ok(PathBuf::from(path))
}

/// The libraries that ExecuTorch's worker loads for language models, in this order.
pub fn llama_libraries() -> Vec<String> {
    let libraries = std::env::var("EXECUTORCH_LLAMA").unwrap_or_default();
    libraries.split(':').filter(|library| !library.is_empty()).map(str::to_owned).collect()
}
