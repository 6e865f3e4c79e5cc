//! `rushlight llm serve` with clients that misbehave: limits of each request, and secrets between clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command;
use crate::llm::{SAMPLE, model};
use crate::llm_serve::{Server, long_model, until_closed};

/// The answer to a request with a key.
fn with_key(server: &Server, key: &str, path: &str, body: &Value) -> (u16, Value) {
    let head = format!("POST {path} HTTP/1.1\r\nauthorization: Bearer {key}");
    let (status, text) = server.request(&head, body.to_string().as_bytes());
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn cached(answer: &Value) -> u64 {
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

/// Makes a thousand guesses at the prompts of another key's client; half of them are right.
#[test]
fn prompts_are_shared_within_a_key_alone() {
    let server = Server::start("llm-serve-keys", &["--api-key", "a", "--api-key", "b", "--sessions", "4"]);
    let mut state = 0x2026_1129_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let known: Vec<u64> = (0..32).map(|_| 3 + next(60)).collect();
    let ask = |tokens: &[u64], salt: Option<&str>| {
        let mut ask = json!({ "prompt": tokens, "max_tokens": 0 });
        if let Some(salt) = salt {
            ask["cache_salt"] = salt.into();
        }
        ask
    };
    let mut asked: Vec<Vec<u64>> = Vec::new();
    for trial in 0..1000 {
        let secret: Vec<u64> = (0..8).map(|_| 3 + next(60)).collect();
        let guess: Vec<u64> = if trial % 2 == 0 { secret.clone() } else { (0..8).map(|_| 3 + next(60)).collect() };
        let (status, _) = with_key(&server, "a", "/v1/completions", &ask(&[&known[..], &secret].concat(), None));
        assert_eq!(status, 200);
        let guessed = [&known[..], &guess].concat();
        // No more than what the client itself has asked before.
        let alike = |own: &Vec<u64>| own.iter().zip(&guessed).take_while(|(a, b)| a == b).count();
        let own = asked.iter().map(alike).max().unwrap_or(0) as u64;
        let (_, answer) = with_key(&server, "b", "/v1/completions", &ask(&guessed, None));
        assert!(cached(&answer) <= own, "trial {trial}: {answer}");
        asked.push(guessed);
    }
    // The same of one key, and of one salt.
    let prompt = [&[known[0] ^ 1, 7, 8][..], &known[..]].concat();
    for (key, salt, expected) in [
        ("a", None, None),
        ("a", None, Some(34)),
        ("b", None, Some(0)),
        ("b", None, Some(34)),
        ("b", Some("x"), Some(0)),
        ("b", Some("x"), Some(34)),
        ("a", Some("x"), Some(0)),
    ] {
        let (_, answer) = with_key(&server, key, "/v1/completions", &ask(&prompt, salt));
        assert!(expected.is_none_or(|expected| cached(&answer) == expected), "{key} {salt:?}: {answer}");
    }
    let (status, _) = with_key(&server, "a", "/v1/completions", &ask(&prompt, Some(&"x".repeat(1025))));
    assert_eq!(status, 400);
}

#[test]
fn a_length_beyond_the_limit_is_refused_at_once() {
    let server = Server::start("llm-serve-lengths", &["--max-body", "100000"]);
    for length in ["100001", "4611686018427387904", "18446744073709551615"] {
        let start = Instant::now();
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        let head = format!("POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{{");
        stream.write_all(head.as_bytes()).expect("it is taken");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        assert!(status.starts_with(b"HTTP/1.1 4"), "{length}: {}", String::from_utf8_lossy(&status));
        assert!(start.elapsed() < Duration::from_secs(5), "{length}");
    }
    // Chunks say nothing before.
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    let head = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head).expect("it is taken");
    for _ in 0..200 {
        let _ = stream.write_all(&[&b"400\r\n"[..], &[b' '; 1024], b"\r\n"].concat());
    }
    let answer = until_closed(&mut stream).expect("it is closed");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// A value of `/proc`, in bytes.
#[cfg(target_os = "linux")]
fn memory(server: &Server, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).expect("the status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the value");
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Sends each route its most expensive bodies of the largest size; the documentation has the bounds.
#[test]
#[cfg(target_os = "linux")]
fn each_route_takes_bounded_memory_and_time_at_the_largest_body() {
    const BODY: usize = 4 << 20;
    let server = Server::start("llm-serve-costs", &["--sessions", "2"]);
    let filled = |begin: &str, piece: &str, end: &str| {
        let count = (BODY - begin.len() - end.len()) / piece.len();
        begin.to_owned() + &piece.repeat(count) + end
    };
    let message = |content: &str| {
        format!("{{\"messages\": [{{\"role\": \"user\", \"content\": {content}}}], \"max_tokens\": 1}}")
    };
    let [chat_begin, chat_end] = ["{\"messages\": [{\"role\": \"user\", \"content\": \"", "\"}], \"max_tokens\": 1}"];
    let bodies = [
        ("/detokenize", filled("{\"tokens\": [7", ",63", "]}")),
        ("/detokenize", filled("{\"tokens\": [7", ",0", "]}")),
        ("/detokenize", format!("{{\"tokens\": [7{}]}}", ",60".repeat((1 << 19) - 8))),
        ("/tokenize", filled("{\"content\": \"", "a", "\"}")),
        ("/tokenize", filled("{\"content\": \"", "ab cd ", "\"}")),
        ("/tokenize", filled("{\"content\": \"", "\\u0041", "\"}")),
        ("/tokenize", filled("{\"content\": \"", "\u{4f60}", "\"}")),
        ("/tokenize", filled("{\"content\": \"a\", \"x\": [", "[],", "0]}")),
        ("/v1/completions", filled("{\"prompt\": \"", "word ", "\"}")),
        ("/v1/completions", filled("{\"prompt\": [1", ",1", "]}")),
        ("/v1/completions", filled("{\"prompt\": \"a\", \"x\": [", "{},", "0]}")),
        ("/v1/completions", filled("{\"prompt\": \"a\", \"max_tokens\": 1, \"stop\": [\"", "a", "\"]}")),
        ("/v1/completions", filled("{\"prompt\": \"a\", \"guided_regex\": \"", "(a|b)", "\"}")),
        ("/v1/completions", filled("{\"prompt\": \"a\", \"guided_json\": {\"enum\": [", "1,", "2]}}")),
        ("/v1/chat/completions", filled(chat_begin, "word ", chat_end)),
        ("/v1/chat/completions", filled("{\"messages\": [", "{\"role\":\"user\",\"content\":\"\"},", "{}]}")),
        ("/v1/chat/completions", filled("{\"messages\": [{\"role\": \"user\", \"content\": [", "[],", "0]}]}")),
        ("/v1/chat/completions", message("\"a\"").replacen('{', &filled("{\"tools\": [", "{},", "{}], "), 1)),
        ("/v1/chat/completions", message("\"a\"").replacen('{', &filled("{\"x\": \"", "\\n", "\", "), 1)),
        ("/v1/responses", filled("{\"input\": \"", "word ", "\"}")),
        ("/v1/responses", filled("{\"input\": \"a\", \"max_output_tokens\": 1, \"instructions\": \"", "a", "\"}")),
        ("/v1/responses", filled("{\"input\": [", "{\"role\":\"system\",\"content\":\"a\"},", "{}]}")),
        ("/v1/responses", filled("{\"input\": \"a\", \"metadata\": {\"a\": [", "{},", "{}]}}")),
        // As many values as there may be.
        ("/v1/completions", format!("{{\"prompt\": \"a\", \"x\": [{}0]}}", "{},".repeat((1 << 18) - 10))),
        (
            "/v1/completions",
            format!("{{\"prompt\": \"a\", \"logit_bias\": {{\"x\": [{}0]}}}}", "{},".repeat((1 << 18) - 10)),
        ),
        ("/v1/completions", format!("{{\"prompt\": [1{}]}}", ",1".repeat((1 << 19) - 10))),
        (
            "/v1/chat/completions",
            format!("{{\"messages\": [{}{{}}]}}", "{\"role\":\"user\",\"content\":\"\"},".repeat((1 << 19) / 5 - 10)),
        ),
        (
            "/v1/chat/completions",
            format!("{{\"messages\": [{{\"role\": \"a\", \"content\": [{}0]}}]}}", "[],".repeat((1 << 18) - 10)),
        ),
        (
            "/v1/responses",
            format!("{{\"input\": [{}{{}}]}}", "{\"role\":\"system\",\"content\":\"\"},".repeat((1 << 19) / 5 - 10)),
        ),
        ("/v1/embeddings", filled("{\"input\": [\"", "\",\"", "\"]}")),
    ];
    // As long as nothing has been asked: what the server keeps of earlier requests counts, too.
    let before = memory(&server, "VmRSS");
    for (path, body) in &bodies {
        assert!(body.len() <= BODY + 200, "{path}");
        // The largest is counted from here.
        std::fs::write(format!("/proc/{}/clear_refs", server.process.id()), "5").expect("a new count");
        let start = Instant::now();
        let (status, text) = server.request(&format!("POST {path} HTTP/1.1"), &body.as_bytes()[..body.len().min(BODY)]);
        let (time, taken) = (start.elapsed(), memory(&server, "VmHWM").saturating_sub(before));
        let begin: String = body.chars().take(50).collect();
        println!("{path} {begin}: {status}, {} MiB, {time:?}, {} bytes back", taken >> 20, text.len());
        assert!(status == 200 || (400..500).contains(&status), "{path} {begin}: {status} {text:.200}");
        assert!(taken <= 60 * BODY, "{path} {begin}: {} MiB", taken >> 20);
        assert!(text.len() <= 8 * BODY, "{path} {begin}: {} bytes back", text.len());
        assert!(time < Duration::from_mins(1), "{path} {begin}: {time:?}");
    }
    // Eight clients at once with the worst: the large ones are prepared one after the other.
    std::fs::write(format!("/proc/{}/clear_refs", server.process.id()), "5").expect("a new count");
    let before = memory(&server, "VmRSS");
    let latency = std::thread::scope(|scope| {
        for (path, body) in bodies.iter().take(8) {
            let server = &server;
            scope.spawn(move || server.request(&format!("POST {path} HTTP/1.1"), body.as_bytes()));
        }
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        let (status, _) = server.post("/tokenize", &json!({ "content": "abc" }));
        assert_eq!(status, 200);
        start.elapsed()
    });
    let taken = memory(&server, "VmHWM").saturating_sub(before);
    println!("together: {} MiB, a small request waits {latency:?}", taken >> 20);
    assert!(taken <= 80 * BODY, "{} MiB", taken >> 20);
    assert!(latency < Duration::from_secs(10), "{latency:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_client_does_not_keep_others_out() {
    let server = Server::start("llm-serve-others", &["--max-connections", "8"]);
    let ask = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answers = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
        let mut status = [0; 12];
        stream.write_all(ask).is_ok() && stream.read_exact(&mut status).is_ok() && &status == b"HTTP/1.1 200"
    };
    // Connections that say nothing, begin a head, or a body.
    let mut held = Vec::new();
    for number in 0..8 {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        let begun: &[u8] = match number % 3 {
            0 => b"",
            1 => b"POST /tokenize HTTP/1.1\r\n",
            _ => b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{",
        };
        stream.write_all(begun).expect("it is taken");
        held.push(stream);
    }
    std::thread::sleep(Duration::from_millis(1200));
    // Each of a few newcomers of the same address is let in, as the held ones wait for their clients.
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.address).expect("a connection");
        assert!(answers(&mut stream));
        held.push(stream);
    }
}

/// One key's client fills all sessions and the queue with endless answers. Another's requests are answered all the same, one after the
/// other, and the endless ones continue.
#[test]
fn many_requests_of_one_client_do_not_hold_up_another() {
    let long = long_model("llm-serve-fair");
    for (sessions, queue) in [("2", "64"), ("4", "8")] {
        let server = Server::of(&long, &["--api-key", "a", "--api-key", "b", "--sessions", sessions, "--queue", queue]);
        let endless = json!({ "prompt": "a", "stream": true, "ignore_eos": true, "max_tokens": 19_000 }).to_string();
        let head = "POST /v1/completions HTTP/1.1\r\nauthorization: Bearer b";
        let mut held: Vec<TcpStream> = (0..31).map(|_| server.send(head, endless.as_bytes())).collect();
        // Those for which there is no room are refused.
        for stream in &mut held {
            let mut status = [0; 12];
            stream.read_exact(&mut status).expect("an answer");
            assert!([b"HTTP/1.1 200", b"HTTP/1.1 429"].contains(&&status), "{}", String::from_utf8_lossy(&status));
        }
        for number in 0..5 {
            let ask = json!({ "prompt": format!("a{number}"), "max_tokens": 20, "ignore_eos": true, "n": 1 });
            let (status, answer) = with_key(&server, "a", "/v1/completions", &ask);
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer["usage"]["completion_tokens"], 20);
        }
        let metric = |name: &str| {
            let (_, text) = server.request("GET /metrics HTTP/1.1\r\nauthorization: Bearer a", b"");
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("rushlight_{name} ")));
            line.and_then(|value| value.parse::<f64>().ok()).expect("a number")
        };
        assert!(metric("answers_paused_total") >= 1.0);
        assert!(metric("requests_queued") > 0.0, "the other client's requests are over");
        drop(held);
    }
}

/// A program with one session gives the answers of a request one after the other.
#[test]
fn answers_without_a_session_wait_for_one() {
    let program = command::folder("llm-serve-one").join("model.pte");
    let mut compile = command::rushlight();
    compile.args(["compile", SAMPLE, "--max-context-len", "80", "-o"]);
    assert!(compile.arg(&program).output().expect("the command").status.success());
    let server = Server::of(&program, &["--lower", "off", "--sessions", "3"]);
    let ask = |n: usize| {
        let ask =
            json!({ "prompt": "abc", "max_tokens": 6, "n": n, "temperature": 1.5, "seed": 3, "ignore_eos": true });
        let (status, answer) = server.post("/v1/completions", &ask);
        assert_eq!(status, 200, "{answer}");
        let choices = answer["choices"].as_array().expect("choices").clone();
        choices.iter().map(|choice| choice["text"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    let (one, three) = (ask(1), ask(3));
    assert_eq!((three.len(), &three[0]), (3, &one[0]));
    assert!(three[0] != three[1] && three[1] != three[2], "{three:?}");
}

/// Sends what begins a state, and leaves the connections open.
type Begin = fn(&Server) -> Vec<TcpStream>;

#[test]
#[cfg(unix)]
fn ctrl_c_ends_a_server_in_each_state() {
    let long = long_model("llm-serve-ctrl-c");
    let states: [(&str, Begin); 7] = [
        ("idle", |_| Vec::new()),
        ("a connection without a request", |server| vec![TcpStream::connect(server.address).expect("a connection")]),
        ("half a body", |server| {
            let mut stream = TcpStream::connect(server.address).expect("a connection");
            let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{";
            stream.write_all(head.as_bytes()).expect("it is taken");
            vec![stream]
        }),
        ("answers that nobody reads", |server| {
            let ask = json!({
                "prompt": "a", "stream": true, "ignore_eos": true, "max_tokens": 19_000, "logprobs": 20,
            });
            (0..8).map(|_| server.send("POST /v1/completions HTTP/1.1", ask.to_string().as_bytes())).collect()
        }),
        ("a long prompt", |server| {
            let ask = json!({ "prompt": vec![5; 19_000], "max_tokens": 1 });
            (0..3).map(|_| server.send("POST /v1/completions HTTP/1.1", ask.to_string().as_bytes())).collect()
        }),
        ("large texts", |server| {
            let ask = json!({ "content": "a b ".repeat((1 << 20) - 100) });
            (0..6).map(|_| server.send("POST /tokenize HTTP/1.1", ask.to_string().as_bytes())).collect()
        }),
        ("grammars", |server| {
            let ask = json!({ "prompt": "a", "guided_regex": "(a|b|c)*d".repeat(3000), "max_tokens": 100 });
            (0..6).map(|_| server.send("POST /v1/completions HTTP/1.1", ask.to_string().as_bytes())).collect()
        }),
    ];
    for (state, begin) in states {
        let mut server = Server::of(&long, &["--sessions", "2"]);
        let held = begin(&server);
        std::thread::sleep(Duration::from_millis(300));
        let id = server.process.id().to_string();
        let start = Instant::now();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
        let status = loop {
            if let Some(status) = server.process.try_wait().expect("a status") {
                break status;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{state}: it goes on");
            std::thread::sleep(Duration::from_millis(5));
        };
        println!("{state}: {:?}", start.elapsed());
        assert!(status.success(), "{state}: {status}");
        assert!(start.elapsed() < Duration::from_secs(2), "{state}: {:?}", start.elapsed());
        drop(held);
    }
}

#[test]
fn a_server_without_keys_that_others_reach_has_names_of_its_own() {
    let arguments = ["--host", "0.0.0.0", "--allowed-host", "llm.example"];
    let server = Server::start("llm-serve-hosts", &arguments);
    assert!(server.first_line.contains("everybody who reaches this machine"), "{}", server.first_line);
    let at = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    let status = |headers: &str| {
        let mut stream = TcpStream::connect(at).expect("a connection");
        let head = format!("GET /v1/models HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it is taken");
        let answer = until_closed(&mut stream).expect("it is closed");
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_default()
    };
    for (headers, expected) in [
        ("host: 192.168.1.5:8080\r\n", 200),
        ("host: llm.example\r\n", 200),
        ("host: evil.example\r\n", 403),
        ("host: localhost\r\nhost: localhost\r\n", 400),
        ("host: localh\u{f6}st\r\n", 400),
        ("host: localhost\r\nsec-fetch-site: cross-site\r\n", 403),
        ("host: localhost\r\nsec-fetch-site: same-origin\r\n", 200),
        ("host: localhost\r\norigin: http://localhost\r\norigin: http://evil.example\r\n", 400),
    ] {
        assert_eq!(status(headers), expected, "{headers}");
    }
}

/// A program for adapters answers to the names that the server has, not to those of adapters that it lacks.
#[test]
fn names_of_unknown_adapters_are_refused() {
    let folder = command::folder("llm-serve-names");
    let program = folder.join("model.pte");
    let mut compile = command::rushlight();
    compile.args(["compile", SAMPLE, "--backend", "cpu", "--lora-rank", "8", "--max-context-len", "80", "-o"]);
    assert!(compile.arg(&program).output().expect("the command").status.success());
    let server = Server::of(&program, &["--name", "tiny"]);
    for path in ["/v1/completions", "/v1/chat/completions"] {
        let ask = |name: Option<&str>| {
            let mut ask = json!({ "prompt": "a", "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 });
            if let Some(name) = name {
                ask["model"] = name.into();
            }
            server.post(path, &ask)
        };
        assert_eq!(ask(None).0, 200);
        assert_eq!(ask(Some("tiny")).0, 200);
        let (status, answer) = ask(Some("poet"));
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(status == 404 && message.contains("`poet`") && message.contains("`tiny`"), "{answer}");
    }
    drop(server);
    // One of a program without adapters takes any name, as clients of other servers send.
    let server = Server::of(&model("llm-serve-any-name"), &[]);
    let (status, _) = server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1, "model": "gpt-4" }));
    assert_eq!(status, 200);
}
