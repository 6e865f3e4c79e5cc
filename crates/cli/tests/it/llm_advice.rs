//! Errors of `rushlight llm` with advice, each followed: the wrong arguments, the advice in their error, and the arguments that it names.

use std::fs;
use std::net::TcpListener;

use crate::command::{at, fails, succeeds};
use crate::llm::{SAMPLE, llm, model, text};
use crate::llm_serve::Server;

/// The wrong arguments, the exit code, a part of the error, and the arguments that it names.
type Case<'a> = (&'a [&'a str], i32, &'a str, &'a [&'a str]);

/// The arguments of an adapter's program: the adapter's own model, with a rank for it.
const ADAPTERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/adapters");

#[test]
fn advice_about_chats_leads_on() {
    let path = model("llm-advice-chat");
    let folder = path.parent().expect("a folder").to_owned();
    let program = path.to_str().expect("a name");
    let (template, talk, cache) = (at(&folder, "template.jinja"), at(&folder, "talk.json"), at(&folder, "cache"));
    let (plain, other) = (at(&folder, "plain"), at(&folder, "portable.pte"));
    let (draft, lora) = (at(&folder, "draft.pte"), at(&folder, "lora.pte"));
    let adapter = format!("{ADAPTERS}/llama-all");
    fs::write(&template, "{{ messages[-1]['content'] }}").expect("a file");
    fs::write(&talk, "{}").expect("a file");
    fs::create_dir(&plain).expect("a folder");
    fs::copy(format!("{SAMPLE}/tokenizer.json"), format!("{plain}/tokenizer.json"))
        .expect("a tokenizer without a template");
    succeeds(&["compile", SAMPLE, "--backend", "portable", "--max-context-len", "80", "-o", &other]);
    let chat = ["chat", program];
    let start = |arguments: &[&str]| llm(arguments, "Hi\n");
    let refused = |arguments: &[&str], code: i32, advice: &str| {
        let output = start(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(
            error.contains(advice) && !error.contains("panicked"),
            "{arguments:?}: expected `{advice}` in\n{error}"
        );
    };
    let cases: &[Case<'_>] = &[
        (
            &["--tokenizer", &plain],
            2,
            "name a file with one (`--chat-template`)",
            &["--tokenizer", &plain, "--chat-template", &template],
        ),
        (&["--load", &talk], 6, "as `--save` writes it", &["--save", &talk]),
        (&["--ctx", "81"], 2, "choose a shorter context", &["--ctx", "80"]),
        (&["--quantize", "8da4w"], 2, "name the folder or .gguf file", &[]),
        (&["--hidden-states"], 2, "leave it out", &[]),
        (
            &["--draft-model", &other, "--lower", "off"],
            2,
            "compile it with `--backend cpu`",
            &["--draft-model", program],
        ),
        (&["--speculate", "words"], 2, "lookup", &["--speculate", "lookup"]),
        (&["--seed", "many"], 2, "or `random`", &["--seed", "random"]),
        (&["-n", "-2"], 2, "-1 for as many as fit", &["-n", "-1"]),
        (&["--lora", &adapter], 1, "--lora-rank", &[]),
    ];
    for (wrong, code, advice, right) in cases {
        refused(&[&chat, *wrong].concat(), *code, advice);
        text(&start(&[&chat, *right].concat()));
    }
    // A saved conversation goes on.
    text(&start(&[&chat, &["--load", talk.as_str()][..]].concat()));
    succeeds(&["compile", SAMPLE, "--backend", "cpu", "--lora-rank", "8", "--max-context-len", "80", "-o", &lora]);
    text(&start(&["chat", &lora, "-n", "3", "--lora", &adapter]));
    // A folder takes what a program does not.
    let of_folder = ["chat", SAMPLE, "-n", "3", "--cache", &cache];
    refused(&[&of_folder[..], &["--quantize", "int8"]].concat(), 2, "use `int8-dynamic`");
    text(&start(&[&of_folder[..], &["--quantize", "int8-dynamic", "--ctx", "40"]].concat()));
    // A long text needs a longer context.
    let long = "a".repeat(60);
    refused(&["run", program, &long, "--ctx", "20"], 6, "`--ctx`");
    text(&start(&["run", program, &long, "--ctx", "70"]));
    // A draft of another family.
    let swapped = fs::read_to_string(format!("{SAMPLE}/tokenizer.json")).expect("the tokenizer");
    let mut swapped: serde_json::Value = serde_json::from_str(&swapped).expect("JSON");
    for id in swapped["model"]["vocab"].as_object_mut().expect("tokens").values_mut() {
        let token = id.as_u64().expect("a number");
        *id = if token >= 4 { 4 + (token - 3) % 60 } else { token }.into();
    }
    let file = at(&folder, "other.json");
    fs::write(&file, swapped.to_string()).expect("a file");
    succeeds(&["compile", SAMPLE, "--tokenizer", &file, "--backend", "cpu", "--max-context-len", "80", "-o", &draft]);
    refused(&[&chat[..], &["--draft-model", &draft]].concat(), 2, "use a smaller model of the same family");
}

#[test]
fn advice_about_servers_leads_on() {
    let path = model("llm-advice-serve");
    let folder = path.parent().expect("a folder").to_owned();
    let program = path.to_str().expect("a name");
    let (lora, embeds) = (folder.join("lora.pte"), folder.join("embeds.pte"));
    let to_text = |path: &std::path::Path| path.to_str().expect("a name").to_owned();
    let poet = format!("poet={ADAPTERS}/llama-all");
    let common = ["compile", SAMPLE, "--backend", "cpu", "--max-context-len", "80", "-o"];
    succeeds(&[&common[..], &[&to_text(&lora), "--lora-rank", "8"]].concat());
    succeeds(&[&common[..], &[&to_text(&embeds), "--hidden-states"]].concat());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let serve = ["llm", "serve", program];
    let cases: &[(&[&str], i32, &str, &[&str])] = &[
        (&["--port", &port], 1, "choose another port (`--port`), or 0", &[]),
        (&["--draft-model", program], 2, "use `--speculate lookup`", &["--speculate", "lookup"]),
        (&["--cors-origin", "app.example/"], 2, "`https://app.example`", &["--cors-origin", "https://app.example"]),
        (&["--quantize", "8da4w"], 2, "give them to `rushlight compile`", &[]),
        (&["--ctx", "1000"], 2, "choose a shorter context", &["--ctx", "40"]),
        (&["--sessions", "0"], 2, "1..", &["--sessions", "1"]),
    ];
    for (wrong, code, advice, right) in cases {
        fails(&[&serve, *wrong].concat(), *code, &[advice]);
        drop(Server::of(&path, right));
    }
    fails(&[&serve[..], &["--lora-module", &poet]].concat(), 1, &["--lora-rank"]);
    drop(Server::of(&lora, &["--lora-module", &poet]));
    fails(&["llm", "serve", &to_text(&embeds), "--lora-module", &poet], 2, &["`--lora`"]);
    drop(Server::of(&embeds, &[]));
    let name = at(&folder, "none.pte");
    fails(&["llm", "serve", &name], 3, &["cannot open"]);
    fails(&["llm", "serve"], 2, &["FILE.pte|FOLDER|FILE.gguf"]);
}
