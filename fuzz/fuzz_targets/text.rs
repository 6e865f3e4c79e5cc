//! The text form of models. A text that is read must print, and read back as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_graph::Model;
use rushlight_graph::text::{Contents, Detail};

fuzz_target!(|file: &[u8]| {
    let Ok(text) = std::str::from_utf8(file) else { return };
    match Model::parse(text, &Contents::default()) {
        Ok(model) => {
            let _ = model.verify();
            if let Ok((text, contents)) = model.to_text(Detail::Exact) {
                let again = Model::parse(&text, &contents).expect("what is printed can be read");
                assert_eq!(again.to_text(Detail::Exact).map(|(text, _)| text).ok(), Some(text));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
