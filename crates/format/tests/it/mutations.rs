//! Damaged copies of the corpus. Parsing must not panic, and an accepted copy must be readable completely.

use std::fs;
use std::path::Path;

use rushlight_format::bundled::BundledValue;
use rushlight_format::ptd::FlatTensorModel;
use rushlight_format::pte::ProgramModel;
use rushlight_format::{BundledProgram, FlatTensor, Program};

/// Broken copies of each file.
const MUTATIONS: u64 = 3000;
const SPLATS: [u32; 8] = [0, 1, 3, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0, 0x0001_0000];

/// xorshift64*: the same sequence on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Reads a file to its last field if it parses, and says whether it did.
fn read(file: &[u8]) -> bool {
    if BundledProgram::is_bundled(file) {
        let Ok(bundled) = BundledProgram::parse(file) else { return false };
        for suite in bundled.suites() {
            for case in (0..suite.num_cases()).map(|i| suite.case(i).unwrap()) {
                for value in case.inputs().chain(case.expected_outputs()) {
                    let BundledValue::Tensor { layout, data } = value else { continue };
                    assert!(data.len() >= layout.nbytes());
                }
            }
        }
        return read(bundled.program());
    }
    if file.get(4..6) == Some(b"FT") {
        let Ok(flat_tensor) = FlatTensor::parse(file) else { return false };
        let model = FlatTensorModel::from_flat_tensor(&flat_tensor);
        assert_eq!(model.entries.len(), flat_tensor.len());
        let written = model.to_bytes().unwrap();
        assert_eq!(FlatTensorModel::from_flat_tensor(&FlatTensor::parse(&written).unwrap()), model);
        return true;
    }
    let Ok(program) = Program::parse(file) else { return false };
    for plan in program.methods() {
        assert_eq!(plan.values().count(), plan.num_values());
        assert_eq!(plan.instructions().count(), plan.num_instructions());
    }
    let model = ProgramModel::from_program(&program);
    assert_eq!(model.methods.len(), program.num_methods());
    // A shared table becomes many, so that only a small program is sure to stay one.
    let written = model.to_bytes().unwrap();
    if written.len() <= 4 * file.len() {
        let again = Program::parse(&written).unwrap_or_else(|error| panic!("a rewritten program: {error}"));
        // By text, since NaN differs from itself.
        assert_eq!(format!("{:?}", ProgramModel::from_program(&again).methods), format!("{:?}", model.methods));
    }
    true
}

fn mutate(file: &mut [u8], random: &mut Random) {
    // The flatbuffer stands first, and faults there matter more than those in the data.
    let reach = if random.below(4) == 0 { file.len() } else { file.len().min(2048) };
    for _ in 0..=random.below(3) {
        let at = random.below(reach);
        match random.below(4) {
            0 => file[at] ^= 1 << random.below(8),
            1 => file[at] = random.below(256) as u8,
            2 => {
                let word = SPLATS[random.below(SPLATS.len())].to_le_bytes();
                let at = at & !3;
                if let Some(target) = file.get_mut(at..at + 4) {
                    target.copy_from_slice(&word);
                }
            }
            _ => {
                // A word from elsewhere in the file: an offset that points at something of another kind.
                let (from, at) = (random.below(reach) & !3, at & !3);
                if let (Some(word), true) = (file.get(from..from + 4).map(<[u8]>::to_vec), at + 4 <= file.len()) {
                    file[at..at + 4].copy_from_slice(&word);
                }
            }
        }
    }
}

#[test]
fn no_mutation_of_the_corpus_panics() {
    let mut random = Random(0x5eed_cafe_f00d_d00d);
    let (mut accepted, mut refused) = (0u64, 0u64);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut files: Vec<_> = fs::read_dir(root)
        .unwrap()
        .flat_map(|generation| fs::read_dir(generation.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pte" || e == "ptd" || e == "bpte"))
        .collect();
    files.sort();
    // An emulator is slow.
    let given = std::env::var("RUSHLIGHT_MUTATIONS").map_or(MUTATIONS, |given| given.parse().expect("a number"));
    let count = given.min(MUTATIONS);
    for path in files {
        let original = fs::read(&path).unwrap();
        assert!(read(&original), "{}", path.display());
        let mut file = original.clone();
        for _ in 0..count {
            file.copy_from_slice(&original);
            mutate(&mut file, &mut random);
            let len = if random.below(16) == 0 { random.below(file.len()) } else { file.len() };
            *(if read(&file[..len]) { &mut accepted } else { &mut refused }) += 1;
        }
    }
    let share = |of_all: u64| of_all * count / MUTATIONS;
    assert!(refused > share(50_000) && accepted > share(1_000), "{accepted} accepted, {refused} refused");
}
