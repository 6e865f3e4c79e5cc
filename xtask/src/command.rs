//! Running other programs.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

/// The folder of cargo's build outputs.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// A command in the root of the repository.
pub fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a command, and shows its command line, its output and its duration. Fails if the command does; the error ends
/// with the last output.
pub fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    println!("$ {line}");
    let start = Instant::now();
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    let tail = Mutex::new(VecDeque::new());
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    thread::scope(|scope| {
        scope.spawn(|| stdout.map(|from| forward(from, std::io::stdout(), &tail)));
        scope.spawn(|| stderr.map(|from| forward(from, std::io::stderr(), &tail)));
    });
    let status = process.wait().with_context(|| format!("cannot wait for `{line}`"))?;
    println!("{:.1} s: {line}", start.elapsed().as_secs_f64());
    if !status.success() {
        let tail = tail.into_inner().unwrap_or_else(PoisonError::into_inner);
        bail!("`{line}` failed: {status}\n{}", String::from_utf8_lossy(&Vec::from(tail)));
    }
    Ok(())
}

/// Bytes of a command's output that its error shows.
pub const TAIL: usize = 4096;

/// Copies what a process prints to where it would have gone, until the process closes it. Keeps the last bytes.
fn forward(mut from: impl Read, mut to: impl Write, tail: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; TAIL];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // Nobody may be listening any more; the process continues as it would by itself.
        let _ = to.write_all(&buffer[..count]).and_then(|()| to.flush());
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(&buffer[..count]);
        let excess = tail.len().saturating_sub(TAIL);
        tail.drain(..excess);
    }
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a field that `rustc --version --verbose` prints, such as `host`; of the nightly compiler with `["+nightly"]`.
pub fn rustc_field(toolchain: &[&str], field: &str) -> Result<String> {
    let version = output(command("rustc", toolchain).args(["--version", "--verbose"]))?;
    let value = version.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
    Ok(value.with_context(|| format!("rustc prints no `{field}`"))?.to_owned())
}

/// Returns the host's triple, from the nightly compiler.
pub fn nightly_host() -> Result<String> {
    rustc_field(&["+nightly"], "host").context("a nightly compiler is needed: rustup toolchain install nightly")
}

/// Runs cargo in the root of the repository.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    run(&mut command("cargo", arguments))
}

/// A command of cargo, optimized and with every check on: the tests compute for longer than that takes to compile. Of the whole
/// workspace, as packages by themselves may have other features and would be compiled again; but for this crate, which has no
/// tests.
pub fn checked(subcommand: &str) -> Command {
    command("cargo", &[subcommand, "--profile", "checked", "--quiet", "--workspace", "--exclude", "xtask"])
}

/// A feature of the engine that adds portable code for its tests. On x86-64, nothing else compiles this code. The feature doubles the
/// engine's compile time, so only the test stage `portable-tiles`, clippy and the sanitizers turn it on.
pub const PORTABLE_TILES: &str = "rushlight-engine/wide-scalar";

/// Crates with code for each processor. The stage `aarch64-whole` also tests the others.
pub const ARCH_DEPENDENT: &[&str] = &["rushlight-engine", "rushlight-cpu-run"];

/// True if the program can be started.
pub fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn describe(command: &Command) -> String {
    let arguments = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(command.get_program().to_string_lossy().into_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
