//! Checks that need no test run.

pub mod api;
mod circles;
mod features;
mod levels;
pub mod prose;
mod pythons;
mod unsafe_code;

use std::process::Command;

use anyhow::Result;

use crate::command::{PORTABLE_TILES, cargo, command, run};
use crate::header;
use crate::steps::{Step, Steps};

const CHECKS: &[Step] = &[
    Step::new("format", format),
    Step::new("fences", fences),
    Step::new("prose", prose::check),
    Step::new("clippy", clippy),
    Step::new("pythons", pythons::check),
    Step::new("api", api::check),
    Step::new("header", header::check),
];

/// All checks.
pub fn all() -> Result<()> {
    Steps::run("check", CHECKS)
}

/// One check, by its name.
pub fn one(name: &str) -> Result<()> {
    Steps::one("check", CHECKS, name)
}

pub fn format() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])
}

/// Checks that need no compiler: levels, licences, the list of unsafe code, dependencies of features, circles.
pub fn fences() -> Result<()> {
    levels::check()?;
    unsafe_code::check()?;
    features::check()?;
    circles::check()
}

fn clippy() -> Result<()> {
    clippy_of(&["--workspace", "--features", PORTABLE_TILES])
}

/// Clippy over the packages that these arguments of cargo name.
pub fn clippy_of(packages: &[&str]) -> Result<()> {
    run(&mut clippy_command(packages))
}

fn clippy_command(packages: &[&str]) -> Command {
    command("cargo", &[&["clippy", "--quiet", "--all-targets"], packages, &["--", "-D", "warnings"]].concat())
}
