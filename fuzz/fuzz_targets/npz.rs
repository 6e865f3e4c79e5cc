//! An archive of arrays is read within memory in proportion to it, and what was read can be written and read as the same.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_devtools::npy;

fuzz_target!(|file: &[u8]| {
    let arrays = match npy::read_archive(file) {
        Ok(arrays) => arrays,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let total: usize = arrays.iter().map(|(_, array)| array.bytes().len()).sum();
    assert!(total as u64 <= npy::MAX_EXPANDED.max(npy::MAX_RATIO * file.len() as u64), "{total} of {}", file.len());
    let mut written = Cursor::new(Vec::new());
    let named = arrays.iter().map(|(name, array)| (name.as_str(), array));
    if npy::write_archive(named, &mut written).is_ok() {
        let again = npy::read_archive(written.get_ref()).expect("what was written can be read");
        assert_eq!(again.len(), arrays.len());
        for ((name, array), (same, read)) in arrays.iter().zip(&again) {
            assert_eq!((name, array.shape(), array.bytes()), (same, read.shape(), read.bytes()));
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::archive(data, size, max_size, seed)
});
