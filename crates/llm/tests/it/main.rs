//! Language models against Hugging Face's packages: the samples that `tools/llm_samples.py` wrote.

mod adapters;
mod batches;
mod embeddings;
mod gguf;
// Without the feature `grammar`, which a run of the whole workspace has, nothing of them is compiled.
#[cfg(feature = "grammar")]
mod grammar;
mod hostile;
mod prompts;
mod sampling;
mod saved_sessions;
mod sessions;
mod special_files;
mod speculation;
mod submissions;
mod templates;
mod tokenizers;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

fn json(path: &Path) -> Json {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows(path: &Path) -> Vec<Json> {
    match json(path) {
        Json::Array(rows) => rows,
        other => panic!("{}: {other}", path.display()),
    }
}
