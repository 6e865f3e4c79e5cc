//! Installs the tools and packages of tests that the toolchain does not include. Everything is pinned; installed ones
//! are kept.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::command::{command, exists, output, root, run};
use crate::dist;

/// Packages of the Debian family, with a program that shows whether they are there.
const SYSTEM: &[(&str, &str)] = &[
    ("qemu-system-arm", "qemu-system-arm"),
    ("qemu-aarch64-static", "qemu-user-static"),
    // The same that loads plugins.
    ("qemu-aarch64", "qemu-user"),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("cmake", "cmake"),
    ("pkg-config", "pkg-config"),
];

/// For the tests in Java and Kotlin.
const JVM: &[(&str, &str)] = &[("javac", "openjdk-17-jdk-headless"), ("kotlinc", "kotlin")];

/// Browsers that `bindings/js/tests/browser.js` finds. The browser tests are skipped with a message without one.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

const TARGETS: &[&str] = &[
    "thumbv7em-none-eabihf",
    "thumbv6m-none-eabi",
    "aarch64-unknown-linux-gnu",
    "wasm32-wasip1",
    "wasm32-unknown-unknown",
];

pub fn all() -> Result<()> {
    one("cross")?;
    one("qemu")?;
    one("python")
}

pub fn one(what: &str) -> Result<()> {
    match what {
        "python" => python(),
        "cross" => cross(),
        "qemu" => system_packages(SYSTEM, &["libc6-dev-arm64-cross"]),
        "jvm" => system_packages(JVM, &[]),
        "peers" => peers(),
        "ray" => ray(),
        "tokenizers" => tokenizers(),
        "book" => book(),
        "mdbook" | "cbindgen" | "wasm-bindgen" => Tool::named(what)?.install(),
        "dist" => dist(),
        "js" => js(),
        "rust-src" => run(&mut command("rustup", &["component", "add", "rust-src"])),
        "semver" => Tool::named("cargo-semver-checks")?.install(),
        _ => bail!(
            "unknown set-up `{what}`: python, cross, qemu, peers, ray, tokenizers, mdbook, cbindgen, book, dist, wasm-bindgen, \
             js, rust-src, jvm, semver"
        ),
    }
}

/// Python of the project's own environment, with PyTorch and ExecuTorch, which the tests compare with.
pub fn venv_python() -> PathBuf {
    root().join(".venv/bin/python")
}

/// Python of the environment with the engines that benchmarks compare with.
pub fn peers_python() -> PathBuf {
    root().join(".venv-peers/bin/python")
}

/// Python of the environment with the tokenizers that the tests compare with.
pub fn tokenizers_python() -> PathBuf {
    root().join(".venv-tokenizers/bin/python")
}

/// Makes `.venv` with the versions that `tools/requirements.txt` pins. Several gigabytes, a few minutes the first time.
fn python() -> Result<()> {
    environment(".venv", "tools/requirements.txt", &[], || Ok(()))
}

/// Makes `.venv-peers` with the versions that `tools/requirements-peers.txt` pins: other engines, and the writers of
/// their formats. PyTorch and other large packages come from `.venv`. pip does not know of these, so the file lists
/// everything and nothing else is installed.
fn peers() -> Result<()> {
    python()?;
    environment(".venv-peers", "tools/requirements-peers.txt", &["--no-deps"], || see_main(&peers_python()))
}

/// Gives another environment the packages of `.venv`, after its own.
fn see_main(python: &Path) -> Result<()> {
    let print = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let main = output(&mut command(venv_python(), &["-c", print]))?;
    let own = output(&mut command(python, &["-c", print]))?;
    std::fs::write(Path::new(own.trim()).join("main.pth"), main)?;
    Ok(())
}

/// Python of the environment with what the book and `examples/python` need.
pub fn book_python() -> PathBuf {
    root().join(".venv-book/bin/python")
}

/// Installs what the tests of the npm package need, at the versions of `bindings/js/tests/package-lock.json`.
fn js() -> Result<()> {
    if !BROWSERS.iter().any(|browser| exists(browser))
        && let Err(error) = system_packages(&[("chromium", "chromium")], &[])
    {
        println!("{error:#}");
    }
    run(command("npm", &["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(root().join("bindings/js/tests")))
}

/// A program that is built for the chores alone.
struct Tool {
    /// The program.
    name: &'static str,
    /// The package with it.
    package: &'static str,
    version: &'static str,
    /// Options of `cargo install`.
    options: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    // Without its server and its watching of files.
    Tool {
        name: "mdbook",
        package: "mdbook",
        version: "0.5.4",
        options: &["--no-default-features", "--features", "search"],
    },
    // Makes the C header.
    Tool { name: "cbindgen", package: "cbindgen", version: "0.29.2", options: &[] },
    // The program of the library that `bindings/js` is built with, in the same version. Its code for modules is optimized, because
    // those of tests are large.
    Tool {
        name: "wasm-bindgen",
        package: "wasm-bindgen-cli",
        version: "0.2.129",
        options: &[
            "--config",
            "profile.release.package.walrus.opt-level=1",
            "--config",
            "profile.release.package.wasmparser.opt-level=1",
            "--config",
            "profile.release.package.wasm-encoder.opt-level=1",
            "--config",
            "profile.release.package.wasm-bindgen-cli-support.opt-level=1",
        ],
    },
    // Its version has to know the output of the toolchain's rustdoc. Takes minutes.
    Tool { name: "cargo-semver-checks", package: "cargo-semver-checks", version: "0.51.0", options: &[] },
];

impl Tool {
    fn named(name: &str) -> Result<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name).with_context(|| format!("no tool is named `{name}`"))
    }

    /// A folder for this version in the user's cache, so that all checkouts share it.
    fn folder(&self) -> Result<PathBuf> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache"))).context("no home directory")?;
        Ok(cache.join("rushlight-tools").join(format!("{}-{}", self.package, self.version)))
    }

    /// Builds the program unless it is there. It runs for seconds: less time than optimizing it takes.
    fn install(&self) -> Result<()> {
        let folder = self.folder()?;
        let version = format!("={}", self.version);
        let mut install =
            command("cargo", &["install", "--locked", "--quiet", "--bin", self.name, "--version", &version]);
        install.arg("--root").arg(&folder).args(self.options).arg(self.package);
        install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
        install.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        run(install.env("CARGO_TARGET_DIR", root().join("target/tools")))
    }
}

/// The path of a tool.
pub fn tool(name: &str) -> Result<PathBuf> {
    Ok(Tool::named(name)?.folder()?.join("bin").join(name))
}

/// Makes `.venv-book` with the versions that `tools/requirements-book.txt` pins, in front of the packages of `.venv`; and builds
/// mdBook.
fn book() -> Result<()> {
    one("mdbook")?;
    python()?;
    environment(".venv-book", "tools/requirements-book.txt", &[], || see_main(&book_python()))
}

/// Puts the Python package with the library of a profile into a folder, as `tools/test_wheel.py` does.
pub fn assemble(python: PathBuf, profile: &str, folder: &Path) -> Result<()> {
    let library = format!("target/{profile}/lib_rushlight.so");
    run(command(python, &["tools/test_wheel.py", "--library", &library, "--assemble"]).arg(folder))
}

/// Python of the environment with Ray.
pub fn ray_python() -> PathBuf {
    root().join(".venv-ray/bin/python")
}

/// Makes `.venv-ray` with what `examples/ray` needs.
fn ray() -> Result<()> {
    environment(".venv-ray", "examples/ray/requirements.txt", &[], || Ok(()))
}

/// Makes `.venv-tokenizers` with the versions that `tools/requirements-tokenizers.txt` pins.
fn tokenizers() -> Result<()> {
    environment(".venv-tokenizers", "tools/requirements-tokenizers.txt", &["--no-deps"], || Ok(()))
}

/// A program of the environment that `cargo xtask dist` builds with.
pub fn dist_program(name: &str) -> PathBuf {
    root().join(".venv-dist/bin").join(name)
}

/// A program of the toolchain's component `llvm-tools`.
pub fn llvm_tool(name: &str) -> Result<PathBuf> {
    let libraries = output(&mut command("rustc", &["--print", "target-libdir"]))?;
    Ok(Path::new(libraries.trim()).with_file_name("bin").join(name))
}

/// Makes `.venv-dist` with a cross linker and what makes wheels.
fn dist() -> Result<()> {
    run(command("rustup", &["target", "add"]).args(dist::triples()))?;
    run(&mut command("rustup", &["component", "add", "llvm-tools"]))?;
    environment(".venv-dist", "tools/requirements-dist.txt", &["--no-deps"], || Ok(()))
}

/// The installer of Python packages. It downloads several at once, and links them from its cache into each environment: a fifth of pip's
/// time, and no time again for the next checkout.
const UV: &str = "uv==0.13.9";

/// A thread that needs an environment that another one makes waits for it.
static MAKING: Mutex<()> = Mutex::new(());

/// Makes a virtual environment with what a file pins, unless it is there; then finishes it.
fn environment(name: &str, requirements: &str, options: &[&str], finish: impl FnOnce() -> Result<()>) -> Result<()> {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let (requirements, folder) = (root().join(requirements), root().join(name));
    let stamp = folder.join("requirements.txt");
    if std::fs::read(&requirements)? == std::fs::read(&stamp).unwrap_or_default() {
        return Ok(());
    }
    let python = folder.join("bin/python");
    if !python.exists() {
        run(&mut command("python3", &["-m", "venv", name]))?;
    }
    run(&mut command(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV]))?;
    let mut install = command(&python, &["-m", "uv", "pip", "install", "--quiet", "--python"]);
    install.arg(&python).args(options).arg("-r").arg(&requirements);
    run(install.env("CMAKE_ARGS", cmake_arguments()))?;
    finish()?;
    std::fs::copy(&requirements, &stamp)?;
    Ok(())
}

/// Returns CMake's arguments for packages that pip compiles: for the native architecture, but without AMX, as llama.cpp in the version
/// of `tools/requirements-peers.txt` segfaults in its first batch on processors that have it.
fn cmake_arguments() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        r"-DGGML_NATIVE=ON -DCMAKE_C_FLAGS=-mno-amx-int8\ -mno-amx-bf16 -DCMAKE_CXX_FLAGS=-mno-amx-int8\ -mno-amx-bf16"
    } else {
        "-DGGML_NATIVE=ON"
    }
}

/// The standard libraries of the other targets.
fn cross() -> Result<()> {
    let mut arguments = vec!["target", "add"];
    arguments.extend(TARGETS);
    run(&mut command("rustup", &arguments))
}

/// Installs the packages whose programs are missing, and with them the packages without programs.
fn system_packages(packages: &[(&str, &str)], with: &[&str]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !exists("apt-get") {
        bail!("install these with the system's package manager: {}", missing.join(", "));
    }
    run(&mut command("apt-get", &["update", "--quiet"]))?;
    let mut install = command("apt-get", &["install", "--yes", "--quiet", "--no-install-recommends"]);
    run(install.args(missing).args(with).env("DEBIAN_FRONTEND", "noninteractive"))
}
