//! Deterministic mutations of the corpus, through parse, load and execute. No panic, no hang, no memory beyond the
//! amount that the file and its declared buffers justify. `RUSHLIGHT_MUTATIONS` sets the number of mutations.
//!
//! This is a separate binary, because its allocator limits the process while a file is tried.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cap::Cap;
use rushlight::runtime::{HeapBlock, LoadOptions, Memory, OutputBuffer, StableBytes};
use rushlight::{Input, Method, Program, Registry, TensorView, kernels};
use rushlight_format::pte::{Plan, TensorStorage, ValueSpec};
use rushlight_testing::mutations::{Random, corpus, mutate};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Memory limit of one method, its declared buffers included. Mutations that declare more fail to load.
const MEMORY_LIMIT: usize = 4 << 20;
/// Memory of the test itself: inputs, outputs, messages.
const SLACK: usize = 1 << 20;
/// A loop may run up to the cap of instructions, which takes a while in an unoptimized build.
const TOO_SLOW: Duration = Duration::from_mins(1);

/// Sizes and zeros for a method's tensor inputs, if they are small.
fn tensors(
    plan: &Plan<'_>,
    indices: impl Iterator<Item = u32>,
) -> Vec<Option<(rushlight::ScalarType, Vec<usize>, HeapBlock)>> {
    indices
        .map(|index| match plan.value(index as usize) {
            ValueSpec::Tensor(spec) if spec.nbytes < 1 << 16 => {
                let sizes = spec.sizes.iter().map(|size| size as usize).collect();
                Some((spec.scalar_type, sizes, HeapBlock::new(spec.nbytes).ok()?))
            }
            _ => None,
        })
        .collect()
}

#[derive(Default, Debug)]
struct Outcomes {
    unparsed: usize,
    unloaded: usize,
    failed: usize,
    executed: usize,
}

fn try_file(bytes: &[u8], outcomes: &mut Outcomes) {
    let Ok(program) = Program::parse(bytes) else {
        outcomes.unparsed += 1;
        return;
    };
    let names: Vec<String> = program.parsed().methods().take(4).map(|plan| plan.name().to_owned()).collect();
    for name in names {
        let options = LoadOptions::new(Registry::new(kernels::ALL));
        let memory = Memory::heap().with_limit(MEMORY_LIMIT);
        let Ok(mut method) = Method::load(&program, &name, memory, &options) else {
            outcomes.unloaded += 1;
            continue;
        };
        let parsed = program.parsed();
        let Some(plan) = parsed.method_named(&name) else { continue };
        let inputs = tensors(&plan, plan.inputs().iter());
        let views: Vec<Input<'_>> = inputs
            .iter()
            .map(|input| match input {
                Some((dtype, sizes, data)) => {
                    let len = sizes.iter().product::<usize>() * dtype.size();
                    TensorView::new(*dtype, sizes, &data.bytes()[..len]).map_or(Input::None, Input::Tensor)
                }
                None => Input::None,
            })
            .collect();
        let mut memory = tensors(&plan, plan.outputs().iter());
        let mut buffers = Vec::new();
        for (index, output) in memory.iter_mut().enumerate() {
            let is_unplanned = matches!(
                plan.outputs().get(index).map(|v| plan.value(v as usize)),
                Some(ValueSpec::Tensor(spec)) if spec.storage == TensorStorage::Unplanned
            );
            if let Some((_, _, data)) = output
                && is_unplanned
                && method.output_needs_memory(index)
            {
                buffers.push(OutputBuffer { index, data: data.bytes_mut() });
            }
        }
        let result = method.start(&views, &mut buffers).and_then(rushlight::runtime::Execution::finish);
        match result {
            Ok(outputs) => {
                outcomes.executed += 1;
                for i in 0..outputs.len() {
                    let _ = outputs.get(i);
                }
            }
            Err(error) => {
                outcomes.failed += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

#[test]
fn mutated_files_do_no_harm() {
    let total: usize = std::env::var("RUSHLIGHT_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
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
            mutate(&mut bytes, &mut random);
            let mut aligned = HeapBlock::new(bytes.len()).expect("a small file");
            aligned.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
            let bytes = &aligned.bytes()[..bytes.len()];
            let limit = ALLOCATOR.allocated() + 2 * bytes.len() + MEMORY_LIMIT + SLACK;
            ALLOCATOR.set_limit(limit).expect("the limit is above what is in use");
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
    assert!(outcomes.unparsed > enough && outcomes.unloaded > enough / 10, "{outcomes:?}");
    assert!(outcomes.failed > enough / 10 && outcomes.executed > enough, "{outcomes:?}");
}
