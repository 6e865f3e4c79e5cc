//! A body of a request is read and checked as by each route of the server, or refused.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|body: &[u8]| {
    rushlight_llm_server::fuzzing::request(body);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::json(data, size, max_size, seed)
});
