//! Files that three generations of ExecuTorch wrote: read, turned into models, written and read again.

use std::fs;
use std::path::{Path, PathBuf};

use rushlight_format::Program;
use rushlight_format::pte::{Placement, ProgramModel, WriteOptions};

fn corpus(extension: &str) -> Vec<(PathBuf, Vec<u8>)> {
    fn walk(folder: &Path, extension: &str, files: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, extension, files);
            } else if path.extension().is_some_and(|e| e == extension) {
                files.push((path.clone(), fs::read(&path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus"), extension, &mut files);
    files.sort();
    assert!(files.len() >= 3, "the corpus has {} .{extension} files", files.len());
    files
}

#[test]
fn programs_survive_a_round_trip() {
    for (path, file) in corpus("pte") {
        let program = Program::parse(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let model = ProgramModel::from_program(&program);
        assert!(!model.methods.is_empty(), "{}", path.display());
        let written = model.to_bytes().unwrap();
        let again = Program::parse(&written).unwrap_or_else(|error| panic!("{} rewritten: {error}", path.display()));
        assert_eq!(ProgramModel::from_program(&again), model, "{}", path.display());
        assert_eq!(ProgramModel::from_program(&again).to_bytes().unwrap(), written, "{}", path.display());
    }
}

#[test]
fn programs_survive_inline_placement() {
    let options = WriteOptions { placement: Placement::Inline, ..WriteOptions::default() };
    let mut written = 0;
    for (path, file) in corpus("pte") {
        let model = ProgramModel::from_program(&Program::parse(&file).unwrap());
        if model.mutable_data.len() > 1 || !model.named_data.is_empty() {
            assert!(model.write(&options).is_err(), "{}", path.display());
            continue;
        }
        let bytes = model.write(&options).unwrap().to_vec();
        let again = Program::parse(&bytes).unwrap_or_else(|error| panic!("{} inline: {error}", path.display()));
        assert_eq!(again.header(), None);
        assert_eq!(ProgramModel::from_program(&again), model, "{}", path.display());
        written += 1;
    }
    assert!(written > 10, "{written} programs");
}
