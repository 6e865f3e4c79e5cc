//! Parses, loads and executes a program without inputs, and with unset ones where it has some: no panic, no hang, no
//! memory beyond the limit.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight::runtime::{HeapBlock, LoadOptions, Memory, StableBytes};
use rushlight::{Method, Program, Registry, kernels};
use rushlight_testing::zeros::Zeros;

/// Maximum memory of one method, in bytes.
const LIMIT: usize = 1 << 18;

/// Inputs of more bytes are not given.
const INPUT: u64 = 1 << 14;

/// Instructions that are run of a method.
const STEPS: u32 = 200;

fuzz_target!(|data: &[u8]| {
    let Ok(mut block) = HeapBlock::new(data.len()) else { return };
    block.bytes_mut().copy_from_slice(data);
    let Ok(program) = Program::parse(block.bytes()) else { return };
    for plan in program.parsed().methods().take(4) {
        let options = LoadOptions::new(Registry::new(kernels::ALL));
        let memory = Memory::heap().with_limit(LIMIT);
        let Ok(mut method) = Method::load(&program, plan.name(), memory, &options) else { continue };
        let meta = rushlight::MethodMeta::of(&plan);
        let zeros = Zeros::of(&meta, INPUT);
        let inputs = zeros.inputs();
        let Ok(mut execution) = method.start(&inputs, &mut []) else { continue };
        // A loop may go on for the runtime's own limit of ten million instructions, which is no hang, but too long here.
        for _ in 0..STEPS {
            if !execution.step().is_ok_and(|more| more) {
                break;
            }
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::program(data, size, max_size, seed)
});
