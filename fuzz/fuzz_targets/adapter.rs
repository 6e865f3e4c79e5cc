//! The description of a program's adapters (the first line), the configuration of an adapter (the second) and a safetensors file (the
//! rest) become matrices of the layers' sizes, or an error that says something.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_checkpoint::lora::{Targets, peft};
use rushlight_graph::Bytes;

/// Maximum number of elements of all matrices: larger ones are refused before, by the sizes of the program's inputs.
const MAX_ELEMENTS: usize = 1 << 20;

fuzz_target!(|file: &[u8]| {
    let mut parts = file.splitn(3, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (targets, config, weights) = (next(), next(), next());
    let targets = match Targets::parse(targets) {
        Ok(targets) => targets,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let elements = targets.kinds.iter().try_fold(0usize, |sum, kind| {
        let columns = kind.inputs.checked_add(kind.outputs)?.checked_mul(targets.max_rank)?;
        sum.checked_add(columns.checked_mul(kind.modules.len())?)
    });
    if elements.is_none_or(|elements| elements > MAX_ELEMENTS) {
        return;
    }
    match peft::read(config, &Bytes::from(weights.to_vec()), &targets, 1.0) {
        Ok(matrices) => {
            assert_eq!(matrices.len(), targets.kinds.len());
            for (kind, matrices) in targets.kinds.iter().zip(matrices) {
                let each = kind.modules.len() * matrices.rank;
                assert_eq!([matrices.a.len(), matrices.b.len()], [each * kind.inputs, each * kind.outputs]);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::lines_and_safetensors::<2>(data, size, max_size, seed)
});
