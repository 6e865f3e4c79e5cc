//! Deterministic damage to the programs of the corpus.

use std::path::{Path, PathBuf};

/// xorshift64* (Vigna, 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below a limit; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.number() % limit as u64) as usize }
    }
}

/// The programs of `tests/corpus`.
///
/// # Panics
/// If the corpus is not where the repository has it.
pub fn corpus() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let mut paths = Vec::new();
    for generation in std::fs::read_dir(root).expect("the corpus is part of the repository").flatten() {
        let Ok(files) = std::fs::read_dir(generation.path()) else { continue };
        paths.extend(files.flatten().map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "pte")));
    }
    paths.sort();
    paths
}

/// Changes a few places, most of them in the flatbuffer at the start, where the structure is.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const EXTREMES: [u32; 10] = [0, 1, 2, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff0, 0x0001_0000];
    for _ in 0..=random.below(4) {
        let structure = bytes.len().min(4096);
        let limit = if random.below(8) == 0 { bytes.len() } else { structure };
        let at = random.below(limit);
        match random.below(8) {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            2 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.number() as u8;
                }
            }
            3 | 4 => {
                let value = EXTREMES[random.below(EXTREMES.len())];
                if let Some(word) = bytes.get_mut(at & !3..(at & !3) + 4) {
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            5 => {
                // Small changes of offsets and indices keep a file nearly right.
                if let Some(word) = bytes.get_mut(at & !3..(at & !3) + 4).and_then(|w| w.first_chunk_mut::<4>()) {
                    let value = u32::from_le_bytes(*word).wrapping_add(random.below(64) as u32).wrapping_sub(32);
                    *word = value.to_le_bytes();
                }
            }
            6 => {
                let (from, len) = (random.below(structure), 4 * (1 + random.below(8)));
                if from + len <= bytes.len() && at + len <= bytes.len() {
                    bytes.copy_within(from..from + len, at);
                }
            }
            _ => {
                if random.below(4) == 0 {
                    bytes.truncate(at);
                }
            }
        }
    }
}
