//! Prints tables, tensors, sizes, and results that a script can read.

use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};
use std::path::{MAIN_SEPARATOR, Path};
use std::sync::OnceLock;

use comfy_table::{CellAlignment, Table, presets};
use console::{Term, truncate_str};
use rushlight::DeviceLimits;
use rushlight::runtime::Bound;
use rushlight::runtime::{Bool8, Element};
use rushlight::{InputFiles, Module, ScalarType, Tensor, Value};
use rushlight_compiler::partition::Report;
use rushlight_devtools::numbers::doubles;
pub use rushlight_devtools::units::{bytes, duration, number};
use serde_json::json;

use crate::failure::Failure;
use crate::progress::{is_quiet, is_verbose};
pub use crate::stderr::to_stderr;

/// The first error of standard output.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes text to standard output. The first error becomes the command's failure: see [`printed`].
pub fn print(text: &str) {
    print_piece(&format!("{text}\n"));
}

/// Writes a part of a line to standard output and flushes it. Errors are handled as in [`print()`].
pub fn print_piece(text: &str) {
    if FAILED.get().is_some() {
        return;
    }
    let mut out = anstream::stdout();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        // Only the first failure counts.
        drop(FAILED.set(error));
    }
}

/// Prints a piece of a text that a model wrote. On a terminal, control characters other than line breaks and tabs are shown as codes: they
/// could move the cursor, or change what the terminal does.
#[cfg(feature = "llm")]
pub fn print_foreign(piece: &str) {
    let is_control = |char: char| char.is_control() && !['\n', '\t'].contains(&char);
    if !io::stdout().is_terminal() || !piece.contains(is_control) {
        return print_piece(piece);
    }
    let shown = |char: char| if is_control(char) { char.escape_unicode().to_string() } else { char.to_string() };
    print_piece(&piece.chars().map(shown).collect::<String>());
}

/// True if standard output cannot be written any more.
#[cfg(feature = "llm")]
pub fn is_closed() -> bool {
    FAILED.get().is_some()
}

/// Fails if standard output could not be written. A closed pipe is not an error: a reader such as `head` has read enough.
pub fn printed() -> Result<(), Failure> {
    match FAILED.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // An `io::Error` cannot be cloned.
            let copy = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            Err(Failure::print(copy))
        }
        _ => Ok(()),
    }
}

/// Writes a warning to standard error, so that standard output has only results.
pub fn warn(text: &str) {
    if !is_quiet() {
        to_stderr(&format!("warning: {text}"));
    }
}

/// Writes a note about unexpected behaviour to standard error, unless the user asks for results alone.
pub fn note(text: &str) {
    if !is_quiet() {
        to_stderr(&format!("note: {text}"));
    }
}

/// Prints the backends that run the nodes of a program, if the user asks for times and details.
pub fn say_who_runs(module: &mut Module) {
    if is_verbose() {
        let owners = module.report().map(shares).map_err(|reason| format!("runs as it is: {}", reason.message()));
        let time = module.lowering_time().map_or_else(String::new, |time| format!(" · lowered in {}", duration(time)));
        to_stderr(&format!("{}{time}", owners.unwrap_or_else(|reason| reason)));
    }
}

/// Prints a summary of the file `output`, unless the user asks for results alone. If `output` is standard output,
/// prints to standard error, so that the file stays whole.
pub fn print_summary(output: &Path, text: &str) {
    match is_stdout(output) {
        _ if is_quiet() => {}
        true => to_stderr(text),
        false => print(text),
    }
}

/// Refuses to print a result (`has_result`) if `output` is standard output.
pub fn check_result(output: &Path, has_result: bool) -> Result<(), Failure> {
    if has_result && is_stdout(output) {
        let what =
            "`--json` and `--report -` print to standard output, where the program is written: name a file for it";
        return Err(Failure::Arguments(what.to_owned()));
    }
    Ok(())
}

/// True if a path names the pipe or the file of standard output.
#[cfg(unix)]
fn is_stdout(path: &Path) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|fd| std::fs::File::from(fd).metadata());
    let identity = |file: std::fs::Metadata| {
        // Devices, such as /dev/null and terminals, keep nothing that could get mixed up.
        (!file.file_type().is_char_device()).then(|| (file.dev(), file.ino()))
    };
    let stdout = stdout.ok().and_then(identity);
    stdout.is_some() && stdout == std::fs::metadata(path).ok().and_then(identity)
}

#[cfg(not(unix))]
fn is_stdout(_: &Path) -> bool {
    false
}

/// Prints a JSON value, indented.
pub fn print_json(value: &serde_json::Value) {
    print(&format!("{value:#}"));
}

/// A table with a header. A header that ends in a space aligns its column to the right.
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

/// A table whose lines are cut to the width of the terminal. Files and pipes get all of it.
pub fn fitted(table: &str) -> String {
    let terminal = Term::stdout();
    let Some((_, columns)) = terminal.is_term().then(|| terminal.size_checked()).flatten() else {
        return table.to_owned();
    };
    let lines: Vec<_> = table.lines().map(|line| truncate_str(line, columns.into(), "…")).collect();
    lines.join("\n")
}

/// A line of Python with a short path: relative to the current folder, or from the folder of an installed package.
pub fn short_source(source: &str) -> String {
    let here = std::env::current_dir().map(|folder| format!("{}{MAIN_SEPARATOR}", folder.display()));
    let below = here.ok().and_then(|here| source.strip_prefix(&here));
    let mut packages = ["site-packages", "dist-packages"].into_iter();
    let installed = packages.find_map(|folder| source.split_once(folder)?.1.get(1..));
    below.filter(|_| installed.is_none()).or(installed).unwrap_or(source).to_owned()
}

/// `cpu 90% · portable 10% of 92 nodes`, the largest share first.
pub fn shares(report: &Report) -> String {
    let total = report.entries.len();
    let mut shares: Vec<_> = report.claim_counts().into_iter().collect();
    shares.sort_by_key(|(_, count)| Reverse(*count));
    let shares: Vec<String> =
        shares.iter().map(|(owner, count)| format!("{owner} {:.0}%", 100.0 * *count as f64 / total as f64)).collect();
    match &shares[..] {
        [] => "no nodes".to_owned(),
        shares => format!("{} of {total} node{}", shares.join(" · "), if total == 1 { "" } else { "s" }),
    }
}

/// The share of a limit and the limit's name: `63 % compute`.
pub fn limit_share((share, bound): (f64, Bound)) -> String {
    format!("{:.0} % {:<7}", 100.0 * share, bound.name())
}

/// The limits of a device: `204.1 GFLOP/s, 30.2 GB/s from memory (CpuBackend: avx512, threads: 2)`.
pub fn limits(limits: &DeviceLimits) -> String {
    let DeviceLimits { backend, device, limits } = limits;
    let (flops, bytes) = (limits.flop_rate / 1e9, limits.byte_rate / 1e9);
    format!("{flops:.1} GFLOP/s, {bytes:.1} GB/s from memory ({backend}: {device})")
}

/// Refuses outputs that are inputs, and two outputs that are the same file. Called before anything is computed.
pub fn check_outputs<P: AsRef<Path>, Q: AsRef<Path>>(
    inputs: impl IntoIterator<Item = P>,
    outputs: impl IntoIterator<Item = Q>,
) -> Result<(), Failure> {
    let mut files = InputFiles::new();
    inputs.into_iter().for_each(|input| files.add(input));
    files.check_outputs(outputs).map_err(Failure::Usage)
}

/// Writes a page, a report or a trace, and prints its name. The file is complete, or keeps its old content: see
/// [`rushlight::write_file`].
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    rushlight::write_file(path, text.as_bytes())?;
    note(&format!("wrote `{}`, {}", path.display(), bytes(text.len() as u64)));
    Ok(())
}

/// Formats an output in one or a few lines, with at most `limit` elements of a tensor.
pub fn value(value: &Value, limit: usize) -> String {
    match value {
        Value::Tensor(tensor) => {
            let shown = elements(tensor, limit);
            let more = match (shown.len() < numel(tensor), shown.is_empty()) {
                (false, _) => "",
                (true, false) => ", …",
                (true, true) => "…",
            };
            format!("{} {:?}  [{}{more}]", tensor.dtype(), tensor.shape(), shown.join(", "))
        }
        Value::Int(v) => format!("int {v}"),
        Value::Double(v) => format!("double {v}"),
        Value::Bool(v) => format!("bool {v}"),
        Value::String(v) => format!("string {v:?}"),
        Value::None => "None".to_owned(),
    }
}

/// A number as JSON. JSON lacks some numbers: they become the texts `inf`, `-inf` and `nan`.
pub fn number_json(number: f64) -> serde_json::Value {
    if number.is_finite() { json!(number) } else { json!(number.to_string().to_lowercase()) }
}

/// An output as JSON, with at most `limit` elements of a tensor, and `elements_left_out` if it has more.
pub fn value_json(value: &Value, limit: usize) -> serde_json::Value {
    match value {
        Value::Tensor(tensor) => {
            let mut object = json!({
                "kind": "tensor",
                "dtype": tensor.dtype().name(),
                "shape": tensor.shape(),
                "elements": elements_json(tensor, limit),
            });
            if let Some(left_out @ 1..) = numel(tensor).checked_sub(limit) {
                object["elements_left_out"] = json!(left_out);
            }
            object
        }
        Value::Int(v) => json!({ "kind": "int", "value": v }),
        Value::Double(v) => json!({ "kind": "double", "value": number_json(*v) }),
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
        // A double cannot represent all of these.
        ScalarType::Long => {
            json!(tensor.as_slice::<i64>().unwrap_or_default().iter().take(limit).collect::<Vec<_>>())
        }
        _ => json!(doubles(tensor).into_iter().take(limit).map(number_json).collect::<Vec<_>>()),
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
    match tensor.dtype() {
        ScalarType::Bool => of::<Bool8>(tensor, limit, |v| v.get().to_string()),
        ScalarType::Byte => of::<u8>(tensor, limit, |v| v.to_string()),
        ScalarType::Char => of::<i8>(tensor, limit, |v| v.to_string()),
        ScalarType::Short => of::<i16>(tensor, limit, |v| v.to_string()),
        ScalarType::Int => of::<i32>(tensor, limit, |v| v.to_string()),
        ScalarType::Long => of::<i64>(tensor, limit, |v| v.to_string()),
        _ => doubles(tensor).into_iter().take(limit).map(number).collect(),
    }
}
