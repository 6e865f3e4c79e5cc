//! A pipe or a device in place of a tokenizer's file is an error. Opening it neither waits nor reads without end.
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

/// The error of opening a tokenizer. Panics if opening it waits.
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
        let dir = new_folder(&format!("pipe-{name}"));
        pipe(&dir.join(name));
        // Named itself, and found in its folder.
        for path in [dir.join(name), dir.clone()] {
            let error = error_of(&path);
            assert!(error.contains(name) && error.contains("a pipe, a device or a socket"), "{error}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        let dir = new_folder(&format!("device-{name}"));
        std::os::unix::fs::symlink("/dev/zero", dir.join(name)).unwrap();
        let error = error_of(&dir);
        assert!(error.contains("a pipe, a device or a socket"), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn settings_beside_a_tokenizer_are_regular_files() {
    for name in ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"] {
        let dir = new_folder(&format!("settings-{name}"));
        std::fs::copy(folder("decoders/llama/tokenizer.json"), dir.join("tokenizer.json")).unwrap();
        pipe(&dir.join(name));
        let error = error_of(&dir);
        assert!(error.contains(name) && error.contains("a pipe, a device or a socket"), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
