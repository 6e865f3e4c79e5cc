//! Calls of one model from several threads, beside ONNX Runtime.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::document::{conditions, significant};
use crate::process::answer;

/// The models of `tools/models/peers.py`.
const MODELS: &[&str] = &["mobilenet_v3_small", "resnet50"];

const SIDES: [&str; 3] = ["one module", "instances", "ONNX Runtime"];

/// Returns the section of the document. The interpreter must have ONNX Runtime, and Rushlight's package in `PYTHONPATH`.
pub fn run(models: &Path, python: &Path) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("concurrency.py");
    let mut text = conditions("cargo xtask bench concurrency");
    text.push_str(
        "\n\nCalls per second from Python, from 1, 2 and 4 threads at the same time. Each call computes with one thread. \
         *One module*: its calls take turns. *Instances*: one instance of the module per thread; they share the weights. \
         *ONNX Runtime*: one session. The sides take turns of two seconds, and the result of a side is its fastest of five. \
         *Ratio* is the rate of the instances divided by that of ONNX Runtime.\n\n\
         | model | threads | one module | instances | ONNX Runtime | ratio |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for model in MODELS {
        let folder = models.join(model);
        let files = ["model.pt2", "model.onnx"].map(|name| folder.join(name));
        let rows = answer(Command::new(python).arg(&script).args(files))?;
        let rows = rows.as_array().context("a list of rows")?;
        for turn in rows.chunks(SIDES.len()) {
            let rate = |side: &str| {
                let row = turn.iter().find(|row| row["side"] == side).with_context(|| format!("{model}: no {side}"))?;
                row["calls_per_s"].as_f64().with_context(|| format!("{model}: {row}"))
            };
            let rates = SIDES.iter().map(|side| rate(side)).collect::<Result<Vec<f64>>>()?;
            let _ = write!(text, "| {model} | {} |", turn[0]["threads"]);
            for rate in &rates {
                let _ = write!(text, " {} |", significant(*rate));
            }
            let _ = writeln!(text, " {:.2} |", rates[1] / rates[2]);
        }
    }
    Ok(text)
}
