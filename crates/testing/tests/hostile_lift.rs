//! Deterministic mutations of the corpus, taken through parse, lift and compile. No panic, no hang, no memory beyond a
//! fixed limit. `RUSHLIGHT_MUTATIONS` sets how many there are in all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cap::Cap;
use rushlight_compiler::front::pte::lift;
use rushlight_compiler::{Bytes, CompileOptions, ErrorKind, compile};
use rushlight_format::ScalarType;
use rushlight_format::bundled::BundledProgram;
use rushlight_format::pte::{
    InstructionModel, PlanModel, Program, ProgramModel, ShapeDynamism, StorageModel, ValueModel,
};
use rushlight_testing::mutations::{Random, corpus, mutate};

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// What lifting and compiling a file of a few kilobytes may take.
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

/// Changes what a program says, so that the file still parses.
fn edit(program: &mut ProgramModel<'_>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let plan = random.below(program.methods.len());
        if let Some(plan) = program.methods.get_mut(plan) {
            edit_plan(plan, random);
        }
    }
}

fn edit_plan(plan: &mut PlanModel<'_>, random: &mut Random) {
    let (values, instructions) = (plan.values.len(), plan.instructions.len());
    let any = random.below(values) as u32;
    let at = random.below(instructions);
    let other = random.below(instructions);
    match random.below(10) {
        0..=2 => match plan.instructions.get_mut(at) {
            Some(InstructionModel::Kernel { args, .. } | InstructionModel::Delegate { args, .. }) => {
                let at = random.below(args.len());
                match random.below(4) {
                    0 => args.truncate(at),
                    1 => args.insert(at, any),
                    _ => args.iter_mut().skip(at).take(1).for_each(|arg| *arg = any),
                }
            }
            Some(InstructionModel::JumpFalse { cond, destination }) => {
                if random.below(2) == 0 {
                    *cond = any;
                } else {
                    *destination = random.below(instructions + 1) as u32;
                }
            }
            Some(InstructionModel::Move { from, to }) => *(if random.below(2) == 0 { from } else { to }) = any,
            _ => {}
        },
        3 if at < instructions => plan.instructions.swap(at, other),
        4 if at < instructions => {
            let again = plan.instructions[other].clone();
            plan.instructions.insert(at, again);
        }
        5 if at < instructions => {
            let (cond, destination) = (any, random.below(instructions) as u32);
            plan.instructions.insert(at, InstructionModel::JumpFalse { cond, destination });
        }
        6 => {
            let operators = plan.operators.len();
            if let Some(InstructionModel::Kernel { operator, .. }) = plan.instructions.get_mut(at) {
                *operator = random.below(operators) as u32;
            }
        }
        _ => {
            let new = match random.below(6) {
                0 => ValueModel::Int(random.number() as i64 >> random.below(64)),
                1 => ValueModel::None,
                2 => ValueModel::Bool(random.below(2) == 0),
                3 => ValueModel::IntList(vec![any; random.below(4)]),
                4 => ValueModel::TensorList(vec![any; random.below(4)]),
                _ => ValueModel::Double(1.5),
            };
            match plan.values.get_mut(any as usize) {
                Some(ValueModel::Tensor(tensor)) => match random.below(6) {
                    0 => tensor.scalar_type = ScalarType::ALL[random.below(ScalarType::ALL.len())],
                    1 => tensor.shape_dynamism = ShapeDynamism::DynamicBound,
                    2 => {
                        let at = random.below(tensor.sizes.len());
                        tensor.sizes.iter_mut().skip(at).take(1).for_each(|size| *size = random.below(9) as i32);
                    }
                    3 => {
                        if let StorageModel::Planned { offset, .. } = &mut tensor.storage {
                            *offset = 8 * random.below(16) as u64;
                        }
                    }
                    4 => tensor.dim_order.reverse(),
                    _ => tensor.storage = StorageModel::Unplanned,
                },
                Some(value) => *value = new,
                None => {}
            }
        }
    }
}

/// What the file holds, changed and written again; `None` if it cannot be written.
fn edited(file: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let file = BundledProgram::parse(file).map_or(file, |bundled| bundled.program());
    let mut model = ProgramModel::from_program(&Program::parse(file).ok()?);
    edit(&mut model, random);
    model.to_bytes().ok()
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
