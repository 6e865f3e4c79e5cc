//! Links wheels for Windows, and runs the builds for it in Wine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::checks::{PIP_INSTALL, PLAIN_TESTS, demo};
use super::{Built, target_folder};
use crate::c::link::DLL;
use crate::command::{command, exists, output, root, run};
use crate::setup;

/// Has wheels linked by `tools/link_windows.sh`.
pub fn link_wheel(build: &mut Command) {
    build.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", root().join("tools/link_windows.sh"));
}

/// A copy of the program in Wine, beside the libraries that it has with it and the one that Wine lacks.
pub fn run_program(program: &Path) -> Result<Option<Command>> {
    let Some(wine) = wine() else { return Ok(None) };
    let folder = target_folder().join("packages/windows");
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join(program.file_name().context("a program without a name")?);
    std::fs::copy(program, &copy)?;
    let library = program.with_file_name(DLL);
    if library.exists() {
        std::fs::copy(library, folder.join(DLL))?;
    }
    add_missing_library(&folder)?;
    Ok(Some(emulated(wine, &copy)))
}

fn wine() -> Option<&'static str> {
    ["wine64", "wine", "/usr/lib/wine/wine64"].into_iter().find(|program| exists(program))
}

pub fn check(built: &Built) -> Result<()> {
    let (Some(wine), Some(program)) = (wine(), run_program(&built.program)?) else {
        println!("NOT RUN: the program and the wheels for Windows, as there is no Wine");
        return Ok(());
    };
    demo(program)?;
    let stable = ["3.11", "3.12", "3.13", "3.14"].map(|version| (version, &built.wheel));
    for (version, wheel) in stable.into_iter().chain(OWN_WHEELS.iter().copied().zip(&built.own_wheels)) {
        // Brings the part of the standard library that is in Python.
        let same = format!("python{}", version.trim_end_matches('t'));
        if output(&mut command(&same, &["--version"])).is_ok() {
            plain_tests(wine, version, wheel)?;
        } else {
            println!("NOT RUN: the wheel for Windows with Python {version}, as there is no {same}");
        }
    }
    Ok(())
}

/// The versions of [`super::OWN_WHEELS`].
const OWN_WHEELS: &[&str] = &["3.10", "3.14t"];

fn emulated(wine: &str, program: &Path) -> Command {
    let mut emulator = command(wine, &[]);
    emulator.arg(program).env("WINEPREFIX", target_folder().join("wine")).env("WINEDEBUG", "-all");
    emulator
}

/// Puts the library that Rust's standard library calls and Wine 8 does not have beside a program.
fn add_missing_library(folder: &Path) -> Result<()> {
    let file = folder.join("bcryptprimitives.dll");
    if file.exists() {
        return Ok(());
    }
    let mut library = command(setup::dist_program("python"), &["-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"]);
    library.args(["-shared", "tools/bcryptprimitives.c", "-ladvapi32", "-o"]);
    run(library.arg(file))
}

/// Runs the tests that need nothing but the wheel.
fn plain_tests(wine: &str, version: &str, wheel: &Path) -> Result<()> {
    let folder = python(version)?;
    let packages = folder.join("Lib/site-packages");
    if packages.exists() {
        std::fs::remove_dir_all(&packages)?;
    }
    let mut install = command(setup::dist_program("python"), PIP_INSTALL);
    // pip of this machine only unpacks it.
    install.args(["--platform", "win_amd64", "--only-binary", ":all:", "--python-version"]);
    install.args([version.trim_end_matches('t'), "--abi", &abi(version, wheel), "--target"]);
    run(install.arg(&packages).arg(wheel))?;
    run(emulated(wine, &folder.join("python.exe")).args(["-I", PLAIN_TESTS]))
}

/// ABI tag of a wheel, as pip names it.
fn abi(version: &str, wheel: &Path) -> String {
    if wheel.to_string_lossy().contains("abi3") { "abi3".into() } else { format!("cp{}", version.replace('.', "")) }
}

/// The folder of a Python for Windows.
fn python(version: &str) -> Result<PathBuf> {
    let folder = target_folder().join("wine-python").join(version);
    if !folder.join("python.exe").exists() {
        run(command(setup::dist_program("python"), &["tools/wine_python.py", version]).arg(&folder))?;
    }
    add_missing_library(&folder)?;
    Ok(folder)
}
