//! Tests with compilers that watch every access to memory.

use anyhow::{Context, Result};

use crate::command::{command, output, run};

/// Both crates with unsafe code, by what fits each.
pub fn all() -> Result<()> {
    runtime()?;
    engine()
}

/// The runtime's tests and the corpus on it in Miri, which knows the rules of references, not only those of memory.
fn runtime() -> Result<()> {
    output(&mut command("cargo", &["+nightly", "miri", "--version"]))
        .context("Miri is needed: rustup toolchain install nightly --component miri,rust-src")?;
    for test in [&["-p", "rushlight-runtime"][..], &["-p", "rushlight-testing", "--test", "corpus"]] {
        // The corpus is read from files, and the module's pool lives until the process ends.
        let mut miri = command("cargo", &["+nightly", "miri", "test"]);
        run(miri.args(test).env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks"))?;
    }
    Ok(())
}

/// The engine's tests under the address sanitizer: Miri has no instructions for vectors as wide.
fn engine() -> Result<()> {
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
