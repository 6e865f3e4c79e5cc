//! Overhead of a call from each language: the addition of two tensors of 2 x 3 floats, whose computation is next to nothing.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rushlight::{Input, Module};

use crate::document::conditions;
use crate::interleaved::{Stage, in_turns, least};
use crate::ours::{self, Tensor};
use crate::peer::Peer;

const ROUNDS: usize = 31;
const BATCHES: usize = 200;

/// A caller: a language and its interface.
enum Caller {
    /// This process, with a method at hand.
    Method,
    /// This process, by the name of the method, with outputs of its own.
    Module,
    /// ExecuTorch's method, with inputs set and outputs read.
    ExecutorchMethod(Peer),
    /// A program of the folder `call`.
    Program(Peer),
}

/// Measures all languages; the section of the document. `programs` has a line for each caller besides Rust, its name and its command with
/// tabs between; `program` is the addition.
pub fn run(worker: &Path, programs: &str, program: &Path) -> Result<String> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let error = |e: rushlight::Error| anyhow::anyhow!("{e}");
    let tensors = ours::inputs(&bytes, &[0; 48])?;
    let inputs: Vec<Input<'_>> = tensors.iter().map(Tensor::input).collect::<Result<_>>()?;
    let mut module = Module::load(program).map_err(error)?;

    let mut peer = Peer::start(worker)?;
    peer.load(&bytes, tensors.iter().map(|tensor| &tensor.bytes[..]))?;
    let mut callers = vec![
        ("Rushlight, Rust: `Method::execute`".to_owned(), Caller::Method),
        ("Rushlight, Rust: `Module::forward`, outputs copied".to_owned(), Caller::Module),
        ("ExecuTorch, C++: `Method::set_inputs`, `execute`, `get_outputs`".to_owned(), Caller::ExecutorchMethod(peer)),
    ];
    for line in programs.lines() {
        let mut words = line.split('\t');
        let (name, command) = (words.next().unwrap_or_default(), words.next().context("a caller without a command")?);
        let folder = worker.parent().context("the worker is in no folder")?;
        callers.push((name.to_owned(), Caller::Program(Peer::spawn(Command::new(command).args(words), folder)?)));
    }
    let count = callers.len();
    let figures = in_turns(ROUNDS, least, count, |index| match &mut callers[index].1 {
        Caller::Method => ours::calls(module.method("forward").map_err(error)?, &inputs, Stage::Call, BATCHES),
        Caller::Module => ours::batched(BATCHES, 50, || {
            std::hint::black_box(module.forward(&inputs).map_err(error)?);
            Ok(())
        }),
        Caller::ExecutorchMethod(peer) => peer.stage(Stage::Call, BATCHES),
        Caller::Program(peer) => peer.batches(BATCHES),
    })?;
    Ok(section(&callers.iter().map(|(name, _)| name.as_str()).zip(figures).collect::<Vec<_>>()))
}

fn section(figures: &[(&str, f64)]) -> String {
    let mut text = conditions("cargo xtask bench call");
    text.push_str(
        "\n\nNanoseconds of a call that adds two tensors of 2 x 3 floats: a program of one operator. Inputs are \
         described once, and outputs are read. All sides take turns for 31 rounds. A turn counts with the \
         median of its batches of calls, a side with its fastest turn. *Over Rust* is the overhead of a language over \
         `Method::execute`. Rushlight's callers in C and C++ link the static library of the same build and copy no \
         tensor. The tests compare the addresses that an operator sees with those of the caller (`bindings/c/tests/abi.c`, `bindings/cpp/tests/rushlight.cpp`). Java loads the shared library of the same sources; its \
         outputs are copied.\n\n\
         | caller | ns | over Rust |\n|---|--:|--:|\n",
    );
    let base = figures.first().map_or(f64::NAN, |(_, time)| *time);
    for (name, time) in figures {
        let over = if name.starts_with("Rushlight") { format!("{:.0}", time - base) } else { String::new() };
        let _ = writeln!(text, "| {name} | {time:.0} | {over} |");
    }
    text
}
