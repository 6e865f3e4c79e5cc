//! Answers with drafts equal answers without.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rushlight::{Compiler, LanguageModelOptions, LanguageModelOutput, Module, ProgramTokenizer, Quantization, Scheme};
use rushlight_llm::{
    Draft, DraftModel, Error, FinishReason, Generation, Generator, Model, Result, Sampling, Session, Speculation, Step,
    Tokenizer, Usage,
};

use serde_json::Value as Json;

use crate::{folder, json};

const CONTEXT: usize = 80;
const LOOKUP: Speculation = Speculation::PromptLookup { max_ngram: 3, max_draft: 6 };

fn model(name: &str, max_seq_len: usize, full_logits: bool, backend: &str) -> Model {
    compiled(folder("decoders").join(name), max_seq_len, full_logits, backend)
}

fn compiled(checkpoint: PathBuf, max_seq_len: usize, full_logits: bool, backend: &str) -> Model {
    quantized(checkpoint, max_seq_len, full_logits, backend, None)
}

fn quantized(
    checkpoint: PathBuf,
    max_seq_len: usize,
    full_logits: bool,
    backend: &str,
    scheme: Option<Scheme>,
) -> Model {
    let output = if full_logits { LanguageModelOutput::AllLogits } else { LanguageModelOutput::LastLogits };
    let options = LanguageModelOptions {
        max_context_len: Some(CONTEXT),
        max_seq_len: Some(max_seq_len),
        output,
        ..Default::default()
    };
    let mut compiler = Compiler::new().language_model(checkpoint, options).backend(backend);
    if let Some(scheme) = scheme {
        compiler = compiler.quantize(Quantization::new(scheme));
    }
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    Model::new(Module::builder().lower("off").threads(1).load_bytes(&bytes).unwrap()).unwrap()
}

/// The tiny Llama, which has 64 tokens, with a smaller vocabulary, or with a larger one whose additional weights are 0.
fn with_vocabulary(count: usize) -> Model {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("speculation-vocabulary-{count}"));
    let from = folder("decoders/llama");
    std::fs::create_dir_all(&to).unwrap();
    let mut config = json(&from.join("config.json"));
    config["vocab_size"] = count.into();
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    let file = std::fs::read(from.join("model.safetensors")).unwrap();
    let (len, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let mut header: Json = serde_json::from_slice(header).unwrap();
    let mut kept = Vec::new();
    for (_, tensor) in header.as_object_mut().unwrap().iter_mut().filter(|(name, _)| *name != "__metadata__") {
        let range: [usize; 2] = serde_json::from_value(tensor["data_offsets"].clone()).unwrap();
        let mut bytes = data[range[0]..range[1]].to_vec();
        if tensor["shape"][0] == 64 {
            tensor["shape"][0] = count.into();
            bytes.resize(bytes.len() / 64 * count, 0);
        }
        tensor["data_offsets"] = vec![kept.len(), kept.len() + bytes.len()].into();
        kept.extend_from_slice(&bytes);
    }
    let header = header.to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &kept].concat();
    std::fs::write(to.join("model.safetensors"), file).unwrap();
    compiled(to, CONTEXT, true, "cpu")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::open(folder("decoders/llama")).unwrap()
}

/// Random numbers below a bound, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}

/// Returns a prompt from a seed. Every other one repeats itself.
fn prompt(seed: u64) -> Vec<u32> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let len = 1 + random.below(30);
    let period = if seed.is_multiple_of(2) { 1 + random.below(5) } else { len };
    let part: Vec<u32> = (0..period).map(|_| 3 + random.below(61) as u32).collect();
    part.into_iter().cycle().take(len).collect()
}

/// Returns the answer and its usage. Checks after each step that the session is the same as without drafts.
fn answer(
    model: &mut Model,
    session: &mut Session,
    prompt: &[u32],
    options: Generation,
    mut draft: Option<&mut dyn Draft>,
) -> Result<(Vec<Step>, Usage)> {
    let tokenizer = tokenizer();
    session.reset(model)?;
    let mut generator = Generator::start(model, session, &tokenizer, prompt, options)?;
    let mut steps = Vec::new();
    loop {
        let step = match &mut draft {
            Some(draft) => generator.step_with_draft(model, session, &tokenizer, &mut **draft)?,
            None => generator.step(model, session, &tokenizer)?,
        };
        let Some(step) = step else { break };
        steps.push(step);
        let read = steps.iter().filter_map(|step| step.token).take(steps.len() - 1);
        assert!(session.tokens().iter().copied().eq(prompt.iter().copied().chain(read)), "tokens that are no part yet");
    }
    Ok((steps, generator.usage()))
}

/// Returns sampling options from a seed. Every other time they depend on earlier tokens.
fn sampled(seed: u64) -> Sampling {
    if seed % 4 < 2 {
        return Sampling { temperature: 1.0, top_k: 20, top_p: 0.9, seed, ..Sampling::GREEDY };
    }
    Sampling { temperature: 0.8, repetition_penalty: 1.1, frequency_penalty: 0.1, seed, ..Sampling::GREEDY }
}

/// Compares answers to prompts with and without drafts of one kind. Returns the numbers of drafted and accepted tokens.
fn compare(model: &mut Model, seeds: impl Iterator<Item = u64>, mut draft: Option<&mut dyn Draft>) -> [usize; 2] {
    const TOKENS: usize = 30;
    let mut counts = [0; 2];
    let mut session = model.session().unwrap();
    for seed in seeds {
        let prompt = prompt(seed);
        for sampling in [Sampling::GREEDY, sampled(seed)] {
            let plain = Generation {
                max_new_tokens: Some(TOKENS),
                ignore_eos: true,
                sampling,
                ..Generation::from(Sampling::GREEDY)
            };
            let speculation = draft.is_none().then_some(LOOKUP);
            let drafting = Generation { speculation, ..plain.clone() };
            let (expected, _) = answer(model, &mut session, &prompt, plain, None).unwrap();
            let draft: Option<&mut dyn Draft> = match &mut draft {
                Some(draft) => Some(&mut **draft),
                None => None,
            };
            let (steps, usage) = answer(model, &mut session, &prompt, drafting, draft).unwrap();
            assert_eq!(steps, expected, "prompt {seed}: {prompt:?}");
            assert_eq!((usage.generated_tokens, usage.decoded_tokens), (TOKENS, TOKENS - 1));
            assert!(usage.accepted_tokens <= usage.drafted_tokens && usage.no_speculation.is_none());
            counts = [counts[0] + usage.drafted_tokens, counts[1] + usage.accepted_tokens];
        }
    }
    counts
}

#[test]
fn answers_with_prompt_lookup_are_those_without() {
    for (index, name) in ["llama", "qwen3", "gemma2", "olmo2"].iter().enumerate() {
        // A call has at most five tokens, so a draft has at most four.
        let mut model = model(name, if index % 2 == 0 { CONTEXT } else { 5 }, true, "cpu");
        let seeds = (0..50).map(|seed| 50 * index as u64 + seed);
        let [drafted, accepted] = compare(&mut model, seeds, None);
        assert!(drafted > accepted && accepted > 0, "{name}: {accepted} of {drafted}");
    }
}

#[test]
fn answers_with_a_draft_model_are_those_without() {
    let mut target = model("llama", CONTEXT, true, "cpu");
    for name in ["llama", "qwen2"] {
        let mut draft = DraftModel::new(model(name, CONTEXT, false, "cpu"), &target, &tokenizer(), 4).unwrap();
        let [drafted, accepted] = compare(&mut target, 0..15, Some(&mut draft));
        assert!(drafted > 0, "{name}");
        assert!(name != "llama" || accepted > 0, "the same model is never right");
    }
}

#[test]
fn vocabularies_may_be_padded() {
    for (target, draft) in [(64, 62), (64, 68), (68, 64)] {
        let mut target = with_vocabulary(target);
        let mut draft = DraftModel::new(with_vocabulary(draft), &target, &tokenizer(), 4).unwrap();
        let [drafted, accepted] = compare(&mut target, 0..10, Some(&mut draft));
        assert!(drafted > accepted && accepted > 0, "{accepted} of {drafted}");
    }
}

/// A draft that fails every other time.
struct Failing {
    draft: Speculation,
    fails: bool,
}

impl Draft for Failing {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>> {
        self.fails = !self.fails;
        if self.fails { Err(Error::Draft("it fails".to_owned())) } else { self.draft.propose(tokens, max) }
    }
}

#[test]
fn an_answer_goes_on_after_a_draft_that_failed() {
    let mut model = model("llama", CONTEXT, true, "cpu");
    let tokenizer = tokenizer();
    let mut session = model.session().unwrap();
    let options = Generation { max_new_tokens: Some(40), ignore_eos: true, ..Generation::from(Sampling::GREEDY) };
    let prompt = prompt(2);
    let (expected, _) = answer(&mut model, &mut session, &prompt, options.clone(), None).unwrap();
    session.reset(&mut model).unwrap();
    let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &prompt, options).unwrap();
    let mut draft = Failing { draft: LOOKUP, fails: false };
    let (mut steps, mut failures) = (Vec::new(), 0);
    loop {
        match generator.step_with_draft(&mut model, &mut session, &tokenizer, &mut draft) {
            Ok(Some(step)) => steps.push(step),
            Ok(None) => break,
            Err(error) => {
                assert!(error.to_string().contains("the draft: it fails"), "{error}");
                failures += 1;
            }
        }
    }
    assert_eq!(steps, expected);
    assert!(failures > 0);
}

#[test]
fn a_prompt_is_read_until_it_is_stopped() {
    let mut model = model("llama", CONTEXT, true, "cpu");
    let mut session = model.session().unwrap();
    let options = Generation { max_new_tokens: Some(9), ..Generation::from(Sampling::GREEDY) };
    let stop = || ControlFlow::Break(());
    let mut stopped =
        Generator::start_while(&mut model, &mut session, &tokenizer(), &[3, 4, 5], options, stop).unwrap();
    assert_eq!(stopped.step(&mut model, &mut session, &tokenizer()).unwrap(), None);
    assert_eq!((stopped.usage().prompt_tokens, stopped.usage().finish_reason), (0, FinishReason::Cancelled));
    assert!(session.tokens().is_empty());
}

/// Drafts wrong tokens, tokens that the model does not have, and more than the maximum.
struct Noise(Random);

impl Draft for Noise {
    fn propose(&mut self, _: &[u32], max: usize) -> Result<Vec<u32>> {
        Ok((0..self.0.below(2 * max + 1)).map(|_| self.0.below(70) as u32).collect())
    }
}

#[test]
fn wrong_drafts_change_nothing() {
    let mut model = model("llama", CONTEXT, true, "cpu");
    compare(&mut model, 0..10, Some(&mut Noise(Random(1))));
}

/// Drafts known tokens.
struct Known(Vec<u32>);

impl Draft for Known {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>> {
        Ok(self.0.iter().skip(tokens.len()).take(max).copied().collect())
    }
}

#[test]
fn sessions_go_on_while_a_draft_is_read() {
    let mut model = model("llama", CONTEXT, true, "cpu");
    let tokenizer = tokenizer();
    let prompt = prompt(3);
    let options = Generation { ignore_eos: true, ..Generation::from(Sampling::GREEDY) };
    let mut session = model.session().unwrap();
    let (steps, usage) = answer(&mut model, &mut session, &prompt, options.clone(), None).unwrap();
    // Until the context is full.
    assert_eq!(usage.generated_tokens, CONTEXT - prompt.len() + 1);
    let all: Vec<u32> = prompt.iter().copied().chain(steps.iter().filter_map(|step| step.token)).collect();
    let drafts = &mut Known(all.clone());
    let (with_drafts, usage) = answer(&mut model, &mut session, &prompt, options.clone(), Some(drafts)).unwrap();
    assert_eq!(with_drafts, steps);
    assert!(usage.accepted_tokens > 0 && usage.accepted_tokens == usage.drafted_tokens, "{usage:?}");
    // Runs until a draft was read.
    session.reset(&mut model).unwrap();
    let mut generator = Generator::start(&mut model, &mut session, &tokenizer, &prompt, options).unwrap();
    while generator.usage().drafted_tokens == 0 {
        generator.step_with_draft(&mut model, &mut session, &tokenizer, drafts).unwrap().unwrap();
    }
    assert_eq!(generator.usage().accepted_tokens, 0);
    let read = session.position();
    let mut fork = session.fork().unwrap();
    let saved = session.save().unwrap();
    let mut other = model.session().unwrap();
    other.restore(&model, &saved).unwrap();
    for session in [&mut fork, &mut session, &mut other] {
        assert_eq!(session.tokens(), &all[..read]);
        let mut best = session.logits().iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        for token in &all[read..CONTEXT] {
            assert_eq!(best as u32, *token);
            let logits = session.prefill(&mut model, &[*token]).unwrap();
            best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        }
    }
}

#[test]
fn models_that_cannot_verify_decode_token_by_token() {
    for (name, max_seq_len, full_logits, backend, why) in [
        ("llama", CONTEXT, false, "cpu", "last token alone"),
        ("mistral-window", 2, true, "cpu", "cannot go back"),
        ("lfm2", CONTEXT, true, "cpu", "cannot go back"),
        ("qwen3.5", CONTEXT, true, "cpu", "cannot go back"),
        ("llama", CONTEXT, true, "portable", "cannot go back"),
    ] {
        let mut model = model(name, max_seq_len, full_logits, backend);
        let mut session = model.session().unwrap();
        let plain = Generation { max_new_tokens: Some(20), ignore_eos: true, ..Generation::from(Sampling::GREEDY) };
        let lookup = Generation { speculation: Some(LOOKUP), ..plain.clone() };
        let (expected, usage) = answer(&mut model, &mut session, &prompt(0), plain, None).unwrap();
        assert!(usage.no_speculation.is_none());
        let (steps, usage) = answer(&mut model, &mut session, &prompt(0), lookup, None).unwrap();
        assert_eq!((steps, usage.drafted_tokens), (expected, 0));
        assert!(usage.no_speculation.is_some_and(|reason| reason.contains(why)), "{name}: {usage:?}");
    }
}

#[test]
fn drafts_that_cannot_be_are_errors() {
    let target = model("llama", CONTEXT, true, "cpu");
    let error = DraftModel::new(with_vocabulary(32), &target, &tokenizer(), 4).unwrap_err();
    assert!(matches!(error, Error::DraftVocabulary { expected: 64, got: 32 }), "{error}");
    assert!(error.to_string().contains("another vocabulary"), "{error}");
    for (name, max_seq_len, backend) in
        [("llama", CONTEXT, "portable"), ("lfm2", CONTEXT, "cpu"), ("mistral-window", 2, "cpu")]
    {
        let draft = model(name, max_seq_len, true, backend);
        let target = model(name, CONTEXT, true, "cpu");
        let error = DraftModel::new(draft, &target, &tokenizer(), 4).unwrap_err();
        assert!(matches!(error, Error::DraftRewind), "{name}: {error}");
    }
    let mut model = target;
    let mut session = model.session().unwrap();
    for (max_ngram, max_draft) in [(0, 4), (4, 0)] {
        let speculation = Some(Speculation::PromptLookup { max_ngram, max_draft });
        let options = Generation { speculation, ..Generation::from(Sampling::GREEDY) };
        let error = answer(&mut model, &mut session, &[3], options, None).unwrap_err();
        assert!(matches!(error, Error::Option(_)), "{error}");
    }
}

/// As many tokens do not make a tokenizer of the same family.
#[test]
fn a_draft_of_another_tokenizer_is_an_error() {
    let target = model("llama", CONTEXT, true, "cpu");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("speculation-tokenizer.json");
    let known = json(&folder("decoders/llama").join("tokenizer.json"));
    for (count, is_refused) in [(4, false), (20, true)] {
        // Some tokens after the special ones change places.
        let mut other = known.clone();
        for id in other["model"]["vocab"].as_object_mut().unwrap().values_mut() {
            let token = id.as_u64().unwrap();
            let is_changed = (4..4 + count).contains(&token);
            *id = if is_changed { 4 + (token - 4 + 1) % count } else { token }.into();
        }
        std::fs::write(&file, other.to_string()).unwrap();
        let options = LanguageModelOptions { max_context_len: Some(CONTEXT), ..Default::default() };
        let compiler = Compiler::new()
            .language_model(folder("decoders/llama"), options)
            .tokenizer(ProgramTokenizer::Of(file.clone()));
        let bytes = compiler.backend("cpu").compile().unwrap().to_bytes().unwrap();
        let draft = Model::new(Module::builder().lower("off").load_bytes(&bytes).unwrap()).unwrap();
        let made = DraftModel::new(draft, &target, &tokenizer(), 4);
        assert_eq!(matches!(made, Err(Error::DraftTokenizer { different: 20, count: 64 })), is_refused, "{made:?}");
    }
}

/// Answers with drafts equal answers without, as far as the logits of a call of several tokens equal those of calls of
/// one, up to rounding.
#[test]
fn logits_of_several_tokens_are_those_of_one_up_to_rounding() {
    let tokens: Vec<u32> = (3..20).collect();
    let (before, after) = tokens.split_at(8);
    for scheme in [None, Some(Scheme::INT4), Some(Scheme::INT8_WEIGHT), Some(Scheme::FOUR_BIT_DYNAMIC)] {
        let mut model = quantized(folder("decoders/llama"), CONTEXT, true, "cpu", scheme);
        let mut session = model.session().unwrap();
        session.prefill(&mut model, before).unwrap();
        // If rows are rounded to 16 bits, another order of sums moves some elements by one step of 3e-5 of a row's
        // maximum.
        let most = if matches!(scheme, Some(Scheme::INT4 | Scheme::INT8_WEIGHT)) { 1e-4 } else { 2e-6 };
        let one: Vec<Vec<f32>> =
            after.iter().map(|token| session.prefill(&mut model, &[*token]).unwrap().to_vec()).collect();
        for len in 2..=after.len() {
            session.rewind(&mut model, before.len()).unwrap();
            let several = session.prefill(&mut model, &after[..len]).unwrap();
            let largest = several.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
            for (several, one) in several.iter().zip(&one[len - 1]) {
                assert!((several - one).abs() < most * largest, "{scheme:?}, {len} tokens: {several}, not {one}");
            }
        }
    }
}
