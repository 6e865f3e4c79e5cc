//! Programs that return hidden states. `tests/server/test_embeddings.py` compares their numbers with transformers.

use rushlight::compiler::ConstantResult;
use rushlight::graph::Literal;
use rushlight::{Compiler, LanguageModelOptions, LanguageModelOutput, Module};
use rushlight_llm::{Error, Model, Pool, Pooling};

use crate::folder;

const TEXT: [u32; 20] = [1, 5, 9, 30, 44, 3, 17, 22, 61, 40, 12, 8, 8, 33, 50, 21, 2, 19, 4, 60];

fn compiler(max_seq_len: usize, backend: &str, output: LanguageModelOutput) -> Compiler {
    let options = LanguageModelOptions {
        max_context_len: Some(40),
        max_seq_len: Some(max_seq_len),
        output,
        ..Default::default()
    };
    Compiler::new().language_model(folder("decoders/llama"), options).backend(backend)
}

fn load(compiler: Compiler) -> rushlight_llm::Result<Model> {
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    Model::new(Module::builder().lower("off").threads(1).load_bytes(&bytes).unwrap())
}

#[test]
fn an_embedding_does_not_depend_on_the_calls() {
    for pooling in [Pooling::Last, Pooling::Mean] {
        let mut all: Vec<Vec<f32>> = Vec::new();
        for (max_seq_len, backend) in [(40, "cpu"), (7, "cpu"), (1, "cpu"), (40, "portable"), (7, "portable")] {
            let mut model = load(compiler(max_seq_len, backend, LanguageModelOutput::HiddenStates)).unwrap();
            assert_eq!((model.embedding_size(), model.limits().vocab_size), (Some(32), 64));
            let mut session = model.session().unwrap();
            for parts in [&[20][..], &[3, 17]] {
                session.reset(&mut model).unwrap();
                let (mut pool, mut rest) = (Pool::new(pooling), &TEXT[..]);
                for part in parts {
                    session.embed(&mut model, &rest[..*part], &mut pool).unwrap();
                    rest = &rest[*part..];
                }
                all.push(pool.normalized(32));
            }
        }
        let off = |one: &[f32]| one.iter().zip(&all[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(all.iter().all(|one| one.len() == 32 && off(one) < 1e-6), "{pooling:?}");
    }
}

#[test]
fn programs_give_what_they_return() {
    let mut model = load(compiler(8, "cpu", LanguageModelOutput::HiddenStates)).unwrap();
    let mut session = model.session().unwrap();
    assert!(matches!(session.prefill(&mut model, &TEXT), Err(Error::ReturnsHiddenStates)));
    assert!(matches!(session.score(&mut model, &TEXT), Err(Error::ReturnsHiddenStates)));
    let mut pool = Pool::new(Pooling::Last);
    assert!(matches!(session.embed(&mut model, &[64], &mut pool), Err(Error::UnknownToken { .. })));
    assert!(matches!(session.embed(&mut model, &[], &mut pool), Err(Error::NoTokens)));
    assert!(matches!(session.embed(&mut model, &[1; 41], &mut pool), Err(Error::ContextFull { .. })));
    for output in [LanguageModelOutput::LastLogits, LanguageModelOutput::AllLogits] {
        let mut model = load(compiler(8, "cpu", output)).unwrap();
        let mut session = model.session().unwrap();
        assert!(matches!(session.embed(&mut model, &TEXT, &mut pool), Err(Error::ReturnsLogits)));
        assert_eq!(model.embedding_size(), None);
    }
    // One that says of logits of one token that they are hidden states.
    let other = compiler(8, "cpu", LanguageModelOutput::LastLogits);
    let error =
        load(other.constant("returns_hidden_states", ConstantResult::Literal(Literal::Bool(true)))).unwrap_err();
    assert!(matches!(&error, Error::NotLanguageModel { problem } if problem.contains("[1, 64]")), "{error}");
}
