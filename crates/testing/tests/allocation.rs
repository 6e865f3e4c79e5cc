//! Executing a lowered program allocates nothing, with one thread or two. Decoding a token with a language model
//! allocates nothing either. This is a separate binary, because its allocator counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cap::Cap;
use rushlight::runtime::{Input, Output, States};
use rushlight::{Compiler, LanguageModelOptions, Module, TensorView};
use serde_json::Value as Json;

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Held by each test, so that tests allocate one after the other.
static COUNTING: Mutex<()> = Mutex::new(());

/// Returns the bytes allocated so far, once the threads of the pool have started. The system decides when they first
/// run, and each allocates its name.
fn settled() -> usize {
    let mut before = ALLOCATOR.total_allocated();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = ALLOCATOR.total_allocated();
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn executing_what_was_lowered_allocates_nothing() {
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1");
    for threads in [1, 2] {
        for name in ["add", "mlp", "conv", "softmax", "channels_last"] {
            let builder = Module::builder().lower("cpu").threads(threads);
            let mut module = builder.load(format!("{corpus}/{name}.pte")).expect("a file of the corpus");
            assert!(module.report().is_ok(), "{name} is not lowered");
            let meta = module.meta("forward").expect("it has the method");
            let tensors = meta.inputs.iter().filter_map(|input| input.as_tensor());
            let data: Vec<_> = tensors.map(|info| (info.clone(), vec![0.5f32; info.nbytes as usize / 4])).collect();
            let method = module.method("forward").expect("it loads");
            let mut execute = || {
                let mut inputs = [const { Input::None }; 4];
                for (slot, (info, floats)) in inputs.iter_mut().zip(&data) {
                    *slot = Input::Tensor(TensorView::of(&info.sizes, floats).expect("a view"));
                }
                let count = method.execute(&inputs[..data.len()]).expect("it runs").len();
                assert!(count > 0);
            };
            execute();
            let before = settled();
            for _ in 0..10 {
                execute();
            }
            assert_eq!(ALLOCATOR.total_allocated(), before, "{name} with {threads} threads");
        }
    }
}

/// Copies a sample decoder with more positions. Its rotations do not depend on their number.
fn with_context(from: &Path, context: usize) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("long-session").join(from.file_name().unwrap());
    fs::create_dir_all(&to).unwrap();
    let mut config: Json = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    config["max_position_embeddings"] = context.into();
    fs::write(to.join("config.json"), config.to_string()).unwrap();
    fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).unwrap();
    to
}

/// Layers with a window have ring caches, whose memory does not grow with the context. Logits are those of transformers
/// in eager mode for all tokens at once (`tools/decoder_samples.py --long`).
#[test]
fn tokens_of_long_sessions_allocate_nothing() {
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["mistral-window", "gemma3"] {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders").join(name);
        let expected: Json = serde_json::from_slice(&fs::read(sample.join("long.json")).unwrap()).unwrap();
        let number = |key: &str| expected[key].as_u64().unwrap() as usize;
        let (count, context) = (number("tokens"), number("context"));
        let folder = with_context(&sample, context);
        let options = LanguageModelOptions {
            max_context_len: Some(context),
            max_seq_len: Some(8),
            ..LanguageModelOptions::default()
        };
        let program = Compiler::new().language_model(folder, options).backend("cpu").compile().unwrap();
        let mut module = Module::builder().lower("off").threads(1).load_bytes(&program.to_bytes().unwrap()).unwrap();
        let method = module.method("forward").unwrap();
        let mut states = States::new();
        method.add_states(&mut states).unwrap();
        // Keys and values have 2 heads of 8 elements. A cache has a slot for each position, or is a ring of the window
        // and the longest call. One more element is the end of the positions.
        let rows = if name == "gemma3" { 3 * (6 + 7) + context } else { 4 * (5 + 7) };
        assert_eq!(states.size(), (rows * 2 * 2 * 8 + 1) * 4, "{name}");
        let mut checks = expected["after"].as_array().unwrap().iter().zip(expected["logits"].as_array().unwrap());
        let mut next = checks.next();
        let mut after_first = None;
        for position in 0..count {
            let token = [3 + (position * position + position / 3) as i64 % 61];
            let start = [position as i64];
            let inputs: [Input<'_>; 2] = [
                Input::Tensor(TensorView::of(&[1, 1], &token).unwrap()),
                Input::Tensor(TensorView::of(&[1], &start).unwrap()),
            ];
            let outputs = method.start_in(&mut states, &inputs, &mut []).unwrap().finish().unwrap();
            let Output::Tensor(logits) = outputs.get(0).unwrap() else { panic!("logits are a tensor") };
            if let Some((after, expected)) = next
                && after.as_u64() == Some(position as u64 + 1)
            {
                let (got, expected) = (logits.as_slice::<f32>().unwrap(), expected.as_array().unwrap());
                let expected = || expected.iter().map(|logit| logit.as_f64().unwrap() as f32);
                let tolerance = 2e-5 * expected().fold(0.0f32, |most, logit| most.max(logit.abs()));
                assert_eq!(got.len(), expected().count());
                let agree = got.iter().zip(expected()).all(|(got, expected)| (got - expected).abs() <= tolerance);
                assert!(agree, "{name} after {after} tokens: {got:?}");
                next = checks.next();
            }
            if position == 0 {
                after_first = Some(settled());
            }
        }
        assert_eq!(Some(ALLOCATOR.total_allocated()), after_first, "{name}");
        assert!(next.is_none(), "{name}: tokens after the last");
    }
}
