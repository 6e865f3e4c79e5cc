//! Block formats of GGUF: 32 or 256 elements that share scales, as ggml's `ggml-quants.c` decodes them.

use half::f16;

/// Elements of the smaller blocks.
pub(super) const SMALL: usize = 32;
/// Elements of the larger ones.
pub(super) const LARGE: usize = 256;

/// A block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Block {
    /// Number of elements and of bytes.
    pub const fn size(self) -> (usize, usize) {
        match self {
            Self::Q4_0 => (SMALL, 18),
            Self::Q4_1 => (SMALL, 20),
            Self::Q5_0 => (SMALL, 22),
            Self::Q5_1 => (SMALL, 24),
            Self::Q8_0 => (SMALL, 34),
            Self::Q4K => (LARGE, 144),
            Self::Q5K => (LARGE, 176),
            Self::Q6K => (LARGE, 210),
        }
    }

    /// Appends the elements of whole blocks.
    pub fn decode(self, bytes: &[u8], to: &mut Vec<f32>) {
        match self {
            Self::Q4_0 => each(bytes, |block: &[u8; 18]| nibbles(to, block, 2, 8.0, number(block, 0), 0.0, 0)),
            Self::Q4_1 => {
                each(bytes, |block: &[u8; 20]| nibbles(to, block, 4, 0.0, number(block, 0), number(block, 2), 0));
            }
            Self::Q5_0 => each(bytes, |block: &[u8; 22]| {
                nibbles(to, block, 6, 16.0, number(block, 0), 0.0, high_bits(block, 2));
            }),
            Self::Q5_1 => each(bytes, |block: &[u8; 24]| {
                nibbles(to, block, 8, 0.0, number(block, 0), number(block, 2), high_bits(block, 4));
            }),
            Self::Q8_0 => each(bytes, |block: &[u8; 34]| {
                let scale = number(block, 0);
                to.extend(block.iter().skip(2).map(|byte| f32::from(byte.cast_signed()) * scale));
            }),
            Self::Q4K => each(bytes, |block: &[u8; 144]| {
                let (scales, quants) = (Scales::of(block), block.get(16..).unwrap_or_default());
                for (pair, quants) in quants.chunks_exact(SMALL).enumerate() {
                    let ([low, high], _) = scales.pair(pair);
                    to.extend(quants.iter().map(|byte| low.0 * f32::from(byte & 15) - low.1));
                    to.extend(quants.iter().map(|byte| high.0 * f32::from(byte >> 4) - high.1));
                }
            }),
            Self::Q5K => each(bytes, |block: &[u8; 176]| {
                let scales = Scales::of(block);
                let (bits, quants) = block.get(16..).unwrap_or_default().split_at_checked(SMALL).unwrap_or_default();
                for (pair, quants) in quants.chunks_exact(SMALL).enumerate() {
                    let ([low, high], shift) = scales.pair(pair);
                    let with = |bit: u8, shift: usize| 16 * (bit >> shift & 1);
                    let both = || quants.iter().zip(bits);
                    to.extend(both().map(|(byte, bit)| low.0 * f32::from((byte & 15) + with(*bit, shift)) - low.1));
                    to.extend(
                        both().map(|(byte, bit)| high.0 * f32::from((byte >> 4) + with(*bit, shift + 1)) - high.1),
                    );
                }
            }),
            Self::Q6K => each(bytes, |block: &[u8; 210]| six_bits(block, to)),
        }
    }
}

/// Calls `decode` with each block of `N` bytes.
fn each<const N: usize>(bytes: &[u8], decode: impl FnMut(&[u8; N])) {
    bytes.as_chunks::<N>().0.iter().for_each(decode);
}

/// The `f16` at a byte.
fn number(block: &[u8], at: usize) -> f32 {
    let bytes = block.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    f16::from_le_bytes(bytes).to_f32()
}

/// The fifth bits of 32 elements.
fn high_bits(block: &[u8], at: usize) -> u32 {
    block.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// 32 elements `(q - zero) * scale + least`, of which the bytes from `at` on have first the low, then the high four bits, and
/// `high` the fifth.
fn nibbles(to: &mut Vec<f32>, block: &[u8], at: usize, zero: f32, scale: f32, least: f32, high: u32) {
    let bytes = block.get(at..).unwrap_or_default();
    let low = bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4));
    to.extend(low.enumerate().map(|(index, low)| {
        let integer = u32::from(low) | (high >> index & 1) << 4;
        (integer as f32 - zero) * scale + least
    }));
}

/// Scales and minima of the eight groups of a block, of six bits each.
struct Scales {
    groups: [(f32, f32); 8],
}

impl Scales {
    fn of(block: &[u8]) -> Self {
        let (scale, least) = (number(block, 0), number(block, 2));
        let byte = |at: usize| block.get(4 + at).copied().unwrap_or(0);
        let group = |index: usize| {
            let (a, b) = if index < 4 {
                (byte(index) & 63, byte(index + 4) & 63)
            } else {
                let (low, first, second) = (byte(index + 4), byte(index - 4) >> 6, byte(index) >> 6);
                (low & 15 | first << 4, low >> 4 | second << 4)
            };
            (scale * f32::from(a), least * f32::from(b))
        };
        Self { groups: std::array::from_fn(group) }
    }

    /// Those of two groups, and the number of the first.
    fn pair(&self, pair: usize) -> ([(f32, f32); 2], usize) {
        let of = |index: usize| self.groups.get(index).copied().unwrap_or_default();
        ([of(2 * pair), of(2 * pair + 1)], 2 * pair)
    }
}

/// 256 elements of six bits: the low four, then the high two, a scale for each 16, and one for all.
fn six_bits(block: &[u8; 210], to: &mut Vec<f32>) {
    let byte = |at: usize| block.get(at).copied().unwrap_or(0);
    let scale = number(block, 208);
    for half in 0..2 {
        for quarter in 0..4 {
            for column in 0..SMALL {
                let low = byte(64 * half + SMALL * (quarter % 2) + column) >> (4 * (quarter / 2)) & 15;
                let high = byte(128 + SMALL * half + column) >> (2 * quarter) & 3;
                let own = byte(192 + 8 * half + 2 * quarter + column / 16).cast_signed();
                to.push(scale * f32::from(own) * (f32::from(low | high << 4) - 32.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_decode_as_gguf_decodes_them() {
        let all = [
            ("Q4_0", Block::Q4_0),
            ("Q4_1", Block::Q4_1),
            ("Q5_0", Block::Q5_0),
            ("Q5_1", Block::Q5_1),
            ("Q8_0", Block::Q8_0),
            ("Q4K", Block::Q4K),
            ("Q5K", Block::Q5K),
            ("Q6K", Block::Q6K),
        ];
        let golden = include_str!("blocks_golden.txt");
        let lines: Vec<_> = golden.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), all.len());
        for line in lines {
            let [name, step, bytes, sum, values] = line.splitn(5, ' ').collect::<Vec<_>>().try_into().unwrap();
            let block = all.iter().find(|(known, _)| *known == name).unwrap().1;
            let pairs = bytes.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let bytes: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
            let mut floats = Vec::new();
            block.decode(&bytes, &mut floats);
            assert_eq!((floats.len(), bytes.len()), block.size(), "{name}");
            let expected = values.trim_matches(['[', ']']).split(", ").map(|value| value.parse::<f32>().unwrap());
            for (at, value) in expected.enumerate() {
                let got = floats[at * step.parse::<usize>().unwrap()];
                assert!((got - value).abs() < 1e-6 * value.abs().max(0.1), "{name} {at}: {got}, not {value}");
            }
            let (total, expected) = (floats.iter().map(|x| f64::from(*x)).sum::<f64>(), sum.parse::<f64>().unwrap());
            assert!((total - expected).abs() < 1e-5 * expected.abs().max(10.0), "{name}: {total}, not {sum}");
        }
    }
}
