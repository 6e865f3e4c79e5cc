//! Whole models that `tools/models/generate.py` exported, run against what eager PyTorch answered: on the reference
//! operators, and lowered when they are loaded.
//!
//! Ignored by default, since the models are generated: `cargo xtask test models` generates and runs them. The folder is
//! `target/models`, or the one that RUSHLIGHT_MODELS names; RUSHLIGHT_ONLY takes names to run, separated by commas.

use std::time::Instant;

use rushlight_testing::recorded::{self, Recording};

#[test]
#[ignore = "needs the generated models"]
fn models_give_the_recorded_results() {
    let paths = recorded::wanted_paths("RUSHLIGHT_MODELS", "models");
    let mut failures = Vec::new();
    let (mut models, mut calls) = (0, 0);
    for path in &paths {
        let start = Instant::now();
        let result = Recording::open(path).and_then(|recording| {
            if !recording.has_program() {
                return Ok(None);
            }
            let count = recording.run(&mut recording.load("off")?)?;
            let mut lowered = recording.load("cpu")?;
            if let Err(failure) = recording.run(&mut lowered) {
                match recording.differs_on_cpu(&failure) {
                    Some(reason) => println!("{} lowered: differs, {reason}", recording.name),
                    None => return Err(format!("lowered: {failure}")),
                }
            }
            Ok(Some((recording.name, count)))
        });
        match result {
            Ok(None) => {}
            Ok(Some((name, count))) => {
                println!("{name}: {count} calls agree, {:.2} s", start.elapsed().as_secs_f64());
                models += 1;
                calls += count;
            }
            Err(failure) => failures.push(format!("{}: {failure}", path.display())),
        }
    }
    println!("{models} of {} models, {calls} calls", paths.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let expected = recorded::only().map_or(230, |names| names.len());
    assert!(paths.len() >= expected, "only {} of {expected} models were generated", paths.len());
    let least = std::env::var("RUSHLIGHT_MIN_PROGRAMS").map_or(28, |least| least.parse().expect("a number"));
    assert!(models >= least, "only {models} models have a program");
}
