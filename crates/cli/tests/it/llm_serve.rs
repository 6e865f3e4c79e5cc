//! `rushlight llm serve` over sockets, with a tiny Llama whose results are known from transformers.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command;
use crate::llm::{SAMPLE, model};

/// A server in its own process, which ends with the test.
pub struct Server {
    pub process: Child,
    pub address: SocketAddr,
    /// The first line of its output.
    pub first_line: String,
}

impl Server {
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        Self::of(&model(name), arguments)
    }

    pub fn of(model: &Path, arguments: &[&str]) -> Self {
        let mut process = command::rushlight()
            .args(["llm", "serve", model.to_str().expect("a name"), "--port", "0", "--temperature", "0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command");
        let mut messages = BufReader::new(process.stderr.take().expect("its messages")).lines();
        let mut line = || messages.next().expect("a line").expect("a text");
        let first_line = line();
        let line = if first_line.contains("http://") { first_line.clone() } else { line() };
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(';').next()).expect("an address");
        Self { process, address: address.parse().expect("an address"), first_line }
    }

    /// Sends a request, and returns the connection.
    pub fn send(&self, head: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
        let head = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        // A server that refuses the head reads no more.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        stream
    }

    pub fn request(&self, head: &str, body: &[u8]) -> (u16, String) {
        let mut bytes = Vec::new();
        // If the server resets a connection, its answer has already arrived.
        let _ = self.send(head, body).read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        (status, if head.contains("chunked") { unchunked(body) } else { body.to_owned() })
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.request(&format!("POST {path} HTTP/1.1"), body.to_string().as_bytes());
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// The JSON values of a stream, without the end marker.
    fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.request(&format!("POST {path} HTTP/1.1"), body.to_string().as_bytes());
        assert_eq!(status, 200, "{text}");
        let mut events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        events
            .iter()
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON"))
            .collect()
    }

    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.request("GET /metrics HTTP/1.1", b"");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("rushlight_{name} "))).expect("the metric");
        line.parse().expect("a number")
    }

    pub fn until(&self, what: &str, mut is_true: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !is_true(self) {
            assert!(start.elapsed() < Duration::from_mins(1), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The model with a context that takes seconds to fill.
pub fn long_model(name: &str) -> PathBuf {
    let folder = command::folder(name);
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(Path::new(SAMPLE).join(file), folder.join(file)).expect("a copy");
    }
    let config = std::fs::read(Path::new(SAMPLE).join("config.json")).expect("the configuration");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    config["max_position_embeddings"] = 20_000.into();
    std::fs::write(folder.join("config.json"), config.to_string()).expect("the configuration");
    let model = folder.join("model.pte");
    let mut compile = command::rushlight();
    compile.arg("compile").arg(&folder).args(["--backend", "cpu", "--max-context-len", "20000", "-o"]).arg(&model);
    assert!(compile.output().expect("the command").status.success());
    model
}

/// The body of a response in chunks.
fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text.push_str(rest.get(..size).expect("a chunk"));
        body = rest.get(size + 2..).unwrap_or_default();
    }
    text
}

fn sample() -> (String, String) {
    let text = std::fs::read(Path::new(SAMPLE).join("text.json")).expect("the sample");
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    ["prompt", "greedy"].map(|name| expected[name].as_str().expect("a text").to_owned()).into()
}

fn text_of(choice: &Value) -> String {
    choice["text"].as_str().expect("a text").to_owned()
}

#[test]
fn completions_are_those_of_transformers() {
    let server = Server::start("llm-serve", &["--name", "tiny"]);
    let (prompt, greedy) = sample();
    let (status, models) = server.post("/tokenize", &json!({ "content": prompt }));
    assert_eq!(status, 200);
    let tokens = models["tokens"].clone();
    let ask = |prompt: &Value| json!({ "prompt": prompt, "max_tokens": 40, "ignore_eos": true });
    // Text or tokens, one or several.
    for prompts in [json!(prompt), tokens.clone(), json!([prompt]), json!([tokens, tokens])] {
        let (status, answer) = server.post("/v1/completions", &ask(&prompts));
        assert_eq!(status, 200, "{answer}");
        for choice in answer["choices"].as_array().expect("choices") {
            assert_eq!(text_of(choice), greedy[..40]);
            assert_eq!(choice["finish_reason"], "length");
        }
        assert_eq!(answer["model"], "tiny");
        let count = answer["choices"].as_array().expect("choices").len();
        assert_eq!(answer["usage"]["completion_tokens"], 40 * count);
    }
    // All tokens of the prompt but the last were cached by then.
    let (_, again) = server.post("/v1/completions", &ask(&json!(prompt)));
    let usage = &again["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"].as_u64().expect("tokens") - 1);
    // As a stream, with its number of tokens.
    let mut streamed = ask(&json!(prompt));
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({ "include_usage": true });
    let mut chunks = server.stream("/v1/completions", &streamed);
    assert_eq!(chunks.pop().expect("the usage")["usage"]["completion_tokens"], 40);
    let text: String = chunks.iter().map(|chunk| text_of(&chunk["choices"][0])).collect();
    assert_eq!(text, greedy[..40]);
    assert_eq!(chunks.last().expect("chunks")["choices"][0]["finish_reason"], "length");
    // Several answers: the first equals the single answer; at a temperature they differ.
    let (_, several) = server.post(
        "/v1/completions",
        &json!({ "prompt": prompt, "max_tokens": 20, "n": 3, "temperature": 1.5, "seed": 7, "ignore_eos": true }),
    );
    let texts: Vec<String> = several["choices"].as_array().expect("choices").iter().map(text_of).collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    let (_, one) = server.post(
        "/v1/completions",
        &json!({ "prompt": prompt, "max_tokens": 20, "temperature": 1.5, "seed": 7, "ignore_eos": true }),
    );
    assert_eq!(text_of(&one["choices"][0]), texts[0]);
}

#[test]
fn requests_have_the_options_of_sampling() {
    let server = Server::start("llm-serve-options", &[]);
    let (prompt, greedy) = sample();
    let ask = |option: &str, value: Value| {
        let mut ask = json!({ "prompt": prompt, "max_tokens": 30, "ignore_eos": true });
        ask[option] = value;
        server.post("/v1/completions", &ask)
    };
    for (option, value) in [("dry_multiplier", json!(50)), ("repeat_penalty", json!(4)), ("presence_penalty", json!(9))]
    {
        let (status, answer) = ask(option, value);
        assert_eq!(status, 200, "{answer}");
        assert_ne!(text_of(&answer["choices"][0]), greedy[..30], "{option}");
    }
    // Null is the default of the server, and unknown fields are those of other servers.
    for (option, value) in [("temperature", Value::Null), ("mirostat", json!(2)), ("best_model", json!({}))] {
        let (status, answer) = ask(option, value);
        assert_eq!((status, text_of(&answer["choices"][0]).as_str()), (200, &greedy[..30]), "{option}");
    }
    for (option, value, expected) in [
        ("min_p", json!(2), "from 0 to 1"),
        ("mirostat", json!(1), "0 or 2"),
        ("top_k", json!("many"), "0 or more"),
        ("dry_base", json!(0.5), "1 or more"),
    ] {
        let (status, answer) = ask(option, value);
        let error = &answer["error"];
        assert_eq!((status, error["param"].as_str()), (400, Some(option)), "{answer}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(expected)), "{answer}");
    }
}

#[test]
fn log_probabilities_are_those_of_the_prompt_and_the_answer() {
    let server = Server::start("llm-serve-scores", &[]);
    let (prompt, greedy) = sample();
    let ask = json!({ "prompt": prompt, "max_tokens": 4, "echo": true, "logprobs": 2, "ignore_eos": true });
    let (status, answer) = server.post("/v1/completions", &ask);
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    assert_eq!(text_of(choice), format!("{prompt}{}", &greedy[..4]));
    let scores = &choice["logprobs"];
    let list = |name: &str| scores[name].as_array().expect("a list").clone();
    let (tokens, of_tokens, offsets) = (list("tokens"), list("token_logprobs"), list("text_offset"));
    assert!(tokens.len() == of_tokens.len() && tokens.len() == offsets.len() && tokens.len() > 4);
    assert!(
        of_tokens[0].is_null() && of_tokens[1..].iter().all(|score| score.as_f64().is_some_and(|score| score <= 0.0))
    );
    // The chosen token is the most likely one.
    for (token, likely) in tokens.iter().zip(list("top_logprobs")).rev().take(4) {
        let likely = likely.as_object().expect("alternatives").clone();
        let most = likely.iter().max_by(|a, b| a.1.as_f64().partial_cmp(&b.1.as_f64()).expect("numbers"));
        assert_eq!(most.map(|(token, _)| token.as_str()), token.as_str());
    }
    // A stream has the same scores.
    let mut streamed = ask.clone();
    streamed["stream"] = true.into();
    let chunks = server.stream("/v1/completions", &streamed);
    let of_chunk =
        |chunk: &Value| chunk["choices"][0]["logprobs"]["token_logprobs"].as_array().cloned().unwrap_or_default();
    assert_eq!(chunks.iter().flat_map(of_chunk).collect::<Vec<_>>(), of_tokens);
    // Without an answer, as lm-eval asks.
    let (_, none) =
        server.post("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 1 }));
    assert_eq!(none["choices"][0]["text"], prompt);
    // In a conversation.
    let messages = json!([{ "role": "user", "content": "abc" }]);
    let ask = json!({ "messages": messages, "max_tokens": 3, "logprobs": true, "top_logprobs": 2, "ignore_eos": true });
    let (_, answer) = server.post("/v1/chat/completions", &ask);
    let content = answer["choices"][0]["logprobs"]["content"].as_array().expect("scores").clone();
    assert!(content.len() == 3 && content.iter().all(|token| token["top_logprobs"][0]["logprob"] == token["logprob"]));
}

#[test]
fn conversations_are_answered_as_the_template_has_them() {
    let server = Server::start("llm-serve-chat", &[]);
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "Hello" }] },
    ]);
    let ask = json!({ "messages": messages, "max_tokens": 12, "ignore_eos": true });
    let (status, answer) = server.post("/v1/chat/completions", &ask);
    assert_eq!(status, 200, "{answer}");
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    let text = message["content"].as_str().expect("a text");
    assert!(!text.is_empty());
    let mut streamed = ask.clone();
    streamed["stream"] = true.into();
    let chunks = server.stream("/v1/chat/completions", &streamed);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let pieces = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(pieces.collect::<String>(), text);
    // A stop string is no part of the answer.
    let stop = text.chars().nth(3).expect("a letter").to_string();
    let mut stopped = ask.clone();
    stopped["stop"] = json!([stop]);
    let (_, answer) = server.post("/v1/chat/completions", &stopped);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert!(!answer["choices"][0]["message"]["content"].as_str().expect("a text").contains(&stop));
}

#[test]
fn wrong_requests_are_refused_and_nothing_is_lost() {
    let server = Server::start("llm-serve-wrong", &["--max-body", "100000"]);
    let wrong = [
        ("/v1/completions", json!({})),
        ("/v1/completions", json!([])),
        ("/v1/completions", json!({ "prompt": 5 })),
        ("/v1/completions", json!({ "prompt": [] })),
        ("/v1/completions", json!({ "prompt": [-1] })),
        ("/v1/completions", json!({ "prompt": [4_000_000] })),
        ("/v1/completions", json!({ "prompt": [[1], []] })),
        ("/v1/completions", json!({ "prompt": "" , "n": 0 })),
        ("/v1/completions", json!({ "prompt": "a", "n": 100 })),
        ("/v1/completions", json!({ "prompt": "a", "max_tokens": -2 })),
        ("/v1/completions", json!({ "prompt": "a", "temperature": -1 })),
        ("/v1/completions", json!({ "prompt": "a", "temperature": "hot" })),
        ("/v1/completions", json!({ "prompt": "a", "top_p": 0 })),
        ("/v1/completions", json!({ "prompt": "a", "logprobs": 21 })),
        ("/v1/completions", json!({ "prompt": "a", "logit_bias": { "x": 1 } })),
        ("/v1/completions", json!({ "prompt": "a", "logit_bias": { "1": 1e9 } })),
        ("/v1/completions", json!({ "prompt": "a", "stop": vec!["x"; 100] })),
        ("/v1/completions", json!({ "prompt": "a", "suffix": "b" })),
        ("/v1/completions", json!({ "prompt": ["a", "b"], "stream": true })),
        ("/v1/completions", json!({ "prompt": "long ".repeat(200) })),
        ("/v1/completions", json!({ "prompt": "long ".repeat(100_000) })),
        ("/v1/chat/completions", json!({ "messages": [] })),
        ("/v1/chat/completions", json!({ "messages": ["hello"] })),
        ("/v1/chat/completions", json!({ "messages": [{ "content": "hello" }] })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": 5 }] })),
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] }] }),
        ),
        ("/v1/completions", json!({ "prompt": "a", "response_format": { "type": "xml" } })),
        ("/v1/completions", json!({ "prompt": "a", "response_format": { "type": "json_schema" } })),
        ("/v1/completions", json!({ "prompt": "a", "guided_json": { "type": "nonsense" } })),
        ("/v1/completions", json!({ "prompt": "a", "guided_regex": "(" })),
        ("/v1/completions", json!({ "prompt": "a", "guided_regex": "a", "guided_grammar": "start: \"a\"" })),
        ("/v1/completions", json!({ "prompt": "a", "logit_bias": { "1": 1, "01": 1 } })),
        ("/v1/completions", json!({ "prompt": "a", "model": "x".repeat(1025) })),
        ("/v1/completions", json!({ "prompt": "a", "guided_regex": "a".repeat(70_000) })),
        ("/v1/completions", json!({ "prompt": "a", "n": 1_000_000_000 })),
        (
            "/v1/chat/completions",
            json!({
                "messages": [{ "role": "user", "content": "a" }],
                "tools": vec![json!({ "type": "function", "function": { "name": "f" } }); 129],
            }),
        ),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "a" }], "tools": [{}] })),
        (
            "/v1/chat/completions",
            json!({
                "messages": [{ "role": "user", "content": "a" }],
                "tools": [{ "type": "function", "function": { "name": "f" } }],
                "tool_choice": { "type": "function", "function": { "name": "g" } },
            }),
        ),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "a" }], "top_logprobs": 3 })),
        ("/tokenize", json!({ "content": 3 })),
        ("/detokenize", json!({ "tokens": "a" })),
        ("/v1/nothing", json!({})),
    ];
    let is_refusal = |status: u16, text: &str| {
        let json: Value = serde_json::from_str(text).unwrap_or_default();
        (400..500).contains(&status) && json["error"]["message"].as_str().is_some_and(|message| !message.is_empty())
    };
    for (path, body) in &wrong {
        let (status, text) = server.request(&format!("POST {path} HTTP/1.1"), body.to_string().as_bytes());
        assert!(is_refusal(status, &text), "{path} {body}: {status} {text}");
    }
    let (status, text) = server.request("GET /v1/completions HTTP/1.1", b"");
    assert!(status == 405 && is_refusal(status, &text), "{text}");
    let (status, text) = server.request("GET /v1/models/other HTTP/1.1", b"");
    assert!(status == 404 && is_refusal(status, &text), "{text}");
    let (status, text) = server.request("POST /v1/embeddings HTTP/1.1", b"{\"input\": \"a\"}");
    assert!(status == 400 && text.contains("--hidden-states"), "{text}");
    // A request from a page of another site.
    let body = b"{\"prompt\": \"a\"}";
    let (status, text) = server.request("POST /v1/completions HTTP/1.1\r\norigin: http://example.com", body);
    assert!(status == 403 && is_refusal(status, &text), "{text}");
    assert_eq!(server.request("POST /v1/completions HTTP/1.1\r\norigin: http://localhost", body).0, 200);
    let (status, text) = server.request("POST /v1/completions HTTP/1.1\r\nhost: example.com", body);
    assert!(status == 400 && is_refusal(status, &text), "{text}");
    // Requests with ambiguous lengths are refused, or are the last of their connection.
    let next = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for lengths in [
        "content-length: 6\r\ntransfer-encoding: chunked",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: +5",
        "content-length: 18446744073709551616",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding : chunked",
    ] {
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n\r\n");
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.write_all(format!("{head}0\r\n\r\n{next}{next}").as_bytes()).expect("it is taken");
        let answers = until_closed(&mut stream).expect("it is closed");
        assert_eq!(answers.matches("HTTP/1.1 4").count(), 1, "{lengths}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1").count(), 1, "{lengths}: {answers}");
    }
    // Requests with cut or changed bytes are refused, or still valid.
    let valid =
        json!({ "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 1, "stop": ["x"], "seed": 4 });
    let valid = valid.to_string().into_bytes();
    let mutations: usize =
        std::env::var("RUSHLIGHT_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(1000);
    for index in 0..mutations {
        let mut bytes = valid.clone();
        let at = index.wrapping_mul(7919) % bytes.len();
        if index % 3 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] = (index.wrapping_mul(104_729) >> 3) as u8;
        }
        let (status, text) = server.request("POST /v1/chat/completions HTTP/1.1", &bytes);
        assert!(status == 200 || is_refusal(status, &text), "{}: {status} {text}", String::from_utf8_lossy(&bytes));
    }
    // Bytes that are no HTTP.
    for bytes in [b"\0\0\0\0".to_vec(), b"GET\r\n\r\n".to_vec(), vec![b'a'; 100_000]] {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        let _ = stream.write_all(&bytes);
    }
    assert_eq!(server.request("GET /health HTTP/1.1", b"").0, 200);
    server.until("all are over", |server| {
        server.metric("answers_active") == 0.0 && server.metric("requests_queued") == 0.0
    });
    let (status, _) = server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 2, "n": 4 }));
    assert_eq!(status, 200);
}

#[test]
fn answers_have_the_form_that_is_asked_for() {
    let server = Server::start("llm-serve-form", &[]);
    let ask = json!({ "prompt": "abc", "max_tokens": 60, "temperature": 1.0, "guided_regex": "[a-c]{3}-[X-Z]{2}!" });
    let (status, answer) = server.post("/v1/completions", &ask);
    assert_eq!(status, 200, "{answer}");
    let text = text_of(&answer["choices"][0]);
    assert!(text.len() == 7 && text.as_bytes()[3] == b'-' && text.ends_with('!'), "{text}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let mut several = ask.clone();
    (several["n"], several["stream"]) = (3.into(), true.into());
    let mut texts = [String::new(), String::new(), String::new()];
    for chunk in server.stream("/v1/completions", &several) {
        let choice = &chunk["choices"][0];
        texts[choice["index"].as_u64().expect("an index") as usize].push_str(&text_of(choice));
    }
    assert!(texts.iter().all(|text| text.len() == 7 && text.ends_with('!')), "{texts:?}");
    // The model's letters have no quotes, so that no token is allowed.
    let (status, answer) =
        server.post("/v1/completions", &json!({ "prompt": "abc", "guided_json": { "type": "string" } }));
    assert!((400..500).contains(&status), "{answer}");
}

#[test]
fn the_end_of_an_answer_has_a_probability() {
    let server = Server::start("llm-serve-end", &[]);
    let ask = json!({ "prompt": "abc", "max_tokens": 1, "echo": true, "logprobs": 1, "logit_bias": { "2": 100 } });
    let (status, answer) = server.post("/v1/completions", &ask);
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    let tokens = choice["logprobs"]["tokens"].as_array().expect("tokens");
    assert_eq!((tokens.last(), &choice["finish_reason"]), (Some(&json!("</s>")), &json!("stop")));
    assert_eq!(answer["usage"]["prompt_tokens"].as_u64(), Some(tokens.len() as u64 - 1));
    assert_eq!(answer["usage"]["completion_tokens"], 0);
}

#[test]
fn clients_that_leave_free_their_session() {
    let server = Server::of(&long_model("llm-serve-leave"), &["--sessions", "1", "--queue", "2"]);
    let endless = json!({ "prompt": "a", "stream": true, "ignore_eos": true, "max_tokens": 19_000 }).to_string();
    for _ in 0..30 {
        server.until("there is room", |server| server.metric("requests_queued") == 0.0);
        let mut stream = server.send("POST /v1/completions HTTP/1.1", endless.as_bytes());
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200");
        drop(stream);
        // A client that leaves before its answer begins.
        drop(server.send("POST /v1/completions HTTP/1.1", endless.as_bytes()));
    }
    server.until("all are over", |server| {
        server.metric("answers_active") == 0.0 && server.metric("requests_queued") == 0.0
    });
    assert!(server.metric("requests_cancelled_total") >= 30.0);
    let (status, _) = server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 2 }));
    assert_eq!(status, 200);
    // More requests than fit in the sessions and the queue.
    let mut busy = Vec::new();
    server.until("the queue is full", |server| {
        let mut stream = server.send("POST /v1/completions HTTP/1.1", endless.as_bytes());
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("an answer");
        // The requests before it stay active, because nobody reads their answers.
        busy.push(stream);
        &head == b"HTTP/1.1 429"
    });
}

#[test]
fn limits_are_kept() {
    let server = Server::start("llm-serve-limits", &["--api-key", "first", "--api-key", "second", "--timeout", "0"]);
    let body = json!({ "prompt": "a", "max_tokens": 2 }).to_string();
    let ask = |header: &str| server.request(&format!("POST /v1/completions HTTP/1.1{header}"), body.as_bytes()).0;
    for header in ["", "\r\nauthorization: Bearer third", "\r\nauthorization: first", "\r\nauthorization: Bearer firs"]
    {
        assert_eq!(ask(header), 401, "{header}");
    }
    // The time limit is 0, therefore each request exceeds it at once.
    for header in ["\r\nauthorization: Bearer first", "\r\nauthorization: Bearer second"] {
        assert_eq!(ask(header), 504, "{header}");
    }
    assert_eq!(server.request("GET /health HTTP/1.1", b"").0, 200);
    assert_eq!(server.request("GET /v1/models HTTP/1.1", b"").0, 401);
    let (status, page) = server.request("GET / HTTP/1.1", b"");
    assert!(status == 200 && page.contains("<!doctype html>"));
}

/// The bytes up to the end of the connection as text; `None` if the server keeps it for a minute.
pub fn until_closed(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        _ => Some(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

#[test]
fn slow_clients_lose_their_connection() {
    let server = Server::of(&long_model("llm-serve-slow"), &["--client-timeout", "2"]);
    let connect = |text: &str| {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.write_all(text.as_bytes()).expect("it is taken");
        stream
    };
    let body = json!({ "prompt": "a", "max_tokens": 2 }).to_string();
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    let start = Instant::now();
    let mut nothing = connect("");
    let mut half_a_head = connect(&head);
    let mut half_a_body = connect(&format!("{head}\r\n{}", &body[..5]));
    let mut idle = connect("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    // A client that sends one letter at a time.
    let mut drip = connect("");
    while start.elapsed() < Duration::from_secs(10) && drip.write_all(b"G").is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert!(start.elapsed() < Duration::from_secs(10), "a head has all the time that it wants");
    assert_eq!(until_closed(&mut nothing).as_deref(), Some(""));
    assert_eq!(until_closed(&mut half_a_head).as_deref(), Some(""));
    let late = until_closed(&mut half_a_body).expect("it is closed");
    assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
    let idle = until_closed(&mut idle).expect("it is closed");
    assert!(idle.starts_with("HTTP/1.1 200 "), "{idle}");
    // A client that reads nothing of a long answer, which does not fit in the buffers of the connection.
    let ask = json!({
        "model": "x".repeat(1000), "prompt": "a", "max_tokens": 19_000, "ignore_eos": true, "stream": true, "logprobs": 20,
    });
    let unread = server.send("POST /v1/completions HTTP/1.1", ask.to_string().as_bytes());
    server.until("it is answered", |server| server.metric("answers_active") == 1.0);
    server.until("its session is free", |server| server.metric("answers_active") == 0.0);
    assert_eq!(server.metric("requests_cancelled_total"), 1.0);
    drop(unread);
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 2 })).0, 200);
}

#[test]
fn connections_beyond_the_limit_wait() {
    let server = Server::start("llm-serve-connections", &["--max-connections", "8"]);
    // Within the first second, no connection is closed for another of the same client.
    let ask = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let open = || {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
        stream.write_all(ask).expect("it is taken");
        stream
    };
    let read = |stream: &mut TcpStream| {
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(br#"{"status":"ok"}"#) {
            stream.read_exact(&mut byte)?;
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
        std::io::Result::Ok(())
    };
    let mut streams: Vec<TcpStream> = (0..8).map(|_| open()).collect();
    streams.iter_mut().for_each(|stream| read(stream).expect("an answer"));
    let mut ninth = open();
    ninth.set_read_timeout(Some(Duration::from_millis(300))).expect("a time limit");
    assert!(read(&mut ninth).is_err(), "it is served");
    // The active connections continue to be served.
    streams.iter_mut().for_each(|stream| stream.write_all(ask).expect("it is taken"));
    streams.iter_mut().for_each(|stream| read(stream).expect("an answer"));
    drop(streams.pop());
    ninth.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
    read(&mut ninth).expect("an answer");
}

#[test]
#[cfg(unix)]
fn a_server_stops_when_it_is_told_to() {
    let mut server = Server::start("llm-serve-stop", &[]);
    let (status, _) = server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 2 }));
    assert_eq!(status, 200);
    let id = server.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = server.process.try_wait().expect("a status") {
            break status;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
    // A second server cannot listen on the same port.
    let second = Server::start("llm-serve-second", &[]);
    let port = second.address.port().to_string();
    let model = model("llm-serve-third");
    let output = command::rushlight()
        .args(["llm", "serve", model.to_str().expect("a name"), "--port", &port])
        .output()
        .expect("the command");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot listen on 127.0.0.1"));
}
