//! Each field of published configurations as each other kind of value, and out of its range.
#![allow(clippy::indexing_slicing, reason = "tests fail by panics")]

use std::fs;
use std::path::{Path, PathBuf};

use rushlight_graph::Bytes;
use serde_json::{Value as Json, json};

use super::*;
use rushlight_checkpoint::fields::Form;
use rushlight_checkpoint::lora::{self, Targets, peft};

use crate::fields::{CONFIG, ROPE};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The model folders among a folder's samples.
fn samples(of: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(of)).unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    assert!(folders.len() > 3);
    folders
}

/// Values that no field of this form accepts.
fn wrong(form: Form) -> Vec<Json> {
    let all = [
        json!(true),
        json!("text"),
        json!(-2),
        json!(0),
        json!(-0.5),
        json!(1.5),
        json!(1u64 << 40),
        json!([]),
        json!([[]]),
        json!(["text", 7]),
        json!([-2]),
        json!({}),
    ];
    let is_allowed = |value: &Json| match form {
        Form::Size => false,
        Form::Count => *value == json!(0),
        Form::Integer => value.is_i64() || value.is_u64(),
        Form::Tokens => *value == json!(0) || *value == json!([]),
        Form::Number => value.is_number(),
        Form::Positive => value.as_f64().is_some_and(|x| x > 0.0),
        Form::Share => *value == json!(0),
        Form::PositiveShare => false,
        Form::Flag => value.is_boolean(),
        Form::Text => value.is_string(),
        Form::Texts | Form::Counts | Form::Positives => *value == json!([]),
        Form::TextOrTexts => value.is_string() || *value == json!([]),
        Form::CountOrCounts => *value == json!(0) || *value == json!([]),
        Form::List => value.is_array(),
        Form::Object => value.is_object(),
        Form::Indices => value.is_object() || *value == json!([]),
        Form::Loose => value.is_string() || value.is_boolean() || *value == json!([]),
    };
    all.into_iter().filter(|value| !is_allowed(value)).collect()
}

/// The paths of the known fields of an object, with their forms. Panics for an unknown field.
fn places(config: &Json, family: &Family, at: &str, what: &str) -> Vec<(String, Form)> {
    let mut found = Vec::new();
    for (key, value) in config.as_object().unwrap() {
        let tables = if at.contains("rope_") { [ROPE, &[]] } else { [CONFIG, family.fields] };
        let form = tables.iter().copied().flatten().find(|(known, _)| known == key).map(|(_, form)| *form);
        let form = form.unwrap_or_else(|| panic!("{what}: nobody says what `{at}/{key}` may be"));
        found.push((format!("{at}/{key}"), form));
        let has_fields = ["text_config", "rope_parameters", "rope_scaling", "full_attention", "sliding_attention"];
        if value.is_object() && has_fields.contains(&key.as_str()) {
            found.extend(places(value, family, &format!("{at}/{key}"), what));
        }
    }
    found
}

#[test]
fn each_field_of_a_configuration_is_what_it_may_be() {
    let mut changes = 0;
    for sample in samples("decoders") {
        let what = sample.display().to_string();
        let config: Json = serde_json::from_slice(&read(&sample.join("config.json"))).unwrap();
        let weights = vec![("model.safetensors".to_owned(), Bytes::from(read(&sample.join("model.safetensors"))))];
        let mut checkpoint = Checkpoint { config: Vec::new(), generation_config: None, weights };
        let mut import = |config: &Json| {
            checkpoint.config = serde_json::to_vec(config).unwrap();
            import_checkpoint(&checkpoint, &Options::default()).map(drop)
        };
        import(&config).unwrap_or_else(|error| panic!("{what}: {error}"));
        let family = Family::of_model_type(config["model_type"].as_str().unwrap()).unwrap();
        for (place, form) in places(&config, family, "", &what) {
            for value in wrong(form) {
                let mut changed = config.clone();
                *changed.pointer_mut(&place).unwrap() = value.clone();
                changes += 1;
                let key = place.rsplit('/').next().unwrap();
                match import(&changed) {
                    Ok(()) => panic!("{what}: `{place}` is {value}, and nobody says so"),
                    Err(error) => assert!(error.to_string().contains(key), "{what}: `{place}` is {value}: {error}"),
                }
            }
        }
        // Sizes that differ from those of the weights.
        for key in ["hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "num_hidden_layers"] {
            let is_used =
                config.get(key).is_some() && !(key == "intermediate_size" && config.get("num_experts").is_some());
            for size in [1, 2, 1_000_000_000] {
                let mut changed = config.clone();
                changed[key] = json!(size);
                assert!(!is_used || config[key] == json!(size) || import(&changed).is_err(), "{what}: {key} {size}");
            }
        }
        for tokens in [json!(64), json!(1_000_000), json!([2, 64])] {
            let mut changed = config.clone();
            if changed.get("text_config").is_none() {
                changed["eos_token_id"] = tokens.clone();
                assert!(import(&changed).is_err(), "{what}: the end is {tokens}");
            }
        }
    }
    assert!(changes > 4000, "{changes}");
}

#[test]
fn each_field_of_an_adapter_is_what_it_may_be() {
    let decoder = folder("decoders/llama");
    let checkpoint = Checkpoint {
        config: read(&decoder.join("config.json")),
        generation_config: None,
        weights: vec![("model.safetensors".to_owned(), Bytes::from(read(&decoder.join("model.safetensors"))))],
    };
    let options = Options { lora_rank: Some(8), ..Options::default() };
    let model = import_checkpoint(&checkpoint, &options).unwrap();
    let description = model.named_data.iter().find(|(key, _)| *key == lora::KEY).map(|(_, data)| data).unwrap();
    let targets = Targets::parse(description.in_place().unwrap()).unwrap();
    for name in ["llama-all", "llama-patterns"] {
        let sample = folder("adapters").join(name);
        let config: Json = serde_json::from_slice(&read(&sample.join("adapter_config.json"))).unwrap();
        let weights = Bytes::from(read(&sample.join("adapter_model.safetensors")));
        let open = |config: &Json| peft::read(&serde_json::to_vec(config).unwrap(), &weights, &targets, 1.0).map(drop);
        open(&config).unwrap();
        for key in config.as_object().unwrap().keys() {
            let form = peft::FIELDS.iter().find(|(known, _)| known == key).map(|(_, form)| *form);
            let form = form.unwrap_or_else(|| panic!("{name}: nobody says what `{key}` may be"));
            for value in wrong(form) {
                let mut changed = config.clone();
                changed[key] = value.clone();
                match open(&changed) {
                    Ok(()) => panic!("{name}: `{key}` is {value}, and nobody says so"),
                    Err(error) => assert!(error.to_string().contains(key.as_str()), "`{key}` is {value}: {error}"),
                }
            }
        }
        // Values of the right form that contradict the matrices or the layers.
        for (key, value) in [
            ("r", json!(3)),
            ("r", json!(5)),
            ("r", json!(1_000_000)),
            ("fan_in_fan_out", json!(true)),
            ("bias", json!("all")),
            ("lora_bias", json!(true)),
            ("modules_to_save", json!(["lm_head"])),
            ("target_parameters", json!(["mlp.experts"])),
            ("trainable_token_indices", json!([1, 2])),
            ("trainable_token_indices", json!({ "embed_tokens": [1] })),
            ("lora_alpha", json!(1e300)),
            ("rank_pattern", json!({ "q_proj": 7 })),
            ("rank_pattern", json!({ "q_proj": "4" })),
            ("rank_pattern", json!({ "q_proj": 0 })),
            ("peft_type", json!("LOHA")),
        ] {
            let mut changed = config.clone();
            changed[key] = value.clone();
            assert!(changed == config || open(&changed).is_err(), "{name}: `{key}` is {value}, and nobody says so");
        }
        // Values without an effect are accepted.
        for (key, value) in
            [("modules_to_save", json!([])), ("trainable_token_indices", json!(null)), ("lora_dropout", json!(0.5))]
        {
            let mut changed = config.clone();
            changed[key] = value.clone();
            open(&changed).unwrap_or_else(|error| panic!("{name}: `{key}` is {value}: {error}"));
        }
    }
}
