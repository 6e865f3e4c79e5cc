//! A saved session with some bytes replaced, most with the hash that fits, is restored and goes on. Or it gives an error that
//! says something, and leaves a session that can be used again.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use rushlight_fuzz::language_model;
use rushlight_llm::{Model, Session};

/// Positions of the model's caches: few, as each execution hashes them.
const CONTEXT: usize = 8;

struct State {
    model: Model,
    session: Session,
    saved: Vec<u8>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new({
        let mut model = language_model(CONTEXT);
        let mut session = model.session().expect("a session");
        session.prefill(&mut model, &[1, 2, 3]).expect("logits");
        let saved = session.save().expect("a saved session");
        State { model, session, saved }
    });
}

/// Where the hash of the program ends, and that of the session.
const SEAL: std::ops::Range<usize> = 40..72;

/// Bytes before the caches, roughly: half of the patches change them.
const HEAD: usize = 512;

/// The saved session with some bytes replaced: a length first, then places and bytes.
fn patched(saved: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = saved.to_vec();
    let Some((len, patches)) = data.split_first_chunk::<2>() else { return bytes };
    let len = usize::from(u16::from_le_bytes(*len));
    if len > 0 {
        bytes.truncate(len % (bytes.len() + 1));
    }
    for [low, high, value] in patches.as_chunks::<3>().0 {
        let place = usize::from(u16::from_le_bytes([*low, high >> 1]));
        let count = if high & 1 == 0 { bytes.len().min(HEAD) } else { bytes.len() };
        if let Some(byte) = place.checked_rem(count).and_then(|place| bytes.get_mut(place)) {
            *byte = *value;
        }
    }
    bytes
}

/// Puts in the hash that fits, as `Session::save` does. If the two part, nothing is restored and coverage shows it.
fn seal(bytes: &mut [u8]) {
    let Some((head, rest)) = bytes.split_at_checked(SEAL.start) else { return };
    let Some((_, rest)) = rest.split_at_checked(SEAL.len()) else { return };
    let hash = blake3::Hasher::new().update(head).update(rest).finalize();
    bytes[SEAL].copy_from_slice(hash.as_bytes());
}

fuzz_target!(|data: &[u8]| {
    STATE.with_borrow_mut(|State { model, session, saved }| {
        let bytes = match data.split_first() {
            Some((0, raw)) => raw.to_vec(),
            Some((kind, patches)) => {
                let mut bytes = patched(saved, patches);
                if kind % 8 > 0 {
                    seal(&mut bytes);
                }
                bytes
            }
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
