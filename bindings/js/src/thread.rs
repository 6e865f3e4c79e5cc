//! Threads that JavaScript starts, and pools use.

use wasm_bindgen::prelude::*;

/// The calling thread, lent to pools.
#[wasm_bindgen]
#[derive(Debug)]
pub struct LentThread(rushlight_engine::LentThread);

#[wasm_bindgen]
impl LentThread {
    /// Pools that are made from here on may use the thread.
    #[wasm_bindgen(constructor)]
    #[expect(clippy::new_without_default, reason = "it is JavaScript's constructor")]
    pub fn new() -> Self {
        Self(rushlight_engine::LentThread::new())
    }

    /// Works for pools, for ever.
    pub fn serve(self) {
        self.0.serve()
    }
}

/// Tells those who wait for a thread that it trapped.
#[wasm_bindgen(js_name = loseThread)]
pub fn lose_thread() {
    rushlight_engine::lose_lent_thread();
}
