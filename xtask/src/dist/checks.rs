//! Smoke tests of the artifacts, of targets that this machine runs. `NOT RUN` is printed for the others, with the reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Built, OWN_WHEELS};
use crate::command::{command, exists, output, run, target_folder};
use crate::setup;

/// The last version of glibc whose functions programs may call.
const GLIBC: (u32, u32) = (2, 17);

pub fn run_native(program: &Path) -> Result<Option<Command>> {
    Ok(Some(command(program, &[])))
}

pub fn native(built: &Built) -> Result<()> {
    needs_no_newer_glibc(&built.program)?;
    demo(command(&built.program, &[]))?;
    needs_no_newer_glibc(&built.c_package.join("lib/librushlight.so"))?;
    crate::c::smoke_test(&built.c_package)?;
    let mut tested = 0;
    let stable = ["python3.11", "python3.12", "python3.13", "python3.14"].map(|python| (python, &built.wheel));
    for (python, wheel) in stable.into_iter().chain(OWN_WHEELS.iter().copied().zip(&built.own_wheels)) {
        if output(&mut command(python, &["--version"])).is_ok() {
            plain_tests(python, wheel)?;
            tested += 1;
        } else {
            println!("NOT RUN: the wheel with {python}, which is not there");
        }
    }
    if tested == 0 {
        bail!("no Python to test the wheel with");
    }
    Ok(())
}

/// Programs that are linked with musl's shared libraries need its dynamic linker.
pub fn run_musl(program: &Path) -> Result<Option<Command>> {
    const DYNAMIC_LINKER: &str = "/lib/ld-musl-x86_64.so.1";
    let bytes = std::fs::read(program).with_context(|| format!("cannot read `{}`", program.display()))?;
    let is_dynamic = bytes.windows(DYNAMIC_LINKER.len()).any(|window| window == DYNAMIC_LINKER.as_bytes());
    if is_dynamic && !Path::new(DYNAMIC_LINKER).exists() { Ok(None) } else { run_native(program) }
}

pub fn musl(built: &Built) -> Result<()> {
    demo(command(&built.program, &[]))?;
    println!("NOT RUN: the wheel for musl, which needs a Python that was built for it");
    Ok(())
}

pub fn run_aarch64(program: &Path) -> Result<Option<Command>> {
    Ok(exists(QEMU).then(|| emulated("/usr/aarch64-linux-gnu".as_ref(), program)))
}

pub fn aarch64(built: &Built) -> Result<()> {
    needs_no_newer_glibc(&built.program)?;
    needs_no_newer_glibc(&built.c_package.join("lib/librushlight.so"))?;
    let Some(program) = run_aarch64(&built.program)? else {
        println!("NOT RUN: the program and the wheel for aarch64, as there is no {QEMU}");
        return Ok(());
    };
    demo(program)?;
    if !exists("apt-get") {
        println!("NOT RUN: the wheel for aarch64, which needs Debian's Python of that architecture");
        return Ok(());
    }
    let system = aarch64_python()?;
    let package = system.join("package");
    let mut install = command(setup::dist_program("python"), PIP_INSTALL);
    // pip of this machine only unpacks it.
    install.args(["--upgrade", "--platform", "manylinux2014_aarch64", "--only-binary", ":all:", "--target"]);
    run(install.arg(&package).arg(&built.wheel))?;
    let mut python = emulated(&system, &system.join("usr/bin/python3.11"));
    run(python.arg(PLAIN_TESTS).env("PYTHONPATH", package))
}

const QEMU: &str = "qemu-aarch64-static";

/// A program for aarch64, with the libraries of a folder.
fn emulated(libraries: &Path, program: &Path) -> Command {
    let mut emulator = command(QEMU, &["-L"]);
    emulator.arg(libraries).arg(program);
    emulator
}

/// Debian's packages of Python and of the libraries that it links.
const PYTHON_PACKAGES: &[&str] = &[
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "python3.11-minimal",
    "zlib1g",
];

/// Unpacks Python for aarch64 into a folder that is returned, without installing anything.
fn aarch64_python() -> Result<PathBuf> {
    let folder = target_folder().join("aarch64-python");
    if folder.join("usr/bin/python3.11").exists() {
        return Ok(folder);
    }
    let packages = folder.join("packages");
    for of_apt in ["state/lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(packages.join(of_apt))?;
    }
    std::fs::write(packages.join("state/status"), "")?;
    let apt = |arguments: &[&str]| {
        let mut apt = command("apt-get", &["--quiet", "--option=APT::Architecture=arm64"]);
        apt.arg("--option=APT::Architectures=arm64").current_dir(&packages);
        for (option, path) in [("State", "state"), ("State::status", "state/status"), ("Cache", "cache")] {
            apt.arg(format!("--option=Dir::{option}={}", packages.join(path).display()));
        }
        run(apt.args(arguments))
    };
    apt(&["update"])?;
    apt(&[&["download"], PYTHON_PACKAGES].concat())?;
    for entry in std::fs::read_dir(&packages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(command("dpkg", &["--extract"]).arg(path).arg(&folder))?;
        }
    }
    Ok(folder)
}

/// Classifies ten digits, all of which the program checks by itself.
pub fn demo(mut program: Command) -> Result<()> {
    let printed = output(program.arg("demo"))?;
    println!("{}", printed.trim_end());
    Ok(())
}

/// Installs the wheel into a clean environment and runs the tests that need nothing else.
fn plain_tests(python: &str, wheel: &Path) -> Result<()> {
    let folder = target_folder().join("packages/environment");
    run(command(python, &["-m", "venv", "--clear"]).arg(&folder))?;
    let python = folder.join("bin/python");
    run(command(&python, PIP_INSTALL).arg(wheel))?;
    run(&mut command(&python, &["-I", PLAIN_TESTS]))
}

/// Installs a wheel and nothing else.
pub const PIP_INSTALL: &[&str] =
    &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"];

pub const PLAIN_TESTS: &str = "bindings/python/tests/test_plain.py";

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
