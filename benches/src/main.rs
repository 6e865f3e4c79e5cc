//! Rushlight's and ExecuTorch's times side by side, in one run. `cargo xtask bench` builds what this needs and starts it.
#![forbid(unsafe_code)]

mod agreement;
mod calls;
mod compile;
mod document;
mod interleaved;
mod model;
mod operators;
mod ours;
mod overhead;
mod peer;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::document::Document;

const USAGE: &str = "\
usage: rushlight-benches <what> [filter]     started by cargo xtask bench

  operators [filter]   every line of operators.txt, or those that contain the filter
  model                MobileNetV3-small
  overhead             what the runtime costs by itself, from Rust and from Python
  compile              compiling whole models, and chains of growing length

EXECUTORCH_WORKER is the program built from executorch/worker.cpp, MODELS the folder that tools/models/generate.py wrote
(for compile: tools/models/large.py),
PYTHON an interpreter with torch, executorch and rushlight, DOCUMENT the file to update (nothing is written without).";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (title, section) = match arguments[..] {
        ["operators"] => ("Operators", operators::run(&worker()?, None)?),
        ["operators", filter] => ("Operators", operators::run(&worker()?, Some(filter))?),
        ["model"] => ("MobileNetV3-small", model::run(&worker()?, &folder("MODELS")?)?),
        ["overhead"] => ("Overhead", overhead::run(&worker()?, &folder("MODELS")?, &folder("PYTHON")?)?),
        ["compile"] => ("Compiling", compile::run(&folder("MODELS")?, &folder("PYTHON")?)?),
        ["compile-once", file] => return compile::once(Path::new(file)),
        _ => bail!("{USAGE}"),
    };
    println!("\n## {title}\n\n{section}");
    match (folder("DOCUMENT"), arguments[..].len()) {
        (Ok(path), 1) => Document::open(&path)?.replace(title, &section).save(&path),
        _ => Ok(()),
    }
}

fn worker() -> Result<PathBuf> {
    folder("EXECUTORCH_WORKER")
}

fn folder(variable: &str) -> Result<PathBuf> {
    match std::env::var_os(variable) {
        Some(path) => Ok(Path::new(&path).to_owned()),
        None => bail!("{variable} is not set\n\n{USAGE}"),
    }
}
