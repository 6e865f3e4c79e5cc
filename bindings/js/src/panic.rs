//! Messages of panics, which end in a trap.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

#[wasm_bindgen(start)]
pub fn keep_messages() {
    std::panic::set_hook(Box::new(|info| {
        MESSAGE.with(|message| {
            if let Ok(mut message) = message.try_borrow_mut() {
                *message = info.to_string();
            }
        });
    }));
}

/// Returns the message of the panic that trapped; empty for a trap without one, as where the stack or the memory is full.
#[wasm_bindgen(js_name = panicMessage)]
pub fn message() -> String {
    MESSAGE.with(|message| message.try_borrow().map(|message| message.clone()).unwrap_or_default())
}
