//! Sessions that get their tokens in one call have the logits of calls of their own.

use rushlight::{Compiler, KvCache, LanguageModelOptions, Module, Quantization, Scheme};
use rushlight_llm::{Error, Generation, Generator, Model, Sampling, Session, Tokenizer};
use serde_json::Value as Json;

use crate::{folder, json};

const CONTEXT: usize = 80;
const STEPS: usize = 12;

fn model(name: &str, scheme: Option<Scheme>, cache: KvCache, backend: &str) -> Model {
    let options = LanguageModelOptions { max_context_len: Some(CONTEXT), max_seq_len: Some(8), ..Default::default() };
    let checkpoint = folder("decoders").join(name);
    let mut compiler = Compiler::new().language_model(checkpoint, options).backend(backend).kv_cache(cache);
    if let Some(scheme) = scheme {
        compiler = compiler.quantize(Quantization::new(scheme));
    }
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    Model::new(Module::builder().lower("off").threads(2).load_bytes(&bytes).unwrap()).unwrap()
}

/// A prompt of its own for each session.
fn prompt(session: usize, vocabulary: usize) -> Vec<u32> {
    (0..3 + 5 * (session % 8)).map(|index| ((7 * index + 3 * session + 1) % vocabulary) as u32).collect()
}

fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
}

/// The largest difference to calls of one session each, relative to the largest logit.
fn difference(model: &mut Model, sessions: usize) -> f32 {
    let vocabulary = model.limits().vocab_size;
    let begin = |model: &mut Model, index| {
        let mut session = model.session().unwrap();
        session.prefill(model, &prompt(index, vocabulary)).unwrap();
        session
    };
    let mut single: Vec<Session> = (0..sessions).map(|index| begin(model, index)).collect();
    let mut batched: Vec<Session> = single.iter().map(|session| session.fork().unwrap()).collect();
    let mut difference = 0.0f32;
    for _ in 0..STEPS {
        let tokens: Vec<u32> = single.iter().map(|session| best(session.logits())).collect();
        let mut batch: Vec<_> = batched.iter_mut().zip(tokens.iter().copied()).collect();
        Session::prefill_batch(model, &mut batch).unwrap();
        for ((single, batched), token) in single.iter_mut().zip(&batched).zip(tokens) {
            single.prefill(model, &[token]).unwrap();
            assert_eq!(single.tokens(), batched.tokens());
            let largest = single.logits().iter().fold(0.0f32, |max, logit| max.max(logit.abs()));
            for (a, b) in single.logits().iter().zip(batched.logits()) {
                difference = difference.max((a - b).abs() / largest);
            }
        }
    }
    difference
}

#[test]
fn logits_of_a_batch_are_those_of_single_calls() {
    let float = |name: &'static str| (name, None, KvCache::F32);
    let cases = [
        float("llama"),
        // Rings.
        float("mistral-window"),
        float("gemma3"),
        // Soft caps.
        float("gemma2"),
        // Short convolutions and gated delta nets, whose states have no positions.
        float("lfm2"),
        float("qwen3.5"),
        // One matrix for queries, keys and values.
        float("phi3"),
        float("olmo2"),
        // Mixtures of experts.
        float("qwen3-moe"),
        ("mixtral", Some(Scheme::FOUR_BIT_DYNAMIC), KvCache::F32),
        ("llama", None, KvCache::Int8),
        ("llama", None, KvCache::F16),
        ("qwen3", None, KvCache::Bf16),
        ("llama", Some(Scheme::FOUR_BIT_DYNAMIC), KvCache::Int4),
        ("llama", Some(Scheme::INT8_DYNAMIC), KvCache::F32),
        ("qwen3", Some(Scheme::INT8_WEIGHT), KvCache::F32),
        ("qwen3", Some(Scheme::INT4), KvCache::F32),
        ("qwen3", Some(Scheme::FOUR_BIT_DYNAMIC), KvCache::Int8),
    ];
    for (name, scheme, cache) in cases {
        let mut model = model(name, scheme, cache, "cpu");
        let difference = difference(&mut model, 5);
        // The rounding of sums. Phi-3's random weights amplify it: chunks of a prompt and single tokens differ by 3e-6 there.
        // Where rows are rounded to 16 bits, such a difference moves some elements by a step, of 3e-5 of the largest of a row.
        let most = if matches!(scheme, Some(Scheme::INT4 | Scheme::INT8_WEIGHT)) { 1e-4 } else { 2e-5 };
        assert!(difference <= most, "{name}, {scheme:?}, {cache:?}: {difference:e}");
    }
}

#[test]
fn more_sessions_than_a_call_has() {
    let difference = difference(&mut model("llama", None, KvCache::F32, "cpu"), 19);
    assert!(difference <= 2e-6, "{difference:e}");
}

#[test]
fn answers_of_a_batch_are_those_of_transformers() {
    let expected = json(&folder("decoders/llama/expected.json"));
    let tokens = |list: &Json| -> Vec<u32> { serde_json::from_value(list.clone()).unwrap() };
    let (prompt, greedy) = (tokens(&expected["prompt"]), tokens(&expected["greedy"]));
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    for backend in ["cpu", "portable"] {
        let mut model = model("llama", None, KvCache::F32, backend);
        // The portable operators keep one cache, in planned memory.
        let count = if backend == "cpu" { 4 } else { 1 };
        let options =
            Generation { max_new_tokens: Some(greedy.len()), ignore_eos: true, ..Generation::from(Sampling::GREEDY) };
        let mut answers: Vec<_> = (0..count)
            .map(|_| {
                let mut session = model.session().unwrap();
                let start = Generator::start(&mut model, &mut session, &tokenizer, &prompt, options.clone());
                (start.unwrap(), session, Vec::new())
            })
            .collect();
        for _ in 0..greedy.len() {
            let mut batch: Vec<_> = answers.iter_mut().map(|(generator, session, _)| (generator, session)).collect();
            Generator::read_batch(&mut model, &mut batch).unwrap();
            for (generator, session, tokens) in &mut answers {
                tokens.extend(generator.step(&mut model, session, &tokenizer).unwrap().unwrap().token);
            }
        }
        for (generator, session, tokens) in &answers {
            assert_eq!(*tokens, greedy, "{backend}");
            assert_eq!(generator.usage().decoded_tokens, greedy.len() - 1);
            assert_eq!(session.position(), prompt.len() + greedy.len() - 1);
        }
    }
}

#[test]
fn a_token_that_does_not_fit_changes_no_session() {
    let mut model = model("llama", None, KvCache::F32, "cpu");
    let mut sessions: Vec<Session> = (0..3).map(|_| model.session().unwrap()).collect();
    for session in &mut sessions {
        session.prefill(&mut model, &[1, 2, 3]).unwrap();
    }
    let [first, second, third] = &mut sessions[..] else { unreachable!() };
    let rest = vec![4; CONTEXT - 3];
    second.prefill(&mut model, &rest).unwrap();
    let error = Session::prefill_batch(&mut model, &mut [(first, 5), (second, 5), (third, 5)]).unwrap_err();
    assert!(matches!(error, Error::ContextFull { position: CONTEXT, .. }), "{error}");
    assert_eq!([first.position(), third.position()], [3, 3]);
    let error = Session::prefill_batch(&mut model, &mut [(first, 5), (third, 1 << 20)]).unwrap_err();
    assert!(matches!(error, Error::UnknownToken { .. }), "{error}");
    Session::prefill_batch(&mut model, &mut [(first, 5), (third, 6)]).unwrap();
    assert_eq!([first.position(), third.position()], [4, 4]);
    Session::prefill_batch(&mut model, &mut []).unwrap();
}
