//! A chat template renders messages, or gives an error that says something.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_llm::{ChatTemplate, Message};

fuzz_target!(|source: &str| {
    let messages =
        [Message::new("system", "Be brief."), Message::new("user", "a <b> 'c'\n"), Message::new("assistant", "")];
    match ChatTemplate::new(source).and_then(|template| template.render(&messages, true)) {
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
