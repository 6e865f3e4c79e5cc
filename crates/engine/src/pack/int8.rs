//! Packing of i8 and group-wise quantized matrices, which multiply u8 activations.

use super::PANEL;
use crate::float16::to_f16;

/// Returns the size of a packed i8 matrix `[k, n]` in bytes; `None` if it overflows `usize`.
pub fn matrix_i8_len(k: usize, n: usize) -> Option<usize> {
    n.div_ceil(PANEL).checked_mul(PANEL)?.checked_mul(k.checked_next_multiple_of(4)?)
}

/// Packs the i8 matrix with elements `get(k, n)` into memory of [`matrix_i8_len`] bytes, all of which are written:
/// `[ceil(n / 16)][ceil(k / 4)][16][4]`, zero-padded.
///
/// # Panics
/// If `packed` is too short.
pub fn matrix_i8_into(packed: &mut [i8], k: usize, n: usize, get: impl Fn(usize, usize) -> i8) {
    taps_i8_into(packed, 1, k, n, |_, k, n| get(k, n));
}

/// Like [`matrix_i8_into`], for several taps whose depth is padded to a multiple of four each.
pub(crate) fn taps_i8_into(
    packed: &mut [i8],
    taps: usize,
    depth: usize,
    n: usize,
    get: impl Fn(usize, usize, usize) -> i8,
) {
    let rows = pad_to_4(depth);
    if taps * rows == 0 {
        return;
    }
    for (panel, packed) in packed.chunks_exact_mut(taps * rows * PANEL).take(n.div_ceil(PANEL)).enumerate() {
        for (tap, packed) in packed.chunks_exact_mut(rows * PANEL).enumerate() {
            for (at, four) in packed.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let (first, column) = (at / PANEL * 4, panel * PANEL + at % PANEL);
                if first + 4 <= depth && column < n {
                    *four = core::array::from_fn(|k| get(tap, first + k, column));
                    continue;
                }
                for (k, value) in (first..).zip(four) {
                    *value = if k < depth && column < n { get(tap, k, column) } else { 0 };
                }
            }
        }
    }
}

/// Rounds `k` up to a multiple of four, the step of int8 dot products.
pub(crate) const fn pad_to_4(k: usize) -> usize {
    k.saturating_add(k.wrapping_neg() % 4)
}

/// Shape and layout of a group-wise quantized matrix for GEMM with u8 activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupwiseMatrix {
    /// A multiple of [`GROUP_SIZE`].
    pub k: usize,
    pub n: usize,
    /// 4-bit integers in -8..=7 instead of 8-bit ones in -128..=127; zero points have the same range.
    pub is_four_bits: bool,
    pub has_zeros: bool,
    /// Scales are f16 instead of f32. Saves memory if there is more than one group.
    pub has_half_scales: bool,
}

impl GroupwiseMatrix {
    /// Bytes of the scales of one group of a panel, or of two groups if they are f16: keeps the weights aligned.
    const SCALES: usize = PANEL * size_of::<f32>();

    /// Size in bytes; `None` if it overflows `usize` or `k` is not a multiple of [`GROUP_SIZE`].
    pub fn len(&self) -> Option<usize> {
        let groups = self.k.is_multiple_of(GROUP_SIZE).then_some(self.k / GROUP_SIZE)?;
        let zeros = if self.has_zeros { groups.checked_mul(PANEL)? } else { 0 };
        groups.checked_mul(self.weights() + Self::SCALES)?;
        self.panels().checked_mul(self.panel_bytes().checked_add(zeros)?)
    }

    /// True if the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Bytes of the weights of one group of a panel.
    #[inline(always)]
    const fn weights(&self) -> usize {
        if self.is_four_bits { PANEL * GROUP_SIZE / 2 } else { PANEL * GROUP_SIZE }
    }

    /// Bias of stored 4-bit integers, and of zero points of either width.
    fn bias(&self) -> u8 {
        if self.is_four_bits { 8 } else { 128 }
    }

    /// Bytes of a panel without its zero points.
    pub(crate) const fn panel_bytes(&self) -> usize {
        let groups = self.k / GROUP_SIZE;
        let scales = if self.has_half_scales { groups.div_ceil(2) } else { groups };
        groups * self.weights() + scales * Self::SCALES
    }

    /// Offsets of the scales and the weights of a group within its panel.
    #[inline(always)]
    pub(crate) const fn group(&self, group: usize) -> (usize, usize) {
        if !self.has_half_scales {
            let scales = group * (Self::SCALES + self.weights());
            return (scales, scales + Self::SCALES);
        }
        let (pair, second) = (group / 2 * (Self::SCALES + 2 * self.weights()), group % 2);
        (pair + second * Self::SCALES / 2, pair + Self::SCALES + second * self.weights())
    }
}

/// Packs the group-wise quantized matrix with integers `get(k, n)` and the (scale, zero point) of each group,
/// `parameters(k / 32, n)`, into memory of [`GroupwiseMatrix::len`] bytes, all of which are written. f16 scales are
/// rounded to nearest.
///
/// `[ceil(n / 16)][k / 32]` groups: 16 scales as little-endian `f32`, then the weights. 8-bit weights are `[8][16][4]`
/// bytes, `[j][n][i]` being row `4 j + i` of the group. 4-bit weights are `[4][16][4]` bytes with that row in the low
/// nibble and row `16 + 4 j + i` in the high one, with a bias of 8. f16 scales of two groups precede the weights of
/// both; an odd last group leaves half of them unused. After all groups follow the zero points,
/// `[ceil(n / 16)][k / 32][16]` bytes with a bias of 8 or 128.
///
/// # Panics
/// If `packed` has another length.
pub fn groupwise_into(
    packed: &mut [u8],
    matrix: &GroupwiseMatrix,
    get: impl Fn(usize, usize) -> i8,
    parameters: impl Fn(usize, usize) -> (f32, i8),
) {
    assert_eq!(Some(packed.len()), matrix.len(), "length of the packed weights");
    let (panel_bytes, groups) = (matrix.panel_bytes(), matrix.k / GROUP_SIZE);
    let (packed, zeros) = packed.split_at_mut(matrix.panels() * panel_bytes);
    let biased = |number: i8| number.cast_unsigned().wrapping_add(matrix.bias());
    for (panel, packed) in packed.chunks_exact_mut(panel_bytes.max(1)).enumerate() {
        packed.fill(0);
        for group in 0..groups {
            let (scales, weights) = matrix.group(group);
            for lane in 0..PANEL {
                let column = panel * PANEL + lane;
                let (scale, zero) = if column < matrix.n { parameters(group, column) } else { (0.0, 0) };
                if matrix.has_half_scales {
                    packed[scales + 2 * lane..][..2].copy_from_slice(&to_f16(scale).to_le_bytes());
                } else {
                    packed[scales + 4 * lane..][..4].copy_from_slice(&scale.to_le_bytes());
                }
                if let Some(to) = zeros.get_mut((panel * groups + group) * PANEL + lane) {
                    *to = biased(zero);
                }
            }
            for (at, byte) in packed[weights..][..matrix.weights()].iter_mut().enumerate() {
                let (row, column) =
                    (group * GROUP_SIZE + at / (4 * PANEL) * 4 + at % 4, panel * PANEL + at / 4 % PANEL);
                let weight = |row: usize| if column < matrix.n { get(row, column) } else { 0 };
                *byte = if matrix.is_four_bits {
                    biased(weight(row)) & 15 | biased(weight(row + GROUP_SIZE / 2)) << 4
                } else {
                    weight(row).cast_unsigned()
                };
            }
        }
    }
}

/// Rows that share a scale in a [`GroupwiseMatrix`].
pub const GROUP_SIZE: usize = 32;
