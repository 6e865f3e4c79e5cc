//! A tokenizer's file becomes a tokenizer that encodes and decodes, or an error that says something.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_llm::{Error, Tokenizer};

const TEXTS: [&str; 4] = [
    "",
    "  Hello,  wörld 你好 👩‍👩‍👧 <s> 12\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "e\u{301}\u{0}\t'll",
];

fn check<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| assert!(!error.to_string().is_empty())).ok()
}

/// A file with the component whose expression takes longest to compile, which is done once.
const SLOWEST: &[u8] = include_bytes!("../seeds/tokenizer/word_level.json");

fuzz_target!(init: drop(Tokenizer::from_bytes(SLOWEST)), |file: &[u8]| {
    let Some(tokenizer) = check(Tokenizer::from_bytes(file)) else { return };
    for (text, is_special) in TEXTS.iter().zip([false, true].into_iter().cycle()) {
        if let Some(tokens) = check(tokenizer.encode(text, is_special)) {
            check(tokenizer.decode(&tokens, is_special));
        }
    }
    check(tokenizer.decode(&[0, 1, 2, 255, 256, u32::MAX], false));
    check(tokenizer.chat_template());
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::json(data, size, max_size, seed)
});
