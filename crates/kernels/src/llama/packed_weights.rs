//! Weights of linear layers, packed in torchao's universal layout for 8-bit activations and low-bit weights.
//!
//! A header of 16 int32 (magic number, kind, then bits, zeros, bias, 8, 16, 2), then blocks of 8 output columns. A
//! block has, for each group of inputs, chunks of 16 inputs and then 8 f32 scales and 8 int32 sums, which are not
//! needed here. A chunk holds inputs 0 to 7 of each of the 8 columns, then inputs 8 to 15. 8-bit values are stored as
//! they are; 4-bit values plus 8, each 16 bytes with 16 values in the lower halves and the next 16 in the upper ones.

use rushlight_runtime::{Error, Result};

/// Output columns of a block.
pub(super) const BLOCK: usize = 8;
/// Inputs of a chunk.
const CHUNK: usize = 16;
const HEADER: usize = 64;

/// A matrix `[outputs, inputs]` of `q * scale`, with a scale for each group of inputs.
pub(super) struct PackedWeights<'a> {
    blocks: &'a [u8],
    block_bytes: usize,
    group_size: usize,
    eight_bits: bool,
}

impl<'a> PackedWeights<'a> {
    /// `outputs` is a multiple of [`BLOCK`], `inputs` one of `group_size`.
    pub(super) fn new(bytes: &'a [u8], outputs: usize, inputs: usize, group_size: usize, bits: usize) -> Result<Self> {
        let Some((header, blocks)) = bytes.split_at_checked(HEADER) else {
            return Err(Error::invalid("the packed weights are too short for their header"));
        };
        let words = header.as_chunks::<4>().0;
        let expected = [6712, 1, bits as i32, 0, 0, 8, 16, 2];
        if !words.iter().zip(expected).all(|(&word, expected)| i32::from_le_bytes(word) == expected) {
            return Err(Error::invalid(
                "the packed weights must be in torchao's universal layout, without zeros or bias",
            ));
        }
        let group_bytes = group_size * bits + 2 * 4 * BLOCK;
        let block_bytes = (inputs / group_size).checked_mul(group_bytes);
        let needed = block_bytes.and_then(|bytes| bytes.checked_mul(outputs / BLOCK));
        match (block_bytes, needed) {
            (Some(block_bytes), Some(needed)) if needed <= blocks.len() => {
                Ok(Self { blocks, block_bytes, group_size, eight_bits: bits == 8 })
            }
            _ => Err(Error::invalid("the packed weights are shorter than their sizes need")),
        }
    }

    /// The products of `input` with the output columns of block `index`, which exists.
    pub(super) fn multiply(&self, index: usize, input: &[f32]) -> [f32; BLOCK] {
        let mut bytes = &self.blocks[index * self.block_bytes..][..self.block_bytes];
        let chunk_bytes = if self.eight_bits { CHUNK * BLOCK } else { CHUNK * BLOCK / 2 };
        let mut result = [0.0; BLOCK];
        for group in input.chunks_exact(self.group_size) {
            let mut sums = [[0.0f32; 8]; BLOCK];
            for input in group.as_chunks::<CHUNK>().0 {
                let (chunk, rest) = bytes.split_at(chunk_bytes);
                bytes = rest;
                let values = if self.eight_bits { eight_bit_values(chunk) } else { four_bit_values(chunk) };
                for (half, input) in values.as_chunks::<BLOCK>().0.iter().zip(input.as_chunks::<8>().0) {
                    for (sums, weights) in sums.iter_mut().zip(half) {
                        for ((sum, &w), &x) in sums.iter_mut().zip(weights).zip(input) {
                            *sum += x * f32::from(w);
                        }
                    }
                }
            }
            let (scales, rest) = bytes.split_at(4 * BLOCK);
            bytes = &rest[4 * BLOCK..];
            for ((result, sums), &scale) in result.iter_mut().zip(&sums).zip(scales.as_chunks::<4>().0) {
                *result += sums.iter().sum::<f32>() * f32::from_le_bytes(scale);
            }
        }
        result
    }
}

/// Runs of 8 inputs for each column, first those of the first half of the chunk.
type Values = [[i8; 8]; 2 * BLOCK];

fn eight_bit_values(bytes: &[u8]) -> Values {
    let mut values = Values::default();
    for (value, &byte) in values.as_flattened_mut().iter_mut().zip(bytes) {
        *value = byte as i8;
    }
    values
}

fn four_bit_values(bytes: &[u8]) -> Values {
    let mut values = Values::default();
    for (values, bytes) in values.as_flattened_mut().as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<16>().0) {
        let (low, high) = values.split_at_mut(16);
        for ((low, high), &byte) in low.iter_mut().zip(high).zip(bytes) {
            (*low, *high) = ((byte & 15) as i8 - 8, (byte >> 4) as i8 - 8);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weight of an output column and an input.
    fn weight(column: usize, input: usize) -> i32 {
        (column * 5 + input * 3) as i32 % 16 - 8
    }

    fn pack(bits: usize, bytes: &mut [u8]) {
        for (word, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([6712i32, 1, bits as i32, 0, 0, 8, 16, 2]) {
            *word = value.to_le_bytes();
        }
        let mut at = HEADER;
        for group in 0..2 {
            for position in 0..128 {
                let (half, column, input) = (position / 64, position / 8 % 8, position % 8);
                let value = weight(column, group * 16 + half * 8 + input);
                if bits == 8 {
                    bytes[at + position] = value as u8;
                } else {
                    let byte = at + position / 32 * 16 + position % 16;
                    bytes[byte] |= ((value + 8) as u8) << (position / 16 % 2 * 4);
                }
            }
            at += 16 * bits;
            for column in 0..8 {
                bytes[at..at + 4].copy_from_slice(&((group + column) as f32).to_le_bytes());
                at += 4;
            }
            at += 32;
        }
    }

    #[test]
    fn unpacks_both_widths() {
        let input: [f32; 32] = core::array::from_fn(|i| i as f32 - 7.0);
        for bits in [4, 8] {
            let mut bytes = [0; HEADER + 2 * (128 + 64)];
            pack(bits, &mut bytes);
            let weights = PackedWeights::new(&bytes, 8, 32, 16, bits);
            let result = weights.map(|weights| weights.multiply(0, &input));
            let expected = core::array::from_fn(|column| {
                (0..32).map(|i| weight(column, i) as f32 * (i / 16 + column) as f32 * input[i]).sum()
            });
            assert_eq!(result, Ok(expected), "{bits} bits");
            assert!(PackedWeights::new(&bytes, 1600, 32, 16, bits).is_err());
            bytes[4] = 3;
            assert!(PackedWeights::new(&bytes, 8, 32, 16, bits).is_err());
        }
    }
}
