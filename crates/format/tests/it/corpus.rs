//! Files that three generations of ExecuTorch wrote: read, turned into models, written and read again.

use std::fs;
use std::path::{Path, PathBuf};

use rushlight_format::bundled::BundledValue;
use rushlight_format::ptd::FlatTensorModel;
use rushlight_format::pte::{Placement, ProgramModel, WriteOptions};
use rushlight_format::{BundledProgram, FlatTensor, Program};

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
    assert!(files.len() >= 2, "the corpus has {} .{extension} files", files.len());
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
        let bytes = model.write(&options).unwrap().to_vec().unwrap();
        let again = Program::parse(&bytes).unwrap_or_else(|error| panic!("{} inline: {error}", path.display()));
        assert_eq!(again.header(), None);
        assert_eq!(ProgramModel::from_program(&again), model, "{}", path.display());
        written += 1;
    }
    assert!(written > 10, "{written} programs");
}

#[test]
fn external_data_survives_a_round_trip() {
    for (path, file) in corpus("ptd") {
        let parsed = FlatTensor::parse(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!parsed.is_empty(), "{}", path.display());
        for (key, tensor) in parsed.entries() {
            assert_eq!(parsed.get(key), Some(tensor));
            let layout = tensor.layout.unwrap();
            assert_eq!(layout.nbytes(), tensor.data.len(), "{key}");
        }
        let model = FlatTensorModel::from_flat_tensor(&parsed);
        let written = model.to_bytes().unwrap();
        assert_eq!(FlatTensorModel::from_flat_tensor(&FlatTensor::parse(&written).unwrap()), model);
    }
}

#[test]
fn bundled_programs_hold_a_program_and_its_cases() {
    for (path, file) in corpus("bpte") {
        assert!(BundledProgram::is_bundled(&file));
        let bundled = BundledProgram::parse(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let program = Program::parse(bundled.program()).unwrap();
        let mut tensors = 0;
        for suite in bundled.suites() {
            let plan = program.method_named(suite.method_name).unwrap();
            for case in (0..suite.num_cases()).filter_map(|i| suite.case(i)) {
                assert_eq!(case.inputs().len(), plan.inputs().len(), "{}", path.display());
                assert_eq!(case.expected_outputs().len(), plan.outputs().len(), "{}", path.display());
                tensors += case.inputs().filter(|value| matches!(value, BundledValue::Tensor { .. })).count();
            }
        }
        assert!(tensors > 0, "{}", path.display());
    }
}
