//! What was built, where this machine can run it. What it cannot run is said.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Built, target_folder};
use crate::command::{command, exists, output, run};

/// The last version of glibc whose functions programs may call.
const GLIBC: (u32, u32) = (2, 17);

pub fn native(built: &Built) -> Result<()> {
    needs_no_newer_glibc(&built.program)?;
    demo(command(&built.program, &[]))?;
    let mut tested = 0;
    for version in ["3.11", "3.12", "3.13", "3.14"] {
        let python = format!("python{version}");
        if output(&mut command(&python, &["--version"])).is_ok() {
            plain_tests(&python, &built.wheel)?;
            tested += 1;
        } else {
            println!("NOT RUN: the wheel with Python {version}, which is not there");
        }
    }
    if tested == 0 {
        bail!("no Python to test the wheel with");
    }
    Ok(())
}

pub fn musl(built: &Built) -> Result<()> {
    demo(command(&built.program, &[]))?;
    println!("NOT RUN: the wheel for musl, which needs a Python that was built for it");
    Ok(())
}

pub fn aarch64(built: &Built) -> Result<()> {
    needs_no_newer_glibc(&built.program)?;
    println!("NOT RUN: the wheel for aarch64, which needs a Python of that architecture");
    if !exists("qemu-aarch64-static") {
        println!("NOT RUN: the program for aarch64, as there is no qemu-aarch64-static");
        return Ok(());
    }
    let mut emulator = command("qemu-aarch64-static", &["-L", "/usr/aarch64-linux-gnu"]);
    emulator.arg(&built.program);
    demo(emulator)
}

pub fn windows(built: &Built) -> Result<()> {
    println!("NOT RUN: the wheel for Windows, which needs a Python for it");
    let wine = ["wine64", "wine", "/usr/lib/wine/wine64"].into_iter().find(|program| exists(program));
    let Some(wine) = wine else {
        println!("NOT RUN: the program for Windows, as there is no Wine");
        return Ok(());
    };
    let mut emulator = command(wine, &[]);
    emulator.arg(&built.program).env("WINEPREFIX", target_folder().join("wine")).env("WINEDEBUG", "-all");
    demo(emulator)
}

pub fn macos(_: &Built) -> Result<()> {
    println!("NOT RUN: the program and the wheel for macOS, which only run there");
    Ok(())
}

/// Classifies ten digits, all of which the program checks by itself.
fn demo(mut program: Command) -> Result<()> {
    let printed = output(program.arg("demo"))?;
    println!("{}", printed.trim_end());
    Ok(())
}

/// Installs the wheel into a clean environment and runs the tests that need nothing else.
fn plain_tests(python: &str, wheel: &Path) -> Result<()> {
    let folder = target_folder().join("packages/environment");
    run(command(python, &["-m", "venv", "--clear"]).arg(&folder))?;
    let python = folder.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"];
    run(command(&python, &install).arg(wheel))?;
    run(&mut command(&python, &["-I", "bindings/python/tests/test_plain.py"]))
}

/// Fails if a program names a version of glibc above [`GLIBC`].
fn needs_no_newer_glibc(program: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read `{}`", program.display()))?;
    let versions = bytes.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let newest = versions.filter_map(|(at, _)| version(&bytes[at + PREFIX.len()..])).max();
    match newest {
        Some(newest) if newest <= GLIBC => Ok(()),
        Some((major, minor)) => bail!("`{}` needs glibc {major}.{minor}", program.display()),
        None => bail!("`{}` names no version of glibc", program.display()),
    }
}

const PREFIX: &[u8] = b"GLIBC_";

/// The version at the beginning of some text.
fn version(bytes: &[u8]) -> Option<(u32, u32)> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
    let mut numbers = std::str::from_utf8(&bytes[..end]).ok()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
