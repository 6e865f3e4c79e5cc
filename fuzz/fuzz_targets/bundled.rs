//! A bundled program that parses can be read to its last value, and its program tried.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_format::Program;
use rushlight_format::bundled::{BundledProgram, BundledValue};

fuzz_target!(|file: &[u8]| {
    let Ok(bundled) = BundledProgram::parse(file) else { return };
    for suite in bundled.suites() {
        for case in (0..suite.num_cases()).map(|index| suite.case(index).expect("a case below the count")) {
            for value in case.inputs().chain(case.expected_outputs()) {
                if let BundledValue::Tensor { layout, data } = value {
                    assert!(data.len() >= layout.nbytes());
                }
            }
        }
    }
    let _ = Program::parse(bundled.program());
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::words(data, size, max_size, seed)
});
