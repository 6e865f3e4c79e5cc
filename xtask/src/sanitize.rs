//! Tests with compilers that watch every access to memory.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::command::{PORTABLE_TILES, command, nightly_host, output, root, run};
use crate::setup::{self, venv_python};

/// All code that is unsafe, by what fits each.
pub fn all() -> Result<()> {
    runtime()?;
    engine()?;
    python()
}

/// One part, by its name.
pub fn one(what: &str) -> Result<()> {
    match what {
        "runtime" => runtime(),
        "engine" => engine(),
        "python" => python(),
        _ => bail!("unknown part `{what}`: runtime, engine, python"),
    }
}

/// The runtime's tests and the corpus on it in Miri, which knows the rules of references, not only those of memory.
fn runtime() -> Result<()> {
    output(&mut command("cargo", &["+nightly", "miri", "--version"]))
        .context("Miri is needed: rustup toolchain install nightly --component miri,rust-src")?;
    for test in [&["-p", "rushlight-runtime"][..], &["-p", "rushlight-testing", "--test", "it", "corpus::"]] {
        // The corpus is read from files, and the module's pool lives until the process ends.
        let mut miri = command("cargo", &["+nightly", "miri", "test"]);
        run(miri.args(test).env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks"))?;
    }
    Ok(())
}

/// The engine's tests under the address sanitizer: Miri has no instructions for vectors as wide.
fn engine() -> Result<()> {
    let host = nightly_host()?;
    // The target is named so that build scripts run without the sanitizer.
    let mut test = command(
        "cargo",
        &[
            "+nightly",
            "test",
            "--profile",
            "checked",
            "-p",
            "rushlight-engine",
            "--lib",
            "--test",
            "it",
            "--target",
            &host,
            "--features",
            PORTABLE_TILES,
        ],
    );
    run(test.env("RUSTFLAGS", "-Zsanitizer=address"))
}

/// Tests of the extension that do not run under the sanitizer, and why.
const WITHOUT_SANITIZER: &[(&str, &str)] = &[
    ("test_plain.py", "it needs an environment without torch and NumPy, and calls nothing that the others do not"),
    (
        "test_quantized_accuracy.py",
        "it takes too long, and compares numbers that others read and write in the same ways",
    ),
    ("test_quantizers.py", "it takes too long, and compares numbers that others read and write in the same ways"),
];

/// One test of a file that runs, as pytest calls it, and why it does not.
const DESELECTED: (&str, &str) = (
    "tests/test_threads.py::test_children_while_threads_compute",
    "the sanitizer's allocator does not survive a fork while another thread allocates",
);

/// Runs the tests of the Python extension under the address sanitizer. torch and NumPy are not instrumented, but their
/// allocations are watched. Python's own allocator is replaced, so that its objects are watched too.
fn python() -> Result<()> {
    setup::one("python")?;
    let host = nightly_host()?;
    let target = "target/asan-python";
    let mut build = command("cargo", &["+nightly", "build", "--locked", "-p", "rushlight-python"]);
    build.args(["--target-dir", target, "--target", &host]).env("RUSTFLAGS", "-Zsanitizer=address");
    run(build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only"))?;

    let package = root().join(target).join("package");
    let library = root().join(target).join(&host).join("debug/lib_rushlight.so");
    let mut assemble = command(venv_python(), &["tools/test_wheel.py", "--library"]);
    run(assemble.arg(library).arg("--assemble").arg(&package))?;

    let tests = root().join("bindings/python/tests");
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(&tests)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_test = name.strip_suffix(".py").is_some_and(|stem| stem.starts_with("test_"));
        if is_test && !WITHOUT_SANITIZER.iter().any(|(without, _)| *without == name) {
            names.push(tests.join(name).to_string_lossy().into_owned());
        }
    }
    names.sort();
    for (name, reason) in WITHOUT_SANITIZER.iter().chain([&DESELECTED]) {
        println!("NOT RUN under the sanitizer: {name}: {reason}");
    }

    // The interpreter is not linked with the sanitizer, whose library must come first. The C++ library must be loaded
    // when the sanitizer looks for the functions that throw.
    let preload = format!("{} {}", shared_library("libasan.so")?, shared_library("libstdc++.so.6")?);
    let mut test = command(venv_python(), &["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]);
    test.args(&names).arg("--deselect").arg(DESELECTED.0);
    test.env("PYTHONPATH", &package).env("LD_PRELOAD", preload).env("PYTHONMALLOC", "malloc");
    // The interpreter leaves much behind; a capsule that claims all memory there is must get an error.
    run(test.env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"))
}

/// The file of a shared library that comes with GCC.
fn shared_library(name: &str) -> Result<String> {
    let path = output(&mut command("gcc", &[&format!("-print-file-name={name}")]))?;
    let path = Path::new(path.trim());
    if !path.is_absolute() {
        bail!("GCC has no {name}, which the address sanitizer needs");
    }
    Ok(path.canonicalize()?.to_string_lossy().into_owned())
}
