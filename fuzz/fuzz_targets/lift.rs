//! A program that parses lifts into a sound graph or fails with an error, and so does the graph when it is compiled.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::{CompileOptions, compile};
use rushlight_graph::Bytes;

fuzz_target!(|file: &[u8]| {
    let Ok(model) = lift(&Bytes::from(file.to_vec()), &[]) else { return };
    model.verify().expect("a lifted model is sound");
    let _ = compile(model, &CompileOptions::default());
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::program(data, size, max_size, seed)
});
