//! Messages of panics, which end in a trap.

use std::sync::Mutex;

use wasm_bindgen::prelude::*;

/// Of the first panic: later ones, in threads that wait for the first, follow from it.
static MESSAGE: Mutex<String> = Mutex::new(String::new());

#[wasm_bindgen(start)]
pub fn keep_messages() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut message) = MESSAGE.try_lock()
            && message.is_empty()
        {
            *message = info.to_string();
        }
    }));
}

/// Returns the message of the panic that trapped; empty for a trap without one, as where the stack or the memory is full.
#[wasm_bindgen(js_name = panicMessage)]
pub fn message() -> String {
    MESSAGE.try_lock().map(|message| message.clone()).unwrap_or_default()
}
