//! Compiles `.pt2` files to `.pte` files, and compares with ExecuTorch's compiler.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use rushlight::Compiler;
use serde_json::json;

use crate::document::{conditions, milliseconds, significant};
use crate::interleaved::median;
use crate::process::answer;
use crate::resident;

const MODELS: &[&str] = &["mobilenet_v3_small", "resnet50", "vit_b_16", "swin_t"];
const CHAINS: &[usize] = &[10, 100, 1_000, 10_000];
/// The longest chain that ExecuTorch's compiler compiles.
const LONGEST_OF_THEIRS: usize = 1_000;
/// Number of our runs, half of them before theirs and half after.
const RUNS: usize = 10;

/// The time and memory of compiling one file.
pub struct Taken {
    pub seconds: f64,
    pub peak_bytes: f64,
}

/// Compiles the programs that `tools/models/large.py` exported to `models`. Returns the section of the document.
pub fn run(models: &Path, python: &Path) -> Result<String> {
    let mut text = conditions("cargo xtask bench compile");
    text.push_str(
        "\n\nEach compilation runs in its own process. Rushlight prepares weights on one thread and writes them on \
         another. Its time is from opening the `.pt2` file (straight from `torch.export.export`) to the written `.pte` \
         file. It is the median of ten runs, five before and five after ExecuTorch's. ExecuTorch's time is that of `to_edge` \
         and `to_executorch` on the program that `torch.export.load` returned. Peaks are the maximum resident size of \
         the whole process. For Rushlight, this includes the mapped `.pt2` file.\n\n\
         | model | `.pt2`, MB | ExecuTorch, s | Rushlight, ms | ratio | ExecuTorch's peak, MB | Rushlight's peak, MB |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for &name in MODELS {
        let file = models.join(format!("{name}.pt2"));
        let megabytes = std::fs::metadata(&file).with_context(|| file.display().to_string())?.len() as f64 / 1e6;
        let (ours, theirs) = measure(&file, Some(python))?;
        let theirs = theirs.context("a time of ExecuTorch's")?;
        let line = format!(
            "| {name} | {} | {} | {} | {:.0} | {} | {} |",
            significant(megabytes),
            significant(theirs.seconds),
            milliseconds(ours.seconds * 1e9),
            theirs.seconds / ours.seconds,
            significant(theirs.peak_bytes / 1e6),
            significant(ours.peak_bytes / 1e6),
        );
        println!("{line}");
        let _ = writeln!(text, "{line}");
    }
    text.push_str(
        "\nThe growth of the time, for chains of additions and multiplications of one-element tensors:\n\n\
         | nodes | ExecuTorch, s | Rushlight, ms | Rushlight, µs a node |\n|--:|--:|--:|--:|\n",
    );
    for &length in CHAINS {
        let peer = (length <= LONGEST_OF_THEIRS).then_some(python);
        let (ours, theirs) = measure(&models.join(format!("chain{length}.pt2")), peer)?;
        let line = format!(
            "| {length} | {} | {} | {} |",
            theirs.map_or_else(|| "not run".to_owned(), |theirs| significant(theirs.seconds)),
            milliseconds(ours.seconds * 1e9),
            significant(ours.seconds * 1e6 / length as f64),
        );
        println!("{line}");
        let _ = writeln!(text, "{line}");
    }
    Ok(text)
}

/// Compiles one file in this process, and prints its time and memory.
pub fn once(file: &Path) -> Result<()> {
    let out = std::env::temp_dir().join(format!("rushlight-bench-{}.pte", std::process::id()));
    let compiled = save(Compiler::new().method("forward", file), &out);
    let _ = std::fs::remove_file(&out);
    compiled
}

/// Compiles to a file in this process, and prints its time and memory.
pub fn save(compiler: Compiler, out: &Path) -> Result<()> {
    let start = Instant::now();
    compiler.compile().and_then(|program| program.save(out)).map_err(|e| anyhow::anyhow!("{e}"))?;
    println!("{}", json!({ "seconds": start.elapsed().as_secs_f64(), "peak_bytes": resident::peak()? }));
    Ok(())
}

/// Measures our compiler, and theirs if there is an interpreter for it.
fn measure(file: &Path, python: Option<&Path>) -> Result<(Taken, Option<Taken>)> {
    let mut ours = Vec::new();
    let mut theirs = None;
    for run in 0..RUNS {
        if run == RUNS / 2
            && let Some(python) = python
        {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/models/large.py");
            theirs = Some(taken(Command::new(python).arg(script).arg("--measure").arg(file))?);
        }
        ours.push(taken(Command::new(std::env::current_exe()?).arg("compile-once").arg(file))?);
    }
    let mut seconds: Vec<f64> = ours.iter().map(|taken| taken.seconds).collect();
    let peak_bytes = ours.iter().map(|taken| taken.peak_bytes).fold(0.0, f64::max);
    Ok((Taken { seconds: median(&mut seconds), peak_bytes }, theirs))
}

/// Runs a process that prints its time and memory, and reads them.
pub fn taken(command: &mut Command) -> Result<Taken> {
    let taken = answer(command)?;
    let number = |key: &str| taken[key].as_f64().with_context(|| format!("{key} in {taken}"));
    Ok(Taken { seconds: number("seconds")?, peak_bytes: number("peak_bytes")? })
}
