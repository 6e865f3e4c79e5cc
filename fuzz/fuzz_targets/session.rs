//! A saved session is restored and goes on, or gives an error that says something and leaves a session that can be reset.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use rushlight_fuzz::language_model;
use rushlight_llm::{Model, Session};

struct State {
    model: Model,
    session: Session,
    saved: Vec<u8>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new({
        let mut model = language_model();
        let mut session = model.session().expect("a session");
        session.prefill(&mut model, &[1, 2, 3]).expect("logits");
        let saved = session.save().expect("a saved session");
        State { model, session, saved }
    });
}

/// The saved session with some bytes replaced: a length first, then pairs of a place and a byte.
fn patched(saved: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = saved.to_vec();
    let Some((len, patches)) = data.split_first_chunk::<2>() else { return bytes };
    let len = usize::from(u16::from_le_bytes(*len));
    if len > 0 {
        bytes.truncate(len % (bytes.len() + 1));
    }
    for patch in patches.chunks_exact(3) {
        // Most places are those of the head.
        let place = usize::from(u16::from_le_bytes([patch[0], patch[1]]));
        let count = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(place % count) {
            *byte = patch[2];
        }
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    STATE.with_borrow_mut(|State { model, session, saved }| {
        let bytes = match data.split_first() {
            Some((0, raw)) => raw.to_vec(),
            Some((_, patches)) => patched(saved, patches),
            None => Vec::new(),
        };
        match session.restore(model, &bytes) {
            Ok(()) => {
                let _ = session.prefill(model, &[1]);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        session.restore(model, saved).expect("a session is usable again");
    });
});
