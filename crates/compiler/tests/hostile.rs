//! Deterministic mutations of the `.pt2` samples, read to the last field. The tests allow no panic, no hang, and no
//! memory out of proportion to the file. `RUSHLIGHT_MUTATIONS` sets the total number of mutations.
//!
//! This is a test binary of its own, because its allocator limits the process while a file is read.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use cap::Cap;
use rushlight_compiler::front::pt2::expr::SymExpr;
use rushlight_compiler::front::pt2::schema::{RawText, SymInt};
use rushlight_compiler::front::pt2::{Archive, Error, ExportedProgram, ImportOptions, Weight, Weights, Zip, import};
use rushlight_graph::Bytes;

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// Maximum memory in multiples of the file's size: an element of two bytes (`{}`, `N`) becomes a value.
const FACTOR: usize = 100;
/// Allowance for messages and tables of constant size.
const SLACK: usize = 1 << 20;
const TOO_SLOW: Duration = Duration::from_secs(20);

/// xorshift64* (Vigna, 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }

    fn pick<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }
}

/// A file to mutate, and the ranges of it where mutations reach furthest.
struct Seed {
    name: String,
    bytes: Vec<u8>,
    structure: Vec<Range<usize>>,
    program: Range<usize>,
    pickles: Vec<Range<usize>>,
}

fn archives() -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/pt2");
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("the samples exist").flatten().map(|f| f.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pt2"));
    paths.sort();
    paths.retain(|path| path.file_stem().is_some_and(|stem| stem != "torch_2.3"));
    let seeds = paths.iter().map(|path| {
        let mut bytes = std::fs::read(path).expect("the sample can be read");
        // Checksums would catch nearly every mutation. A checksum of 0 means none.
        let records: Vec<_> = positions(&bytes, b"PK\x01\x02").collect();
        for at in records {
            bytes[at + 16..at + 20].fill(0);
        }
        let pickles = positions(&bytes, b"data.pkl").map(|at| at..(at + 1024).min(bytes.len()));
        let directories = positions(&bytes, b"PK\x01\x02").map(|at| at..(at + 64).min(bytes.len()));
        let configs = positions(&bytes, b"{\"config\"").map(|at| at..(at + 1024).min(bytes.len()));
        let mut structure: Vec<_> = pickles.chain(directories).chain(configs).collect();
        structure.push(bytes.len() - 100..bytes.len());
        let (program, pickles) = parts(&bytes);
        Seed { name: path.display().to_string(), bytes, structure, program, pickles }
    });
    seeds.collect()
}

/// Finds the JSON of the program, and the pickles.
fn parts(bytes: &[u8]) -> (Range<usize>, Vec<Range<usize>>) {
    let whole = Bytes::from(bytes.to_vec());
    let range = |part: &Bytes| {
        let start = part.as_ptr().addr() - whole.as_ptr().addr();
        start..start + part.len()
    };
    let zip = Zip::parse(whole.clone()).expect("a sample");
    let entry = |name: &str| zip.get(name).expect("an entry of the sample");
    let files = zip.names().map(entry).filter_map(|file| Zip::parse(file).ok());
    let pickles = files.filter_map(|file| file.get("data.pkl").ok()).map(|pickle| range(&pickle)).collect();
    (range(&entry("models/model.json")), pickles)
}

fn positions<'b>(bytes: &'b [u8], pattern: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    bytes.windows(pattern.len()).enumerate().filter(move |(_, window)| *window == pattern).map(|(at, _)| at)
}

/// Changes a few places without moving others.
fn mutate(seed: &Seed, random: &mut Random) -> Vec<u8> {
    const EXTREMES: [u32; 8] = [0, 1, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0, 0x0001_0000];
    let mut bytes = seed.bytes.clone();
    for _ in 0..=random.below(3) {
        let part = if random.below(4) == 0 {
            0..bytes.len()
        } else {
            seed.structure[random.below(seed.structure.len())].clone()
        };
        let at = part.start + random.below(part.len());
        match random.below(8) {
            0..=2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            3 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
            4 => {
                let value = EXTREMES[random.below(EXTREMES.len())];
                if let Some(word) = bytes.get_mut(at..at + 4) {
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            5 => {
                if let Some(digit) = bytes
                    .get_mut(at..(at + 32).min(part.end))
                    .and_then(|near| near.iter_mut().find(|byte| byte.is_ascii_digit()))
                {
                    *digit = b'0' + random.below(10) as u8;
                }
            }
            6 => {
                let (from, len) = (random.below(bytes.len()), 1 + random.below(40));
                if from + len <= bytes.len() && at + len <= bytes.len() {
                    bytes.copy_within(from..from + len, at);
                }
            }
            _ => {
                if random.below(16) == 0 {
                    bytes.truncate(at);
                }
            }
        }
    }
    bytes
}

/// Returns a sample with an edited program. Some spaces of the text are removed, and spaces at its end fill the rest.
fn edit_program(seed: &Seed, random: &mut Random) -> Vec<u8> {
    const TOKENS: [&[u8]; 18] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"99999999999999999999",
        b"\"NaN\"",
        b"{}",
        b"[]",
        b"\"\"",
        b"\"as_graph\"",
        b"\"\\ud800\"",
        b"{\"as_int\": -9223372036854775808}",
    ];
    let mut bytes = seed.bytes.clone();
    let part = &mut bytes[seed.program.clone()];
    let text = String::from_utf8_lossy(part).replace(", \"", ",\"");
    let text = edit(text.as_bytes(), &TOKENS, random);
    part.fill(b' ');
    let len = text.len().min(part.len());
    part[..len].copy_from_slice(&text[..len]);
    bytes
}

/// Returns a sample with one edited pickle.
fn edit_pickle(seed: &Seed, random: &mut Random) -> Vec<u8> {
    const TOKENS: [&[u8]; 16] = [
        b"N",
        b"]",
        b"}",
        b")",
        b"(",
        b"t",
        b"R",
        b"b",
        b"a",
        b"\x85",
        b"q\x01",
        b"h\x01",
        b"h\x03",
        b"K\xff",
        b"J\xff\xff\xff\xff",
        b"ctorch\nSize\n",
    ];
    let mut bytes = seed.bytes.clone();
    let part = &mut bytes[seed.pickles[random.below(seed.pickles.len())].clone()];
    let pickle = edit(part, &TOKENS, random);
    part.fill(b'.');
    let len = pickle.len().min(part.len());
    part[..len].copy_from_slice(&pickle[..len]);
    bytes
}

/// Removes, repeats and replaces parts of a text.
fn edit(text: &[u8], tokens: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..=random.below(2) {
        let at = random.below(bytes.len());
        let end = (at + random.below(60)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            2 => drop(bytes.splice(at..at, random.pick(tokens).iter().copied())),
            3 => {
                // Inserts in place of a value.
                if let Some(colon) = bytes[at..].iter().position(|&byte| byte == b':') {
                    let start = at + colon + 1;
                    let len = bytes[start..].iter().position(|byte| b",}]".contains(byte)).unwrap_or(0);
                    bytes.splice(start..start + len, random.pick(tokens).iter().copied());
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(7);
                }
            }
        }
    }
    bytes
}

#[derive(Default, Debug)]
struct Outcomes {
    refused: usize,
    programs: usize,
    unread_programs: usize,
    weights: usize,
    unread_weights: usize,
    samples: usize,
    unread_samples: usize,
    imports: usize,
    unimported: usize,
}

/// Counts a result, and formats the message of an error.
fn count<T>(result: Result<T, Error>, good: &mut usize, bad: &mut usize) -> Option<T> {
    match result {
        Ok(value) => {
            *good += 1;
            Some(value)
        }
        Err(error) => {
            *bad += 1;
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn read_program(program: &ExportedProgram<'_>) {
    let _ = program.in_spec();
    let _ = program.out_spec();
    let graph = &program.graph_module.graph;
    for meta in graph.tensor_values.values() {
        for size in meta.sizes.iter().chain(&meta.strides).chain([&meta.storage_offset]) {
            if let SymInt::Expr(text) = size {
                let _ = SymExpr::parse(&text.expr_str);
            }
        }
    }
    for node in &graph.nodes {
        let _ = node.metadata.stack_trace.map(RawText::decode);
    }
}

fn read_weights(weights: Result<Weights<'_>, Error>, outcomes: &mut Outcomes) {
    let Outcomes { weights: good, unread_weights: bad, .. } = outcomes;
    let Some(weights) = count(weights, good, bad) else { return };
    for name in weights.names() {
        if let Some(Weight::Tensor(tensor)) = count(weights.get(name), good, bad)
            && tensor.nbytes() <= 1 << 16
        {
            assert_eq!(tensor.to_contiguous().len(), tensor.nbytes());
            if let Some(bytes) = tensor.contiguous_bytes() {
                assert_eq!(*bytes, *tensor.to_contiguous());
            }
        }
    }
}

fn read_archive(bytes: Vec<u8>, outcomes: &mut Outcomes) {
    let archive = match Archive::parse(Bytes::from(bytes)) {
        Ok(archive) => archive,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            outcomes.refused += 1;
            return;
        }
    };
    for name in archive.models() {
        let Some(model) = count(archive.model_named(name), &mut outcomes.programs, &mut outcomes.unread_programs)
        else {
            continue;
        };
        if let Some(program) = count(model.program(), &mut outcomes.programs, &mut outcomes.unread_programs) {
            read_program(&program);
        }
        match import(&[("forward", &model)], ImportOptions::default()) {
            Ok(_) => outcomes.imports += 1,
            Err(error) => {
                outcomes.unimported += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        read_weights(model.weights(), outcomes);
        read_weights(model.constants(), outcomes);
        let inputs = count(model.sample_inputs(), &mut outcomes.samples, &mut outcomes.unread_samples);
        let _ = inputs.flatten().map(|inputs| inputs.leaves().len());
    }
    archive.extra_files().for_each(|(_, data)| drop(data));
}

/// Reads `total` mutations of the seeds under a memory limit.
fn run(seeds: &[Seed], what: &str, total: usize, mutate: fn(&Seed, &mut Random) -> Vec<u8>) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut slowest = Duration::ZERO;
    for (number, seed) in seeds.iter().enumerate() {
        for round in 0..total.div_ceil(seeds.len()) {
            let start_of_sequence = ((number as u64) << 32 | round as u64) + 1;
            let mut random = Random(start_of_sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let bytes = mutate(seed, &mut random);
            ALLOCATOR.set_limit(ALLOCATOR.allocated() + FACTOR * bytes.len() + SLACK).expect("above what is in use");
            let start = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| read_archive(bytes, &mut outcomes)));
            slowest = slowest.max(start.elapsed());
            ALLOCATOR.set_limit(usize::MAX).expect("no limit");
            assert!(result.is_ok(), "a panic: {what} of {}, round {round}", seed.name);
            assert!(slowest < TOO_SLOW, "{slowest:?}: {what} of {}, round {round}", seed.name);
        }
    }
    println!("{total} {what}: {outcomes:?}, slowest {slowest:?}");
    outcomes
}

/// One test for all mutations, because threads share the memory limit. The mutations must reach every part, or they
/// would test nothing.
#[test]
fn mutated_archives_do_no_harm() {
    let total: usize = std::env::var("RUSHLIGHT_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let seeds = archives();
    let enough = total / 200;
    let bytes = run(&seeds, "mutations", total / 2, mutate);
    assert!(bytes.refused > enough && bytes.programs > enough && bytes.weights > enough && bytes.samples > enough);
    assert!(bytes.unread_programs > enough && bytes.unread_weights > enough && bytes.unread_samples > enough);
    let programs = run(&seeds, "edited programs", total / 4, edit_program);
    assert!(programs.unread_programs > enough && programs.imports > enough && programs.unimported > enough);
    let pickles = run(&seeds, "edited pickles", total / 4, edit_pickle);
    assert!(pickles.samples > enough && pickles.unread_samples > enough);
}
