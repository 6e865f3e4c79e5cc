//! Well-known models that ExecuTorch lowered for its XNNPACK delegate. They are compiled for the CPU backend and
//! lowered at load, and compared with XNNPACK's own results.
//!
//! Ignored by default, because the models are made by `tools/models/xnnpack.py`: `cargo xtask test models` makes them.
//! The folder is `target/xnnpack-models`, or the one in RUSHLIGHT_XNNPACK_MODELS; RUSHLIGHT_ONLY lists the names to
//! run.

use std::path::Path;
use std::time::Instant;

use rushlight::{Lower, Module};
use rushlight_compiler::partition::Fate;
use rushlight_compiler::{CompileOptions, compile_pte};
use rushlight_cpu_compile::Cpu;
use rushlight_graph::Bytes;
use rushlight_testing::recorded::{self, Recording};

/// The beginning of `docs/xnnpack-models.md`, which a run with UPDATE_DOCS writes.
const PAGE: &str = "\
# Models that ExecuTorch lowered for XNNPACK

`tools/models/xnnpack.py` exports these models with random weights and ExecuTorch's own partitioner, in two types and some in int8.
Each program is compiled for the CPU backend, and also lowered at load. A test runs both and compares the results with those of
ExecuTorch's XNNPACK delegate for the same input. The error is the maximum difference, relative to the largest element of the
output. In float16, XNNPACK rounds at every step and Rushlight only at the end, so most of the difference is XNNPACK's own error.
The last column shows that error: XNNPACK's difference from float32. If it is as large as the result, the column shows PyTorch's.

`UPDATE_DOCS=1 cargo test --profile checked -p rushlight-testing --test it xnnpack -- --ignored` writes this page.

## ExecuTorch's own tests

ExecuTorch 1.5.1 has 264 tests of XNNPACK's operators. The same 263 pass on Rushlight and on ExecuTorch's runtime. The other one,
`test_linear_qd8_f32_per_token_weight_per_channel_group_int4`, draws random weights. With some weights, both runtimes exceed its
tolerance. 36 tests run no program. `cargo xtask test xnnpack-tests` runs all tests on both runtimes.

The results agree to the rounding of their type, with two exceptions:

- **4-bit weights with an odd number of input channels.** XNNPACK reads one element past each row: the first of the next row, or memory
  after the tensor. This element can widen the row's range, and so change its scale. Rushlight does not read it. In a few rows, results
  differ by up to 8e-3 of their largest element.
- **Many dynamically quantized layers in sequence.** The last bit of a value halfway between two integers decides its rounding, and depends
  on the order of accumulation. An 8da4w decoder of four layers agrees within 5e-7 in 9 of 12 calls, and differs by up to 7e-3 in the
  others. ExecuTorch's runtime differs as much from itself if the embeddings change by an ulp.

## Models

| model | delegate calls | nodes on the CPU backend | others | error | allowed | XNNPACK's own |
|---|---|---|---|---|---|---|
";

/// The largest error of a program compiled ahead of time, and of one lowered at load; and the numbers of claimed and of
/// other nodes.
fn check(recording: &Recording) -> Result<(f64, [usize; 2]), String> {
    let file = Bytes::from(std::fs::read(recording.program()).map_err(|error| error.to_string())?);
    let options = CompileOptions { backends: vec![Box::new(Cpu::default())], ..CompileOptions::default() };
    let compiled = compile_pte(&file, &[], &options).map_err(|error| format!("compile: {error}"))?;
    let entries = &compiled.report.entries;
    let taken = entries.iter().filter(|entry| matches!(entry.fate, Fate::Claimed { .. })).count();
    let others = entries.len() - taken;
    for entry in entries.iter().filter(|entry| !matches!(entry.fate, Fate::Claimed { .. })) {
        println!("    {}: {:?}", entry.op, entry.fate);
    }
    let program = compiled.program.to_bytes().map_err(|error| error.to_string())?;
    let mut ahead = Module::builder().load_bytes(&program).map_err(|error| format!("load: {error}"))?;
    let start = Instant::now();
    let first = recording.run_within(&mut ahead).map_err(|error| format!("compiled: {error}"))?;
    let first_run = start.elapsed();
    drop((ahead, program));
    let start = Instant::now();
    let mut lowered = Module::builder()
        .lower(Lower::Auto)
        .load(recording.program())
        .map_err(|error| format!("lower at load: {error}"))?;
    lowered.load_method("forward").map_err(|error| format!("load of the method: {error}"))?;
    let load = start.elapsed();
    lowered.report().map_err(|error| format!("not lowered at load: {error}"))?;
    let second = recording.run_within(&mut lowered).map_err(|error| format!("lowered at load: {error}"))?;
    println!(
        "{}: {taken} nodes taken, {others} left; first run {:.0} ms, load with lowering {:.0} ms; error {:.1e}",
        recording.name,
        first_run.as_secs_f64() * 1e3,
        load.as_secs_f64() * 1e3,
        first.max(second)
    );
    Ok((first.max(second), [taken, others]))
}

#[test]
#[ignore = "needs the models that tools/models/xnnpack.py makes"]
fn models_that_were_lowered_for_xnnpack_give_its_results() {
    let recordings = recorded::wanted("RUSHLIGHT_XNNPACK_MODELS", "xnnpack-models");
    let mut page = String::from(PAGE);
    let mut failures = Vec::new();
    for recording in &recordings {
        match check(recording) {
            Ok((error, [taken, others])) => {
                page += &format!(
                    "| {} | {} | {taken} | {others} | {error:.1e} | {:.1e} | {:.1e} |\n",
                    recording.name,
                    recording.number("delegate_calls").unwrap_or_default(),
                    recording.tolerance().unwrap_or_default(),
                    recording.number("xnnpack_error").unwrap_or_default(),
                );
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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/xnnpack-models.md");
        std::fs::write(path, &page).unwrap();
    }
}
