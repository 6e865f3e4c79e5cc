//! Where `rushlight llm` finds a tokenizer: named, inside of the program, or beside it.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::command::{self, fails, succeeds};
use crate::llm::{SAMPLE, llm, text};

/// A text whose characters are all tokens of the sample.
const TEXT: &str = "Hi you";

fn sample(name: &str) -> Vec<u8> {
    fs::read(Path::new(SAMPLE).join(name)).expect("a sample")
}

fn json(bytes: &[u8]) -> Json {
    serde_json::from_slice(bytes).expect("JSON")
}

/// The vocabulary of the sample by the numbers of its tokens.
fn vocabulary() -> Vec<String> {
    let file = json(&sample("tokenizer.json"));
    let vocabulary = file["model"]["vocab"].as_object().expect("the vocabulary");
    let mut tokens = vec![String::new(); vocabulary.len()];
    for (token, id) in vocabulary {
        tokens[id.as_u64().expect("a number") as usize].clone_from(token);
    }
    tokens
}

/// The GGUF file of the sample with the vocabulary and the chat template, which it lacks.
fn gguf_with_vocabulary() -> Vec<u8> {
    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
    }
    let list = |kind: u32, count: usize, elements: Vec<u8>| {
        [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes(), &elements].concat()
    };
    let tokens = vocabulary();
    let count = tokens.len();
    let template = json(&sample("tokenizer_config.json"))["chat_template"].as_str().expect("a template").to_owned();
    // Control tokens are of the kind 3, others of 1.
    let kinds = (0..count).flat_map(|id| if id < 3 { 3u32 } else { 1 }.to_le_bytes()).collect();
    let mut entries = vec![
        ("tokenizer.ggml.model", 8u32, text("llama")),
        ("tokenizer.ggml.tokens", 9, list(8, count, tokens.iter().flat_map(|token| text(token)).collect())),
        ("tokenizer.ggml.scores", 9, list(6, count, vec![0; 4 * count])),
        ("tokenizer.ggml.token_type", 9, list(5, count, kinds)),
        ("tokenizer.ggml.add_space_prefix", 7, vec![0]),
        ("tokenizer.ggml.add_bos_token", 7, vec![0]),
        ("tokenizer.chat_template", 8, text(&template)),
    ];
    let bytes = |entries: &[(&str, u32, Vec<u8>)]| -> Vec<u8> {
        entries.iter().flat_map(|(key, kind, value)| [&text(key)[..], &kind.to_le_bytes(), value].concat()).collect()
    };
    // Tensors begin at multiples of 32 bytes, so that they move by one.
    entries.push(("test.padding", 8, text("")));
    let padding = " ".repeat(bytes(&entries).len().next_multiple_of(32) - bytes(&entries).len());
    entries.pop();
    entries.push(("test.padding", 8, text(&padding)));
    let file = sample("model.gguf");
    let values = u64::from_le_bytes(file[16..24].try_into().expect("a number")) + entries.len() as u64;
    [&file[..16], &values.to_le_bytes(), &bytes(&entries), &file[24..]].concat()
}

fn compile(from: &str, to: &Path, options: &[&str]) -> String {
    let to = to.to_str().expect("a name");
    succeeds(&[&["compile", from, "--backend", "cpu", "--max-context-len", "80", "-o", to], options].concat())
}

#[test]
fn the_tokenizer_is_in_the_program() {
    let folder = command::folder("llm-tokenizer-inside");
    let gguf = folder.join("model.gguf");
    fs::write(&gguf, gguf_with_vocabulary()).expect("a file");
    // A folder whose template has a file of its own.
    let jinja = folder.join("jinja");
    fs::create_dir(&jinja).expect("a folder");
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        fs::write(jinja.join(name), sample(name)).expect("a file");
    }
    let mut config = json(&sample("tokenizer_config.json"));
    let template = config.as_object_mut().expect("settings").remove("chat_template").expect("a template");
    fs::write(jinja.join("tokenizer_config.json"), config.to_string()).expect("a file");
    fs::write(jinja.join("chat_template.jinja"), template.as_str().expect("a text")).expect("a file");
    let vocabulary = vocabulary();
    let expected = json(&sample("text.json"));
    let (prompt, greedy) = (expected["prompt"].as_str().expect("a text"), expected["greedy"].as_str().expect("a text"));
    let mut chats = Vec::new();
    for (from, files) in [
        (SAMPLE, "tokenizer.json, tokenizer_config.json, generation_config.json"),
        (
            jinja.to_str().expect("a name"),
            "tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja",
        ),
        (gguf.to_str().expect("a name"), "tokenizer.gguf"),
    ] {
        // Nothing is beside the program.
        let model = command::folder("llm-tokenizer-alone").join("model.pte");
        let summary = compile(from, &model, &[]);
        assert!(summary.contains(" · tokenizer "), "{summary}");
        let path = model.to_str().expect("a name");
        let inspected = succeeds(&["inspect", path]);
        assert!(inspected.lines().any(|line| line.contains(&format!("tokenizer    {files}  "))), "{inspected}");
        assert!(!inspected.contains("rushlight.tokenizer/"), "{inspected}");
        let described = json(succeeds(&["inspect", path, "--json"]).as_bytes());
        let names: Vec<&str> =
            described["tokenizer"].as_array().expect("files").iter().filter_map(|file| file["file"].as_str()).collect();
        assert_eq!(names.join(", "), files);
        let tokens = json(text(&llm(&["tokenize", path, TEXT, "--json"], "")).as_bytes());
        let ids: Vec<usize> = serde_json::from_value(tokens["tokens"].clone()).expect("tokens");
        let spelled: String = ids.iter().map(|id| &*vocabulary[*id]).collect();
        assert_eq!(spelled, TEXT.replace(' ', "▁"));
        let run = llm(&["run", path, prompt, "--temperature", "0", "-n", "64", "--ignore-eos"], "");
        assert_eq!(text(&run), format!("{greedy}\n"));
        chats.push(text(&llm(&["chat", path, "--temperature", "0", "-n", "9", "--ignore-eos"], "Hi\n")));
    }
    assert!(chats.iter().all(|chat| *chat == chats[0] && !chat.trim().is_empty()), "{chats:?}");
}

#[test]
fn a_named_tokenizer_comes_first_then_that_inside_then_that_beside() {
    let folder = command::folder("llm-tokenizer-order");
    let (with, without) = (folder.join("with.pte"), folder.join("without.pte"));
    compile(SAMPLE, &with, &[]);
    let summary = compile(SAMPLE, &without, &["--no-tokenizer"]);
    assert!(!summary.contains(" · tokenizer "), "{summary}");
    // Letters have other numbers in this one.
    let mut other = json(&sample("tokenizer.json"));
    let vocabulary = other["model"]["vocab"].as_object_mut().expect("a vocabulary");
    (vocabulary["a"], vocabulary["b"]) = (5.into(), 4.into());
    let tokens = |arguments: &[&str]| {
        let output =
            llm(&[&["run"], arguments, &["-n", "1", "--temperature", "0", "--json", "--ignore-eos"]].concat(), "");
        output.status.success().then(|| json(text(&output).as_bytes())["text"].as_str().expect("a text").to_owned())
    };
    let (with, without) = (with.to_str().expect("a name"), without.to_str().expect("a name"));
    // The answers differ where "a" is read as "b".
    let (a, b) = (tokens(&[with, "aaaa"]).expect("an answer"), tokens(&[with, "bbbb"]).expect("an answer"));
    assert_ne!(a, b);
    assert_eq!(tokens(&[without, "aaaa"]), None);
    let error =
        fails(&["llm", "run", without, "a"], 2, &["carries no tokenizer, and none is beside it", "--tokenizer"]);
    for name in ["without.tokenizer.json", "tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer.bin"] {
        assert!(error.contains(&format!("`{}`", folder.join(name).display())), "{error}");
    }
    fails(&["llm", "tokenize", without, "a"], 2, &["without.pte` carries no tokenizer"]);
    let (damaged, unread) = (folder.join("damaged.json"), folder.join("unread.pte"));
    fs::write(&damaged, "{").expect("a file");
    compile(SAMPLE, &unread, &["--tokenizer", damaged.to_str().expect("a name")]);
    let unread = unread.to_str().expect("a name");
    fails(&["llm", "run", unread, "a"], 1, &["inside of the program"]);
    let beside = folder.join("tokenizer.json");
    fs::write(&beside, other.to_string()).expect("a file");
    let beside = beside.to_str().expect("a name");
    assert_eq!(tokens(&[without, "aaaa"]).as_ref(), Some(&b), "that beside it");
    assert_eq!(tokens(&[with, "aaaa"]).as_ref(), Some(&a), "that inside, not that beside it");
    assert_eq!(tokens(&[unread, "aaaa"]).as_ref(), Some(&b), "that beside one that cannot be read");
    assert_eq!(tokens(&[with, "aaaa", "--tokenizer", beside]).as_ref(), Some(&b), "that which is named");
    assert_eq!(tokens(&[without, "aaaa", "--tokenizer", with]).as_ref(), Some(&a), "that of another program");
    // And one that is named when the program is compiled.
    let named = folder.join("named.pte");
    compile(SAMPLE, &named, &["--tokenizer", beside]);
    assert_eq!(tokens(&[named.to_str().expect("a name"), "aaaa"]).as_ref(), Some(&b));
    fails(&["compile", SAMPLE, "--tokenizer", beside, "--no-tokenizer"], 2, &["cannot be used with"]);
    fails(&["compile", SAMPLE, "--tokenizer", "/missing", "-o", with], 3, &["/missing"]);
}
