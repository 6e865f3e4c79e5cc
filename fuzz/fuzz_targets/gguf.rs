//! A GGUF file becomes a program whose graph is valid, or an error that says something.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_decoders::{Options, import_gguf};
use rushlight_graph::Bytes;

fuzz_target!(|file: &[u8]| {
    match import_gguf(&Bytes::from(file.to_vec()), &Options::default()) {
        Ok(model) => model.verify().expect("a program that was imported is valid"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
