//! Pickles and the JSON of programs, without an archive around them: a checksum or an offset stops most mutations there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_compiler::front::pt2::{ExportedProgram, pickle};

fuzz_target!(|file: &[u8]| {
    if let Err(error) = pickle::load_bare(file) {
        assert!(!error.to_string().is_empty());
    }
    if let Ok(text) = std::str::from_utf8(file)
        && let Err(error) = ExportedProgram::parse(text, "model.json")
    {
        assert!(!error.to_string().is_empty());
    }
});
