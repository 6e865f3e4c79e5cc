//! The left-hand rows, as 16-bit integers.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;

use super::super::operands::Matrix;
use super::{BLOCK_K, BLOCK_PAIRS, BLOCK_ROWS, Block, GroupPart, MAX_GROUPS};
use crate::arch::{Kernel, Simd};

/// Largest magnitude of an element.
const MAX: f32 = 32767.0;

/// Blocks of left-hand rows as integers, up to 256 elements in each.
#[repr(C, align(64))]
pub(super) struct Lhs {
    /// Pairs of elements, `[blocks][BLOCK_PAIRS]`. [`SplitForInt8`] and [`SplitForTiles`] replace them by their low and
    /// high bytes.
    pub(super) pairs: [[MaybeUninit<u32>; BLOCK_PAIRS]; BLOCK_ROWS],
    /// Scales of the integers, `[blocks]`.
    pub(super) scales: [MaybeUninit<f32>; BLOCK_ROWS],
    /// The sum of the integers of each group of weights, `[blocks][MAX_GROUPS]`.
    pub(super) sums: [[MaybeUninit<i32>; MAX_GROUPS]; BLOCK_ROWS],
}

/// Rounds rows to integers.
pub(super) struct RoundRows<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a mut Lhs,
}

impl Kernel for RoundRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { block, left } = self;
        let Matrix { data, stride, .. } = block.gemm.a;
        let (count, ks) = (block.rows.len(), &block.ks);
        for (number, from) in ks.clone().step_by(BLOCK_K).enumerate() {
            let to = ks.end.min(from + BLOCK_K);
            for (row, index) in block.rows.clone().enumerate() {
                let at = number * count + row;
                let pairs = &mut left.pairs[at];
                left.scales[at].write(round(&data[index * stride + from..index * stride + to], pairs));
            }
        }
        // All panels have the same groups.
        for GroupPart { rows, block: number, index: group, .. } in block.parts(0) {
            let pairs = rows.start % BLOCK_K / 2..(rows.start % BLOCK_K + rows.len()).div_ceil(2);
            for at in number * count..(number + 1) * count {
                let pairs = &left.pairs[at][pairs.clone()];
                // SAFETY: the pairs of all elements are written.
                let both = |pair: &MaybeUninit<u32>| unsafe { pair.assume_init() }.cast_signed();
                let sum = pairs.iter().fold(0, |sum, pair| sum + i32::from(both(pair) as i16) + (both(pair) >> 16));
                left.sums[at][group].write(sum);
            }
        }
    }
}

/// The scale that rounds elements to integers.
pub(super) struct Rounding {
    /// Scale of the integers; NaN if an element is infinite or NaN.
    pub(super) scale: f32,
    /// Inverse of the scale; 0 if all integers are 0.
    pub(super) inverse: f32,
}

impl Rounding {
    #[inline(always)]
    pub(super) fn of(x: &[f32]) -> Self {
        // Compared as integers, the bits of magnitudes have the order of the magnitudes; NaN is the largest.
        let max = x.iter().fold(0, |max: u32, x| max.max(x.to_bits() & !(1 << 31)));
        let max = f32::from_bits(max);
        let scale = max / MAX;
        if scale.is_normal() {
            Self { scale, inverse: MAX / max }
        } else {
            Self { scale: if scale.is_finite() { 0.0 } else { f32::NAN }, inverse: 0.0 }
        }
    }
}

/// Rounds elements to integers and returns their scale. In a pair, the first element is in the low half. If the number
/// of elements is odd, the last pair has 0 as its second.
#[inline(always)]
pub(super) fn round(x: &[f32], pairs: &mut [MaybeUninit<u32>]) -> f32 {
    // 1.5 * 2^23: adding it leaves the rounded integer in the low bits.
    const INTEGERS: f32 = 12_582_912.0;
    let Rounding { scale, inverse } = Rounding::of(x);
    if inverse == 0.0 {
        pairs.fill(MaybeUninit::new(0));
        return scale;
    }
    let integer = |x: f32| (x * inverse + INTEGERS).to_bits();
    let (whole, rest) = x.as_chunks::<2>();
    for (to, [first, second]) in pairs.iter_mut().zip(whole) {
        to.write(integer(*first) & 0xffff | integer(*second) << 16);
    }
    if let ([x], Some(to)) = (rest, pairs.get_mut(whole.len())) {
        to.write(integer(*x) & 0xffff);
    }
    scale
}

/// Splits pairs into bytes for int8 dot products with 4-bit weights. Each eight elements become the low bytes of the
/// even ones and of the odd ones, minus 128, then the high bytes of both.
pub(super) struct SplitForInt8<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a mut Lhs,
}

impl Kernel for SplitForInt8<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (count, depth) = (self.block.rows.len(), self.block.ks.len());
        for (index, row) in self.left.pairs.iter_mut().enumerate() {
            let pairs = depth.saturating_sub(index / count * BLOCK_K).min(BLOCK_K) / 2;
            for four in row[..pairs].as_chunks_mut::<4>().0 {
                // SAFETY: the pairs of all elements are written.
                let pairs = four.map(|pair| unsafe { pair.assume_init() }.to_le_bytes());
                let quad = |byte: usize| u32::from_le_bytes(pairs.map(|pair| pair[byte]));
                *four = [quad(0) ^ 0x8080_8080, quad(2) ^ 0x8080_8080, quad(1), quad(3)].map(MaybeUninit::new);
            }
        }
    }
}

/// Splits the pairs of rows of a block into their low bytes and high bytes, in the order of the unpacked weights.
#[cfg(target_arch = "x86_64")]
pub(super) struct SplitForTiles<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) left: &'a mut Lhs,
}

#[cfg(target_arch = "x86_64")]
impl Kernel for SplitForTiles<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (count, depth) = (self.block.rows.len(), self.block.ks.len());
        for row in &mut self.left.pairs[..count] {
            let [mut low, mut high] = [[MaybeUninit::uninit(); BLOCK_PAIRS / 2]; 2];
            for (at, [first, second]) in row[..depth / 2].as_chunks::<2>().0.iter().enumerate() {
                // SAFETY: the pairs of all elements are written.
                let [first, second] = [first, second].map(|pair| unsafe { pair.assume_init() });
                low[at].write(first & 0x00ff_00ff | (second & 0x00ff_00ff) << 8);
                high[at].write(first >> 8 & 0x00ff_00ff | second & 0xff00_ff00);
            }
            let (to_low, to_high) = row.split_at_mut(BLOCK_PAIRS / 2);
            to_low.copy_from_slice(&low);
            to_high.copy_from_slice(&high);
        }
    }
}
