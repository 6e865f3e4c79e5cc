//! Tokenizers beside the packages that they come from.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::document::conditions;
use crate::process::answer;

const MEGABYTE: f64 = 1e6;

/// Measures with an interpreter that has the packages, and Rushlight's in `PYTHONPATH`; the section of the document.
pub fn run(python: &Path) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tokenizer_speed.py");
    let rows = answer(Command::new(python).arg(script))?;
    let mut text = conditions("cargo xtask bench tokenizers");
    text.push_str(
        "\n\nMegabytes per second of CPU time, for half a megabyte of prose and code of this repository with words of \
         many scripts. Each figure is the median of five runs in turns, in one process with one thread. *Ratio* is \
         Rushlight's speed over that of the package. The tokenizers gemma, llama2, bert, t5 and sp_unigram are trained in `tests/tokenizers`, with 3000 tokens; \
         the others are those of the models.\n\n\
         | tokenizer | package | encode | theirs | ratio | decode | theirs | ratio |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows.as_array().context("a list of rows")? {
        let bytes = row["bytes"].as_f64().context("bytes")?;
        let name = |key: &str| row[key].as_str().with_context(|| key.to_owned());
        let speed = |side: &str, part: usize| -> Result<f64> {
            let seconds = row[side].get(part).and_then(Json::as_f64);
            Ok(bytes / MEGABYTE / seconds.with_context(|| format!("{side} in {row}"))?)
        };
        let _ = write!(text, "| {} | {} |", name("name")?, name("package")?);
        for part in 0..2 {
            let (ours, theirs) = (speed("ours", part)?, speed("theirs", part)?);
            let _ = write!(text, " {ours:.1} | {theirs:.1} | {:.1} |", ours / theirs);
        }
        text.push('\n');
    }
    Ok(text)
}
