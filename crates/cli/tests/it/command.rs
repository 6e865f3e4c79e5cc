//! Starting the program that is tested, and what its tests have in common.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the classifier of digits, as `.pt2` and `.pte`.
pub const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cortex-m");
/// The folder of small models that other versions of PyTorch and ExecuTorch wrote.
pub const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus");

/// `rushlight`, in the emulator that runs this test if there is one: it does not hand itself on.
pub fn rushlight() -> Command {
    let program = env!("CARGO_BIN_EXE_rushlight");
    let emulator = match std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER") {
        Ok(runner) if cfg!(all(target_arch = "aarch64", target_os = "linux")) => runner,
        _ => return Command::new(program),
    };
    let mut words = emulator.split_whitespace();
    let mut command = Command::new(words.next().expect("the emulator's name"));
    command.args(words).arg(program);
    command
}

/// Runs the command to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    rushlight().args(arguments).output().expect("the command starts")
}

/// Runs the command, which must succeed, and returns its output.
pub fn succeeds<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> String {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Runs the command, which fails with an exit code and an error that holds each of some texts. Returns the error.
pub fn fails<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(arguments: &[S], code: i32, texts: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}{}", String::from_utf8_lossy(&output.stdout));
    for text in texts {
        assert!(error.contains(text), "{arguments:?}: expected `{text}` in\n{error}");
    }
    assert!(!error.contains("panicked"), "{arguments:?}: {error}");
    error
}

/// An empty folder for one test.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It may be there from an earlier run.
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The name of a file in a folder, as an argument.
pub fn at(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a name").to_owned()
}
