//! A program that parses can be read to its last field, written again, and is then the same.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_format::Program;
use rushlight_format::pte::ProgramModel;

fuzz_target!(|file: &[u8]| {
    let Ok(program) = Program::parse(file) else { return };
    // Only the absence of a panic is tested.
    program.methods().for_each(|plan| drop(plan.signature()));
    let model = ProgramModel::from_program(&program);
    let written = model.to_bytes().expect("a parsed program can be written");
    // A table that many refer to becomes many tables, and those may be more than a file of this size may hold.
    if written.len() <= 4 * file.len() {
        let again = Program::parse(&written).expect("a written program can be parsed");
        let again = ProgramModel::from_program(&again);
        if again.methods != model.methods {
            // By text, since NaN differs from itself.
            assert_eq!(format!("{:?}", again.methods), format!("{:?}", model.methods));
        }
        assert_eq!(again.named_data, model.named_data);
        // Data that no tensor refers to comes back with the padding behind it.
        for (again, data) in again.constants.iter().zip(&model.constants) {
            let (again, data) = (again.bytes().expect("data"), data.bytes().expect("data"));
            assert!(again.starts_with(&data));
        }
        assert_eq!(again.constants.len(), model.constants.len());
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::program(data, size, max_size, seed)
});
