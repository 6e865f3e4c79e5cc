//! Language models: tokenizers, models with sessions, and answers that are generated step by step.

mod adapter;
mod cached;
mod draft;
mod error;
mod generation;
mod generator;
mod model;
mod session;
mod tokenizer;

pub use adapter::Adapter;
pub use cached::cached_program;
pub use generation::Generation;
pub use generator::{Generator, runner_generated_tokens};
pub use model::LanguageModel;
pub use session::Session;
pub use tokenizer::Tokenizer;
