//! The npm package in a page, beside onnxruntime-web, and calls from JavaScript beside those from Rust.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rushlight::{Compiler, Input, Module, TensorView};
use serde_json::Value as Json;

use crate::document::{conditions, significant};
use crate::interleaved::{Stage, least};
use crate::ours;
use crate::process::answer;

const MODELS: &[&str] = &["mobilenet_v2", "minilm", "smallest"];
const BATCHES: usize = 100;
const ROUNDS: usize = 15;

/// Measures the package in `package` with what `tools/models/peers.py` exported to `models`; the section of the document.
pub fn run(models: &Path, package: &Path) -> Result<String> {
    for model in MODELS {
        let folder = models.join(model);
        let compiler = Compiler::new().method("forward", folder.join("model.pt2")).backend("cpu");
        compiler.compile()?.save(folder.join("model.pte"))?;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/bench.mjs");
    let measured = answer(Command::new("node").arg(script).arg(package).arg(models))?;
    section(&measured, rust_call(models)?)
}

/// Nanoseconds of a call of the smallest program from Rust.
fn rust_call(models: &Path) -> Result<f64> {
    let mut module = Module::builder().threads(1).load(models.join("smallest/model.pte"))?;
    let inputs: [Input<'_>; 1] = [TensorView::of(&[1], &[1f32])?.into()];
    let method = module.method("forward")?;
    let mut turns =
        (0..ROUNDS).map(|_| ours::calls(method, &inputs, Stage::Call, BATCHES)).collect::<Result<Vec<f64>>>()?;
    Ok(least(&mut turns))
}

fn section(measured: &Json, rust: f64) -> Result<String> {
    let mut text = conditions("cargo xtask bench web");
    let _ = write!(
        text,
        "\n\nOne page in headless Chromium {} loads both packages; it is cross-origin isolated. The models are \
         MobileNetV2 at 224 x 224, and all-MiniLM-L6-v2 with 128 tokens, with random weights in float32. They are \
         `.pte` files for the CPU and ONNX files. The two take turns of a tenth of a second. A turn counts with the median of its batches of calls, a \
         side with its fastest turn. Both run with their defaults: Rushlight in a worker, so its times include the \
         messages, and onnxruntime-web on the page's thread. Results differ by at most {} of the largest number.\n\n\
         | model | threads | module | onnxruntime-web, ms | Rushlight, ms | share of its time |\n|---|--:|---|--:|--:|--:|\n",
        measured["chromium"].as_str().context("chromium")?,
        format_args!("{:.0e}", worst(&measured["latency"])?),
    );
    for row in measured["latency"].as_array().context("latency")? {
        let (theirs, ours) = (number(row, "theirs")?, number(row, "ours")?);
        let (model, variant) = (row["model"].as_str().context("model")?, row["variant"].as_str().context("variant")?);
        let (threads, theirs_ms, ours_ms) = (number(row, "threads")?, significant(theirs), significant(ours));
        let _ = writeln!(text, "| {model} | {threads} | {variant} | {theirs_ms} | {ours_ms} | {:.2} |", ours / theirs);
    }
    text.push_str(
        "\nThe download of a page, in kilobytes: one of the modules for compiled programs, and `compile-simd` if it \
         compiles models or portable programs.\n\n\
         | file | raw | gzip -9 | brotli 11 | share of gzip | of brotli |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let files = measured["downloads"].as_array().context("downloads")?;
    let whole = files.last().context("a file of onnxruntime-web")?;
    for file in files {
        let share = |form| Ok::<_, anyhow::Error>(number(file, form)? / number(whole, form)?);
        let kilobytes = |form| Ok::<_, anyhow::Error>(format!("{:.0}", number(file, form)? / 1e3));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {:.2} | {:.2} |",
            file["file"].as_str().context("file")?,
            kilobytes("raw")?,
            kilobytes("gzip")?,
            kilobytes("brotli")?,
            share("gzip")?,
            share("brotli")?,
        );
    }
    text.push_str(
        "\nA call of a program that doubles one number, in microseconds: the overhead of a call. In Node.js, the other \
         side is onnxruntime-node, whose engine is native.\n\n\
         | from | ONNX Runtime | Rushlight |\n|---|--:|--:|\n",
    );
    let _ = writeln!(text, "| Rust | | {} |", significant(rust / 1e3));
    for (name, key) in [
        ("JavaScript in a page, on its thread", "page"),
        ("JavaScript in a page, in a worker (ONNX Runtime on the page's thread)", "worker"),
        ("JavaScript in Node.js, with WebAssembly", "node"),
        ("JavaScript in Node.js, with the native library", "native"),
    ] {
        let row = &measured["overhead"][key];
        let (theirs, ours) = (number(row, "theirs")? * 1e3, number(row, "ours")? * 1e3);
        let _ = writeln!(text, "| {name} | {} | {} |", significant(theirs), significant(ours));
    }
    Ok(text)
}

fn number(row: &Json, key: &str) -> Result<f64> {
    row[key].as_f64().with_context(|| format!("{key} in {row}"))
}

/// The largest difference between the answers of both sides.
fn worst(rows: &Json) -> Result<f64> {
    let rows = rows.as_array().context("an array")?;
    rows.iter().try_fold(0.0, |most: f64, row| Ok(most.max(number(row, "error")?)))
}
