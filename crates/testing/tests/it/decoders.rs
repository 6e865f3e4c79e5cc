//! Decoders that are built from folders of Hugging Face and from GGUF files agree with transformers:
//! `tools/decoder_samples.py`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rushlight::{Code, Compiler, Input, KvCache, LanguageModelOptions, Module, Quantization, Scheme, TensorView};
use rushlight_compiler::partition::{Entry, Fate};
use rushlight_decoders::FAMILIES;
use serde_json::Value as Json;

/// Largest deviation of logits, relative to the largest logit.
const TOLERANCE: f32 = 2e-5;

/// The same for quantized weights, whose input rows are rounded to 16 bits. The rounding error of an element is up to
/// 2^-16 of the largest of 256 elements. Its standard deviation is 3e-5 of a typical element, and a largest logit is
/// three typical ones.
const ROUNDED_TOLERANCE: f32 = 1e-4;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders")
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the samples are part of the repository");
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn numbers(list: &Json) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn tokens(list: &Json) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|token| token.as_i64().unwrap()).collect()
}

/// The logits after tokens from a position on.
fn logits(module: &mut Module, tokens: &[i64], start: i64) -> Vec<f32> {
    let (sizes, start) = ([1, tokens.len()], [start]);
    let tokens = TensorView::of(&sizes, tokens).unwrap();
    let inputs: [Input<'_>; 2] = [tokens.into(), TensorView::of(&[1], &start).unwrap().into()];
    let outputs = module.forward(&inputs).unwrap_or_else(|error| panic!("{error}"));
    outputs[0].as_tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// The largest difference of two lists of finite numbers.
fn difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    assert!(got.iter().all(|x| x.is_finite()), "{got:?}");
    got.iter().zip(expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
}

/// The largest difference, relative to the largest logit.
fn deviation(got: &[f32], expected: &[f32]) -> f32 {
    difference(got, expected) / expected.iter().fold(0.0f32, |most, x| most.max(x.abs()))
}

fn greedy(logits: &[f32]) -> i64 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(at, _)| at as i64)
}

fn compiled(path: &Path, backend: &str) -> Module {
    compiled_with(path, backend, KvCache::F32)
}

fn compiled_with(path: &Path, backend: &str, kv_cache: KvCache) -> Module {
    let options =
        LanguageModelOptions { max_context_len: Some(80), max_seq_len: Some(8), ..LanguageModelOptions::default() };
    let compiler = Compiler::new().language_model(path, options).kv_cache(kv_cache).backend(backend);
    let program = compiler.compile().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let is_left = |entry: &&Entry| !matches!(entry.fate, Fate::Claimed { .. });
    let left = program.compiled().report.entries.iter().find(is_left);
    assert!(backend != "cpu" || left.is_none(), "{}: {left:?}", path.display());
    let bytes = program.to_bytes().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Module::builder()
        .lower("off")
        .threads(1)
        .load_bytes(&bytes)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `file` is the model's file in the folder; `None` for the folder itself.
fn agree(backend: &str, file: Option<&str>) {
    let of = |name: String| {
        let folder = folder().join(name);
        (file.map_or(folder.clone(), |file| folder.join(file)), folder.join("expected.json"))
    };
    let models: Vec<_> = names().into_iter().map(of).filter(|(path, _)| path.exists()).collect();
    assert!(models.len() >= 10, "only {} models", models.len());
    models_agree(backend, &models, TOLERANCE);
}

/// Compares each model with the results in the file beside it.
fn models_agree(backend: &str, models: &[(PathBuf, PathBuf)], tolerance: f32) {
    let mut wrong = Vec::new();
    for (path, sample) in models {
        let name = path.display();
        let expected: Json = serde_json::from_slice(&fs::read(sample).unwrap()).unwrap();
        let (prompt, continuation) = (tokens(&expected["prompt"]), tokens(&expected["greedy"]));
        // The prompt in one call, and in two.
        for first in [prompt.len(), 3] {
            let mut module = compiled(path, backend);
            let (head, rest) = prompt.split_at(first);
            let mut last = logits(&mut module, head, 0);
            if !rest.is_empty() {
                last = logits(&mut module, rest, first as i64);
            }
            let mut off = deviation(&last, &numbers(&expected["logits"]));
            let mut chosen = Vec::new();
            for position in prompt.len()..prompt.len() + continuation.len() {
                let token = greedy(&last);
                chosen.push(token);
                last = logits(&mut module, &[token], position as i64);
            }
            off = off.max(deviation(&last, &numbers(&expected["last"])));
            println!("{name}: {off:.1e}");
            if chosen != continuation || off > tolerance {
                wrong.push(format!("{name}: {off:.1e}, {chosen:?}, not {continuation:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn decoders_agree_with_transformers() {
    agree("portable", None);
}

#[test]
fn decoders_agree_with_transformers_on_the_cpu_back_end() {
    agree("cpu", None);
}

#[test]
fn decoders_in_gguf_files_agree_with_transformers() {
    agree("portable", Some("model.gguf"));
}

#[test]
fn decoders_in_gguf_files_agree_with_transformers_on_the_cpu_back_end() {
    agree("cpu", Some("model.gguf"));
}

/// GGUF files of quantized weights: `tools/decoder_blocks.py`.
fn files_of_blocks() -> Vec<(PathBuf, PathBuf)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/blocks");
    ["mixed", "q4_0", "q4_k", "experts"]
        .map(|name| (folder.join(format!("{name}.gguf")), folder.join(format!("{name}.json"))))
        .to_vec()
}

#[test]
fn blocks_in_gguf_files_agree_with_transformers() {
    models_agree("portable", &files_of_blocks(), TOLERANCE);
}

#[test]
fn blocks_in_gguf_files_agree_with_transformers_on_the_cpu_back_end() {
    models_agree("cpu", &files_of_blocks(), ROUNDED_TOLERANCE);
}

/// Programs for the CPU backend have the size of the files, plus tables for the positions and instructions.
#[test]
fn blocks_in_gguf_files_keep_their_size() {
    let options =
        LanguageModelOptions { max_context_len: Some(80), max_seq_len: Some(8), ..LanguageModelOptions::default() };
    for ((path, _), more) in files_of_blocks().into_iter().zip([1.1, 1.0, 1.03, 1.1]) {
        let program = Compiler::new().language_model(&path, options).backend("cpu").compile().unwrap();
        let entries = &program.compiled().report.entries;
        let said: BTreeSet<&str> = entries.iter().filter_map(|entry| entry.precision.as_deref()).collect();
        let has_all = path.ends_with("mixed.gguf") || path.ends_with("experts.gguf");
        let bits: &[u32] = if has_all { &[4, 6, 8] } else { &[4] };
        let named: Vec<String> =
            bits.iter().map(|bits| format!("f32, weights of {bits} bits: its input is not quantized, but of 16 bits where these are multiplied faster")).collect();
        let expected = named.iter().map(String::as_str).chain(["f32, rows of 4 bits"]);
        assert_eq!(said, expected.collect(), "{}", path.display());
        let (size, stored) = (program.to_bytes().unwrap().len() as f64, fs::metadata(&path).unwrap().len() as f64);
        println!("{}: {size} bytes of {stored}", path.display());
        assert!(size < more * stored + 60e3, "{}: {size} bytes of {stored}", path.display());
    }
}

/// `--quantize` decides the type of the weights, for every type in the file.
#[test]
fn blocks_in_gguf_files_are_quantized_again() {
    let options =
        LanguageModelOptions { max_context_len: Some(80), max_seq_len: Some(8), ..LanguageModelOptions::default() };
    let (path, _) = &files_of_blocks()[0];
    let quantization = Quantization::new(Scheme::INT8_WEIGHT).embeddings(8);
    let compiler = Compiler::new().language_model(path, options).backend("cpu").quantize(quantization);
    let program = compiler.compile().unwrap();
    let entries = &program.compiled().report.entries;
    let said: BTreeSet<&str> = entries.iter().filter_map(|entry| entry.precision.as_deref()).collect();
    assert_eq!(
        said,
        BTreeSet::from([
            "f32, weights of 8 bits: its input is not quantized, but of 16 bits where these are multiplied faster",
            "f32, rows of 8 bits"
        ])
    );
}

/// Logits agree with those of transformers with the keys and values of a cache; an element at a rounding boundary may
/// be rounded the other way. Their distance from those of float caches is within a bound from PyTorch's derivatives.
fn caches_agree(backend: &str, kind: KvCache) {
    let mut wrong = Vec::new();
    for name in names() {
        let folder = folder().join(&name);
        let read = |file: &str| -> Json { serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap() };
        let (sample, caches) = (read("expected.json"), read("caches.json"));
        let mut module = compiled_with(&folder, backend, kind);
        let (prompt, continuation) = (tokens(&sample["prompt"]), tokens(&sample["greedy"]));
        let mut after = vec![logits(&mut module, &prompt, 0)];
        for (position, token) in (prompt.len()..).zip(&continuation) {
            after.push(logits(&mut module, &[*token], position as i64));
        }
        let caches = caches[kind.name()].as_array().unwrap();
        assert_eq!(caches.len(), 2, "{name}");
        for cache in caches {
            let count = cache["greedy"].as_u64().unwrap() as usize;
            let (got, quantized, floats) = (&after[count], numbers(&cache["values"]), numbers(&cache["floats"]));
            let of = |bound: &str| cache[bound].as_f64().unwrap() as f32;
            let (error, element) = (of("error"), of("element"));
            let scale = floats.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let (off, rounded) = (difference(got, &floats), difference(got, &quantized));
            println!(
                "{name} {kind} after {count}: {:.1e} of {:.1e} from f32, {:.1e} of {:.1e}",
                off / scale,
                error / scale,
                rounded / scale,
                element / scale
            );
            if off > error || rounded > element + TOLERANCE * scale {
                wrong.push(format!("{name} {kind} after {count}: {off} of {error}, {rounded} of {element}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn caches_agree_with_transformers() {
    KvCache::ALL.into_iter().filter(|kind| *kind != KvCache::F32).for_each(|kind| caches_agree("portable", kind));
}

#[test]
fn caches_agree_with_transformers_on_the_cpu_back_end() {
    KvCache::ALL.into_iter().filter(|kind| *kind != KvCache::F32).for_each(|kind| caches_agree("cpu", kind));
}

#[test]
fn decoders_are_quantized() {
    // Random weights lose more precision than trained ones.
    for (scheme, limit) in [(Scheme::INT8_WEIGHT, 0.1), (Scheme::FOUR_BIT_DYNAMIC, 0.8)] {
        for name in ["llama-3.2", "gemma3", "phi3", "lfm2", "mixtral", "qwen2-moe", "qwen3.5"] {
            let path = folder().join(name);
            let expected: Json = serde_json::from_slice(&fs::read(path.join("expected.json")).unwrap()).unwrap();
            let options = LanguageModelOptions {
                max_context_len: Some(80),
                max_seq_len: Some(8),
                ..LanguageModelOptions::default()
            };
            let quantization = Quantization::new(scheme).embeddings(8);
            let compiler = Compiler::new().language_model(&path, options).backend("cpu").quantize(quantization);
            let program = compiler.compile().unwrap_or_else(|error| panic!("{name}: {error}"));
            let report = program.quantization().unwrap();
            assert!(report.quantized() > 8, "{name}: {} layers", report.quantized());
            let mut module = Module::builder().lower("off").load_bytes(&program.to_bytes().unwrap()).unwrap();
            let off = deviation(&logits(&mut module, &tokens(&expected["prompt"]), 0), &numbers(&expected["logits"]));
            println!("{name} {}: {off:.1e}", scheme.name);
            assert!(off < limit, "{name} {}: {off}", scheme.name);
        }
    }
}

#[test]
fn what_a_program_does_not_have_is_refused() {
    let options =
        LanguageModelOptions { max_context_len: Some(8), max_seq_len: Some(4), ..LanguageModelOptions::default() };
    for backend in ["portable", "cpu"] {
        let compiler = Compiler::new().language_model(folder().join("llama"), options).backend(backend);
        let program = compiler.compile().unwrap().to_bytes().unwrap();
        let mut module = Module::builder().lower("off").load_bytes(&program).unwrap();
        let mut call = |tokens: &[i64], start: i64| {
            let (sizes, start) = ([1, tokens.len()], [start]);
            let tokens = TensorView::of(&sizes, tokens).unwrap();
            let outputs = module.forward(&[tokens.into(), TensorView::of(&[1], &start).unwrap().into()]);
            outputs.map(|_| ())
        };
        call(&[1, 2, 3, 4], 4).unwrap();
        for (tokens, start) in [(&[1i64; 5][..], 0), (&[1, 2], 7), (&[1], 8), (&[1], -1)] {
            let error = call(tokens, start).expect_err("it is beyond the program");
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            let error = error.to_string();
            if backend == "cpu" && tokens.len() + start.unsigned_abs() as usize > 8 {
                assert!(error.contains("position") || error.contains("index"), "{error}");
            }
            println!("{backend}, {} from {start}: {error}", tokens.len());
        }
        // The failed call left the session unchanged.
        call(&[1, 2, 3, 4], 4).unwrap();
    }
}

/// A failed call adds nothing to states without positions: here it fails in the last layer, whose cache is full.
#[test]
fn a_call_that_fails_adds_nothing_to_recurrent_states() {
    let path = folder().join("qwen3.5");
    let sample: Json = serde_json::from_slice(&fs::read(path.join("expected.json")).unwrap()).unwrap();
    let (prompt, continuation) = (tokens(&sample["prompt"]), tokens(&sample["greedy"]));
    for backend in ["portable", "cpu"] {
        let mut module = compiled(&path, backend);
        let mut last = logits(&mut module, &prompt, 0);
        let (more, start) = ([5i64; 8], [75i64]);
        let inputs: [Input<'_>; 2] =
            [TensorView::of(&[1, 8], &more).unwrap().into(), TensorView::of(&[1], &start).unwrap().into()];
        let error = module.forward(&inputs).map(|_| ()).expect_err("it is beyond the cache");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        for (position, expected) in (prompt.len() as i64..).zip(&continuation) {
            let token = greedy(&last);
            assert_eq!(token, *expected, "{backend} at {position}");
            last = logits(&mut module, &[token], position);
        }
    }
}

/// A ring of 12 slots, for a window of 5 and calls of 8 tokens, allows a call that goes back by at most 8 positions, or
/// starts again. Other calls are refused, and change nothing.
#[test]
fn a_ring_is_not_read_where_it_is_overwritten() {
    for backend in ["portable", "cpu"] {
        let mut module = compiled(&folder().join("mistral-window"), backend);
        let tokens: Vec<i64> = (0..30).map(|position| 3 + position * 7 % 61).collect();
        let mut after = Vec::new();
        for (position, token) in (0..).zip(&tokens) {
            after.push(logits(&mut module, &[*token], position));
        }
        for start in [1i64, 6, 21] {
            let (token, position) = ([tokens[start as usize]], [start]);
            let inputs: [Input<'_>; 2] =
                [TensorView::of(&[1, 1], &token).unwrap().into(), TensorView::of(&[1], &position).unwrap().into()];
            let error = module.forward(&inputs).map(|_| ()).expect_err("the window is overwritten").to_string();
            println!("{backend} back to {start}: {error}");
            assert!(error.contains("outside of a dimension of size 12"), "{error}");
        }
        for start in [22usize, 29, 0] {
            let got = logits(&mut module, &tokens[start..=start], start as i64);
            assert!(deviation(&got, &after[start]) < TOLERANCE, "{backend} at {start}");
            // Continues to the previous end of the session.
            for (position, token) in tokens.iter().enumerate().skip(start + 1) {
                let got = logits(&mut module, &[*token], position as i64);
                assert!(deviation(&got, &after[position]) < TOLERANCE, "{backend} at {position} after {start}");
            }
        }
        if backend == "cpu" {
            let mut session = module.session().unwrap();
            let error = session.rewind(3).expect_err("a ring has no positions to go back to");
            assert_eq!(error.code(), Code::NotSupported);
        }
    }
}

#[test]
fn the_families_are_documented() {
    let page = fs::read_to_string(folder().join("../../docs/language-models.md")).expect("the page of language models");
    for family in FAMILIES {
        let row = format!(
            "| {} | {} | {} |",
            family.name,
            family.model_types.join(", "),
            family.architecture.unwrap_or("none yet")
        );
        assert!(page.contains(&row), "docs/language-models.md needs the row\n{row}");
    }
}
