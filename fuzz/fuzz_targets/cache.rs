//! Planted entries of the compile cache, with a valid checksum: they are loaded and run, or lowered again.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight::{Cache, CacheUse, Lower, Module};
use rushlight_fuzz::run;

const PROGRAM: &[u8] = include_bytes!("../../tests/corpus/1.5.1/mlp.pte");

/// The folder of the cache, and the entry of the program, which is written first.
static ENTRY: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("rushlight-fuzz-cache-{}", std::process::id()));
    match load(&folder).cache_use() {
        Some(CacheUse::Written { file, .. }) => (folder, file.clone()),
        other => panic!("{other:?}"),
    }
});

fn load(folder: &PathBuf) -> Module {
    let cache = Cache::new(folder).smallest(0);
    let builder = Module::builder().lower(Lower::Cpu).threads(1).memory_limit(run::MEMORY).cache(cache);
    let mut module = builder.load_bytes(PROGRAM).expect("a program of the corpus");
    let _ = module.load_method("forward");
    module
}

fuzz_target!(|content: &[u8]| {
    let (folder, file) = &*ENTRY;
    let planted = [content, &checksum(content)].concat();
    // Another file in its place: the entry that is there may be mapped.
    std::fs::remove_file(file).and_then(|()| std::fs::write(file, planted)).expect("the fuzzer's own file");
    let mut module = load(folder);
    run::run(&mut module);
    match module.cache_use() {
        Some(CacheUse::Loaded { .. } | CacheUse::Written { ignored: Some(_), .. }) => {}
        other => panic!("{other:?}"),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
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
