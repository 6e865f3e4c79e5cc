//! Choices made from a byte stream.

/// Choices that bytes make; the first of each when there are no more.
#[derive(Debug)]
pub struct Source<'a> {
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// True for one of `times` values of a byte.
    pub fn once_in(&mut self, times: u8) -> bool {
        self.byte() % times == times - 1
    }

    /// A number below 65536, and below a limit that is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let (low, high) = (self.byte(), if limit > 256 { self.byte() } else { 0 });
        usize::from(u16::from_le_bytes([low, high])) % limit
    }

    /// A size from 1 to a largest one, once in a while 0.
    pub fn size(&mut self, largest: u64) -> u64 {
        match self.byte() {
            255 => 0,
            byte => u64::from(byte) % largest + 1,
        }
    }

    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A number of any size, most often next to a power of two.
    pub fn number(&mut self) -> u64 {
        let byte = self.byte();
        let power = 1u64 << (byte % 64);
        match byte / 64 {
            0 => power,
            1 => power - 1,
            2 => power.wrapping_neg(),
            _ => u64::from_le_bytes(core::array::from_fn(|_| self.byte())),
        }
    }

    /// A float, most often a small one.
    pub fn float(&mut self) -> f32 {
        match self.byte() {
            255 => f32::from_le_bytes(core::array::from_fn(|_| self.byte())),
            254 => f32::NAN,
            253 => f32::INFINITY,
            byte => f32::from(byte) / 16.0 - 4.0,
        }
    }

    /// Takes at most `most` bytes.
    pub fn some(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1).min(self.bytes.len());
        let (some, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        some.to_vec()
    }
}
