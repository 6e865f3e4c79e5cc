//! Printing: tables, tensors, sizes, and results a script can read.

use std::cmp::Reverse;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use rushlight::compiler::partition::Report;
use rushlight::engine::hwbench::{Bound, Limits};
use rushlight::runtime::{Bool8, Element};
use rushlight::{ScalarType, Tensor, Value};
use rushlight_devtools::numbers::doubles;
pub use rushlight_devtools::units::bytes;
use serde_json::json;

use crate::failure::Failure;

/// Writes text to standard output. A reader that has gone away, as `head` does, ends the program quietly.
pub fn print(text: &str) {
    let mut out = anstream::stdout();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Prints a JSON value, indented.
pub fn print_json(value: &serde_json::Value) {
    print(&format!("{value:#}"));
}

/// A table with a header; columns whose header ends in a space are aligned to the right.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.iter().map(|h| h.trim_end()));
    for row in rows {
        table.add_row(row);
    }
    for (i, header) in header.iter().enumerate() {
        if header.ends_with(' ')
            && let Some(column) = table.column_mut(i)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// `cpu 90% · portable 10% of 92 nodes`, the largest share first.
pub fn shares(report: &Report) -> String {
    let total = report.entries.len();
    let mut shares: Vec<_> = report.shares().into_iter().collect();
    shares.sort_by_key(|(_, count)| Reverse(*count));
    let shares: Vec<String> =
        shares.iter().map(|(owner, count)| format!("{owner} {:.0}%", 100.0 * *count as f64 / total as f64)).collect();
    match &shares[..] {
        [] => "no nodes".to_owned(),
        shares => format!("{} of {total} node{}", shares.join(" · "), if total == 1 { "" } else { "s" }),
    }
}

/// A duration for people: `12.3 µs`.
pub fn duration(duration: Duration) -> String {
    let ns = duration.as_nanos() as f64;
    match duration.as_nanos() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", ns / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// The share of a limit, and which one: `63 % compute`.
pub fn limit_share((share, bound): (f64, Bound)) -> String {
    format!("{:.0} % {:<7}", 100.0 * share, bound.name())
}

/// The machine's limits: `204.1 GFLOP/s, 30.2 GB/s from memory (avx512, threads: 2)`.
pub fn limits(limits: &Limits) -> String {
    let Limits { isa, threads, flop_rate, byte_rate } = limits;
    let (flops, bytes) = (flop_rate / 1e9, byte_rate / 1e9);
    format!("{flops:.1} GFLOP/s, {bytes:.1} GB/s from memory ({isa}, threads: {threads})")
}

/// Writes a file beside its name and renames it, so that a failure leaves no broken file.
pub fn write_file(path: &Path, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    write(&mut bytes)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let temporary = Path::new(&temporary);
    let result = std::fs::write(temporary, bytes).and_then(|()| std::fs::rename(temporary, path));
    result.map_err(|error| {
        let _ = std::fs::remove_file(temporary);
        Failure::write(path, error)
    })
}

/// As [`write_file`], of text.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    write_file(path, |bytes| {
        bytes.extend_from_slice(text.as_bytes());
        Ok(())
    })
}

/// An output on one or a few lines; at most `limit` elements of a tensor.
pub fn value(value: &Value, limit: usize) -> String {
    match value {
        Value::Tensor(tensor) => {
            let shown = elements(tensor, limit);
            let more = if shown.len() < numel(tensor) { ", …" } else { "" };
            format!("{} {:?}  [{}{more}]", tensor.dtype(), tensor.shape(), shown.join(", "))
        }
        Value::Int(v) => format!("int {v}"),
        Value::Double(v) => format!("double {v}"),
        Value::Bool(v) => format!("bool {v}"),
        Value::String(v) => format!("string {v:?}"),
        Value::None => "None".to_owned(),
    }
}

/// An output as JSON; at most `limit` elements of a tensor, numbers that JSON lacks as null.
pub fn value_json(value: &Value, limit: usize) -> serde_json::Value {
    match value {
        Value::Tensor(tensor) => json!({
            "kind": "tensor",
            "dtype": tensor.dtype().name(),
            "shape": tensor.shape(),
            "elements": elements_json(tensor, limit),
        }),
        Value::Int(v) => json!({ "kind": "int", "value": v }),
        Value::Double(v) => json!({ "kind": "double", "value": v }),
        Value::Bool(v) => json!({ "kind": "bool", "value": v }),
        Value::String(v) => json!({ "kind": "string", "value": v }),
        Value::None => json!({ "kind": "none" }),
    }
}

fn elements_json(tensor: &Tensor, limit: usize) -> serde_json::Value {
    match tensor.dtype() {
        ScalarType::Bool => {
            json!(
                tensor.as_slice::<Bool8>().unwrap_or_default().iter().take(limit).map(|v| v.get()).collect::<Vec<_>>()
            )
        }
        // A double does not hold every one of these.
        ScalarType::Long => {
            json!(tensor.as_slice::<i64>().unwrap_or_default().iter().take(limit).collect::<Vec<_>>())
        }
        _ => json!(doubles(tensor).into_iter().take(limit).collect::<Vec<_>>()),
    }
}

fn numel(tensor: &Tensor) -> usize {
    tensor.shape().iter().product()
}

/// The first elements as text.
fn elements(tensor: &Tensor, limit: usize) -> Vec<String> {
    fn of<T: Element>(tensor: &Tensor, limit: usize, show: impl Fn(T) -> String) -> Vec<String> {
        tensor.as_slice::<T>().unwrap_or_default().iter().take(limit).map(|&v| show(v)).collect()
    }
    let float = |v: f64| format!("{v:.6}").trim_end_matches('0').trim_end_matches('.').to_owned();
    match tensor.dtype() {
        ScalarType::Bool => of::<Bool8>(tensor, limit, |v| v.get().to_string()),
        ScalarType::Byte => of::<u8>(tensor, limit, |v| v.to_string()),
        ScalarType::Char => of::<i8>(tensor, limit, |v| v.to_string()),
        ScalarType::Short => of::<i16>(tensor, limit, |v| v.to_string()),
        ScalarType::Int => of::<i32>(tensor, limit, |v| v.to_string()),
        ScalarType::Long => of::<i64>(tensor, limit, |v| v.to_string()),
        _ => doubles(tensor).into_iter().take(limit).map(float).collect(),
    }
}
