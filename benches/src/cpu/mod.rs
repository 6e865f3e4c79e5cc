//! Compares the CPU engine with its peers, ExecuTorch's XNNPACK delegate, ONNX Runtime, OpenVINO and LiteRT, on the
//! models of `tools/models/peers.py`. Each engine runs each model in its own process, and the engines take turns.
//! Language models are measured the same way, with Rushlight, ExecuTorch and llama.cpp.

mod engines;
pub mod language_models;
mod latency;
mod linear;
mod loading;
mod machine;
mod scaling;
mod sides;
mod sources;

use std::fmt::Write as _;

use anyhow::{Result, bail};

use engines::{Engines, PEERS};

const MODELS: &[&str] =
    &["mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "resnet18", "resnet50", "swin_t", "vit_b_16"];

/// Shape of the input of all models.
const IMAGE_SHAPE: &str = "1x3x224x224";

/// Numbers of threads in one run.
const THREADS: [usize; 2] = [1, 2];

/// Makes one measurement of `table` (`latency`, `int8`, `linear`, `sources`, `loading` or `scaling`). Returns the title
/// and the text of its section. `model` restricts it to one model.
pub fn run(table: &str, model: Option<&str>) -> Result<(&'static str, String)> {
    let models: Vec<&str> = MODELS.iter().copied().filter(|&name| model.is_none_or(|model| model == name)).collect();
    let engines = Engines::of_environment()?;
    Ok(match table {
        "latency" => ("CPU: latency", latency::run(&engines, &models)?),
        "int8" => ("CPU: int8", latency::run_int8(&engines, &models)?),
        "linear" => ("CPU: linear layers in four bits", linear::run(&engines)?),
        "sources" => ("CPU: three sources", sources::run(&engines, &models)?),
        "loading" => ("CPU: loading", loading::run(&engines, &models)?),
        "scaling" => ("CPU: batches and lengths", scaling::run(&engines)?),
        _ => bail!("unknown table `{table}`: latency, int8, linear, sources, loading, scaling"),
    })
}

/// Failed measurements, which are listed below the tables that lack them.
#[derive(Debug, Default)]
struct Missing(Vec<String>);

impl Missing {
    /// Returns the value; for an error, returns `None` and adds a note with the reason.
    fn unless<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        result
            .map_err(|reason| {
                println!("MISSING {what}: {reason:#}");
                self.0.push(format!("{what}: {reason:#}"));
            })
            .ok()
    }

    fn text(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        self.0.iter().fold(
            "\n**Missing**, because it could not be built or run here:\n\n".to_owned(),
            |mut text, line| {
                let _ = writeln!(text, "- {line}");
                text
            },
        )
    }
}

/// The header of a table: the first column is left-aligned, the others are right-aligned.
fn header<'a>(columns: impl IntoIterator<Item = &'a str>) -> String {
    let columns: Vec<&str> = columns.into_iter().collect();
    format!("\n| {} |\n|---{}|\n", columns.join(" | "), "|--:".repeat(columns.len() - 1))
}

/// Appends a row, and prints it.
fn row(text: &mut String, cells: impl IntoIterator<Item = String>) {
    let line = format!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
    println!("{line}");
    text.push_str(&line);
    text.push('\n');
}

/// Our value, which is in the last column.
fn ours(values: &[Option<f64>]) -> Option<f64> {
    values.last().copied().flatten()
}

/// The smallest value of the peers, whose columns are the first.
fn fastest(values: &[Option<f64>]) -> Option<f64> {
    values[..PEERS.len()].iter().flatten().copied().min_by(f64::total_cmp)
}

/// The cell of a value that may be missing.
fn cell(value: Option<f64>, show: impl FnOnce(f64) -> String) -> String {
    value.map_or_else(|| "missing".to_owned(), show)
}

fn threads_of(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

fn ratio(value: f64) -> String {
    format!("{value:.2}")
}
