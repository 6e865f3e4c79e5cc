//! Conversations and sessions of `rushlight llm` in files, and texts from files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command;
use crate::llm::{SAMPLE, llm, model, text};

/// A model, and a file beside it that is not there yet.
fn model_and(name: &str, file: &str) -> (String, PathBuf) {
    let model = model(name);
    let path = model.with_file_name(file);
    drop(std::fs::remove_file(&path));
    (model.to_str().expect("a name").to_owned(), path)
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the file")).expect("JSON")
}

/// A conversation in two parts has the answers of one in one part.
#[test]
fn a_conversation_goes_on_from_a_file() {
    let (model, file) = model_and("llm-saved-chat", "talk.json");
    let file = file.to_str().expect("a name");
    let chat = ["chat", &model, "-n", "4", "--ignore-eos", "--temperature", "0"];
    let with = |options: &[&str], input: &str| text(&llm(&[&chat[..], options].concat(), input));
    let whole = with(&["--system", "Be"], "Hi\nAnd\n");
    let first = with(&["--system", "Be", "--save", file], "Hi\n");
    assert_eq!(json_of(file.as_ref()).as_array().expect("messages").len(), 3);
    let second = with(&["--load", file, "--save", file], "And\n");
    assert_eq!(first + &second, whole);
    let saved = json_of(file.as_ref());
    let roles: Vec<_> = saved.as_array().expect("messages").iter().map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"].map(Some));
    // The same by commands, and by options.
    let other = file.replace("talk", "other");
    std::fs::write(&other, json!([{ "role": "user", "content": "Hi" }, saved[2]]).to_string()).expect("a file");
    let answer = whole.lines().nth(1).expect("an answer");
    let loaded = with(&["-p", "No"], &format!("/load {file}\n/load {other}\nAnd\n/save {other}\n"));
    assert_eq!(loaded.lines().count(), 2);
    assert_eq!(json_of(other.as_ref())[2], saved[3], "the system prompt is that of the file: none");
    assert_eq!(with(&["--load", &other, "--system", "Be"], "/regenerate\n"), format!("{answer}\n"));
    std::fs::write(&other, "And\n").expect("a file");
    std::fs::write(file, json!([saved[0], saved[1], saved[2]]).to_string()).expect("a file");
    assert_eq!(with(&["--load", file, "-f", &other], "").trim_end(), answer);
    for (content, expected) in [("{}", "no saved conversation"), ("[{\"role\": \"user\"}]", "as `--save` writes it")] {
        std::fs::write(&other, content).expect("a file");
        let output = llm(&[&chat[..], &["--load", &other]].concat(), "Hi\n");
        assert_eq!(output.status.code(), Some(6));
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected));
        let output = llm(&chat, &format!("/load {other}\n/load\nHi\n"));
        assert!(text(&output).lines().count() == 1 && String::from_utf8_lossy(&output.stderr).contains(expected));
    }
}

/// The text of several runs is that of one: each reads its own prompt alone.
#[test]
fn a_text_goes_on_from_a_session() {
    let (model, file) = model_and("llm-saved-run", "tale.session");
    let file = file.to_str().expect("a name");
    let run = |options: &[&str]| {
        let output = llm(&[&["run", &model, "--temperature", "0", "--ignore-eos", "--json"], options].concat(), "");
        serde_json::from_str::<Value>(&text(&output)).expect("JSON")
    };
    let whole = run(&["abc", "-n", "12"]);
    let first = run(&["abc", "-n", "5", "--session", file]);
    let then = run(&["", "-n", "7", "--session", file]);
    let of = |answer: &Value| answer["text"].as_str().expect("a text").to_owned();
    assert_eq!(of(&first) + &of(&then), of(&whole));
    assert_eq!(then["usage"]["prompt_tokens"].as_u64(), Some(0));
    let more = run(&["de", "-n", "3", "--session", file]);
    let read = more["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert!(read <= 3, "no first token, and nothing again: {read}");
    // A full session says so.
    let output = llm(&["run", &model, &"a".repeat(90), "--session", file], "");
    assert_eq!(output.status.code(), Some(6));
    // Another program's session is left alone, and so is another file.
    let (other, _) = model_and("llm-saved-other", "none");
    let compiled = ["compile", SAMPLE, "--backend", "portable", "--max-context-len", "40", "-o", &other];
    command::succeeds(&compiled);
    let before = std::fs::read(file).expect("the session");
    let output = llm(&["run", &other, "a", "--session", file], "");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(6) && error.contains("saved with another program"), "{error}");
    assert_eq!(std::fs::read(file).expect("the session"), before);
    for option in ["--session", "--prompt-cache"] {
        let output = llm(&["run", &model, "a", option, &model], "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(6) && error.contains("is no saved session"), "{error}");
    }
}

/// Answers are those without a cache, and the common beginning is not read again.
#[test]
fn prompts_are_read_once() {
    let (model, file) = model_and("llm-saved-cache", "prompt.cache");
    let file = file.to_str().expect("a name");
    let run = |prompt: &str, options: &[&str]| {
        let always = ["run", &model, prompt, "--temperature", "0", "-n", "9", "--ignore-eos", "--json"];
        let answer: Value = serde_json::from_str(&text(&llm(&[&always[..], options].concat(), ""))).expect("JSON");
        (answer["text"].as_str().map(str::to_owned), answer["usage"]["prompt_tokens"].as_u64().expect("a count"))
    };
    let beginning = "a long text that is the same each time";
    for (prompt, is_new) in [
        (beginning.to_owned(), true),
        (beginning.to_owned(), false),
        (beginning.to_owned() + " b", false),
        ("other".to_owned(), true),
    ] {
        let (expected, all) = run(&prompt, &[]);
        let (found, read) = run(&prompt, &["--prompt-cache", file]);
        assert_eq!(found, expected, "{prompt}");
        assert!(if is_new { read + 4 >= all } else { read <= 4 }, "{prompt}: {read} of {all}");
    }
    // A conversation keeps all of itself.
    drop(std::fs::remove_file(file));
    let chat = ["chat", &model, "-n", "4", "--ignore-eos", "--temperature", "0"];
    let talk = file.replace("prompt.cache", "talk.json");
    let whole = text(&llm(&chat, "Hi\nAnd\n"));
    let first = text(&llm(&[&chat[..], &["--save", &talk, "--prompt-cache", file]].concat(), "Hi\n"));
    let second = llm(&[&chat[..], &["--load", &talk, "--prompt-cache", file]].concat(), "And\n");
    assert_eq!(first + &text(&second), whole);
}

#[test]
fn texts_come_from_files_and_options() {
    let (model, file) = model_and("llm-saved-files", "text.txt");
    let file = file.to_str().expect("a name");
    let greedy = ["--temperature", "0", "-n", "5", "--ignore-eos"];
    let run = |options: &[&str]| text(&llm(&[&["run", &model], options, &greedy].concat(), ""));
    let expected = run(&["abc"]);
    for end in ["", "\n", "\r\n"] {
        std::fs::write(file, format!("abc{end}")).expect("a file");
        assert_eq!(run(&["-f", file]), expected);
    }
    assert_eq!(run(&["-p", "abc"]), expected);
    let whole = |options: &[&str]| text(&llm(&[&["run", &model, "abc", "--temp", "0"], options].concat(), ""));
    assert_eq!(whole(&["-n", "-1"]), whole(&[]));
    let tokens = |options: &[&str]| text(&llm(&[&["tokenize", SAMPLE, "--json"], options].concat(), ""));
    assert_eq!((tokens(&["-f", file]), tokens(&["-p", "abc"])), (tokens(&["abc"]), tokens(&["abc"])));
    std::fs::write(file, "one text\nanother\n").expect("a file");
    let cache = command::folder("llm-saved-embed");
    let cache = cache.to_str().expect("a name");
    let embed = |options: &[&str]| text(&llm(&[&["embed", SAMPLE, "--cache", cache], options].concat(), ""));
    assert_eq!(embed(&["-f", file]), embed(&["one text", "another"]));
    let chat = |options: &[&str], input: &str| text(&llm(&[&["chat", &model], &greedy[..], options].concat(), input));
    assert_eq!(chat(&["-p", "Hi"], "And\n"), chat(&[], "Hi\nAnd\n"));
    let times = text(&llm(&["bench", &model, "-p", "4", "--at", "0", "-n", "2", "--json"], ""));
    assert_eq!(serde_json::from_str::<Value>(&times).expect("JSON")[0]["at"], 4);
    for (arguments, code) in [
        (&["run", model.as_str(), "a", "-f", file][..], 2),
        (&["run", &model, "-p", "a", "-f", file], 2),
        (&["chat", &model, "-p", "a", "-f", file], 2),
        (&["tokenize", SAMPLE], 2),
        (&["run", &model, "a", "-n", "-2"], 2),
        (&["run", &model, "-f", "/missing"], 3),
        (&["embed", SAMPLE, "--cache", cache, "-f", "/missing"], 3),
    ] {
        assert_eq!(llm(arguments, "").status.code(), Some(code), "{arguments:?}");
    }
}

/// The threads of a call are those of the variable, unless an option says otherwise.
#[test]
fn threads_come_from_the_environment() {
    let (model, _) = model_and("llm-saved-threads", "none");
    let run = |threads: &str, options: &[&str]| {
        let arguments = [&["llm", "run", &model, "abc", "-n", "1"], options].concat();
        command::rushlight().args(arguments).env("RUSHLIGHT_THREADS", threads).output().expect("the command")
    };
    assert!(run("1", &[]).status.success());
    let output = run("none", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--threads"));
    assert!(run("none", &["--threads", "1"]).status.success());
}

#[test]
fn a_line_that_is_no_text_is_not_answered() {
    let (model, file) = model_and("llm-saved-bytes", "lines");
    std::fs::write(&file, b"Hi\n\xff\xfe\nAnd\r\nlast").expect("a file");
    let chat = ["llm", "chat", &model, "-n", "3", "--ignore-eos", "--temperature", "0"];
    let input = std::fs::File::open(&file).expect("the file");
    let output = command::rushlight().args(chat).stdin(input).output().expect("the command");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{error}");
    assert!(error.contains("it is not UTF-8") && error.contains("1 message was not answered"), "{error}");
    let answers = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(answers, text(&llm(&chat[1..], "Hi\nAnd\nlast\n")));
}

/// Errors that are known before a model is compiled come before.
#[test]
fn a_model_is_checked_before_it_is_compiled() {
    let folder = command::folder("llm-saved-checks");
    let cache = command::at(&folder, "cache");
    let lonely = folder.join("lonely");
    std::fs::create_dir(&lonely).expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(SAMPLE).join(file), lonely.join(file)).expect("a copy");
    }
    let lonely = lonely.to_str().expect("a name");
    let fails = |arguments: &[&str], code: i32, expected: &[&str]| {
        let all = [&["llm"], arguments, &["--cache", &cache]].concat();
        command::fails(&all, code, expected);
        assert!(!Path::new(&cache).exists(), "{arguments:?}: nothing is compiled");
    };
    fails(&["run", lonely, "a"], 2, &["has no tokenizer", "--tokenizer"]);
    fails(&["chat", lonely], 2, &["has no tokenizer"]);
    fails(&["run", lonely, "a", "--tokenizer", "/missing"], 3, &["/missing"]);
    fails(&["run", SAMPLE, "a", "--quantize", "int8"], 2, &["calibration inputs", "use `int8-dynamic`"]);
    fails(&["serve", SAMPLE, "--quantize", "int8"], 2, &["use `int8-dynamic`"]);
    for command in [&["run", SAMPLE, "a"][..], &["chat", SAMPLE], &["bench", SAMPLE], &["perplexity", SAMPLE, "-"]] {
        fails(&[command, &["--hidden-states"]].concat(), 2, &["generates nothing", "rushlight llm embed"]);
    }
    let help = command::succeeds(&["llm", "run", "--help"]);
    let schemes =
        help.split("--quantize").nth(1).and_then(|rest| rest.split("--embeddings").next()).expect("the option");
    assert!(schemes.contains("int8-dynamic") && !schemes.contains("int8,"), "{schemes}");
    // The advice works.
    let always = ["-n", "2", "--cache", &cache];
    text(&llm(&[&["run", lonely, "a", "--tokenizer", SAMPLE][..], &always].concat(), ""));
    text(&llm(&[&["run", SAMPLE, "a", "--quantize", "int8-dynamic"][..], &always].concat(), ""));
}

/// As many tokens do not make a tokenizer of the same family.
#[test]
fn a_draft_model_has_the_same_tokens() {
    let (model, file) = model_and("llm-saved-draft", "tokenizer.json");
    let tokenizer = std::fs::read(Path::new(SAMPLE).join("tokenizer.json")).expect("the tokenizer");
    let tokenizer: Value = serde_json::from_slice(&tokenizer).expect("JSON");
    let draft = file.with_file_name("draft.pte");
    let (file, draft) = (file.to_str().expect("a name"), draft.to_str().expect("a name"));
    // The first letters after the special tokens change places.
    for (count, expected) in [(2, None), (20, Some("20 of 64 tokens differ"))] {
        let mut other = tokenizer.clone();
        let vocabulary = other["model"]["vocab"].as_object_mut().expect("tokens");
        for id in vocabulary.values_mut() {
            let token = id.as_u64().expect("a number");
            let changed = if (4..4 + count).contains(&token) { 4 + (token - 4 + 1) % count } else { token };
            *id = changed.into();
        }
        std::fs::write(file, other.to_string()).expect("a file");
        command::succeeds(&["compile", SAMPLE, "--tokenizer", file, "--backend", "cpu", "-o", draft]);
        std::fs::remove_file(file).expect("the file");
        let run = ["llm", "run", &model, "abc", "-n", "3", "--draft-model", draft];
        match expected {
            None => drop(command::succeeds(&run)),
            Some(expected) => drop(command::fails(&run, 2, &["has another tokenizer", expected, "of the same family"])),
        }
    }
}

/// A pipe would be waited for, and a device may have no end.
#[test]
#[cfg(unix)]
fn pipes_and_devices_are_no_models() {
    let folder = command::folder("llm-saved-pipes");
    let (pipe, device) = (command::at(&folder, "pipe.gguf"), command::at(&folder, "device.gguf"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::os::unix::fs::symlink("/dev/zero", &device).expect("a link");
    for path in [&pipe, &device] {
        for arguments in
            [&["run", path, "a"][..], &["chat", path], &["bench", path], &["embed", path, "a"], &["serve", path]]
        {
            let all = [&["llm"], arguments].concat();
            command::fails(&all, 2, &["a pipe, a device or a socket", "save the model to a file"]);
        }
        let output = command::at(&folder, "model.pte");
        command::fails(
            &["compile", path, "-o", &output],
            3,
            &["a pipe, a device or a socket", "save the model to a file"],
        );
    }
}

/// Origins that no browser sends would allow nothing.
#[test]
fn origins_are_those_that_browsers_send() {
    for (origin, meant) in [
        ("https://app.example/", "`https://app.example`"),
        ("https://App.example", "`https://app.example`"),
        ("https://app.example/chat", "`https://app.example`"),
        ("https://app.example:443", "`https://app.example`"),
        ("localhost:3000", "`http://localhost:3000`"),
        ("null", "expected `*`, or an origin"),
    ] {
        command::fails(&["llm", "serve", "model.pte", "--cors-origin", origin], 2, &[meant]);
    }
}
