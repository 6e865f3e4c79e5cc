//! A grammar (a JSON schema, a regular expression, Lark or GBNF) constrains an answer of some tokens, or gives an error that says
//! something.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use rushlight_fuzz::language_model;
use rushlight_llm::{Error, Grammar, GrammarCompiler, Tokenizer};

struct State {
    compiler: GrammarCompiler,
    vocabulary: usize,
}

static STATE: LazyLock<State> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/decoders/llama");
    let tokenizer = Tokenizer::open(folder.join("tokenizer.json")).expect("a tokenizer");
    let limits = language_model(32).limits().clone();
    let compiler = GrammarCompiler::new(&tokenizer, &limits).expect("a vocabulary");
    State { compiler, vocabulary: limits.vocab_size }
});

/// Tokens of an answer.
const STEPS: usize = 16;

fn check<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| assert!(!error.to_string().is_empty())).ok()
}

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((kind, text)) = data.split_first() else { return Corpus::Reject };
    let Ok(text) = std::str::from_utf8(text) else { return Corpus::Reject };
    let grammar = match kind % 4 {
        0 => match serde_json::from_str(text) {
            Ok(schema) => Grammar::JsonSchema(schema),
            Err(_) => return Corpus::Reject,
        },
        1 => Grammar::Regex(text.to_owned()),
        2 => Grammar::Lark(text.to_owned()),
        _ => Grammar::Gbnf(text.to_owned()),
    };
    let Some(mut constraint) = check(STATE.compiler.compile(&grammar)) else { return Corpus::Keep };
    for step in 0..STEPS {
        let mut logits = vec![0.0; STATE.vocabulary];
        if check(constraint.mask(&mut logits)).is_none() {
            break;
        }
        let allowed: Vec<usize> = (0..logits.len()).filter(|token| logits[*token] == 0.0).collect();
        // Tokens that the text itself chooses.
        let choice = text.as_bytes().get(step).map_or(0, |byte| usize::from(*byte));
        let Some(token) = allowed.get(choice % allowed.len().max(1)) else { break };
        if check(constraint.accept(*token as u32)) != Some(false) {
            break;
        }
    }
    Corpus::Keep
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::byte_and_json(data, size, max_size, seed)
});
