//! Decoders as ExecuTorch's users export them, over several calls that share their caches. Those of `export_llama` are
//! compared with ExecuTorch's own runtime, those of transformers with eager PyTorch. Each is compiled for the reference
//! operators and for the CPU backend, and a `.pte` is lowered at load too.
//!
//! Ignored by default, because the models are made by `tools/models/export_llama.py`: `cargo xtask test models` makes
//! them. The folder is `target/llama-models`, or the one in RUSHLIGHT_LLAMA_MODELS; RUSHLIGHT_ONLY lists the names to
//! run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use rushlight::Module;
use rushlight_compiler::partition::{Backend, Fate, Report};
use rushlight_compiler::{CompileOptions, compile_pt2, compile_pte};
use rushlight_cpu_compile::Cpu;
use rushlight_graph::Bytes;
use rushlight_testing::recorded::{self, Recording};

/// The beginning of `docs/llama-models.md`, which a run with UPDATE_DOCS writes.
const PAGE: &str = "\
# Decoders as ExecuTorch's users export them

`tools/models/export_llama.py` exports these decoders with random weights. ExecuTorch's own `export_llama` exports a small Llama
and a small Qwen3.5 with different options. transformers exports the others. A test reads a prompt and then single tokens in one
session. It compares the results with ExecuTorch's runtime, or with eager PyTorch for the decoders of transformers. Each program
is compiled twice: for the reference operators alone, and for the CPU backend. A `.pte` is also lowered at load. The error is the
maximum difference of all calls, relative to the largest element of the output. Nodes that the CPU backend does not claim run on
the reference operators.

`UPDATE_DOCS=1 cargo test --profile checked -p rushlight-testing --test it llama -- --ignored` writes this page.

| model | error on reference operators | error on the CPU backend | allowed | nodes on the CPU backend | others |
|---|---|---|---|---|---|
";

/// The largest errors of a program on the reference operators and on the CPU backend, and the backend's report.
fn check(recording: &Recording) -> Result<(f64, f64, Report), String> {
    let (reference, _) = compiled(recording, Vec::new()).map_err(|error| format!("reference operators: {error}"))?;
    let (ahead, report) =
        compiled(recording, vec![Box::new(Cpu::default())]).map_err(|error| format!("cpu: {error}"))?;
    if !recording.has_program() {
        return Ok((reference, ahead, report));
    }
    let mut lowered = recording.load("auto").map_err(|error| format!("lower at load: {error}"))?;
    let at_load = recording.run_within(&mut lowered).map_err(|error| format!("lowered at load: {error}"))?;
    lowered.report().map_err(|error| format!("not lowered at load: {error}"))?;
    Ok((reference, ahead.max(at_load), report))
}

/// The largest error of a program compiled for some backends.
fn compiled(recording: &Recording, backends: Vec<Box<dyn Backend>>) -> Result<(f64, Report), String> {
    let read = |path: &Path| std::fs::read(path).map(Bytes::from).map_err(|error| error.to_string());
    let options = CompileOptions { backends, ..CompileOptions::default() };
    let compiled = if recording.has_program() {
        let data = recording.data().iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        compile_pte(&read(&recording.program())?, &data, &options)
    } else {
        let exported = recording.exported().into_iter();
        let programs = exported.map(|(method, [file, _])| Ok((method, read(&file)?)));
        compile_pt2(&programs.collect::<Result<Vec<_>, String>>()?, &options)
    };
    let compiled = compiled.map_err(|error| error.to_string())?;
    let program = compiled.program.to_bytes().map_err(|error| error.to_string())?;
    let mut module = Module::builder().lower("off").load_bytes(&program).map_err(|error| error.to_string())?;
    let error = recording.run_within(&mut module)?;
    Ok((error, compiled.report))
}

/// The nodes that no backend claimed, as counts by operator.
fn left(report: &Report) -> BTreeMap<&str, usize> {
    let mut left = BTreeMap::new();
    for entry in report.entries.iter().filter(|entry| !matches!(entry.fate, Fate::Claimed { .. })) {
        println!("    {}: {:?}", entry.op, entry.fate);
        *left.entry(entry.op.as_str()).or_default() += 1;
    }
    left
}

#[test]
#[ignore = "needs the models that tools/models/export_llama.py makes"]
fn exported_decoders_give_the_recorded_results() {
    let recordings = recorded::wanted("RUSHLIGHT_LLAMA_MODELS", "llama-models");
    let mut page = String::from(PAGE);
    let mut failures = Vec::new();
    for recording in &recordings {
        match check(recording) {
            Ok((reference, cpu, report)) => {
                let left = left(&report);
                let taken = report.entries.len() - left.values().sum::<usize>();
                println!("{}: {reference:.1e} and {cpu:.1e}, {taken} nodes taken, left {left:?}", recording.name);
                let left: Vec<String> = left.iter().map(|(op, count)| format!("{count} `{op}`")).collect();
                let (left, allowed) = (left.join(", "), recording.tolerance().unwrap_or_default());
                let name = &recording.name;
                writeln!(page, "| {name} | {reference:.1e} | {cpu:.1e} | {allowed:.1e} | {taken} | {left} |").unwrap();
            }
            Err(failure) => {
                println!("{}: {failure}", recording.name);
                failures.push(format!("{}: {}", recording.name, failure.replace('\n', " | ")));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), recordings.len(), failures.join("\n"));
    assert!(!recordings.is_empty(), "no model was made");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/llama-models.md");
        std::fs::write(path, &page).unwrap();
    }
}
