//! Planted entries of the compile cache, with a valid checksum: they are loaded and run, or lowered again.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight::{Cache, CacheUse, Module};
use rushlight_fuzz::run;

const MODEL: &[u8] = include_bytes!("../../tests/corpus/1.5.1/mlp.pte");

/// Memory limit of a module in bytes. Lowering takes as much as the file, and so is refused before it begins: nearly all time
/// goes to what is planted.
const LITTLE: usize = 1 << 15;

/// The program, with bytes behind it that nothing refers to.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut program = MODEL.to_vec();
    program.resize(LITTLE + 1, 0);
    program
});

/// The folder of the cache, the entry of the program, which is written first, and what that holds before its checksum.
static ENTRY: LazyLock<(PathBuf, PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("rushlight-fuzz-cache-{}", std::process::id()));
    match load(&folder, run::MEMORY).cache_use() {
        Some(CacheUse::Written { file, .. }) => {
            let mut content = std::fs::read(file).expect("the entry");
            content.truncate(content.len() - 8);
            (folder, file.clone(), content)
        }
        other => panic!("{other:?}"),
    }
});

fn load(folder: &PathBuf, memory: usize) -> Module {
    let cache = Cache::new(folder).smallest(0);
    let builder = Module::builder().lower("cpu").threads(1).memory_limit(memory).cache(cache);
    let mut module = builder.load_bytes(&PROGRAM).expect("a program of the corpus");
    let _ = module.load_method("forward");
    module
}

fuzz_target!(|content: &[u8]| {
    let (folder, file, _) = &*ENTRY;
    let sum = checksum(content);
    let planted = [content, &sum].concat();
    // Another file in its place: the entry that is there may be mapped.
    std::fs::remove_file(file).and_then(|()| std::fs::write(file, planted)).expect("the fuzzer's own file");
    // One in 256 is lowered again if it is of no use.
    let lowers = sum[0] == 0;
    let mut module = load(folder, if lowers { run::MEMORY } else { LITTLE });
    run::run(&mut module);
    match module.cache_use() {
        Some(CacheUse::Loaded { .. }) => {}
        Some(CacheUse::Written { ignored: Some(_), .. }) if lowers => {}
        None if !lowers => {
            let reason = module.report().expect_err("it is not lowered").to_string();
            assert!(reason.contains("more memory than the limit"), "{reason}");
            // The next one takes its place.
            std::fs::write(file, []).expect("the fuzzer's own file");
        }
        other => panic!("{other:?}"),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let entry = &ENTRY.2;
    // Nothing is known of the entry before it is written: all inputs descend from it.
    let size = if data.get(4..6) != Some(b"ET") && entry.len() <= max_size {
        data[..entry.len()].copy_from_slice(entry);
        entry.len()
    } else {
        size
    };
    rushlight_fuzz::mutators::program(data, size, max_size, seed)
});

/// The checksum behind an entry, as `lower/cache/checksum.rs` defines it. If the two part, nothing is loaded from the cache
/// and coverage shows it.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    let step = |lane: u64, word: u64| (lane.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut padded = bytes.to_vec();
    // A last block of zeros follows even where nothing is left over.
    padded.resize((bytes.len() / 32 + 1) * 32, 0);
    let mut lanes = [1u64, 2, 3, 4];
    for block in padded.chunks_exact(32) {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes.into_iter().fold(bytes.len() as u64, step).to_le_bytes()
}
