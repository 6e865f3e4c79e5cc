//! `rushlight llm`, with a tiny Llama that transformers knows.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::command;

pub const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/decoders/llama");

pub fn llm(arguments: &[&str], input: &str) -> Output {
    let mut process = command::rushlight()
        .arg("llm")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    // A command that does not read it ends before.
    let _ = process.stdin.take().expect("its input").write_all(input.as_bytes());
    process.wait_with_output().expect("the command")
}

pub fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A compiled model, which carries its tokenizer.
pub fn model(name: &str) -> PathBuf {
    model_with(name, &[])
}

fn model_with(name: &str, options: &[&str]) -> PathBuf {
    let folder = command::folder(name);
    let model = folder.join("model.pte");
    let mut compile = command::rushlight();
    compile.args(["compile", SAMPLE, "--backend", "cpu", "--max-context-len", "80", "-o"]).arg(&model).args(options);
    assert!(compile.output().expect("the command").status.success());
    model
}

#[test]
fn texts_are_continued_as_transformers_does() {
    let model = model("llm-run");
    let model = model.to_str().expect("a name");
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(Path::new(SAMPLE).join("text.json")).expect("the sample")).expect("JSON");
    let (prompt, greedy) = (expected["prompt"].as_str().expect("a text"), expected["greedy"].as_str().expect("a text"));
    let greedily = ["run", model, prompt, "--temperature", "0", "-n", "64", "--ignore-eos"];
    let output = llm(&greedily, "");
    assert_eq!(text(&output), format!("{greedy}\n"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("answer 64 tokens"));
    // The prompt from standard input, and the answer as JSON.
    let output = llm(&["run", model, "-", "--temperature", "0", "-n", "9", "--json", "--logprobs", "2"], prompt);
    let json: serde_json::Value = serde_json::from_str(&text(&output)).expect("JSON");
    assert_eq!(json["text"].as_str().expect("a text"), greedy.get(..9).expect("nine letters"));
    assert_eq!(
        (json["finish_reason"].as_str(), json["usage"]["completion_tokens"].as_u64()),
        (Some("length"), Some(9))
    );
    let scores = json["logprobs"].as_array().expect("log probabilities");
    assert_eq!(scores.len(), 9);
    assert!(
        scores.iter().all(|score| score["top"][0]["token"] == score["token"] && score["logprob"].as_f64() < Some(0.0))
    );
    // The end of a text is no part of it.
    let output = llm(&["run", model, prompt, "--temperature", "0"], "");
    assert!(greedy.starts_with(text(&output).trim_end()));
    // A seed gives the same text.
    let sampled = |seed| text(&llm(&["run", model, "abc", "--seed", seed, "-n", "20", "--ignore-eos"], ""));
    assert_eq!(sampled("3"), sampled("3"));
    assert_ne!(sampled("3"), sampled("4"));
}

/// A folder or a GGUF file is compiled at its first use. Its program is found afterwards, unless the files or options differ.
#[test]
fn published_models_are_compiled_once() {
    let folder = command::folder("llm-once");
    let cache = folder.join("cache");
    let model = folder.join("model.gguf");
    std::fs::copy(Path::new(SAMPLE).join("model.gguf"), &model).expect("a copy");
    let tokenizer = format!("{SAMPLE}/tokenizer.json");
    let programs = || std::fs::read_dir(&cache).map_or(0, Iterator::count);
    let run = |source: &[&str], options: &[&str]| {
        let cache = cache.to_str().expect("a name");
        let answer = ["-p", "hello", "--temp", "0", "-n", "8", "--ignore-eos", "--cache", cache];
        let output = llm(&[&["run"], source, &answer, options].concat(), "");
        (text(&output), String::from_utf8_lossy(&output.stderr).contains("is compiled once"))
    };
    let compiled = self::model("llm-once-compiled");
    let (expected, _) = run(&["-m", compiled.to_str().expect("a name")], &[]);
    assert_eq!((run(&[SAMPLE], &[]), programs()), ((expected.clone(), true), 1));
    assert_eq!((run(&["-m", SAMPLE], &[]), programs()), ((expected.clone(), false), 1));
    assert_eq!((run(&[SAMPLE], &["--ctx", "80"]), programs()), ((expected.clone(), true), 2));
    let of_file = || run(&[model.to_str().expect("a name")], &["--tokenizer", &tokenizer]);
    assert_eq!((of_file(), programs()), ((expected.clone(), true), 3));
    assert_eq!(of_file(), (expected.clone(), false));
    std::fs::File::options().append(true).open(&model).and_then(|mut file| file.write_all(&[0; 32])).expect("a change");
    assert_eq!((of_file(), programs()), ((expected.clone(), true), 4));

    // A damaged entry is written again.
    for damage in [0, 1000] {
        for entry in std::fs::read_dir(&cache).expect("the cache") {
            let file = std::fs::File::options().write(true).open(entry.expect("an entry").path()).expect("a file");
            file.set_len(damage).expect("a shorter file");
        }
        assert_eq!((run(&[SAMPLE], &[]), programs()), ((expected.clone(), true), 4));
        assert_eq!(run(&[SAMPLE], &[]), (expected.clone(), false));
    }
    let output = llm(&["run", "no-such", "hello", "--ctx", "80"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such") && output.status.code() == Some(3));
    let compiled = compiled.to_str().expect("a name");
    let output = llm(&["run", compiled, "hello", "--max-seq-len", "80"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is compiled already"));
    // The context of a program is shortened when it is loaded: 5 tokens of a prompt leave room for 8 of an answer.
    let output = llm(&["run", compiled, "hello", "--ctx", "12", "--ignore-eos", "--json"], "");
    let answer: serde_json::Value = serde_json::from_str(&text(&output)).expect("JSON");
    let count = |name: &str| answer["usage"][name].as_u64().expect("a count");
    assert_eq!(count("prompt_tokens") + count("completion_tokens"), 13);
}

#[test]
fn guessed_tokens_change_nothing_but_the_time() {
    let model = model_with("llm-speculate", &["--full-logits"]);
    let model = model.to_str().expect("a name");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let arguments = [&["run", model, "abcabcabcabc", "-n", "40", "--ignore-eos", "--json"], arguments].concat();
        serde_json::from_str(&text(&llm(&arguments, ""))).expect("JSON")
    };
    for sampling in [["--temperature", "0"], ["--seed", "5"]] {
        let plain = json(&sampling);
        assert_eq!(plain["usage"]["drafted_tokens"].as_u64(), Some(0));
        for options in [["--speculate", "lookup"], ["--draft-model", model]] {
            // The clock decides whether drafts pay: on a machine that is busy it may decide against them.
            let has_guessed = (0..10).any(|_| {
                let guessed = json(&[sampling, options].concat());
                assert_eq!(guessed["text"], plain["text"]);
                guessed["usage"]["drafted_tokens"].as_u64() > Some(0)
            });
            assert!(has_guessed, "{sampling:?} {options:?}");
        }
    }
    let chat = ["chat", model, "--temperature", "0", "-n", "12", "--ignore-eos"];
    let guessed = [&chat[..], &["--speculate", "lookup"]].concat();
    assert_eq!(text(&llm(&chat, "Hi\nAnd\n")), text(&llm(&guessed, "Hi\nAnd\n")));
    // A program that cannot verify them says so.
    let plain = self::model("llm-speculate-plain");
    let plain = plain.to_str().expect("a name");
    let output = llm(&["run", plain, "abc", "-n", "5", "--speculate", "lookup"], "");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("tokens are not guessed"));
}

#[test]
fn adapters_change_answers_as_in_transformers() {
    let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/adapters");
    let adapter = format!("{adapters}/llama-all");
    let model = model_with("llm-lora", &["--lora-rank", "4"]);
    let model = model.to_str().expect("a name");
    let sample = std::fs::read(Path::new(&adapter).join("expected.json")).expect("the sample");
    let sample: serde_json::Value = serde_json::from_slice(&sample).expect("JSON");
    let tokenizer = rushlight_llm::Tokenizer::open(SAMPLE).expect("the tokenizer");
    let letters = |key: &str| {
        let tokens: Vec<u32> = serde_json::from_value(sample[key].clone()).expect("tokens");
        tokenizer.decode(&tokens, true).expect("text")
    };
    let (prompt, greedy) = (letters("prompt"), letters("greedy"));
    let run = |options: &[&str]| {
        let always = ["run", model, &prompt, "--temperature", "0", "-n", "64", "--ignore-eos"];
        llm(&[&always[..], options].concat(), "")
    };
    assert_eq!(text(&run(&["--lora", &adapter])), format!("{greedy}\n"));
    let without = text(&run(&[]));
    assert_ne!(without, format!("{greedy}\n"));
    assert_eq!(text(&run(&["--lora", &adapter, "--lora-scale", "0"])), without);
    for (folder, expected) in [("llama-none", "adapter_config.json"), ("phi3-joined", "a larger --lora-rank")] {
        let output = run(&["--lora", &format!("{adapters}/{folder}")]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{error}");
    }
}

#[test]
fn samplers_are_chosen() {
    let model = model("llm-samplers");
    let model = model.to_str().expect("a name");
    let run = |options: &[&str]| {
        text(&llm(&[&["run", model, "abcabcabc", "--seed", "1", "-n", "30", "--ignore-eos"], options].concat(), ""))
    };
    let plain = run(&[]);
    for options in [
        &["--dry-multiplier", "9", "--dry-base", "2", "--dry-allowed-length", "1", "--dry-penalty-last-n", "40"][..],
        &["--dry-multiplier", "9", "--dry-allowed-length", "1", "--dry-sequence-breaker", "none"],
        &["--mirostat", "2", "--mirostat-tau", "1.5", "--mirostat-eta", "0.2"],
        &["--executorch-sampler"],
    ] {
        let answer = run(options);
        assert!(answer != plain && answer == run(options), "{options:?}: {answer}");
    }
}

#[cfg(feature = "grammar")]
#[test]
fn answers_are_of_their_form() {
    let model = model("llm-form");
    let folder = model.parent().expect("a folder").to_owned();
    let model = model.to_str().expect("a name");
    let (schema, grammar) = (folder.join("schema.json"), folder.join("grammar.gbnf"));
    std::fs::write(&schema, r#"{"type": "boolean"}"#).expect("a file");
    std::fs::write(&grammar, "root ::= \"yes\" | \"no\" # or not\n").expect("a file");
    let run = |options: &[&str]| text(&llm(&[&["run", model, "Is it", "-n", "60"], options].concat(), ""));
    for seed in ["1", "2", "3"] {
        let seed = ["--seed", seed];
        let (schema, grammar) = (schema.to_str().expect("a name"), grammar.to_str().expect("a name"));
        let json = run(&[&["--json-schema", schema], &seed[..]].concat());
        assert!(["true\n", "false\n"].contains(&json.as_str()), "{json}");
        let json = run(&[&["--json-schema", r#"{"enum": [null, true]}"#], &seed[..]].concat());
        assert!(["null\n", "true\n"].contains(&json.as_str()), "{json}");
        let letters = run(&[&["--regex", "[a-c]{4}"], &seed[..]].concat());
        assert!(
            letters.len() == 5 && letters.trim_end().chars().all(|letter| ('a'..='c').contains(&letter)),
            "{letters}"
        );
        let answer = run(&[&["--grammar", grammar], &seed[..]].concat());
        assert!(["yes\n", "no\n"].contains(&answer.as_str()), "{answer}");
    }
    let answers = llm(&["chat", model, "--grammar", grammar.to_str().expect("a name")], "Hi\nAnd\n");
    assert!(text(&answers).lines().all(|line| ["yes", "no"].contains(&line)));
    std::fs::write(&grammar, "root ::= a\n").expect("a file");
    for (options, code, expected) in [
        (["--json-schema", "{"], 2, "`--json-schema` is no JSON"),
        (["--json-schema", "/missing"], 3, "cannot read `/missing`"),
        (["--json-schema", r#"{"type": "nonsense"}"#], 2, "nonsense"),
        (["--regex", "("], 2, "grammar"),
        (["--grammar", "/missing"], 3, "cannot read `/missing`"),
        (["--grammar", grammar.to_str().expect("a name")], 2, "line 1, column 10: there is no rule `a`"),
    ] {
        let output = llm(&[&["run", model, "a"], &options[..]].concat(), "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {error}");
        assert!(error.contains(expected), "{options:?}: {error}");
    }
}

#[test]
fn a_chat_is_saved_and_answered_anew() {
    let model = model("llm-chat-commands");
    let file = model.with_file_name("saved.json");
    let chat = ["chat", model.to_str().expect("a name"), "-n", "5", "--ignore-eos", "--system", "Be nice"];
    let answers = text(&llm(&chat, &format!("/regenerate\nHi\n/regenerate\n/save {}\n/help\n", file.display())));
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines.len(), 2, "{answers}");
    assert_ne!(lines.first(), lines.get(1), "another seed");
    let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("JSON");
    let roles: Vec<_> = saved.as_array().expect("messages").iter().map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, [Some("system"), Some("user"), Some("assistant")]);
    assert_eq!(saved[2]["content"].as_str(), lines.get(1).copied());
}

/// A file replaces the chat template of the tokenizer.
#[test]
fn a_chat_uses_the_template_of_a_file() {
    let model = model("llm-chat-template");
    let template = model.with_file_name("template.jinja");
    let chat = ["chat", model.to_str().expect("a name"), "-n", "5", "--ignore-eos", "--chat-template"];
    let with = |text: &str| {
        std::fs::write(&template, text).expect("a file");
        llm(&[&chat[..], &[template.to_str().expect("a name")]].concat(), "Hi\n")
    };
    let plain = text(&with("{{ messages[-1]['content'] }}"));
    assert_ne!(plain, text(&with("Please: {{ messages[-1]['content'] }} now")));
    let prompt = ["run", chat[1], "Hi", "-n", "5", "--ignore-eos"];
    assert_eq!(plain, text(&llm(&prompt, "")).trim_start_matches(' '));
    for (template, expected) in [("{% if %}", "template"), ("{{ messages | nonsense }}", "nonsense")] {
        let output = with(template);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected));
    }
}

/// A conversation goes on when the context is full: the oldest messages are forgotten, and one that never fits is not answered.
#[test]
fn a_chat_forgets_its_oldest_messages() {
    let model = model("llm-chat-full");
    let chat = ["chat", model.to_str().expect("a name"), "-n", "5", "--ignore-eos"];
    let lines = (0..12).map(|number| format!("message {number}")).collect::<Vec<_>>().join("\n");
    let output = llm(&chat, &lines);
    assert_eq!(text(&output).lines().count(), 12);
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notes.contains("the model no longer sees the first 2 messages"), "{notes}");
    // An answer without a maximum length ends with the context. A note reports it.
    let cut = String::from_utf8_lossy(&llm(&[chat[0], chat[1], "--ignore-eos"], "Hi\n").stderr).into_owned();
    assert!(cut.contains("ends here because the context is full"), "{cut}");
    let long = "long ".repeat(40);
    let output = llm(&chat, &format!("Hi\n{long}\n/reset\nHi\n"));
    let (answers, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((answers.lines().count(), output.status.code()), (2, Some(6)), "{answers}{notes}");
    assert!(
        notes.contains("the message is not answered")
            && notes.contains("shorten the text")
            && notes.contains("1 message was not answered"),
        "{notes}"
    );
}

#[test]
fn a_chat_goes_on_until_its_input_ends() {
    let model = model("llm-chat");
    let model = model.to_str().expect("a name");
    let chat = ["chat", model, "--temperature", "0", "-n", "3", "--ignore-eos"];
    let answers = text(&llm(&chat, "Hi\n\n/what\n/reset\nHi\nAnd\n/exit\nnever\n"));
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines.first(), lines.get(1), "a conversation that was reset begins as the first did");
}

#[test]
fn tokens_and_times_are_shown() {
    let model = model("llm-bench");
    let tokens = text(&llm(&["tokenize", SAMPLE, "Hi you", "--json"], ""));
    let json: serde_json::Value = serde_json::from_str(&tokens).expect("JSON");
    assert_eq!(json["pieces"].as_array().expect("pieces").len(), 6);
    let times =
        llm(&["bench", model.to_str().expect("a name"), "--prompt", "4", "--at", "0,9", "-n", "2", "--json"], "");
    let json: serde_json::Value = serde_json::from_str(&text(&times)).expect("JSON");
    let tests: Vec<_> = json.as_array().expect("rows").iter().map(|row| row["test"].as_str()).collect();
    assert_eq!(tests, [Some("prefill"), Some("decode"), Some("decode")]);
}

#[test]
fn errors_say_what_to_do() {
    let path = model("llm-errors");
    let model = path.to_str().expect("a name");
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/1.5.1");
    let other = format!("{corpus}/add.pte");
    let lonely = format!("{corpus}/mlp.pte");
    let weights = format!("{SAMPLE}/model.safetensors");
    let long = "a".repeat(100);
    for (arguments, code, expected) in [
        (&["run", model, ""][..], 6, "the prompt is empty"),
        (&["run", model, "a", "--top-p", "3"], 2, "--top-p"),
        (&["run", model, "a", "--dry-multiplier", "1", "--dry-base", "0"], 2, "--dry-base"),
        (&["run", model, "a", "--mirostat", "1"], 2, "--mirostat"),
        (&["run", model, "a", "--executorch-sampler"], 2, "`seed`"),
        (&["run", model, "a", "--executorch-sampler", "--top-k", "3"], 2, "cannot be used with"),
        (&["run", model, "a", "--speculate", "lookup", "--draft-model", model], 2, "cannot be used with"),
        (&["run", model, "a", "--draft-model", &other], 1, "no language model"),
        (&["run", model, "a", "--tokenizer", "/missing"], 3, "cannot read `/missing`"),
        (&["run", model, "a", "--tokenizer", &weights], 1, "of an unknown kind"),
        (&["run", model, "a", "--tokenizer", &other], 2, "carries no tokenizer"),
        (&["run", &lonely, "a"], 2, "mlp.pte` carries no tokenizer, and none is beside it"),
        (&["tokenize", &lonely, "a"], 2, "mlp.pte` carries no tokenizer"),
        (&["run", &other, "a", "--tokenizer", SAMPLE], 1, "no language model"),
        (&["run", model, &long], 6, "the context is full"),
        (&["chat", model, "--tokenizer", &format!("{corpus}/../../llm/tokenizers/unigram")], 2, "no chat template"),
        (&["bench", model, "--prompt", "100", "--at", "80"], 2, "nothing fits"),
        (&["bench", model, "--prompt", "0"], 2, "--prompt"),
        (&["tokenize", "/missing", "a"], 3, "cannot read `/missing`"),
    ] {
        let output = llm(arguments, "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
}

#[test]
fn perplexities_are_those_of_transformers() {
    let model = model("llm-perplexity");
    let model = model.to_str().expect("a name");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/llm/perplexity.json");
    let expected: serde_json::Value = serde_json::from_slice(&std::fs::read(file).expect("the sample")).expect("JSON");
    let row = &expected["rows"][2];
    let window = row["window"].to_string();
    let input = expected["text"].as_str().expect("a text");
    let output = llm(&["perplexity", model, "-", "--window", &window, "--json"], input);
    let json: serde_json::Value = serde_json::from_str(&text(&output)).expect("JSON");
    let number = |json: &serde_json::Value| json.as_f64().expect("a number");
    let (sum, tokens) = (number(&row["log_likelihood"]), number(&row["tokens"]));
    assert_eq!(number(&json["tokens"]), tokens);
    assert!((number(&json["perplexity"]) / (-sum / tokens).exp() - 1.0).abs() < 1e-5, "{json}");
    assert!(text(&llm(&["perplexity", model, "-"], input)).contains("windows of 80"));
    let output = llm(&["perplexity", model, "-"], "");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("token"));
    let output = llm(&["perplexity", model, "missing.txt"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing.txt"));
}

/// Each text has an embedding of norm 1; the pooling and the number of elements are chosen.
#[test]
fn texts_are_embedded() {
    let cache = command::folder("llm-embed");
    let cache = cache.to_str().expect("a name");
    let rows = |arguments: &[&str], input: &str| -> Vec<Vec<f64>> {
        let output = llm(&[&["embed", SAMPLE, "--cache", cache], arguments].concat(), input);
        text(&output).lines().map(|line| serde_json::from_str(line).expect("numbers")).collect()
    };
    let both = rows(&["one text", "another"], "");
    assert_eq!(rows(&["-"], "one text\nanother\n"), both);
    assert_eq!(rows(&["-p", "one text", "-p", "another"], ""), both);
    assert_ne!(rows(&["one text", "--pooling", "mean"], ""), both[..1]);
    for row in both.iter().chain(&rows(&["one text", "--dimensions", "4"], "")) {
        let norm: f64 = row.iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-5, "{norm}");
    }
    assert_eq!(rows(&["one text", "--dimensions", "4"], "")[0].len(), 4);
    let program = model("llm-embed-logits");
    let output = llm(&["embed", program.to_str().expect("a name"), "one text"], "");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("logits"), "{output:?}");
}
