//! Every program of `tests/corpus`, three generations of ExecuTorch, gives the recorded results: on the reference
//! operators, and lowered when it is loaded.

use std::path::{Path, PathBuf};

use rushlight_testing::recorded::Recording;

fn recordings() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut paths = Vec::new();
    for generation in std::fs::read_dir(corpus).expect("the corpus is part of the repository").flatten() {
        let Ok(files) = std::fs::read_dir(generation.path()) else { continue };
        paths.extend(files.flatten().map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "json")));
    }
    paths.sort();
    paths
}

/// Whether operators may take square roots, for which `libm` has assembly that Miri does not run.
fn has_roots(recording: &Recording) -> bool {
    let Ok(bytes) = std::fs::read(recording.program()) else { return true };
    let Ok(program) = rushlight_format::Program::parse(&bytes) else { return true };
    let mut operators =
        program.methods().flat_map(|plan| (0..plan.num_operators()).filter_map(move |i| plan.operator(i)));
    operators.any(|operator| operator.name.contains("norm") || operator.name.contains("sqrt"))
}

#[test]
fn programs_of_every_generation_give_the_recorded_results() {
    let paths = recordings();
    let mut failures = Vec::new();
    let (mut programs, mut calls) = (0, 0);
    for path in &paths {
        let result = Recording::open(path).and_then(|recording| {
            // Miri looks at the runtime alone: it has neither the instructions of the CPU back end nor the time.
            if cfg!(miri) {
                let runs = recording.backends().is_empty() && !has_roots(&recording);
                return if runs { recording.run(&mut recording.load("off")?) } else { Ok(0) };
            }
            let mut lowered = recording.load("cpu")?;
            let Some(backend) = recording.backends().into_iter().next() else {
                recording.run(&mut lowered).map_err(|failure| format!("lowered: {failure}"))?;
                return recording.run(&mut recording.load("off")?);
            };
            // Programs that need a backend are kept to see the error that names it, and to be lowered.
            match recording.load("off")?.load_method("forward") {
                Err(error) if error.to_string().contains(backend) => {}
                Err(error) => return Err(format!("another error than the missing backend: {error}")),
                Ok(()) => return Err("it loaded without its backend".to_owned()),
            }
            match lowered.load_method("forward") {
                Ok(()) => recording.run(&mut lowered).map_err(|failure| format!("lowered: {failure}")),
                Err(error) if error.to_string().contains(backend) => Ok(0),
                Err(error) => Err(format!("another error than the missing backend: {error}")),
            }
        });
        match result {
            Ok(count) => {
                programs += 1;
                calls += count;
            }
            Err(failure) => failures.push(format!("{}: {failure}", path.display())),
        }
    }
    println!("{programs} programs, {calls} calls");
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), paths.len(), failures.join("\n"));
    assert!(programs >= 30, "the corpus is incomplete: {programs} programs");
}
