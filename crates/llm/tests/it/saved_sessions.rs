//! Saved sessions belong to their program, and are read whole or not at all.

use rushlight::{Compiler, LanguageModelOptions, Module};
use rushlight_llm::{Error, Model};

use crate::folder;

const CONTEXT: usize = 80;

/// The program of a folder with a tiny Llama, whose files may be changed before.
fn program(name: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let to = std::env::temp_dir().join(format!("rushlight-saved-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&to).unwrap();
    let from = folder("decoders/llama");
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    let mut weights = std::fs::read(from.join("model.safetensors")).unwrap();
    change(&mut weights);
    std::fs::write(to.join("model.safetensors"), weights).unwrap();
    let options = LanguageModelOptions { max_context_len: Some(CONTEXT), ..Default::default() };
    let compiled = Compiler::new().language_model(&to, options).backend("cpu").compile().unwrap();
    let bytes = compiled.to_bytes().unwrap();
    std::fs::remove_dir_all(to).unwrap();
    bytes
}

fn load(program: &[u8]) -> Model {
    Model::new(Module::builder().lower("off").threads(1).load_bytes(program).unwrap()).unwrap()
}

#[test]
fn sessions_of_other_programs_of_the_same_shape_are_refused() {
    let own = program("own", |_| {});
    // One weight differs in its last bit.
    let other = program("other", |weights| *weights.last_mut().unwrap() ^= 1);
    let (mut model, again, mut other) = (load(&own), load(&own), load(&other));
    let prompt = [1, 20, 30, 40, 5];
    let mut session = model.session().unwrap();
    session.prefill(&mut model, &prompt).unwrap();
    let saved = session.save().unwrap();
    // A module of the same file takes it.
    let mut model = again;
    let mut restored = model.session().unwrap();
    restored.restore(&model, &saved).unwrap();
    assert_eq!((restored.tokens(), restored.logits()), (session.tokens(), session.logits()));
    // One of other weights does not, and continues as it was.
    let mut theirs = other.session().unwrap();
    theirs.prefill(&mut other, &prompt[..3]).unwrap();
    let logits = theirs.logits().to_vec();
    let error = theirs.restore(&other, &saved).unwrap_err();
    assert!(matches!(error, Error::OtherProgram), "{error}");
    assert_eq!((theirs.tokens(), theirs.logits()), (&prompt[..3], &logits[..]));
    assert!(theirs.prefill(&mut other, &prompt[3..]).is_ok());
}

#[test]
fn no_part_of_a_saved_session_goes_with_those_of_another() {
    let mut model = load(&program("parts", |_| {}));
    let mut saved = |prompt: &[u32]| {
        let mut session = model.session().unwrap();
        session.prefill(&mut model, prompt).unwrap();
        session.save().unwrap()
    };
    let (one, two) = (saved(&[1, 2, 3, 4]), saved(&[1, 2, 9, 4]));
    assert_eq!(one.len(), two.len());
    let mut session = model.session().unwrap();
    session.prefill(&mut model, &[7]).unwrap();
    let mut refused = |bytes: &[u8], what: &str| {
        let error = session.restore(&model, bytes).unwrap_err();
        assert!(matches!(error, Error::NoSession | Error::OtherProgram | Error::OtherAdapter), "{what}: {error}");
        assert_eq!(session.tokens(), [7], "{what}");
    };
    // Bytes that differ between the two, and a bit of each byte of the first kilobyte.
    let differing: Vec<usize> = (0..one.len()).filter(|at| one[*at] != two[*at]).collect();
    for at in differing.iter().step_by((differing.len() / 100).max(1)) {
        let mut mixed = one.clone();
        mixed[*at] = two[*at];
        refused(&mixed, &format!("the byte {at} of another"));
    }
    for at in (0..8 * one.len().min(1024)).step_by(9) {
        let mut changed = one.clone();
        changed[at / 8] ^= 1 << (at % 8);
        refused(&changed, &format!("the bit {at}"));
    }
    for len in (0..one.len()).step_by(one.len() / 50) {
        refused(&one[..len], &format!("{len} bytes"));
    }
    refused(&[&one[..], b"\0"].concat(), "a byte more");
    session.restore(&model, &one).unwrap();
    assert_eq!(session.tokens(), [1, 2, 3, 4]);
}
