//! A body of a request is read and checked as by each route of the server, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    rushlight_llm_server::fuzzing::request(body);
});
