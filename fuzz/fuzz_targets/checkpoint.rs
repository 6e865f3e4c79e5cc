//! A configuration, which is the first line, and a safetensors file, which is the rest, become a program whose graph is valid, or
//! an error that says something. The first line is an index of files, too.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_checkpoint::{Checkpoint, indexed_files};
use rushlight_decoders::{Options, import_checkpoint};
use rushlight_graph::Bytes;

fuzz_target!(|file: &[u8]| {
    let end = file.iter().position(|byte| *byte == b'\n').unwrap_or(file.len());
    let (config, weights) = file.split_at(end);
    let weights = Bytes::from(weights.get(1..).unwrap_or_default().to_vec());
    let checkpoint = Checkpoint {
        config: config.to_vec(),
        generation_config: Some(config.to_vec()),
        weights: vec![("model.safetensors".to_owned(), weights)],
    };
    match import_checkpoint(&checkpoint, &Options::default()) {
        Ok(model) => model.verify().expect("a program that was imported is valid"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = indexed_files(config) {
        assert!(!error.to_string().is_empty());
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::lines_and_safetensors::<1>(data, size, max_size, seed)
});
