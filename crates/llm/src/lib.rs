//! Language models on Rushlight: text to tokens and back, chat templates, sampling, and sessions over a KV cache.
//!
//! A [`Model`] is a program that takes tokens and returns logits, as `rushlight compile` builds it or ExecuTorch exports
//! it; a [`Session`] is what one conversation has of it for itself. A [`Tokenizer`] turns text into tokens, a [`ChatTemplate`]
//! messages into text, a [`Sampler`] logits into a token, and [`generate`] puts them together. This crate has no threads, no
//! network and no unsafe code.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use rushlight_llm::{Generation, Model, Tokenizer, generate};
//!
//! # fn main() -> rushlight_llm::Result<()> {
//! let mut model = Model::load("llama.pte")?;
//! let tokenizer = Tokenizer::open("llama.pte")?;
//! let mut session = model.session()?;
//! let prompt = tokenizer.encode("Once upon a time", true)?;
//! let options = Generation { max_new_tokens: Some(100), ..Generation::default() };
//! let usage = generate(&mut model, &mut session, &tokenizer, &prompt, &options, |text| {
//!     print!("{text}");
//!     ControlFlow::Continue(())
//! })?;
//! println!("\n{usage}");
//! # Ok(())
//! # }
//! ```
//!
//! # Decisions
//!
//! - **A language model's program carries its tokenizer**: the files are named data (`format::tokenizer` has the keys), which
//!   runtimes ignore. The facade copies them when it compiles, without reading them. Only this crate knows their content. Lifting
//!   passes them on. Lowering at load leaves them in the file, where a module's `program` has them.
//! - **A prompt is a list of parts**, tokens or rows of embeddings. Encoders are not part of this crate. A session keeps
//!   the hash of each row, so that a prompt with the same image continues it.
//! - **Logits are read where the method wrote them.** A call lends its output to a closure, which copies the rows that it needs.
//! - **A call that is polled is a future.** It borrows the model and the session, and owns its inputs. Delegates have no wakers, so
//!   the future wakes its own task. A session is poisoned while such a call runs: dropping the future leaves a half-written cache.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adapter;
mod base64;
mod chat;
mod clock;
mod deep_stack;
mod embedding;
mod error;
#[cfg(feature = "grammar")]
mod gbnf;
mod generate;
mod generation_options;
#[cfg(feature = "grammar")]
mod grammar;
#[cfg(feature = "grammar")]
mod grammar_builder;
mod history;
mod jinja;
mod model;
mod perplexity;
mod prompt;
mod sampling;
mod session;
mod speculation;
mod submission;
mod text_stream;
mod token_score;
mod tokenizer;

pub use adapter::Adapter;
pub use chat::{ChatTemplate, Message};
pub use embedding::{Pool, Pooling};
pub use error::{Error, Result};
pub use generate::{FinishReason, Generation, Generator, Step, Usage, generate, generate_with_draft};
pub use generation_options::GenerationOptions;
#[cfg(feature = "grammar")]
pub use grammar::{Constraint, Grammar, GrammarCompiler};
pub use model::{Limits, Model};
pub use perplexity::{Score, score_text};
pub use prompt::Part;
pub use rushlight::options;
pub use sampling::{Choice, Dry, Mirostat, Sampler, Sampling};
pub use session::Session;
pub use speculation::{Draft, DraftModel, DraftSession, Speculation};
pub use submission::Submission;
pub use text_stream::TextStream;
pub use token_score::TokenScore;
pub use tokenizer::{SpecialTokens, Tokenizer};
