//! Code that the bindings to other languages share. Level 7.
//!
//! A binding maps [`ErrorParts`] to its exceptions, ends calls with a [`Flag`], and stops panics with [`caught`] or [`ending_panics`].
//! With the feature `llm`, [`Conversation`](conversation::Conversation) is ExecuTorch's runner of language models, with its statistics.
#![forbid(unsafe_code)]

#[cfg(feature = "llm")]
pub mod conversation;
mod error;
mod interrupt;
mod panic;
#[cfg(feature = "llm")]
mod statistics;

pub use error::ErrorParts;
pub use interrupt::Flag;
pub use panic::{caught, ending_panics};
#[cfg(feature = "llm")]
pub use statistics::{Statistics, generated_tokens};
