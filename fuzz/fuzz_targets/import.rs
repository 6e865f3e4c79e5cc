//! The JSON of an exported program, in an archive with the weights of a sample: it is imported, compiled and run, or refused.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::import_pt2;
use rushlight_fuzz::archive::{self, Entry};
use rushlight_fuzz::run::compile_and_run;
use rushlight_graph::Bytes;

/// The entries of the samples beside their programs; the first of a name counts.
static OTHERS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/pt2");
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("the samples exist").flatten().map(|f| f.path()).collect();
    paths.sort();
    let mut others: Vec<Entry> = Vec::new();
    for path in paths.iter().filter(|path| ["misc", "int8"].iter().any(|name| path.ends_with(format!("{name}.pt2")))) {
        for entry in archive::entries(&std::fs::read(path).expect("a sample")) {
            if !entry.name.ends_with(b"models/model.json") && others.iter().all(|other| other.name != entry.name) {
                others.push(entry);
            }
        }
    }
    others
});

fuzz_target!(|text: &[u8]| {
    let Some(first) = OTHERS.first() else { return };
    let root = first.name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let mut entries = vec![Entry::new([root, b"/models/model.json"].concat(), text)];
    entries.extend(OTHERS.iter().cloned());
    let file = Bytes::from(archive::zip(&entries));
    match import_pt2(&[("forward", file)], ImportOptions::default()) {
        // The length selects the backend, so that an execution takes half of the time.
        Ok(model) => compile_and_run(model, text.len().is_multiple_of(2)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    rushlight_fuzz::mutators::json(data, size, max_size, seed)
});
