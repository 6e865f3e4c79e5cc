//! Probabilities are those that the logits processors of transformers leave.

use std::collections::HashMap;

use rushlight_llm::{Error, Sampler, Sampling};

use crate::{folder, rows};

#[test]
fn distributions_are_those_of_transformers() {
    let rows = rows(&folder("llm/sampling.json"));
    assert_eq!(rows.len(), 10);
    for row in rows {
        let settings = &row["settings"];
        let number = |name: &str, default: f32| settings[name].as_f64().map_or(default, |number| number as f32);
        let mut sampler = Sampler::new(Sampling {
            temperature: number("temperature", 0.0),
            top_k: settings["top_k"].as_u64().unwrap_or(0) as usize,
            top_p: number("top_p", 1.0),
            min_p: number("min_p", 0.0),
            typical_p: number("typical_p", 1.0),
            repetition_penalty: number("repetition_penalty", 1.0),
            ..Sampling::default()
        })
        .unwrap();
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
    let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed: 7, ..Sampling::default() }).unwrap();
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
        let mut sampler = Sampler::new(Sampling { temperature: 1.0, seed, ..Sampling::default() }).unwrap();
        (0..20).map(|_| sampler.sample(&logits).unwrap().token).collect()
    };
    assert_eq!(tokens(1), tokens(1));
    assert_ne!(tokens(1), tokens(2));
}

#[test]
fn penalties_of_openai_count_what_was_generated() {
    let options = Sampling { temperature: 0.0, presence_penalty: 0.5, frequency_penalty: 0.25, ..Sampling::default() };
    let mut sampler = Sampler::new(options).unwrap();
    sampler.observe_prompt(&[0, 0, 0]);
    // Token 0 loses 0.75, then 1.0.
    let tokens: Vec<u32> = (0..4).map(|_| sampler.sample(&[1.0, 0.9, 0.1]).unwrap().token).collect();
    assert_eq!(tokens, [0, 1, 0, 1]);
}

#[test]
fn biases_choose_and_forbid() {
    let logit_bias = vec![(2, 100.0), (9, 1.0)];
    let mut sampler = Sampler::new(Sampling { logit_bias, ..Sampling::default() }).unwrap();
    assert_eq!(sampler.sample(&[1.0, 5.0, 0.0]).unwrap().token, 2);
    let logit_bias = vec![(1, f32::NEG_INFINITY)];
    let mut sampler = Sampler::new(Sampling { logit_bias, ..Sampling::default() }).unwrap();
    assert_eq!(sampler.sample(&[1.0, 5.0, 0.0]).unwrap().token, 0);
}

#[test]
fn what_cannot_be_sampled_is_an_error() {
    let mut sampler = Sampler::new(Sampling::default()).unwrap();
    for logits in [&[][..], &[f32::NAN, f32::NEG_INFINITY]] {
        assert!(matches!(sampler.sample(logits), Err(Error::NoLogits)));
    }
    for options in [
        Sampling { temperature: -1.0, ..Sampling::default() },
        Sampling { temperature: f32::NAN, ..Sampling::default() },
        Sampling { top_p: 0.0, ..Sampling::default() },
        Sampling { min_p: 1.5, ..Sampling::default() },
        Sampling { typical_p: 0.0, ..Sampling::default() },
        Sampling { repetition_penalty: 0.0, ..Sampling::default() },
        Sampling { presence_penalty: f32::INFINITY, ..Sampling::default() },
        Sampling { logit_bias: vec![(0, f32::NAN)], ..Sampling::default() },
    ] {
        assert!(matches!(Sampler::new(options), Err(Error::Sampling { .. })));
    }
}
