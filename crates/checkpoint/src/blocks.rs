//! Block formats of GGUF: 32 or 256 elements that share scales, as ggml's `ggml-quants.c` decodes them.

use half::f16;

/// Elements of a small block.
const SMALL_BLOCK: usize = 32;
/// Elements of a large block, such as those of K types.
const LARGE_BLOCK: usize = 256;

/// A block format, by ggml's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

/// Numbers of groups of elements.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupNumbers {
    /// One for each group, or for each block where there are factors.
    pub units: Vec<f32>,
    /// One for each group of larger blocks.
    pub factors: Vec<i8>,
}

/// Scales and minima of groups of elements: `integer * scale + minimum`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub scales: GroupNumbers,
    /// Of formats that have them.
    pub minima: GroupNumbers,
}

impl GroupNumbers {
    fn get(&self, group: usize, of_block: usize) -> Option<f32> {
        match self.factors.get(group) {
            Some(factor) => self.units.get(group / of_block).map(|unit| unit * f32::from(*factor)),
            None => self.units.get(group).copied(),
        }
    }
}

impl Block {
    /// Number of elements and of bytes.
    pub const fn size(self) -> (usize, usize) {
        match self {
            Self::Q4_0 => (SMALL_BLOCK, 18),
            Self::Q4_1 => (SMALL_BLOCK, 20),
            Self::Q5_0 => (SMALL_BLOCK, 22),
            Self::Q5_1 => (SMALL_BLOCK, 24),
            Self::Q8_0 => (SMALL_BLOCK, 34),
            Self::Q4K => (LARGE_BLOCK, 144),
            Self::Q5K => (LARGE_BLOCK, 176),
            Self::Q6K => (LARGE_BLOCK, 210),
        }
    }

    /// Elements that share a scale.
    pub const fn group(self) -> usize {
        match self {
            Self::Q6K => 16,
            _ => 32,
        }
    }

    /// Minimum and maximum integer.
    pub const fn range(self) -> (i32, i32) {
        match self {
            Self::Q4_0 => (-8, 7),
            Self::Q5_0 => (-16, 15),
            Self::Q6K => (-32, 31),
            Self::Q8_0 => (-128, 127),
            Self::Q4_1 | Self::Q4K => (0, 15),
            Self::Q5_1 | Self::Q5K => (0, 31),
        }
    }

    /// Appends the elements of whole blocks.
    pub(crate) fn decode(self, bytes: &[u8], to: &mut Vec<f32>) {
        let (mut integers, mut groups) = (Vec::new(), Groups::default());
        self.integers(bytes, &mut integers);
        self.groups(bytes, &mut groups);
        let of_block = self.size().0 / self.group();
        for (group, integers) in integers.chunks_exact(self.group()).enumerate() {
            let scale = groups.scales.get(group, of_block).unwrap_or(0.0);
            match groups.minima.get(group, of_block) {
                Some(minimum) => {
                    to.extend(integers.iter().map(|byte| f32::from(byte.cast_signed()) * scale + minimum));
                }
                None => to.extend(integers.iter().map(|byte| f32::from(byte.cast_signed()) * scale)),
            }
        }
    }

    /// Appends the integers of whole blocks, which are signed bytes.
    pub(crate) fn integers(self, bytes: &[u8], to: &mut Vec<u8>) {
        match self {
            Self::Q4_0 => each(bytes, |block: &[u8; 18]| nibbles(to, block, 2, 8, 0)),
            Self::Q4_1 => each(bytes, |block: &[u8; 20]| nibbles(to, block, 4, 0, 0)),
            Self::Q5_0 => each(bytes, |block: &[u8; 22]| nibbles(to, block, 6, 16, high_bits(block, 2))),
            Self::Q5_1 => each(bytes, |block: &[u8; 24]| nibbles(to, block, 8, 0, high_bits(block, 4))),
            Self::Q8_0 => each(bytes, |block: &[u8; 34]| to.extend(block.iter().skip(2))),
            Self::Q4K => each(bytes, |block: &[u8; 144]| {
                for quants in block.get(16..).unwrap_or_default().chunks_exact(SMALL_BLOCK) {
                    to.extend(quants.iter().map(|byte| byte & 15));
                    to.extend(quants.iter().map(|byte| byte >> 4));
                }
            }),
            Self::Q5K => each(bytes, |block: &[u8; 176]| {
                let (bits, quants) =
                    block.get(16..).unwrap_or_default().split_at_checked(SMALL_BLOCK).unwrap_or_default();
                for (pair, quants) in quants.chunks_exact(SMALL_BLOCK).enumerate() {
                    let both = || quants.iter().zip(bits);
                    to.extend(both().map(|(byte, bits)| byte & 15 | (bits >> (2 * pair) & 1) << 4));
                    to.extend(both().map(|(byte, bits)| byte >> 4 | (bits >> (2 * pair + 1) & 1) << 4));
                }
            }),
            Self::Q6K => each(bytes, |block: &[u8; 210]| six_bits(block, to)),
        }
    }

    /// Appends the scales and minima of whole blocks.
    pub(crate) fn groups(self, bytes: &[u8], to: &mut Groups) {
        let Groups { scales, minima } = to;
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => {
                scales.units.extend(bytes.chunks_exact(self.size().1).map(|block| number(block, 0)));
            }
            Self::Q4_1 | Self::Q5_1 => {
                for block in bytes.chunks_exact(self.size().1) {
                    scales.units.push(number(block, 0));
                    minima.units.push(number(block, 2));
                }
            }
            Self::Q4K | Self::Q5K => {
                for block in bytes.chunks_exact(self.size().1) {
                    scales.units.push(number(block, 0));
                    // They are subtracted there.
                    minima.units.push(-number(block, 2));
                    for group in 0..LARGE_BLOCK / 32 {
                        let (scale, minimum) = factors(block, group);
                        scales.factors.push(scale);
                        minima.factors.push(minimum);
                    }
                }
            }
            Self::Q6K => {
                for block in bytes.chunks_exact(self.size().1) {
                    scales.units.push(number(block, 208));
                    scales.factors.extend(block.iter().skip(192).take(16).map(|byte| byte.cast_signed()));
                }
            }
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

/// 32 elements less `zero`, of which the bytes from `at` on have first the low, then the high four bits, and `high` the fifth.
fn nibbles(to: &mut Vec<u8>, block: &[u8], at: usize, zero: u8, high: u32) {
    let bytes = block.get(at..).unwrap_or_default();
    let low = bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4));
    to.extend(low.enumerate().map(|(index, low)| (low | ((high >> index & 1) << 4) as u8).wrapping_sub(zero)));
}

/// The factors of the scale and of the minimum of one of the eight groups of a block, of six bits each.
fn factors(block: &[u8], group: usize) -> (i8, i8) {
    let byte = |at: usize| block.get(4 + at).copied().unwrap_or(0);
    let (scale, minimum) = if group < 4 {
        (byte(group) & 63, byte(group + 4) & 63)
    } else {
        let (low, first, second) = (byte(group + 4), byte(group - 4) >> 6, byte(group) >> 6);
        (low & 15 | first << 4, low >> 4 | second << 4)
    };
    (scale.cast_signed(), minimum.cast_signed())
}

/// 256 elements of six bits: the low four, then the high two.
fn six_bits(block: &[u8; 210], to: &mut Vec<u8>) {
    let (low, high) = block.split_at(128);
    for (low, high) in low.chunks_exact(2 * SMALL_BLOCK).zip(high.chunks_exact(SMALL_BLOCK)) {
        for quarter in 0..4 {
            let low = low.iter().skip(quarter % 2 * SMALL_BLOCK).zip(high);
            let integer = |(low, high): (&u8, &u8)| {
                let bits = (high >> (2 * quarter) & 3) << 4;
                (low >> (4 * (quarter / 2)) & 15 | bits).wrapping_sub(32)
            };
            to.extend(low.map(integer));
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
