//! Packing of i8 and group-wise quantized matrices, which multiply u8 activations.

use super::PANEL;
use crate::float16::to_f16;

/// Returns the size of a packed i8 matrix `[k, n]` in bytes; `None` if it overflows `usize`.
pub fn matrix_i8_len(k: usize, n: usize) -> Option<usize> {
    n.div_ceil(PANEL).checked_mul(PANEL)?.checked_mul(k.checked_next_multiple_of(4)?)
}

/// Packs an i8 matrix of which `columns` is the transpose, row-major of shape `[n, k]`, into memory of [`matrix_i8_len`] bytes, all
/// of which are written: `[ceil(n / 16)][ceil(k / 4)][16][4]`, zero-padded.
///
/// # Panics
/// If `packed` or `columns` is too short.
pub fn matrix_i8_into(packed: &mut [i8], k: usize, n: usize, columns: &[i8]) {
    let rows = pad_to_4(k);
    if rows == 0 {
        return;
    }
    let panels = packed.chunks_exact_mut(rows * PANEL).take(n.div_ceil(PANEL));
    for (panel, columns) in panels.zip(columns[..k * n].chunks(k * PANEL)) {
        if columns.len() < k * PANEL || rows != k {
            panel.fill(0);
        }
        let panel = panel.as_chunks_mut::<4>().0;
        for (lane, column) in columns.chunks_exact(k).enumerate() {
            let (fours, rest) = column.as_chunks::<4>();
            for (to, four) in panel[lane..].iter_mut().step_by(PANEL).zip(fours) {
                *to = *four;
            }
            if let Some(to) = panel.get_mut(fours.len() * PANEL + lane) {
                to[..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Packs the i8 matrix with elements `get(tap, k, n)` like [`matrix_i8_into`], for several taps whose depth is padded to a multiple
/// of four each.
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

/// Packs a group-wise quantized matrix into memory of [`GroupwiseMatrix::len`] bytes, all of which are written. `columns` is the
/// transpose of its integers, row-major of shape `[n, k]`, and `scales` and `zeros` are those of the groups, `[n, k / 32]`; without
/// zero points, `zeros` is empty. f16 scales are rounded to nearest.
///
/// `[ceil(n / 16)][k / 32]` groups: 16 scales as little-endian `f32`, then the weights. 8-bit weights are `[8][16][4]`
/// bytes, `[j][n][i]` being row `4 j + i` of the group. 4-bit weights are `[4][16][4]` bytes with that row in the low
/// nibble and row `16 + 4 j + i` in the high one, with a bias of 8. f16 scales of two groups precede the weights of
/// both; an odd last group leaves half of them unused. After all groups follow the zero points,
/// `[ceil(n / 16)][k / 32][16]` bytes with a bias of 8 or 128.
///
/// # Panics
/// If `packed` or another slice has another length.
pub fn groupwise_into(packed: &mut [u8], matrix: &GroupwiseMatrix, columns: &[i8], scales: &[f32], zeros: &[i8]) {
    assert_eq!(Some(packed.len()), matrix.len(), "length of the packed weights");
    let &GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales } = matrix;
    let (panel_bytes, groups) = (matrix.panel_bytes(), k / GROUP_SIZE);
    let count = if has_zeros { n * groups } else { 0 };
    assert_eq!((columns.len(), scales.len(), zeros.len()), (n * k, n * groups, count), "lengths of the parts");
    if groups == 0 {
        return;
    }
    let (packed, packed_zeros) = packed.split_at_mut(matrix.panels() * panel_bytes);
    // Padding columns are of zeros.
    let padding = if is_four_bits { 0x88 } else { 0 };
    let panels = packed.chunks_exact_mut(panel_bytes).zip(columns.chunks(k * PANEL));
    for ((packed, columns), scales) in panels.zip(scales.chunks(groups * PANEL)) {
        if columns.len() < k * PANEL || has_half_scales && !groups.is_multiple_of(2) {
            packed.fill(0);
            for group in 0..groups {
                packed[matrix.group(group).1..][..matrix.weights()].fill(padding);
            }
        }
        for (lane, (column, scales)) in columns.chunks_exact(k).zip(scales.chunks_exact(groups)).enumerate() {
            for (group, (rows, &scale)) in column.as_chunks::<GROUP_SIZE>().0.iter().zip(scales).enumerate() {
                let (scales, weights) = matrix.group(group);
                if has_half_scales {
                    packed[scales + 2 * lane..][..2].copy_from_slice(&to_f16(scale).to_le_bytes());
                } else {
                    packed[scales + 4 * lane..][..4].copy_from_slice(&scale.to_le_bytes());
                }
                let weights = packed[weights..][..matrix.weights()].as_chunks_mut::<4>().0;
                let to = weights[lane..].iter_mut().step_by(PANEL);
                if is_four_bits {
                    let bytes = in_nibbles(rows);
                    to.zip(bytes.as_chunks().0).for_each(|(to, four)| *to = *four);
                } else {
                    to.zip(rows.as_chunks().0).for_each(|(to, four)| *to = four.map(i8::cast_unsigned));
                }
            }
        }
    }
    packed_zeros.fill(matrix.bias());
    for (panel, zeros) in packed_zeros.chunks_exact_mut(groups * PANEL).zip(zeros.chunks(groups * PANEL)) {
        for (lane, zeros) in zeros.chunks_exact(groups).enumerate() {
            for (to, zero) in panel[lane..].iter_mut().step_by(PANEL).zip(zeros) {
                *to = zero.cast_unsigned().wrapping_add(matrix.bias());
            }
        }
    }
}

/// The integers of a group with a bias of 8: the first half in the low nibbles, the second in the high ones.
#[inline(always)]
fn in_nibbles(rows: &[i8; GROUP_SIZE]) -> [u8; GROUP_SIZE / 2] {
    core::array::from_fn(|at| {
        let [low, high] = [rows[at], rows[at + GROUP_SIZE / 2]].map(|row| row.cast_unsigned().wrapping_add(8));
        low & 15 | high << 4
    })
}

/// Rows that share a scale in a [`GroupwiseMatrix`].
pub const GROUP_SIZE: usize = 32;

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn columns_are_where_the_layout_has_them() {
        for (k, n) in [(1, 1), (3, 17), (4, 16), (9, 33), (64, 40)] {
            let columns: Vec<i8> = (0..k * n).map(|at| (at * 37 % 251) as u8 as i8).collect();
            let mut packed = vec![99; matrix_i8_len(k, n).unwrap()];
            matrix_i8_into(&mut packed, k, n, &columns);
            let rows = k.next_multiple_of(4);
            for (at, got) in packed.iter().enumerate() {
                let (panel, rest) = (at / (rows * PANEL), at % (rows * PANEL));
                let (row, column) = (rest / (4 * PANEL) * 4 + rest % 4, panel * PANEL + rest / 4 % PANEL);
                let expected = if row < k && column < n { columns[column * k + row] } else { 0 };
                assert_eq!(*got, expected, "{k} x {n}, {row}, {column}");
            }
        }
    }

    #[test]
    fn groups_are_where_the_layout_has_them() {
        let flags = (0..8).map(|bits| [1, 2, 4].map(|bit| bits & bit != 0));
        for ([is_four_bits, has_zeros, has_half_scales], (groups, n)) in
            flags.flat_map(|flags| [(1, 5), (2, 16), (3, 33)].map(|shape| (flags, shape)))
        {
            let k = groups * GROUP_SIZE;
            let levels = if is_four_bits { 16 } else { 256 };
            let integer = |at: usize| ((at * 37 % 251 % levels) as i16 - levels as i16 / 2) as i8;
            let columns: Vec<i8> = (0..k * n).map(integer).collect();
            let scales: Vec<f32> = (0..groups * n).map(|at| (at + 1) as f32 / 64.0).collect();
            let zeros: Vec<i8> = (0..if has_zeros { groups * n } else { 0 }).map(|at| integer(at + 5)).collect();
            let matrix = GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales };
            let mut packed = vec![99; matrix.len().unwrap()];
            groupwise_into(&mut packed, &matrix, &columns, &scales, &zeros);
            let panels = n.div_ceil(PANEL);
            let mut expected = vec![0; packed.len()];
            let biased = |integer: i8, bias: i16| (i16::from(integer) + bias) as u8;
            for (panel, group, lane) in
                (0..panels).flat_map(|panel| (0..groups * PANEL).map(move |at| (panel, at / PANEL, at % PANEL)))
            {
                let column = panel * PANEL + lane;
                let start = panel * matrix.panel_bytes();
                let (scale_at, weights) = matrix.group(group);
                let scale = if column < n { scales[column * groups + group] } else { 0.0 };
                if has_half_scales {
                    expected[start + scale_at + 2 * lane..][..2].copy_from_slice(&to_f16(scale).to_le_bytes());
                } else {
                    expected[start + scale_at + 4 * lane..][..4].copy_from_slice(&scale.to_le_bytes());
                }
                let weight = |row: usize| if column < n { columns[column * k + group * GROUP_SIZE + row] } else { 0 };
                let weights = &mut expected[start + weights..];
                for row in 0..if is_four_bits { 16 } else { 32 } {
                    weights[row / 4 * 4 * PANEL + lane * 4 + row % 4] = if is_four_bits {
                        biased(weight(row), 8) | biased(weight(16 + row), 8) << 4
                    } else {
                        weight(row).cast_unsigned()
                    };
                }
                if has_zeros {
                    let zero = if column < n { zeros[column * groups + group] } else { 0 };
                    expected[panels * matrix.panel_bytes() + (panel * groups + group) * PANEL + lane] =
                        biased(zero, if is_four_bits { 8 } else { 128 });
                }
            }
            assert_eq!(packed, expected, "{matrix:?}");
        }
    }
}
