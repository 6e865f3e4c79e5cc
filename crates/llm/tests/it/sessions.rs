//! Sessions of a tiny Llama generate the same tokens as transformers.

use std::ops::ControlFlow;

use rushlight::{Compiler, LanguageModelOptions, LanguageModelOutput, Module};
use rushlight_llm::{
    Error, FinishReason, Generation, Generator, Model, Sampling, Session, Tokenizer, generate, score_text,
};
use serde_json::Value as Json;

use crate::{folder, json};

const CONTEXT: usize = 80;

fn model(max_seq_len: usize, backend: &str) -> Model {
    model_with(max_seq_len, backend, false)
}

fn model_with(max_seq_len: usize, backend: &str, full_logits: bool) -> Model {
    model_of("llama", max_seq_len, backend, full_logits)
}

fn model_of(name: &str, max_seq_len: usize, backend: &str, full_logits: bool) -> Model {
    let output = if full_logits { LanguageModelOutput::AllLogits } else { LanguageModelOutput::LastLogits };
    let options = LanguageModelOptions {
        max_context_len: Some(CONTEXT),
        max_seq_len: Some(max_seq_len),
        output,
        ..Default::default()
    };
    let folder = folder(&format!("decoders/{name}"));
    let compiler = Compiler::new().language_model(folder, options).backend(backend);
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    Model::new(Module::builder().lower("off").threads(1).load_bytes(&bytes).unwrap()).unwrap()
}

fn sample() -> (Vec<u32>, Vec<u32>) {
    sample_of("llama")
}

pub fn sample_of(name: &str) -> (Vec<u32>, Vec<u32>) {
    let expected = json(&folder(&format!("decoders/{name}/expected.json")));
    let tokens = |list: &Json| serde_json::from_value(list.clone()).unwrap();
    (tokens(&expected["prompt"]), tokens(&expected["greedy"]))
}

pub fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
}

pub fn continued(model: &mut Model, session: &mut Session, count: usize) -> Vec<u32> {
    let mut tokens = Vec::new();
    for _ in 0..count {
        tokens.push(best(session.logits()));
        session.prefill(model, &tokens[tokens.len() - 1..]).unwrap();
    }
    tokens
}

#[test]
fn greedy_text_is_that_of_transformers() {
    let (prompt, greedy) = sample();
    let text = json(&folder("decoders/llama/text.json"));
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    assert_eq!(tokenizer.encode(text["prompt"].as_str().unwrap(), false).unwrap(), prompt);
    for backend in ["portable", "cpu"] {
        for max_seq_len in [CONTEXT, 3] {
            let mut model = model(max_seq_len, backend);
            let mut session = model.session().unwrap();
            // The last tokens come after a token that ends a text.
            let options = Generation {
                max_new_tokens: Some(greedy.len()),
                ignore_eos: true,
                ..Generation::from(Sampling::GREEDY)
            };
            let mut written = String::new();
            let usage = generate(&mut model, &mut session, &tokenizer, &prompt, &options, |piece| {
                written.push_str(piece);
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(written, text["greedy"], "{backend}, {max_seq_len} tokens a call");
            assert_eq!((usage.generated_tokens, usage.finish_reason), (greedy.len(), FinishReason::Length));
            assert_eq!(session.position(), prompt.len() + greedy.len() - 1);
        }
    }
}

#[test]
fn an_empty_prompt_goes_on_from_the_logits() {
    let (prompt, greedy) = sample();
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    for backend in ["portable", "cpu"] {
        let mut model = model(CONTEXT, backend);
        let mut session = model.session().unwrap();
        let options = Generation { max_new_tokens: Some(8), ..Generation::from(Sampling::GREEDY) };
        let error = Generator::start(&mut model, &mut session, &tokenizer, &[], options.clone()).unwrap_err();
        assert!(matches!(error, Error::NoTokens), "{error}");
        session.prefill(&mut model, &prompt).unwrap();
        let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &[], options).unwrap();
        let mut tokens = Vec::new();
        while let Some(step) = generator.step(&mut model, &mut session, &tokenizer).unwrap() {
            tokens.extend(step.token);
        }
        assert_eq!(tokens, greedy[..8], "{backend}");
        assert_eq!(generator.usage().prompt_tokens, 0);
    }
}

#[test]
fn steps_have_the_probabilities_of_the_model() {
    let (prompt, greedy) = sample();
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    let mut model = model(CONTEXT, "cpu");
    let mut session = model.session().unwrap();
    let options = Generation {
        max_new_tokens: Some(3),
        ignore_eos: true,
        log_probabilities: Some(4),
        ..Generation::from(Sampling::GREEDY)
    };
    let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &prompt, options).unwrap();
    let mut tokens = Vec::new();
    while let Some(step) = generator.step(&mut model, &mut session, &tokenizer).unwrap() {
        let (token, score) = (step.token.unwrap(), step.score.unwrap());
        // The most likely token is chosen, so it is the first alternative.
        assert_eq!(score.alternatives[0], (token, score.log_probability));
        assert!(score.alternatives.is_sorted_by(|a, b| a.1 >= b.1) && score.alternatives.len() == 4);
        let sum: f64 = score.alternatives.iter().map(|(_, log_probability)| log_probability.exp()).sum();
        assert!(0.0 < sum && sum < 1.0 + 1e-9, "{sum}");
        tokens.push(token);
    }
    assert_eq!(tokens, greedy[..3]);
    assert_eq!(generator.usage().finish_reason, FinishReason::Length);
}

#[test]
fn answers_end_where_they_are_told_to() {
    let (prompt, greedy) = sample();
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    let mut model = model(CONTEXT, "cpu");
    let mut session = model.session().unwrap();
    let mut answer = |options: &Generation, cancel: bool| {
        session.reset(&mut model).unwrap();
        let mut text = String::new();
        let usage = generate(&mut model, &mut session, &tokenizer, &prompt, options, |piece| {
            text.push_str(piece);
            if cancel { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (text, usage.unwrap())
    };
    let whole = tokenizer.decode(&greedy, true).unwrap();
    // Text that may begin a stop string is held back, and a stop string is not part of the answer.
    let options = Generation { stop: vec!["Sn:SY".to_owned()], ..Generation::from(Sampling::GREEDY) };
    let (text, usage) = answer(&options, false);
    assert_eq!((&*text, usage.finish_reason), (whole.split("Sn:SY").next().unwrap(), FinishReason::Stop));
    let (text, usage) = answer(&Generation::from(Sampling::GREEDY), true);
    assert_eq!((text.chars().count(), usage.finish_reason), (1, FinishReason::Cancelled));
    // Until the context is full.
    let (_, usage) = answer(&Generation { ignore_eos: true, ..Generation::from(Sampling::GREEDY) }, false);
    assert_eq!((usage.generated_tokens, usage.finish_reason), (CONTEXT - prompt.len() + 1, FinishReason::Length));
    let (text, usage) = answer(&Generation { max_new_tokens: Some(0), ..Generation::from(Sampling::GREEDY) }, false);
    assert_eq!((&*text, usage.generated_tokens), ("", 0));
}

#[test]
fn sessions_go_back_fork_and_are_saved() {
    let (prompt, greedy) = sample();
    let mut model = model(4, "cpu");
    let mut session = model.session().unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    assert_eq!(continued(&mut model, &mut session, 10), greedy[..10]);
    // Another session continues independently.
    let mut other = model.session().unwrap();
    other.prefill(&mut model, &[5, 6, 7]).unwrap();

    let mut fork = session.fork().unwrap();
    let saved = session.save().unwrap();
    assert_eq!(continued(&mut model, &mut session, 5), greedy[10..15]);
    assert_eq!(continued(&mut model, &mut fork, 5), greedy[10..15]);
    other.restore(&model, &saved).unwrap();
    assert_eq!(continued(&mut model, &mut other, 5), greedy[10..15]);

    session.rewind(&mut model, prompt.len() + 3).unwrap();
    assert!(session.logits().is_empty());
    session.prefill(&mut model, &greedy[3..4]).unwrap();
    assert_eq!(continued(&mut model, &mut session, 6), greedy[4..10]);
    assert!(matches!(session.rewind(&mut model, 70), Err(Error::NotReached { position: 70, .. })));

    // The common prefix stays. The last token is computed again, because its logits are needed.
    assert_eq!(session.keep_common_prefix(&mut model, &prompt).unwrap(), prompt.len() - 1);
    session.prefill(&mut model, &prompt[prompt.len() - 1..]).unwrap();
    assert_eq!(continued(&mut model, &mut session, 10), greedy[..10]);
    assert_eq!(session.keep_common_prefix(&mut model, &[60, 61]).unwrap(), 0);

    for damaged in [
        &b""[..],
        &saved[..7],
        &saved[..20],
        &saved[..saved.len() - 1],
        b"RLLMses2\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert!(other.restore(&model, damaged).is_err());
    }
}

#[test]
fn sessions_without_positions_fork_and_are_saved_but_do_not_go_back() {
    for name in ["lfm2", "qwen3.5"] {
        let (prompt, greedy) = sample_of(name);
        let mut model = model_of(name, 4, "cpu", false);
        let mut session = model.session().unwrap();
        session.prefill(&mut model, &prompt).unwrap();
        assert_eq!(continued(&mut model, &mut session, 10), greedy[..10], "{name}");
        let mut fork = session.fork().unwrap();
        let saved = session.save().unwrap();
        let mut other = model.session().unwrap();
        other.prefill(&mut model, &[5, 6, 7]).unwrap();
        assert_eq!(continued(&mut model, &mut session, 5), greedy[10..15], "{name}");
        assert_eq!(continued(&mut model, &mut fork, 5), greedy[10..15], "{name}");
        other.restore(&model, &saved).unwrap();
        assert_eq!(continued(&mut model, &mut other, 5), greedy[10..15], "{name}");

        let error = session.rewind(&mut model, prompt.len() + 3).unwrap_err().to_string();
        assert!(error.contains("a state that has no positions to go back to"), "{name}: {error}");
        // The session is unchanged.
        assert_eq!(continued(&mut model, &mut session, 3), greedy[15..18], "{name}");
        // A session that cannot go back starts anew.
        assert_eq!(session.keep_common_prefix(&mut model, &prompt).unwrap(), 0);
        session.prefill(&mut model, &prompt).unwrap();
        assert_eq!(continued(&mut model, &mut session, 5), greedy[..5], "{name}");
    }
}

#[test]
fn what_a_session_cannot_do_changes_nothing() {
    let (prompt, greedy) = sample();
    let mut model = model(CONTEXT, "cpu");
    let mut session = model.session().unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    assert!(matches!(session.prefill(&mut model, &[]), Err(Error::NoTokens)));
    assert!(matches!(session.prefill(&mut model, &[64]), Err(Error::UnknownToken { token: 64, vocabulary: 64 })));
    let error = session.prefill(&mut model, &[3; CONTEXT]).unwrap_err();
    assert!(matches!(error, Error::ContextFull { position: 7, tokens: CONTEXT, capacity: CONTEXT }), "{error}");
    assert_eq!(continued(&mut model, &mut session, 10), greedy[..10]);
}

#[test]
fn a_cache_in_the_program_has_one_session() {
    let (prompt, greedy) = sample();
    let mut model = model(CONTEXT, "portable");
    let mut session = model.session().unwrap();
    assert!(matches!(model.session(), Err(Error::NotSupported(_))));
    session.prefill(&mut model, &prompt).unwrap();
    assert!(matches!(session.rewind(&mut model, 2), Err(Error::NotSupported(_))));
    assert!(matches!(session.fork(), Err(Error::NotSupported(_))));
    assert!(matches!(session.save(), Err(Error::NotSupported(_))));
    session.reset(&mut model).unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    assert_eq!(continued(&mut model, &mut session, 3), greedy[..3]);
    // The next session is independent of it.
    drop(session);
    let mut session = model.session().unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    assert_eq!(continued(&mut model, &mut session, 3), greedy[..3]);
}

/// A shorter context changes no answer before its end.
#[test]
fn a_context_is_limited_when_a_model_is_loaded() {
    let (prompt, greedy) = sample();
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    let mut model = model(CONTEXT, "cpu");
    for got in [0, CONTEXT + 1] {
        let error = model.limit_context(got).unwrap_err();
        assert!(matches!(error, Error::ContextLimit { expected: CONTEXT, .. }), "{error}");
    }
    let mut long = model.session().unwrap();
    long.prefill(&mut model, &prompt).unwrap();
    long.prefill(&mut model, &greedy[..20]).unwrap();
    let saved = long.save().unwrap();
    let positions = prompt.len() + 10;
    model.limit_context(positions).unwrap();
    assert_eq!((model.limits().max_context_len, model.limits().max_seq_len), (positions, positions));
    let mut session = model.session().unwrap();
    let options = Generation { ignore_eos: true, ..Generation::from(Sampling::GREEDY) };
    let mut tokens = Vec::new();
    let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &prompt, options).unwrap();
    while let Some(step) = generator.step(&mut model, &mut session, &tokenizer).unwrap() {
        tokens.extend(step.token);
    }
    assert_eq!(tokens, greedy[..11]);
    let error = session.prefill(&mut model, &[3]).unwrap_err();
    assert!(matches!(error, Error::ContextFull { tokens: 1, .. }), "{error}");
    let error = session.restore(&model, &saved).unwrap_err();
    assert!(matches!(error, Error::ContextFull { position: 0, .. }), "{error}");
    assert_eq!(session.position(), positions);
}

#[test]
fn other_programs_are_no_language_models() {
    for name in ["add", "mlp", "conv", "softmax"] {
        let module = Module::load(folder("corpus/1.5.1").join(name).with_extension("pte")).unwrap();
        let error = Model::new(module).unwrap_err();
        assert!(matches!(error, Error::NotLanguageModel { .. }), "{name}: {error}");
    }
}

#[test]
fn perplexities_are_those_of_transformers() {
    let expected = json(&folder("llm/perplexity.json"));
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    let tokens = tokenizer.encode(expected["text"].as_str().unwrap(), false).unwrap();
    let bos = expected["bos"].as_u64().map(|bos| bos as u32);
    for (max_seq_len, backend, full_logits) in
        [(CONTEXT, "cpu", true), (3, "cpu", true), (CONTEXT, "cpu", false), (CONTEXT, "portable", true)]
    {
        let mut model = model_with(max_seq_len, backend, full_logits);
        for row in expected["rows"].as_array().unwrap() {
            let window = row["window"].as_u64().unwrap() as usize;
            let score = score_text(&mut model, &tokens, bos, window, |_| {}).unwrap();
            assert_eq!(score.tokens as u64, row["tokens"].as_u64().unwrap());
            let (got, expected) = (score.log_likelihood, row["log_likelihood"].as_f64().unwrap());
            assert!((got / expected - 1.0).abs() < 1e-6, "{backend}, windows of {window}: {got}, not {expected}");
        }
        let error = score_text(&mut model, &tokens, bos, CONTEXT + 1, |_| {}).unwrap_err();
        assert!(matches!(error, Error::ContextFull { .. }), "{error}");
        let error = score_text(&mut model, &[], bos, 4, |_| {}).unwrap_err();
        assert!(matches!(error, Error::NoTokens), "{error}");
    }
}
