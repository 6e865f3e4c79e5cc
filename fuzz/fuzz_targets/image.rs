//! An image becomes an input or an error. The codecs leave out checksums under the fuzzer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight::{ScalarType, TensorInfo};
use rushlight_devtools::images::{Normalize, tensor};

fuzz_target!(|file: &[u8]| {
    for sizes in [vec![1, 3, 8, 8], vec![1, 5, 3], vec![1, 1, 1 << 30, 7]] {
        let elements: usize = sizes.iter().product();
        let info = TensorInfo {
            dtype: ScalarType::Float,
            dim_order: (0..sizes.len() as u8).collect(),
            sizes: sizes.clone(),
            is_dynamic: false,
            ranges: Vec::new(),
            is_memory_planned: true,
            nbytes: 4 * elements as u64,
            name: None,
        };
        match tensor(file, &info, Normalize::Imagenet) {
            Ok(image) => assert_eq!(image.shape().iter().product::<usize>(), elements),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
