//! Files that are none: pipes that nobody writes to, and devices that have no end.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rushlight_llm::{Error, Tokenizer};

use crate::folder;

fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rushlight-special-{}-{name}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The error of opening a tokenizer, within a time in which nothing may wait.
fn error_of(path: &Path) -> String {
    let (send, receive) = mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || drop(send.send(Tokenizer::open(&path).map(drop))));
    let opened = receive.recv_timeout(Duration::from_secs(20)).expect("it does not wait");
    match opened {
        Err(Error::File { path, error }) => format!("{}: {error}", path.display()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tokenizers_are_regular_files() {
    const NAMES: [&str; 4] = ["tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer.bin"];
    for name in NAMES {
        let of = new_folder(&format!("pipe-{name}"));
        pipe(&of.join(name));
        // Named itself, and found in its folder.
        for path in [of.join(name), of.clone()] {
            let error = error_of(&path);
            assert!(error.contains(name) && error.contains("a pipe, a device or a socket"), "{error}");
        }
        std::fs::remove_dir_all(&of).unwrap();
        let of = new_folder(&format!("device-{name}"));
        std::os::unix::fs::symlink("/dev/zero", of.join(name)).unwrap();
        let error = error_of(&of);
        assert!(error.contains("a pipe, a device or a socket"), "{error}");
        std::fs::remove_dir_all(&of).unwrap();
    }
}

#[test]
fn settings_beside_a_tokenizer_are_regular_files() {
    for name in ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"] {
        let of = new_folder(&format!("settings-{name}"));
        std::fs::copy(folder("decoders/llama/tokenizer.json"), of.join("tokenizer.json")).unwrap();
        pipe(&of.join(name));
        let error = error_of(&of);
        assert!(error.contains(name) && error.contains("a pipe, a device or a socket"), "{error}");
        std::fs::remove_dir_all(&of).unwrap();
    }
}
