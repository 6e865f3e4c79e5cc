//! Probabilities after sampling options equal those of the logits processors in transformers.

use std::collections::HashMap;

use rushlight_llm::{Dry, Error, Generation, Mirostat, Sampler, Sampling, Tokenizer};
use serde_json::Value as Json;

use crate::{folder, json, rows};

/// Rows of `samplers.json`.
fn samplers(name: &str) -> Vec<Json> {
    json(&folder("llm/samplers.json"))[name].as_array().unwrap().clone()
}

fn number(json: &Json) -> f32 {
    json.as_f64().unwrap() as f32
}

fn list<T: serde::de::DeserializeOwned>(json: &Json) -> T {
    serde_json::from_value(json.clone()).unwrap()
}

fn sampled(options: Sampling, rows: &Json) -> Vec<u32> {
    let mut sampler = Sampler::new(options).unwrap();
    list::<Vec<Vec<f32>>>(rows).iter().map(|logits| sampler.sample(logits).unwrap().token).collect()
}

#[test]
fn dry_penalizes_what_repeats() {
    for row in samplers("dry") {
        let settings = &row["settings"];
        let dry = Dry {
            multiplier: number(&settings["multiplier"]),
            base: number(&settings["base"]),
            allowed_length: settings["allowed_length"].as_u64().unwrap() as usize,
            last: settings["last"].as_u64().map(|last| last as usize),
            breakers: serde_json::from_value(settings["breakers"].clone()).unwrap_or_default(),
        };
        let options = Sampling { temperature: 1.0, dry: Some(dry), ..Sampling::GREEDY };
        let mut sampler = Sampler::new(options).unwrap();
        sampler.observe_prompt(&list::<Vec<u32>>(&row["tokens"]));
        let found: HashMap<u32, f64> =
            sampler.distribution(&list::<Vec<f32>>(&row["logits"])).unwrap().into_iter().collect();
        for (token, expected) in list::<Vec<f64>>(&row["probabilities"]).into_iter().enumerate() {
            let got = found.get(&(token as u32)).copied().unwrap_or(0.0);
            assert!((got - expected).abs() < 2e-6, "{row}: token {token} has {got}, not {expected}");
        }
    }
}

#[test]
fn dry_counts_what_was_generated_and_breaks_at_texts() {
    let dry = Dry { multiplier: 10.0, base: 2.0, allowed_length: 1, ..Dry::default() };
    let tokens = |dry: Dry| -> Vec<u32> {
        let mut sampler = Sampler::new(Sampling { dry: Some(dry), ..Sampling::GREEDY }).unwrap();
        (0..5).map(|_| sampler.sample(&[1.0, 0.9, 0.5]).unwrap().token).collect()
    };
    // Token 0 was followed by 0, then by 1, and so on.
    assert_eq!(tokens(dry.clone()), [0, 0, 1, 0, 2]);
    assert_eq!(tokens(Dry { breakers: [0].into(), ..dry.clone() }), [0; 5]);
    let tokenizer = Tokenizer::open(folder("decoders/llama")).unwrap();
    let breakers = dry.break_at(&tokenizer, &["a", ":", "\n", ""]).unwrap().breakers;
    let text = |token: &u32| tokenizer.decode(&[*token], false).unwrap();
    // Special tokens are spelled with letters.
    assert!(breakers.iter().all(|token| text(token).contains(['a', ':'])), "{breakers:?}");
    assert!(
        breakers.contains(&tokenizer.token_to_id("a").unwrap())
            && breakers.contains(&tokenizer.token_to_id(":").unwrap())
    );
}

#[test]
fn a_long_text_is_searched_once() {
    // Nearly all tokens are a repetition, whose penalty overflows to infinity.
    let dry = Dry { multiplier: 1.0, base: 4.0, allowed_length: 1, ..Dry::default() };
    let mut sampler = Sampler::new(Sampling { dry: Some(dry), ..Sampling::GREEDY }).unwrap();
    sampler.observe_prompt(&vec![0; 200_000]);
    assert_eq!(sampler.sample(&[9.0, 1.0]).unwrap().token, 1);
    assert_eq!(sampler.sample(&[9.0, 1.0]).unwrap().token, 0);
}

#[test]
fn mirostat_keeps_the_surprisal() {
    for row in samplers("mirostat") {
        let settings = &row["settings"];
        let mirostat = Some(Mirostat { tau: number(&settings["tau"]), eta: number(&settings["eta"]) });
        let (temperature, seed) = (number(&row["temperature"]), row["seed"].as_u64().unwrap());
        // Options that mirostat replaces have no effect.
        let options = Sampling { temperature, seed, mirostat, top_k: 1, min_p: 0.9, ..Sampling::GREEDY };
        assert_eq!(sampled(options, &row["logits"]), list::<Vec<u32>>(&row["tokens"]), "{settings}");
    }
}

#[test]
fn tokens_are_those_of_executorchs_sampler() {
    for row in samplers("executorch") {
        let (temperature, seed) = (number(&row["temperature"]), row["seed"].as_u64().unwrap());
        let options = Sampling { temperature, seed, executorch: true, top_k: 1, ..Sampling::GREEDY };
        assert_eq!(sampled(options, &row["logits"]), list::<Vec<u32>>(&row["tokens"]), "{temperature}");
    }
    let sample = |temperature: f32, logits: &[f32]| {
        let options = Sampling { temperature, seed: 1, executorch: true, ..Sampling::GREEDY };
        Sampler::new(options).unwrap().sample(logits).map(|choice| choice.token)
    };
    assert_eq!(sample(0.0, &[1.0, 3.0, 3.0]).unwrap(), 1);
    assert_eq!(sample(0.8, &[1.0]).unwrap(), 0);
    for logits in [&[][..], &[1.0, f32::NAN], &[f32::INFINITY, 0.0], &[f32::NEG_INFINITY; 2]] {
        assert!(matches!(sample(0.8, logits), Err(Error::NoLogits)), "{logits:?}");
    }
}

fn sampling(settings: &Json) -> Sampling {
    let number = |name: &str, default: f32| settings[name].as_f64().map_or(default, |number| number as f32);
    Sampling {
        temperature: number("temperature", 0.0),
        top_k: settings["top_k"].as_u64().unwrap_or(0) as usize,
        top_p: number("top_p", 1.0),
        min_p: number("min_p", 0.0),
        typical_p: number("typical_p", 1.0),
        repetition_penalty: number("repetition_penalty", 1.0),
        ..Sampling::GREEDY
    }
}

/// `whole_vocabulary` of `tools/llm_samples.py`.
fn whole_vocabulary(squarings: u64, scale: f32) -> Vec<f32> {
    let number = |token: u32| (token.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
    let squared = |number: f32| (0..squarings).fold(number, |number, _| number * number);
    (0..100_003).map(|token| squared(number(token)) * scale).collect()
}

#[test]
fn large_vocabularies_are_left_what_transformers_leaves() {
    for row in rows(&folder("llm/vocabularies.json")) {
        let logits = whole_vocabulary(row["squarings"].as_u64().unwrap(), number(&row["scale"]));
        let mut sampler = Sampler::new(sampling(&row["settings"])).unwrap();
        let left = sampler.distribution(&logits).unwrap();
        assert_eq!(left.len() as u64, row["count"].as_u64().unwrap(), "{row}");
        let sum: u64 = left.iter().map(|(token, _)| u64::from(*token)).sum();
        assert_eq!(sum, row["sum"].as_u64().unwrap(), "{row}");
        let most = row["most"].as_f64().unwrap();
        assert!((left[0].1 / most - 1.0).abs() < 1e-5, "{row}: {} is the most likely", left[0].1);
        // Sampled tokens are among those that are left.
        for _ in 0..20 {
            let choice = sampler.sample(&logits).unwrap();
            let probability = left.iter().find(|(token, _)| *token == choice.token).unwrap().1;
            assert!((f64::from(choice.log_probability) - probability.ln()).abs() < 1e-5, "{row}: {choice:?}");
        }
    }
}

#[test]
fn distributions_are_those_of_transformers() {
    let rows = rows(&folder("llm/sampling.json"));
    assert_eq!(rows.len(), 10);
    for row in rows {
        let settings = &row["settings"];
        let mut sampler = Sampler::new(sampling(settings)).unwrap();
        let prompt: Vec<u32> = serde_json::from_value(settings["prompt"].clone()).unwrap_or_default();
        sampler.observe_prompt(&prompt);
        let logits = row["logits"].as_array().unwrap().iter();
        let logits: Vec<f32> =
            logits.map(|logit| logit.as_f64().map_or(f32::NEG_INFINITY, |logit| logit as f32)).collect();
        let found: HashMap<u32, f64> = sampler.distribution(&logits).unwrap().into_iter().collect();
        for (token, expected) in row["probabilities"].as_array().unwrap().iter().enumerate() {
            let (got, expected) = (found.get(&(token as u32)).copied().unwrap_or(0.0), expected.as_f64().unwrap());
            assert!((got - expected).abs() < 2e-6, "{settings}: token {token} has {got}, not {expected}");
        }
    }
}

#[test]
fn tokens_are_as_frequent_as_they_are_likely() {
    let logits = [0.0f32, 1.0, 2.0, f32::NEG_INFINITY, f32::NAN, 0.5];
    let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed: 7, ..Sampling::GREEDY }).unwrap();
    let expected: HashMap<u32, f64> = sampler.distribution(&logits).unwrap().into_iter().collect();
    assert_eq!(expected.len(), 4);
    const COUNT: usize = 20_000;
    let mut found: HashMap<u32, usize> = HashMap::new();
    for _ in 0..COUNT {
        *found.entry(sampler.sample(&logits).unwrap().token).or_default() += 1;
    }
    for (token, probability) in expected {
        let share = found[&token] as f64 / COUNT as f64;
        // Four standard deviations.
        let bound = 4.0 * (probability * (1.0 - probability) / COUNT as f64).sqrt();
        assert!((share - probability).abs() < bound, "token {token}: {share}, not {probability}");
    }
}

#[test]
fn a_seed_gives_the_same_tokens() {
    let logits: Vec<f32> = (0..100u8).map(|index| f32::from(index % 10)).collect();
    let tokens = |seed: u64| -> Vec<u32> {
        let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed, ..Sampling::GREEDY }).unwrap();
        (0..20).map(|_| sampler.sample(&logits).unwrap().token).collect()
    };
    assert_eq!(tokens(1), tokens(1));
    assert_ne!(tokens(1), tokens(2));
}

#[test]
fn penalties_of_openai_count_what_was_generated() {
    let options = Sampling { temperature: 0.0, presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::GREEDY };
    let mut sampler = Sampler::new(options).unwrap();
    sampler.observe_prompt(&[0, 0, 0]);
    // Token 0 loses 0.75, then 1.0.
    let tokens: Vec<u32> = (0..4).map(|_| sampler.sample(&[1.0, 0.9, 0.1]).unwrap().token).collect();
    assert_eq!(tokens, [0, 1, 0, 1]);
}

#[test]
fn biases_choose_and_forbid() {
    let logit_bias = vec![(2, 100.0), (9, 1.0)];
    let mut sampler = Sampler::new(Sampling { logit_bias, ..Sampling::GREEDY }).unwrap();
    assert_eq!(sampler.sample(&[1.0, 5.0, 0.0]).unwrap().token, 2);
    let logit_bias = vec![(1, f32::NEG_INFINITY)];
    let mut sampler = Sampler::new(Sampling { logit_bias, ..Sampling::GREEDY }).unwrap();
    assert_eq!(sampler.sample(&[1.0, 5.0, 0.0]).unwrap().token, 0);
}

#[test]
fn what_cannot_be_sampled_is_an_error() {
    let mut sampler = Sampler::new(Sampling::GREEDY).unwrap();
    for logits in [&[][..], &[f32::NAN, f32::NEG_INFINITY]] {
        assert!(matches!(sampler.sample(logits), Err(Error::NoLogits)));
    }
    for options in [
        Sampling { temperature: -1.0, ..Sampling::GREEDY },
        Sampling { temperature: f32::NAN, ..Sampling::GREEDY },
        Sampling { top_p: 0.0, ..Sampling::GREEDY },
        Sampling { min_p: 1.5, ..Sampling::GREEDY },
        Sampling { typical_p: 0.0, ..Sampling::GREEDY },
        Sampling { repetition_penalty: 0.0, ..Sampling::GREEDY },
        Sampling { presence_penalty: f32::INFINITY, ..Sampling::GREEDY },
        Sampling { logit_bias: vec![(0, f32::NAN)], ..Sampling::GREEDY },
        Sampling { dry: Some(Dry { multiplier: -1.0, ..Dry::default() }), ..Sampling::GREEDY },
        Sampling { dry: Some(Dry { base: 0.5, ..Dry::default() }), ..Sampling::GREEDY },
        Sampling { dry: Some(Dry { allowed_length: 0, ..Dry::default() }), ..Sampling::GREEDY },
        Sampling { mirostat: Some(Mirostat { tau: f32::NAN, eta: 0.1 }), ..Sampling::GREEDY },
        Sampling { mirostat: Some(Mirostat { tau: 5.0, eta: -0.1 }), ..Sampling::GREEDY },
        Sampling { executorch: true, temperature: 0.8, seed: 0, ..Sampling::GREEDY },
    ] {
        assert!(matches!(Sampler::new(options), Err(Error::Option(_))));
    }
}

/// Rust has the defaults of all other languages, which are those of the table.
#[test]
fn the_default_is_that_of_the_table() {
    assert_eq!(Sampling::default(), Sampling::RANDOM);
    assert_eq!(Generation::default(), Generation::from(Sampling::RANDOM));
}
