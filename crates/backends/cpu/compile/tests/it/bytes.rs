//! Compares compiled programs with `compiled.txt` beside this folder: the lengths and hashes of programs in `tests/`, compiled for
//! the runtime's operators alone and for the CPU backend.
//!
//! A refactoring leaves this table unchanged. After a change that is meant to change compiled files, run the test with
//! `UPDATE_BYTES=1`, and check in the diff which programs changed.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::partition::Backend;
use rushlight_compiler::{CompileOptions, compile, import_pt2};
use rushlight_cpu_compile::{Cpu, Precision};
use rushlight_decoders::{Options, import_gguf};
use rushlight_graph::{Bytes, Error, Model};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../tests");

/// Folders below `tests`, with the ending of the programs in them.
const FOLDERS: &[(&str, &str)] = &[
    ("archives", "pt2"),
    ("corpus/1.5.1", "pte"),
    ("corpus/1.5.1-xnnpack", "pte"),
    ("corpus/pt2", "pt2"),
    ("decoders", "gguf"),
    ("shapes", "pt2"),
];

/// Programs of a folder: files with this ending, also one folder further down.
fn programs(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && ending == "gguf" {
            found.extend(programs(&entry, ending));
        } else if entry.extension().is_some_and(|extension| extension == ending) {
            found.push(entry);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Result<Model, Error> {
    let bytes = Bytes::from(fs::read(path).unwrap());
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("pt2") => import_pt2(&[("forward", bytes)], ImportOptions::default()),
        Some("gguf") => {
            let options = Options { max_context_len: Some(80), max_seq_len: Some(8), ..Options::default() };
            import_gguf(&bytes, &options)
        }
        _ => lift(&bytes, &[]),
    }
}

/// The length and the FNV-1a hash of a compiled program, or the kind of the error.
fn digest(model: &Model, backends: Vec<Box<dyn Backend>>) -> String {
    let bytes = match compile(model.clone(), &CompileOptions { backends, ..CompileOptions::default() }) {
        Ok(compiled) => compiled.program.to_bytes().unwrap(),
        Err(error) => return format!("{:?}", error.kind()),
    };
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{}:{hash:016x}", bytes.len())
}

fn cpu(precision: Precision) -> Vec<Box<dyn Backend>> {
    vec![Box::new(Cpu { threads: Some(NonZeroUsize::MIN), precision, ..Cpu::default() })]
}

#[test]
fn compiled_programs_are_those_of_the_table() {
    let mut table =
        String::from("# program, then length:hash for the runtime's operators, the CPU backend, and its bf16\n");
    for (folder, ending) in FOLDERS {
        for path in programs(&Path::new(TESTS).join(folder), ending) {
            let name = path.strip_prefix(TESTS).unwrap().display().to_string();
            let Ok(model) = read(&path) else { continue };
            let digests = [Vec::new(), cpu(Precision::F32), cpu(Precision::Bf16)].map(|list| digest(&model, list));
            table += &format!("{name} {}\n", digests.join(" "));
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compiled.txt");
    if std::env::var_os("UPDATE_BYTES").is_some() {
        fs::write(&file, &table).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap();
    let changed: Vec<_> = table.lines().filter(|line| !expected.lines().any(|known| known == *line)).collect();
    assert!(
        changed.is_empty() && table.len() == expected.len(),
        "other bytes than before (UPDATE_BYTES=1 accepts them):\n{}",
        changed.join("\n")
    );
}
