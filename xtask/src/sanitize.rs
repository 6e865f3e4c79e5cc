//! Tests with a compiler that watches every access to memory.

use anyhow::{Context, Result};

use crate::command::{command, output, run};

/// The engine's tests under the address sanitizer: the engine is where unsafe code reads and writes memory.
pub fn engine() -> Result<()> {
    let version = output(&mut command("rustc", &["+nightly", "--version", "--verbose"]))
        .context("the address sanitizer needs a nightly compiler: rustup toolchain install nightly")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    // The target is named so that build scripts run without the sanitizer.
    let mut test = command(
        "cargo",
        &["+nightly", "test", "--profile", "checked", "-p", "rushlight-engine", "--lib", "--target", host],
    );
    run(test.env("RUSTFLAGS", "-Zsanitizer=address"))
}
