//! A checksum that finds damaged files. It does not protect against deliberate changes.

use std::io::{self, Write};

/// Bytes of a block: one word for each lane.
const BLOCK: usize = 8 * LANES;
const LANES: usize = 4;

/// Odd, so that multiplication is invertible: the fractional part of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum of 64 bits. It is computed about as fast as bytes can be read. A change within one word always changes
/// it.
pub(super) struct Checksum {
    lanes: [u64; LANES],
    /// Bytes that do not fill a block yet.
    rest: [u8; BLOCK],
    filled: usize,
    len: u64,
}

impl Checksum {
    pub const LEN: usize = 8;

    pub fn new() -> Self {
        Self { lanes: [1, 2, 3, 4], rest: [0; BLOCK], filled: 0, len: 0 }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if self.filled > 0 {
            let (taken, after) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.rest[self.filled..self.filled + taken.len()].copy_from_slice(taken);
            self.filled += taken.len();
            bytes = after;
            if self.filled < BLOCK {
                return;
            }
            self.filled = 0;
            mix(&mut self.lanes, &self.rest);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut lanes = self.lanes;
        blocks.iter().for_each(|block| mix(&mut lanes, block));
        self.lanes = lanes;
        self.rest[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    pub fn finish(mut self) -> [u8; Self::LEN] {
        self.rest[self.filled..].fill(0);
        mix(&mut self.lanes, &self.rest);
        self.lanes.into_iter().fold(self.len, step).to_le_bytes()
    }
}

fn mix(lanes: &mut [u64; LANES], block: &[u8; BLOCK]) {
    let (words, _) = block.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane = step(*lane, u64::from_le_bytes(*word));
    }
}

fn step(lane: u64, word: u64) -> u64 {
    (lane.rotate_left(29) ^ word).wrapping_mul(FACTOR)
}

/// A writer that passes bytes on and computes their checksum.
pub(super) struct Summed<'w, W> {
    pub to: &'w mut W,
    pub sum: Checksum,
}

impl<W: Write> Write for Summed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.to.write(bytes)?;
        self.sum.update(bytes.get(..taken).unwrap_or(bytes));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> [u8; 8] {
        let mut sum = Checksum::new();
        pieces.iter().for_each(|piece| sum.update(piece));
        sum.finish()
    }

    #[test]
    fn the_sum_does_not_depend_on_pieces() {
        let bytes: Vec<u8> = (0..1000u32).map(|index| (index * index) as u8).collect();
        let whole = of(&[&bytes]);
        for at in 0..=100 {
            let (a, b) = bytes.split_at(at);
            let (c, d) = b.split_at(7);
            assert_eq!(of(&[a, c, &[], d]), whole, "at {at}");
        }
    }

    #[test]
    fn every_changed_bit_and_length_is_seen() {
        let bytes: Vec<u8> = (0..200u8).collect();
        let whole = of(&[&bytes]);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&[&changed]), whole, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_ne!(of(&[&bytes[..len]]), whole, "length {len}");
        }
        assert_ne!(of(&[&[0; 8]]), of(&[&[0; 16]]));
    }
}
