//! External data that parses can be read to its last field, written again, and is then the same.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_format::FlatTensor;
use rushlight_format::ptd::FlatTensorModel;

fuzz_target!(|file: &[u8]| {
    let Ok(flat_tensor) = FlatTensor::parse(file) else { return };
    let model = FlatTensorModel::from_flat_tensor(&flat_tensor);
    let written = model.to_bytes().expect("parsed data can be written");
    if written.len() <= 4 * file.len() {
        let again = FlatTensor::parse(&written).expect("written data can be parsed");
        assert_eq!(FlatTensorModel::from_flat_tensor(&again), model);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::words(data, size, max_size, seed)
});
