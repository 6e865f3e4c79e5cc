//! An array that can be read is written and read as the same, and is divided into inputs or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight::{TensorInfo, ValueInfo};
use rushlight_devtools::npy;
use rushlight_devtools::samples::samples;

fuzz_target!(|file: &[u8]| {
    let tensor = match npy::read(file) {
        Ok(tensor) => tensor,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(tensor.bytes().len() <= file.len());
    let mut written = Vec::new();
    npy::write(&tensor, &mut written).expect("what was read can be written");
    let again = npy::read(&written).expect("what was written can be read");
    assert_eq!((again.dtype(), again.shape(), again.bytes()), (tensor.dtype(), tensor.shape(), tensor.bytes()));
    let input = |sizes: Vec<usize>, is_dynamic| {
        ValueInfo::Tensor(TensorInfo {
            dtype: tensor.dtype(),
            dim_order: (0..sizes.len() as u8).collect(),
            sizes,
            is_dynamic,
            ranges: Vec::new(),
            is_memory_planned: true,
            nbytes: 0,
            name: None,
        })
    };
    let inputs = [
        input(vec![1, 4], false),
        input(tensor.shape().to_vec(), true),
        input(tensor.shape().iter().skip(1).copied().collect(), true),
        input(vec![2, 3, 4], true),
    ];
    let arrays = [("x".to_owned(), tensor)];
    for input in inputs {
        if let Err(error) = samples(&arrays, &[input]) {
            assert!(!error.is_empty());
        }
    }
});
