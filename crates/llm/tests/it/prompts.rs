//! Prompts of tokens and embeddings, for programs with the methods of ExecuTorch's multimodal programs.

use std::ops::ControlFlow;

use rushlight::{Compiler, LanguageModelOptions, Module, TensorView};
use rushlight_llm::{Error, Generation, Generator, Model, Part, Sampling, Session, Tokenizer};

use crate::folder;
use crate::sessions::{best, continued, sample_of};

const CONTEXT: usize = 80;
const DIM: usize = 32;

fn model(name: &str, max_seq_len: usize, backend: &str, takes_embeddings: bool) -> Model {
    let options = LanguageModelOptions {
        max_context_len: Some(CONTEXT),
        max_seq_len: Some(max_seq_len),
        takes_embeddings,
        ..Default::default()
    };
    let compiler = Compiler::new().language_model(folder("decoders").join(name), options).backend(backend);
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    Model::new(Module::builder().lower("off").threads(1).load_bytes(&bytes).unwrap()).unwrap()
}

/// The rows that the model has for tokens.
fn rows(model: &mut Model, tokens: &[u32]) -> Vec<f32> {
    let mut rows = Vec::new();
    for token in tokens {
        let token = [i64::from(*token)];
        let inputs = [TensorView::of(&[1, 1], &token).unwrap().into()];
        let outputs = model.module().run("token_embedding", &inputs).unwrap();
        rows.extend_from_slice(outputs[0].as_tensor().unwrap().as_slice::<f32>().unwrap());
    }
    rows
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn tokens_become_what_they_become_without_embeddings() {
    // Gemma scales its embeddings, Mistral's cache is a ring, Qwen 3.5 has a recurrent state.
    for name in ["llama", "gemma3", "mistral-window", "qwen3.5"] {
        let (prompt, greedy) = sample_of(name);
        for (max_seq_len, backend) in [(CONTEXT, "cpu"), (3, "cpu"), (8, "portable")] {
            let mut plain = model(name, max_seq_len, backend, false);
            assert_eq!(plain.prompt_dim(), None);
            let mut expected = plain.session().unwrap();
            expected.prefill(&mut plain, &prompt).unwrap();

            let mut model = model(name, max_seq_len, backend, true);
            let mut session = model.session().unwrap();
            let logits = session.prefill(&mut model, &prompt).unwrap();
            assert!(difference(logits, expected.logits()) < 1e-5, "{name}, {backend}, {max_seq_len} tokens a call");
            assert_eq!(continued(&mut model, &mut session, greedy.len()), greedy, "{name}, {backend}");
        }
    }
}

#[test]
fn embeddings_stand_between_tokens() {
    let (prompt, greedy) = sample_of("llama");
    for (max_seq_len, backend) in [(CONTEXT, "cpu"), (2, "cpu"), (CONTEXT, "portable"), (2, "portable")] {
        let mut model = model("llama", max_seq_len, backend, true);
        assert_eq!(model.prompt_dim(), Some(DIM));
        let rows = rows(&mut model, &prompt[2..5]);
        let parts = [
            Part::Tokens(&prompt[..2]),
            Part::Embeddings { rows: &rows, dim: DIM },
            Part::Tokens(&[]),
            Part::Tokens(&prompt[5..]),
        ];
        let mut session = model.session().unwrap();
        session.prefill_parts(&mut model, &parts).unwrap();
        assert_eq!(session.position(), prompt.len());
        assert_eq!(session.tokens(), [&prompt[..2], &prompt[5..]].concat());
        assert_eq!(continued(&mut model, &mut session, greedy.len()), greedy, "{backend}, {max_seq_len} a call");

        // Embeddings may end a prompt.
        session.reset(&mut model).unwrap();
        let rows = self::rows(&mut model, &prompt[2..]);
        let parts = [Part::Tokens(&prompt[..2]), Part::Embeddings { rows: &rows, dim: DIM }];
        let options = Generation { max_new_tokens: Some(6), ignore_eos: true, ..Generation::from(Sampling::GREEDY) };
        let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
        let mut goes_on = || ControlFlow::Continue(());
        let generator =
            Generator::start_parts_while(&mut model, &mut session, &tokenizer, &parts, options, &mut goes_on);
        let mut generator = generator.unwrap();
        let mut tokens = Vec::new();
        while let Some(step) = generator.step(&mut model, &mut session, &tokenizer).unwrap() {
            tokens.extend(step.token);
        }
        assert_eq!(tokens, greedy[..6], "{backend}, {max_seq_len} a call");
        assert_eq!(generator.usage().prompt_tokens, prompt.len());
    }
}

#[test]
fn sessions_with_embeddings_go_back_fork_and_are_saved() {
    let (prompt, greedy) = sample_of("llama");
    let mut model = model("llama", CONTEXT, "cpu", true);
    let rows = rows(&mut model, &prompt[2..5]);
    let embeddings = Part::Embeddings { rows: &rows, dim: DIM };
    let parts = [Part::Tokens(&prompt[..2]), embeddings, Part::Tokens(&prompt[5..])];
    let mut session = model.session().unwrap();
    session.prefill_parts(&mut model, &parts).unwrap();
    assert_eq!(continued(&mut model, &mut session, 4), greedy[..4]);

    let mut fork = session.fork().unwrap();
    let saved = session.save().unwrap();
    let mut other = model.session().unwrap();
    other.restore(&model, &saved).unwrap();
    for session in [&mut fork, &mut other] {
        assert_eq!((session.position(), session.tokens().len()), (prompt.len() + 4, prompt.len() + 1));
        assert_eq!(continued(&mut model, session, 4), greedy[4..8]);
    }
    for len in 0..saved.len().min(400) {
        assert!(other.restore(&model, &saved[..len]).is_err(), "{len}");
    }

    // The same rows stay; others are read again.
    assert_eq!(other.keep_common_parts(&mut model, &parts).unwrap(), prompt.len() - 1);
    other.prefill(&mut model, &prompt[prompt.len() - 1..]).unwrap();
    assert_eq!(continued(&mut model, &mut other, 4), greedy[..4]);
    let mut changed = rows.clone();
    changed[DIM] += 1.0;
    let others = [parts[0], Part::Embeddings { rows: &changed, dim: DIM }, parts[2]];
    assert_eq!(other.keep_common_parts(&mut model, &others).unwrap(), 3);
    // Tokens have no position of an embedding.
    assert_eq!(session.keep_common_prefix(&mut model, &prompt).unwrap(), 2);
    session.prefill(&mut model, &prompt[2..]).unwrap();
    assert_eq!(continued(&mut model, &mut session, 4), greedy[..4]);

    // Parts that the model cannot read change nothing.
    for rows in [&rows[..0], &rows[..DIM]] {
        let parts = [Part::Tokens(&prompt[..2]), Part::Embeddings { rows, dim: 0 }];
        let (kept, position) = (session.keep_common_parts(&mut model, &parts), session.position());
        assert!(matches!(kept, Err(Error::EmbeddingSize { dim: 0, .. })), "{kept:?}");
        assert_eq!(position, session.position());
        let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
        let started = Generator::start_parts_while(
            &mut model,
            &mut session,
            &tokenizer,
            &parts[1..],
            Generation::from(Sampling::GREEDY),
            || ControlFlow::Continue(()),
        );
        assert!(matches!(started.err(), Some(Error::EmbeddingSize { dim: 0, .. })));
    }

    // A session of tokens alone has the bytes that it had.
    session.reset(&mut model).unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    assert!(session.save().unwrap().starts_with(b"RLLMses3") && saved.starts_with(b"RLLMses4"));
}

#[test]
fn a_batch_reads_tokens_after_embeddings() {
    let (prompt, _) = sample_of("llama");
    let mut model = model("llama", 8, "cpu", true);
    let rows = rows(&mut model, &prompt);
    let mut single: Vec<Session> = (1..4)
        .map(|count| {
            let mut session = model.session().unwrap();
            let parts = [Part::Embeddings { rows: &rows[..count * DIM], dim: DIM }, Part::Tokens(&prompt[count..])];
            session.prefill_parts(&mut model, &parts).unwrap();
            session
        })
        .collect();
    let mut batched: Vec<Session> = single.iter().map(|session| session.fork().unwrap()).collect();
    for _ in 0..4 {
        let tokens: Vec<u32> = single.iter().map(|session| best(session.logits())).collect();
        let mut batch: Vec<_> = batched.iter_mut().zip(tokens.iter().copied()).collect();
        Session::prefill_batch(&mut model, &mut batch).unwrap();
        for ((single, batched), token) in single.iter_mut().zip(&batched).zip(tokens) {
            single.prefill(&mut model, &[token]).unwrap();
            assert_eq!((single.tokens(), single.position()), (batched.tokens(), batched.position()));
            assert!(difference(single.logits(), batched.logits()) < 1e-5);
        }
    }
}

#[test]
fn prompts_that_do_not_fit_change_nothing() {
    let (prompt, greedy) = sample_of("llama");
    let row = [0.5; DIM];
    let part = Part::Embeddings { rows: &row, dim: DIM };
    let mut plain = model("llama", 8, "cpu", false);
    let mut session = plain.session().unwrap();
    let error = session.prefill_parts(&mut plain, &[Part::Tokens(&prompt), part]).unwrap_err();
    assert!(matches!(error, Error::TakesNoEmbeddings), "{error}");
    assert_eq!(session.position(), 0);

    let mut model = model("llama", 8, "cpu", true);
    let mut session = model.session().unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    for (rows, dim) in [(&row[..], DIM / 2), (&row[1..], DIM), (&row[..], 0), (&row[..], DIM + 1)] {
        let parts = [part, Part::Embeddings { rows, dim }];
        let error = session.prefill_parts(&mut model, &parts).unwrap_err();
        assert!(matches!(error, Error::EmbeddingSize { expected: DIM, .. }), "{error}");
    }
    let empty = [Part::Tokens(&[]), Part::Embeddings { rows: &[], dim: DIM }];
    assert!(matches!(session.prefill_parts(&mut model, &empty), Err(Error::NoTokens)));
    assert!(matches!(session.prefill_parts(&mut model, &[part, Part::Tokens(&[64])]), Err(Error::UnknownToken { .. })));
    let many = vec![part; CONTEXT];
    let error = session.prefill_parts(&mut model, &many).unwrap_err();
    assert!(matches!(error, Error::ContextFull { tokens: CONTEXT, .. }), "{error}");
    assert_eq!(continued(&mut model, &mut session, 5), greedy[..5]);
}
