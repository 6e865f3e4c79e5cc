//! `--cache` and `RUSHLIGHT_CACHE`: lowered programs are kept and taken, and the commands say so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command;

/// A program that is large enough to be kept, because of bytes after it that nobody reads.
fn program(folder: &Path) -> PathBuf {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1/mlp.pte");
    let mut bytes = fs::read(small).expect("a file of the corpus");
    bytes.resize(2 << 20, 0);
    let path = folder.join("model.pte");
    fs::write(&path, bytes).expect("a file");
    path
}

fn rushlight(arguments: &[&str], variable: Option<&Path>) -> String {
    let mut command = command::rushlight();
    command.args(arguments).env_remove("RUSHLIGHT_CACHE");
    if let Some(folder) = variable {
        command.env("RUSHLIGHT_CACHE", folder);
    }
    let output = command.output().expect("the command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn commands_say_what_the_cache_did() {
    let folder = command::folder("cache");
    let model = program(&folder);
    let (model, kept) = (model.to_str().expect("a name"), folder.join("kept"));
    let run = ["run", model, "--lower", "cpu", "--profile"];
    assert!(!rushlight(&run, None).contains("cache:"));
    let with = [&run[..], &["--cache", kept.to_str().expect("a name")]].concat();
    assert!(rushlight(&with, None).contains("cache: written to"));
    assert!(rushlight(&with, None).contains("cache: loaded from"));
    assert!(rushlight(&run, Some(&kept)).contains("cache: loaded from"));
    let json = rushlight(&[&run[..], &["--json"]].concat(), Some(&kept));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["profile"]["cache"].as_str().is_some_and(|text| text.starts_with("loaded from")), "{json}");
    // So small a computation is not lowered unless that is asked for.
    assert!(!rushlight(&["doctor", model], Some(&kept)).contains("cache:"));
}
