//! Serves a language model over HTTP as OpenAI's API has it: chat and text completions, also streamed, with sessions over shared
//! weights; or embeddings, if the program returns hidden states.
//!
//! [`serve`] listens until it is told to stop. One thread owns the model and lets requests take turns, a token each; the
//! prompts of earlier requests are kept, so that the common prefix of a new one is not computed again.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rushlight_llm::{Model, Tokenizer};
//! use rushlight_llm_server::{Options, serve};
//!
//! let (model, tokenizer) = (Model::load("llama.pte")?, Tokenizer::open("tokenizer.json")?);
//! serve(model, tokenizer, Options::default(), |address| println!("http://{address}"))?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod api;
mod connections;
mod embedder;
mod error;
mod fair;
#[cfg(fuzzing)]
pub mod fuzzing;
mod job;
mod metrics;
mod open;
mod origin;
mod pace;
mod preparing;
mod queue;
mod scheduler;
mod server;
mod service;
mod sites;
mod tool_calls;

pub use error::Error;
pub use origin::{NotAnOrigin, Origin};
pub use server::serve;
pub use service::{Handled, Options};
