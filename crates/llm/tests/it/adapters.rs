//! LoRA adapters of PEFT change a model as they do in transformers: `tools/adapter_samples.py`.

use std::fs;
use std::path::{Path, PathBuf};

use rushlight::{Compiler, LanguageModelOptions, LanguageModelOutput, Module, Quantization, Scheme};
use rushlight_checkpoint::lora::Targets;
use rushlight_llm::{Adapter, Error, Model, Session};
use serde_json::Value as Json;

use crate::{folder, json};

const CONTEXT: usize = 80;
const RANK: usize = 8;
/// Largest deviation of logits, relative to the largest logit.
const TOLERANCE: f32 = 2e-5;

fn model(decoder: &Path, backend: &str, lora_rank: Option<usize>) -> Model {
    let options = LanguageModelOptions {
        max_context_len: Some(CONTEXT),
        max_seq_len: Some(8),
        lora_rank,
        ..LanguageModelOptions::default()
    };
    let compiler = Compiler::new().language_model(decoder, options).backend(backend);
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    Model::new(Module::builder().lower("off").threads(1).load_bytes(&bytes).unwrap()).unwrap()
}

fn llama(backend: &str) -> Model {
    model(&folder("decoders/llama"), backend, Some(RANK))
}

fn open(model: &Model, name: &str) -> Adapter {
    Adapter::open(model, folder("adapters").join(name), 1.0).unwrap()
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(folder("adapters")).expect("the samples are part of the repository");
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
}

/// Checks logits against those of a sample, relative to the largest.
fn assert_near(got: &[f32], expected: &Json, what: &str) {
    let expected: Vec<f32> = serde_json::from_value(expected.clone()).unwrap();
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let difference = got.iter().zip(&expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(difference <= TOLERANCE * largest, "{what}: off by {difference} of {largest}");
}

fn prompt(sample: &Json) -> Vec<u32> {
    serde_json::from_value(sample["prompt"].clone()).unwrap()
}

/// Greedy tokens from a sample's prompt on are those of the sample.
fn assert_follows(model: &mut Model, session: &mut Session, sample: &Json, what: &str) {
    let greedy: Vec<u32> = serde_json::from_value(sample["greedy"].clone()).unwrap();
    assert_near(session.prefill(model, &prompt(sample)).unwrap(), &sample["logits"], what);
    for (index, token) in greedy.iter().enumerate() {
        assert_eq!(best(session.logits()), *token, "{what}: greedy token {index}");
        session.prefill(model, &[*token]).unwrap();
    }
    assert_near(session.logits(), &sample["last"], what);
}

#[test]
fn adapted_logits_are_those_of_transformers() {
    let names = names();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let sample = json(&folder("adapters").join(&name).join("expected.json"));
        let decoder = folder("decoders").join(sample["decoder"].as_str().unwrap());
        for file in [decoder.clone(), decoder.join("model.gguf")] {
            for backend in ["portable", "cpu"] {
                let what = format!("{name}, {}, {backend}", file.display());
                let mut model = model(&file, backend, Some(RANK));
                let adapter = open(&model, &name);
                model.set_adapter(Some(adapter)).unwrap();
                let mut session = model.session().unwrap();
                assert_follows(&mut model, &mut session, &sample, &what);
            }
        }
    }
}

#[test]
fn sessions_of_one_model_have_adapters_of_their_own() {
    let mut model = llama("cpu");
    let adapters = [None, Some("llama-all"), Some("llama-patterns")];
    let samples = adapters.map(|name| match name {
        Some(name) => json(&folder("adapters").join(name).join("expected.json")),
        None => json(&folder("decoders/llama/expected.json")),
    });
    let mut sessions = adapters.map(|name| {
        let adapter = name.map(|name| open(&model, name));
        model.session_with(adapter).unwrap()
    });
    for (session, sample) in sessions.iter_mut().zip(&samples) {
        session.prefill(&mut model, &prompt(sample)).unwrap();
    }
    let greedy = samples.each_ref().map(|sample| serde_json::from_value::<Vec<u32>>(sample["greedy"].clone()).unwrap());
    for step in 0..greedy[0].len() {
        let mut order = [0, 1, 2];
        // Those with adapters are not side by side at first.
        order.rotate_left(step % 3);
        for index in order {
            assert_eq!(best(sessions[index].logits()), greedy[index][step], "{:?}: token {step}", adapters[index]);
        }
        let [first, second, third] = &mut sessions;
        let mut batch = [(second, greedy[1][step]), (first, greedy[0][step]), (third, greedy[2][step])];
        Session::prefill_batch(&mut model, &mut batch).unwrap();
    }
    for ((session, sample), name) in sessions.iter().zip(&samples).zip(adapters) {
        assert_near(session.logits(), &sample["last"], &format!("{name:?} in a batch"));
    }
}

#[test]
fn a_program_for_adapters_computes_without_one_what_it_did() {
    let sample = json(&folder("decoders/llama/expected.json"));
    for backend in ["portable", "cpu"] {
        let logits = [None, Some(RANK)].map(|rank| {
            let mut model = model(&folder("decoders/llama"), backend, rank);
            let mut session = model.session().unwrap();
            session.prefill(&mut model, &prompt(&sample)).unwrap().to_vec()
        });
        assert_eq!(logits[0], logits[1], "{backend}");
    }
}

#[test]
fn a_quantized_model_takes_adapters_too() {
    // The adapter's part is exact, so that the difference to the model without it is nearly that of floats.
    let sample = json(&folder("adapters/llama-all/expected.json"));
    let base = json(&folder("decoders/llama/expected.json"));
    let expected: Vec<f32> = serde_json::from_value(sample["logits"].clone()).unwrap();
    let options = LanguageModelOptions { lora_rank: Some(RANK), ..LanguageModelOptions::default() };
    let compiler = Compiler::new().language_model(folder("decoders/llama"), options).backend("cpu");
    let program = compiler.quantize(Quantization::new(Scheme::INT8_WEIGHT)).compile().unwrap();
    let bytes = program.to_bytes().unwrap();
    let module = Module::builder().lower("off").load_bytes(&bytes).unwrap();
    let [plain, adapted] = ["forward", "forward_lora"].map(|method| module.meta(method).unwrap());
    assert_eq!(
        (&plain.input_names[..], &plain.output_names[..]),
        (&["tokens", "start_pos"].map(str::to_owned)[..], &["logits".to_owned()][..])
    );
    assert_eq!(adapted.input_names[..3], ["tokens", "start_pos", "lora_a_0"]);
    let mut model = Model::new(module).unwrap();
    let adapter = open(&model, "llama-all");
    let mut distance = |adapter: Option<Adapter>| {
        let mut session = model.session_with(adapter).unwrap();
        let got = session.prefill(&mut model, &prompt(&sample)).unwrap();
        let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        got.iter().zip(&expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / largest
    };
    let (with, without) = (distance(Some(adapter)), distance(None));
    assert!(with < 0.02, "{with}");
    assert!(without > 0.2, "the adapter hardly changes anything: {without}");
    assert_ne!(sample["prompt"], base["prompt"]);
}

#[test]
fn forks_and_saved_sessions_keep_their_adapter() {
    let sample = json(&folder("adapters/llama-all/expected.json"));
    let mut model = llama("cpu");
    let [all, patterns] = ["llama-all", "llama-patterns"].map(|name| open(&model, name));
    let mut session = model.session_with(Some(all.clone())).unwrap();
    let half = prompt(&sample).len() / 2;
    session.prefill(&mut model, &prompt(&sample)[..half]).unwrap();
    let saved = session.save().unwrap();
    let mut restored = model.session_with(Some(open(&model, "llama-all"))).unwrap();
    restored.restore(&model, &saved).unwrap();
    for mut session in [session.fork().unwrap(), restored] {
        session.prefill(&mut model, &prompt(&sample)[half..]).unwrap();
        assert_near(session.logits(), &sample["logits"], "half of the prompt");
    }
    for other in [None, Some(patterns)] {
        let mut other = model.session_with(other).unwrap();
        assert!(matches!(other.restore(&model, &saved), Err(Error::OtherAdapter)));
    }
    session.reset(&mut model).unwrap();
    assert_follows(&mut model, &mut session, &sample, "after a reset");
}

#[test]
fn a_scale_multiplies_what_an_adapter_adds() {
    let sample = json(&folder("decoders/llama/expected.json"));
    let mut model = llama("cpu");
    let nothing = Adapter::open(&model, folder("adapters/llama-all"), 0.0).unwrap();
    let mut session = model.session_with(Some(nothing)).unwrap();
    assert_follows(&mut model, &mut session, &sample, "scale 0");
}

#[test]
fn embeddings_have_adapters_too() {
    let sample = json(&folder("adapters/llama-all/expected.json"));
    let options = LanguageModelOptions {
        lora_rank: Some(RANK),
        output: LanguageModelOutput::HiddenStates,
        ..LanguageModelOptions::default()
    };
    let compiler = Compiler::new().language_model(folder("decoders/llama"), options).backend("cpu");
    let bytes = compiler.compile().unwrap().to_bytes().unwrap();
    let mut model = Model::new(Module::from_bytes(&bytes).unwrap()).unwrap();
    let adapter = open(&model, "llama-all");
    let mut embed = |adapter: Option<Adapter>| {
        let mut session = model.session_with(adapter).unwrap();
        let mut pool = rushlight_llm::Pool::new(rushlight_llm::Pooling::Last);
        session.embed(&mut model, &prompt(&sample), &mut pool).unwrap();
        pool.normalized(64)
    };
    assert_ne!(embed(None), embed(Some(adapter)));
}

/// A copy of an adapter whose files are changed.
fn changed(name: &str, config: impl Fn(&mut Json), weights: impl Fn(Vec<u8>) -> Vec<u8>) -> PathBuf {
    let from = folder("adapters/llama-all");
    let to = std::env::temp_dir().join(format!("rushlight-adapter-{}-{name}", std::process::id()));
    fs::create_dir_all(&to).unwrap();
    let mut settings = json(&from.join("adapter_config.json"));
    config(&mut settings);
    fs::write(to.join("adapter_config.json"), settings.to_string()).unwrap();
    let bytes = fs::read(from.join("adapter_model.safetensors")).unwrap();
    fs::write(to.join("adapter_model.safetensors"), weights(bytes)).unwrap();
    to
}

/// Replaces text of the header with other text of the same length.
fn renamed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

#[test]
fn adapters_that_do_not_fit_are_clear_errors() {
    let model = llama("cpu");
    let same = |_: &mut Json| {};
    let set = |key: &'static str, value: Json| move |config: &mut Json| config[key] = value.clone();
    const Q: &str = "layers.0.self_attn.q_proj.lora_A";
    let cases: Vec<(PathBuf, &str)> = vec![
        (changed("cut", same, |bytes| bytes[..bytes.len() - 5].to_vec()), "damaged"),
        (changed("empty", same, |_| Vec::new()), "damaged"),
        (changed("noise", same, |bytes| [&[0xFF; 8], &bytes[8..]].concat()), "damaged"),
        (changed("dora", set("use_dora", true.into()), |bytes| bytes), "DoRA"),
        (changed("ia3", set("peft_type", "IA3".into()), |bytes| bytes), "`peft_type` `LORA`"),
        (changed("alpha", set("lora_alpha", Json::Null), |bytes| bytes), "lora_alpha"),
        (changed("regex", set("alpha_pattern", serde_json::json!({ ".*q_proj": 2 })), |bytes| bytes), ".*q_proj"),
        (changed("pissa", set("init_lora_weights", "pissa_niter_4".into()), |bytes| bytes), "base weights"),
        (changed("alphas", set("alpha_pattern", serde_json::json!({ "q_prj": 2 })), |bytes| bytes), "q_prj"),
        (changed("alone", same, |bytes| renamed(&bytes, Q, "layers.7.self_attn.q_proj.lora_A")), "counterpart"),
        (
            changed("layer", same, |bytes| {
                let bytes = renamed(&bytes, Q, "layers.7.self_attn.q_proj.lora_A");
                renamed(&bytes, "layers.0.self_attn.q_proj.lora_B", "layers.7.self_attn.q_proj.lora_B")
            }),
            "no layer `model.layers.7.self_attn.q_proj`",
        ),
        (changed("head", same, |bytes| renamed(&bytes, Q, "layers.0.self_attn.q_proj.lora_X")), "lora_X"),
        (folder("adapters/phi3-joined"), "no layer"),
        (folder("adapters/nothing"), "adapter_config.json"),
    ];
    for (path, expected) in cases {
        let error = Adapter::open(&model, &path, 1.0).unwrap_err().to_string();
        assert!(error.contains(expected), "{}: {error}", path.display());
        // The samples stay, wherever the repository is.
        if !path.starts_with(folder("adapters")) {
            fs::remove_dir_all(&path).unwrap();
        }
    }
    let small = self::model(&folder("decoders/llama"), "cpu", Some(2));
    let error = Adapter::open(&small, folder("adapters/llama-all"), 1.0).unwrap_err().to_string();
    assert!(error.contains("from 1 to 2") && error.contains("--lora-rank"), "{error}");
    let none = self::model(&folder("decoders/llama"), "cpu", None);
    let error = Adapter::open(&none, folder("adapters/llama-all"), 1.0).unwrap_err();
    assert!(matches!(error, Error::NoAdapters), "{error}");
    let options = LanguageModelOptions { lora_rank: Some(0), ..LanguageModelOptions::default() };
    let error = Compiler::new().language_model(folder("decoders/llama"), options).compile().unwrap_err();
    assert!(error.to_string().contains("from 1 to 1024"), "{error}");
}

#[test]
fn adapters_of_other_models_and_scales_that_are_not_finite_are_refused() {
    let llama = llama("cpu");
    let adapter = open(&llama, "llama-all");
    let mut other = model(&folder("decoders/phi3"), "cpu", Some(RANK));
    assert!(matches!(other.session_with(Some(adapter.clone())), Err(Error::AdapterOfAnotherModel)));
    assert!(matches!(other.set_adapter(Some(adapter.clone())), Err(Error::AdapterOfAnotherModel)));
    let mut none = model(&folder("decoders/llama"), "cpu", None);
    assert!(matches!(none.session_with(Some(adapter)), Err(Error::NoAdapters)));
    for scale in [f32::NAN, f32::INFINITY] {
        let error = Adapter::open(&llama, folder("adapters/llama-all"), scale).unwrap_err();
        assert!(matches!(error, Error::AdapterScale(_)), "{error}");
    }
}

/// Named data that say what adapters change come with programs of strangers.
#[test]
fn descriptions_of_adapters_are_checked() {
    let large = r#"{"max_rank": 8, "kinds": [{"modules": ["a"], "inputs": 2147483648, "outputs": 2147483648}]}"#;
    for (text, is_json) in [("", false), ("[]", false), (r#"{"max_rank": 0, "kinds": []}"#, false), (large, true)] {
        let parsed = Targets::parse(text.as_bytes());
        assert_eq!(parsed.is_ok(), is_json, "{text}");
    }
    for kinds in ["7", "[7]", r#"[{"modules": 7, "inputs": 1, "outputs": 1}]"#, r#"[{"modules": [], "inputs": -1}]"#] {
        let text = format!(r#"{{"max_rank": 8, "kinds": {kinds}}}"#);
        assert!(Targets::parse(text.as_bytes()).is_err(), "{text}");
    }
}
