//! Rushlight's times side by side with those of ExecuTorch and other engines, in one run. `cargo xtask bench` builds what
//! this needs and starts it.
#![forbid(unsafe_code)]

mod agreement;
mod call;
mod calls;
mod compile;
mod concurrency;
mod cpu;
mod document;
mod environment;
mod interleaved;
mod model;
mod operators;
mod others;
mod ours;
mod overhead;
mod peer;
mod portable;
mod process;
mod quantize;
mod resident;
mod serve;
mod text;
mod tokenizers;
mod web;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::document::Document;
use crate::environment::variable;

const USAGE: &str = "\
usage: rushlight-benches <what> [filter]     started by cargo xtask bench

  operators [filter]   every line of operators.txt, or those that contain the filter
  model                MobileNetV3-small
  overhead             what the runtime costs by itself, from Rust and from Python
  call                 what a call costs from each language
  compile              compiling whole models, and chains of growing length
  quantize             a whole model to int8
  concurrency          calls of one model from several threads beside ONNX Runtime
  tokenizers           tokenizers beside the packages that they come from
  text                 what samplers, grammars, tokenizers and chat templates cost beside a model's calls
  web                  the npm package in a page beside onnxruntime-web
  cpu <table> [model]  the CPU engine beside its peers: latency, int8, linear, sources, loading or scaling; of one model, only printed
  llm [model]          language models beside ExecuTorch and llama.cpp; of one model, only printed
  serve                our side of that: a process that answers commands
  serve-portable       our side of operators

variables:
  EXECUTORCH_WORKER    the program built from executorch/worker.cpp
  EXECUTORCH_LLAMA     the libraries with ExecuTorch's kernels for language models
  MODELS               the folder that tools/models/generate.py wrote; for compile, large.py; for quantize, concurrency, web
                       and cpu, peers.py; for llm, language_models.py
  PYTHON               an interpreter with torch, executorch and rushlight
  PEERS_PYTHON         an interpreter with the peers
  CALLERS              the programs of the folder call, one a line: its name and its command with tabs between
  MODEL                the addition that they call
  VOCABULARY           the file of a tokenizer
  PACKAGE              the folder of the npm package
  DOCUMENT             the file to update; without it, nothing is written";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut is_whole = true;
    let (title, section) = match arguments[..] {
        ["operators"] => ("Operators", operators::run(&worker()?, None)?),
        ["operators", filter] => {
            is_whole = false;
            ("Operators", operators::run(&worker()?, Some(filter))?)
        }
        ["model"] => ("MobileNetV3-small", model::run(&worker()?, &variable("MODELS")?)?),
        ["overhead"] => ("Overhead", overhead::run(&worker()?, &variable("MODELS")?, &variable("PYTHON")?)?),
        ["call"] => {
            let callers = std::env::var("CALLERS").context("CALLERS is not set")?;
            ("Calls from each language", call::run(&worker()?, &callers, &variable("MODEL")?)?)
        }
        ["compile"] => ("Compiling", compile::run(&variable("MODELS")?, &variable("PYTHON")?)?),
        ["quantize"] => ("Quantizing", quantize::run(&variable("MODELS")?, &variable("PYTHON")?)?),
        ["concurrency"] => ("Concurrent calls", concurrency::run(&variable("MODELS")?, &variable("PEERS_PYTHON")?)?),
        ["tokenizers"] => ("Tokenizers", tokenizers::run(&variable("PYTHON")?)?),
        ["text"] => ("Text beside decoding", text::run(&variable("VOCABULARY")?)?),
        ["web"] => ("In a browser", web::run(&variable("MODELS")?, &variable("PACKAGE")?)?),
        ["llm"] => ("Language models", cpu::language_models::run()?),
        ["llm", model] => {
            is_whole = false;
            ("Language models", cpu::language_models::run_one(model)?)
        }
        ["cpu", table] => cpu::run(table, None)?,
        ["cpu", table, model] => {
            is_whole = false;
            cpu::run(table, Some(model))?
        }
        ["serve"] => return serve::run(),
        ["serve-portable"] => return portable::run(),
        ["quantize-once", model, inputs, out] => {
            return quantize::once(Path::new(model), Path::new(inputs), Path::new(out));
        }
        ["compile-language-model", folder, file] => {
            return cpu::language_models::compile_once(Path::new(folder), file);
        }
        ["compile-once", file] => return compile::once(Path::new(file)),
        _ => bail!("{USAGE}"),
    };
    println!("\n## {title}\n\n{section}");
    match variable("DOCUMENT") {
        Ok(path) if is_whole => Document::open(&path)?.replace(title, &section).save(&path),
        _ => Ok(()),
    }
}

fn worker() -> Result<PathBuf> {
    variable("EXECUTORCH_WORKER")
}
