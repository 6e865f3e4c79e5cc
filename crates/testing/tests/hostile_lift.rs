//! Deterministic mutations of the corpus, through parse, lift and compile. No panic, no hang, no memory beyond a fixed
//! limit. `RUSHLIGHT_MUTATIONS` sets the number of mutations.
//!
//! This is a separate binary, because its allocator limits the process while a file is tried.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cap::Cap;
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::{CompileOptions, compile};
use rushlight_graph::{Bytes, ErrorKind};
use rushlight_testing::mutations::{Random, corpus, edited, mutate};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Memory limit of lifting and compiling a file of a few kilobytes.
const MEMORY_LIMIT: usize = 256 << 20;
const TOO_SLOW: Duration = Duration::from_secs(20);

#[derive(Default, Debug)]
struct Outcomes {
    unparsed: usize,
    unlifted: usize,
    uncompiled: usize,
    compiled: usize,
}

fn try_file(bytes: Vec<u8>, outcomes: &mut Outcomes) {
    let model = match lift(&Bytes::from(bytes), &[]) {
        Ok(model) => model,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let stage = if error.kind() == ErrorKind::Input { &mut outcomes.unparsed } else { &mut outcomes.unlifted };
            *stage += 1;
            return;
        }
    };
    match compile(model, &CompileOptions::default()) {
        Ok(compiled) => {
            outcomes.compiled += 1;
            let _ = compiled.program.to_bytes();
        }
        Err(_) => outcomes.uncompiled += 1,
    }
}

#[test]
fn mutated_programs_lift_or_fail_with_an_error() {
    let total: usize = std::env::var("RUSHLIGHT_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let files = corpus();
    let each = total.div_ceil(files.len());
    let mut outcomes = Outcomes::default();
    let mut slowest = Duration::ZERO;
    for (number, path) in files.iter().enumerate() {
        let original = std::fs::read(path).expect("the corpus can be read");
        for round in 0..each {
            let seed = ((number as u64) << 32 | round as u64) + 1;
            let mut random = Random::new(seed);
            let mut bytes = original.clone();
            if round % 2 == 0 {
                mutate(&mut bytes, &mut random);
            } else {
                bytes = edited(&original, &mut random).unwrap_or(bytes);
            }
            ALLOCATOR.set_limit(ALLOCATOR.allocated() + MEMORY_LIMIT).expect("the limit is above what is in use");
            let start = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| try_file(bytes, &mut outcomes)));
            ALLOCATOR.set_limit(usize::MAX).expect("no limit");
            let took = start.elapsed();
            slowest = slowest.max(took);
            assert!(result.is_ok(), "a panic: {} with seed {seed}", path.display());
            assert!(took < TOO_SLOW, "{took:?}: {} with seed {seed}", path.display());
        }
    }
    println!("{} mutations of {} files: {outcomes:?}; slowest {slowest:?}", each * files.len(), files.len());
    // The mutations must reach every stage, or they test nothing.
    let enough = total / 200;
    assert!(outcomes.unparsed > enough && outcomes.unlifted > enough / 4, "{outcomes:?}");
    assert!(outcomes.compiled > enough, "{outcomes:?}");
}
