//! Damaged programs for the CPU backend: typed errors, no panic, no memory beyond the limit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rushlight::{Compiler, Lower, Module};
use rushlight_cpu_payload::HEADER;
use rushlight_testing::mutations::{Random, mutate};
use rushlight_testing::zeros::Zeros;

/// Memory limit of one method, its delegates included.
const MEMORY_LIMIT: usize = 4 << 20;

/// The exported programs of the corpus, compiled for the backend, each with the position of its payload.
fn programs() -> Vec<(PathBuf, Vec<u8>, usize)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/pt2");
    let mut programs = Vec::new();
    for file in std::fs::read_dir(folder).expect("the corpus is part of the repository").flatten() {
        let path = file.path();
        let compiler = Compiler::new().method("forward", &path).backend("cpu");
        let Ok(program) = compiler.compile() else { continue };
        let bytes = program.to_bytes().expect("small programs can be written");
        let payload = bytes.windows(4).position(|window| window == HEADER);
        programs.extend(payload.map(|payload| (path, bytes, payload)));
    }
    programs.sort();
    programs
}

#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    unloaded: usize,
    failed: usize,
    executed: usize,
}

fn try_file(bytes: &[u8], outcomes: &mut Outcomes) {
    let builder = Module::builder().lower(Lower::Off).memory_limit(MEMORY_LIMIT).threads(1);
    let Ok(mut module) = builder.load_bytes(bytes) else {
        outcomes.refused += 1;
        return;
    };
    let Ok(meta) = module.meta("forward") else { return };
    if module.load_method("forward").is_err() {
        outcomes.unloaded += 1;
        return;
    }
    let zeros = Zeros::of(&meta, 1 << 16);
    match module.run("forward", &zeros.inputs()) {
        Ok(_) => outcomes.executed += 1,
        Err(error) => {
            outcomes.failed += 1;
            assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn mutated_payloads_do_no_harm() {
    let total: usize = std::env::var("RUSHLIGHT_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let programs = programs();
    assert!(programs.len() >= 5, "{} programs", programs.len());
    let mut outcomes = Outcomes::default();
    for (number, (path, original, payload)) in programs.iter().enumerate() {
        for round in 0..total.div_ceil(programs.len()) {
            let seed = ((number as u64) << 32 | round as u64) + 1;
            let mut random = Random::new(seed);
            let mut rest = original[*payload + 4..].to_vec();
            let len = rest.len();
            mutate(&mut rest, &mut random);
            rest.resize(len, 0);
            let mut bytes = original[..*payload + 4].to_vec();
            bytes.extend(rest);
            let result = catch_unwind(AssertUnwindSafe(|| try_file(&bytes, &mut outcomes)));
            assert!(result.is_ok(), "a panic: {} with seed {seed}", path.display());
        }
    }
    println!("{outcomes:?}");
    let enough = total / 200;
    assert!(outcomes.unloaded > enough && outcomes.executed > enough, "{outcomes:?}");
}
