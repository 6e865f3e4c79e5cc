//! Published weights of models: folders of Hugging Face with safetensors files, GGUF files with their block types, and LoRA
//! adapters of PEFT. A tensor becomes a constant of the [graph](rushlight_graph). This crate builds no graph and knows no
//! architecture; `rushlight-decoders` does.
//!
//! # Decisions
//!
//! - Weights are decoded from the mapped file at each read. Blocks of GGUF are float constants that know their integers, scales and
//!   minima (`Computed::quantized`), so that a backend with a kernel packs those of the file.
//! - Quantized weights stay in that file: `quantize` keeps the scales and rounds again when integers are read (`Nearest`). A
//!   permutation of such a constant is another one. The CPU backend packs matrices of integers a few columns at a time
//!   (`packed_matrix.rs`): once for their key, and once, as `Make` of `format`, when they are written.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod blocks;
pub mod config;
pub mod fields;
mod folder;
pub mod gguf;
pub mod lora;
pub mod safetensors;
mod stacked;
mod tensors;

pub use blocks::Block;
pub use folder::{Checkpoint, indexed_files};
pub use stacked::stack_rows;
pub use tensors::{Encoding, Tensor, Tensors, damaged};
