//! Files in this module's memory.

use std::sync::Arc;

use rushlight::Error;
use rushlight::runtime::{HeapBlock, StableBytes};
use wasm_bindgen::prelude::*;

use crate::plain;

/// Bytes that JavaScript writes, before they are handed to the library.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Bytes(HeapBlock);

#[wasm_bindgen]
impl Bytes {
    /// Zeros, to be written.
    #[wasm_bindgen(constructor)]
    pub fn new(len: usize) -> Result<Self, JsValue> {
        plain::map(HeapBlock::new(len).map_err(Error::from).map(Self))
    }

    #[wasm_bindgen(getter)]
    pub fn address(&mut self) -> usize {
        self.0.bytes_mut().as_mut_ptr() as usize
    }

    #[wasm_bindgen(getter)]
    pub fn size(&self) -> usize {
        self.0.bytes().len()
    }
}

impl Bytes {
    pub fn shared(self) -> Arc<dyn StableBytes> {
        Arc::new(self.0)
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}
