//! Files that a test generates from the code, and otherwise compares.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of the repository.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Writes a file of the repository with `UPDATE_DOCS`. Otherwise checks that it is up to date. `module` is the test's.
pub fn settle(path: &str, text: &str, module: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(path), text).expect("the file can be written");
    } else {
        assert!(
            read(path) == text,
            "{path} is out of date: run UPDATE_DOCS=1 cargo test -p rushlight-cli --test it {module}"
        );
    }
}
