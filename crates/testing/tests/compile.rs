//! Whole models that `tools/models/generate.py` exported as `.pt2`, compiled and run against what eager PyTorch answered.
//!
//! Ignored by default, since the models are generated: `cargo xtask test models` generates and compiles them. The folder
//! is `target/models`, or the one that RUSHLIGHT_MODELS names; RUSHLIGHT_ONLY takes names to run, separated by commas.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rushlight::Module;
use rushlight_compiler::{Bytes, CompileOptions, compile_pt2};
use rushlight_testing::recorded::Recording;

fn recordings() -> Vec<Recording> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models");
    let models = std::env::var_os("RUSHLIGHT_MODELS").map_or(default, PathBuf::from);
    let only = std::env::var("RUSHLIGHT_ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|wanted| wanted == name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&models)
        .unwrap_or_else(|error| panic!("{}: {error}; generate the models first", models.display()))
        .flatten()
        .map(|folder| folder.path().join("cases.json"))
        .filter(|path| path.exists())
        .collect();
    paths.sort();
    let recordings = paths.iter().map(|path| Recording::open(path).unwrap());
    recordings.filter(|recording| !recording.exported().is_empty() && wanted(&recording.name)).collect()
}

/// Compiles one of the two forms and makes the recorded calls. Gives the number of calls and the time to compile.
fn compile_and_run(recording: &Recording, form: usize) -> Result<(usize, f64), String> {
    let exported = recording.exported();
    let files: Vec<(&str, Bytes)> = exported
        .iter()
        .map(|(method, files)| Ok((*method, std::fs::read(&files[form]).map_err(|e| e.to_string())?.into())))
        .collect::<Result<_, String>>()?;
    let start = Instant::now();
    let compiled = compile_pt2(&files, &CompileOptions::default()).map_err(|e| e.to_string())?;
    let file = compiled.program.to_bytes().map_err(|e| e.to_string())?;
    let seconds = start.elapsed().as_secs_f64();
    let mut module = Module::builder().load_bytes(&file).map_err(|e| format!("load: {e}"))?;
    let calls = recording.run(&mut module).map_err(|e| format!("run: {e}"))?;
    Ok((calls, seconds))
}

#[test]
#[ignore = "needs the generated models"]
fn compiled_models_give_the_recorded_results() {
    let recordings = recordings();
    let mut failures = Vec::new();
    for recording in &recordings {
        for (form, label) in ["exported", "decomposed"].iter().enumerate() {
            match compile_and_run(recording, form) {
                Ok((calls, seconds)) => {
                    println!("{} {label}: {calls} calls agree, {:.1} ms", recording.name, seconds * 1e3)
                }
                Err(failure) => failures.push(format!("{} {label}: {}", recording.name, failure.replace('\n', " | "))),
            }
        }
    }
    let total = recordings.len() * 2;
    println!("{} of {total} compile and agree", total - failures.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
