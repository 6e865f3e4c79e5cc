//! The routes: requests to jobs, and events to answers.

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod models;
pub mod responses;
pub mod tokenize;

mod answer;
mod body;
mod head;
mod sampling;
mod stream;
mod tools;

pub use body::Key;
pub use head::now;
