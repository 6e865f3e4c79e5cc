//! The routes: requests to jobs, and events to answers.

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod models;
pub mod tokenize;

mod body;
mod head;
mod sampling;
mod stream;

pub use body::Key;
