//! Prompts and answers that are polled, with a simulated device that is pending while it works.

use std::sync::Arc;
use std::task::Poll;

use rushlight::{Compiler, LanguageModelOptions, Module};
use rushlight_example_backend::{Chain, Device, DeviceRuntime, NAME};
use rushlight_llm::{Error, Generation, Generator, Model, Part, Sampling, Speculation, Submission, Tokenizer};

use crate::folder;
use crate::sessions::{best, sample_of};

/// A model whose additions and products run on the device. The portable operators, or the CPU backend, run the rest.
fn on_device(rest: &str, takes_embeddings: bool) -> Model {
    let options = LanguageModelOptions {
        max_context_len: Some(40),
        max_seq_len: Some(4),
        takes_embeddings,
        ..Default::default()
    };
    let compiler = Compiler::new().language_model(folder("decoders/llama"), options);
    let bytes = compiler.backend(Box::new(Chain::new())).backend(rest).compile().unwrap().to_bytes().unwrap();
    let device = Arc::new(DeviceRuntime::new(NAME, Arc::new(Device::new())));
    let builder = Module::builder().lower("off").threads(1).backend(device).option(NAME, "latency", 2);
    Model::new(builder.load_bytes(&bytes).unwrap()).unwrap()
}

/// Polls until it is ready. Returns how often it was pending.
fn wait(mut submission: Submission<'_>) -> usize {
    let mut pending = 0;
    while submission.poll().unwrap().is_pending() {
        pending += 1;
    }
    assert!(submission.poll().unwrap().is_ready());
    pending
}

#[test]
fn a_polled_prompt_has_the_logits_of_one_that_waits() {
    let (prompt, greedy) = sample_of("llama");
    for (rest, takes_embeddings) in [("portable", false), ("cpu", false), ("portable", true), ("cpu", true)] {
        let mut model = on_device(rest, takes_embeddings);
        let mut session = model.session().unwrap();
        // Three calls: of two tokens, of four, and of the last.
        let parts = [Part::Tokens(&prompt[..2]), Part::Tokens(&prompt[2..])];
        let expected = session.prefill_parts(&mut model, &parts).unwrap().to_vec();
        session.reset(&mut model).unwrap();
        let pending = wait(session.submit(&mut model, &parts).unwrap());
        assert!(pending >= 3, "{rest}: pending {pending} times");
        assert_eq!((session.logits(), session.tokens()), (&expected[..], &prompt[..]));
        let mut tokens = Vec::new();
        for _ in 0..8 {
            tokens.push(best(session.logits()));
            let token = [tokens[tokens.len() - 1]];
            assert!(wait(session.submit(&mut model, &[Part::Tokens(&token)]).unwrap()) > 0);
        }
        assert_eq!(tokens, greedy[..8], "{rest}");
    }
}

#[test]
fn an_answer_is_polled_token_by_token() {
    let (prompt, greedy) = sample_of("llama");
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    for speculation in [None, Some(Speculation::lookup(4))] {
        let mut model = on_device("cpu", false);
        let mut session = model.session().unwrap();
        wait(session.submit(&mut model, &[Part::Tokens(&prompt)]).unwrap());
        let options =
            Generation { max_new_tokens: Some(8), ignore_eos: true, speculation, ..Generation::from(Sampling::GREEDY) };
        let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &[], options).unwrap();
        let mut tokens = Vec::new();
        loop {
            let pending = wait(generator.submit(&mut model, &mut session));
            // Nothing is read before the first token, after the last one, or where drafts are read with it.
            let is_read = speculation.is_none() && (1..8).contains(&tokens.len());
            assert_eq!(pending > 0, is_read, "{} tokens", tokens.len());
            let Some(step) = generator.step(&mut model, &mut session, &tokenizer).unwrap() else { break };
            tokens.extend(step.token);
        }
        assert_eq!(tokens, greedy[..8]);
        assert_eq!(generator.usage().decoded_tokens, 7);
    }
}

#[test]
fn a_submission_that_is_dropped_poisons_the_session_if_it_began() {
    let (prompt, greedy) = sample_of("llama");
    let mut model = on_device("cpu", false);
    let mut session = model.session().unwrap();
    let parts = [Part::Tokens(&prompt)];
    drop(session.submit(&mut model, &parts).unwrap());
    assert_eq!(session.position(), 0);
    let mut submission = session.submit(&mut model, &parts).unwrap();
    assert_eq!(submission.poll().unwrap(), Poll::Pending);
    drop(submission);
    assert!(matches!(session.submit(&mut model, &parts), Err(Error::Poisoned)));
    assert!(matches!(session.prefill(&mut model, &prompt), Err(Error::Poisoned)));
    // The model is not poisoned.
    let mut other = model.session().unwrap();
    other.prefill(&mut model, &prompt).unwrap();
    assert_eq!(best(other.logits()), greedy[0]);
    session.reset(&mut model).unwrap();
    wait(session.submit(&mut model, &parts).unwrap());
    assert_eq!(best(session.logits()), greedy[0]);
}

#[test]
fn prompts_are_checked_before_they_are_submitted() {
    let mut model = on_device("cpu", false);
    let mut session = model.session().unwrap();
    for (tokens, expected) in [(vec![], "no token to begin"), (vec![64], "no token 64"), (vec![1; 41], "context")] {
        let error = session.submit(&mut model, &[Part::Tokens(&tokens)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(session.position(), 0);
}
