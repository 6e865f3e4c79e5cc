//! The reference operators: ATen's portable set, quantized, symbolic and LLM operators, and those of Cortex-M programs.
//!
//! Correct first: fast paths elsewhere must agree with these. Each file holds one operator family: its [`Op`]
//! constants, kernels and helpers. The sets that programs load with are in [`sets`].
//!
//! [`Op`]: rushlight_runtime::Op
#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
mod support;

pub mod conv;
pub mod cortex_m;
pub mod counting;
pub mod create;
pub mod elementwise;
pub mod index;
pub mod linalg;
pub mod linear;
pub mod llama;
pub mod norm;
pub mod prim;
pub mod quantized;
pub mod reduce;
pub mod sets;
pub mod shape;
pub mod special;

pub use sets::{ALL, ATEN, CORE_ATEN, CORTEX_M, LLAMA, OPTIMIZED, PORTABLE, PRIM, QUANTIZED, TRANSFORMERS};
