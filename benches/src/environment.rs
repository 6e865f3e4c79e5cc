//! Paths that `cargo xtask bench` passes in environment variables.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The path in the variable `name`.
pub fn variable(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os(name).with_context(|| format!("{name} is not set: `cargo xtask bench` sets it"))?;
    Ok(PathBuf::from(path))
}
