//! The entry point of the fuzz targets: the checks of a request's body that need no model.

use rushlight_llm::GenerationOptions;

use crate::api::{chat, completions, embeddings, responses, tokenize};
use crate::error::Refusal;

/// Size of the vocabulary that requests are checked against.
const VOCABULARY: usize = 64;

/// Checks a body against each route. Returns true if at least one accepts it.
pub fn request(body: &[u8]) -> bool {
    let defaults = GenerationOptions::default();
    let results: [Result<(), Refusal>; 5] = [
        chat::check(body, &defaults, VOCABULARY),
        completions::check(body, &defaults, VOCABULARY),
        responses::check(body, &defaults, VOCABULARY),
        embeddings::check(body),
        tokenize::check(body),
    ];
    results.iter().any(Result::is_ok)
}
