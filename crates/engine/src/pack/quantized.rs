//! Packing of weight-only quantized matrices, which multiply f32 activations.

use super::{PANEL, padded_rows};

/// Shape of a weight-only quantized matrix for GEMM with f32 activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizedMatrix {
    pub k: usize,
    pub n: usize,
    /// 4-bit integers in -8..=7 instead of 8-bit ones in -128..=127; zero points have the same range.
    pub is_four_bits: bool,
    pub has_zeros: bool,
    /// Consecutive rows that share scales, an even number; `k` or more for per-column scales.
    pub group: usize,
}

/// Returns the size of a packed quantized matrix in bytes; `None` if it overflows `usize`, `n` exceeds 32 bits or
/// `group` is odd.
pub fn quantized_len(matrix: &QuantizedMatrix) -> Option<usize> {
    u32::try_from(matrix.n).ok()?;
    let panels = matrix.n.div_ceil(PANEL);
    panels.checked_mul(QuantizedLayout::of(matrix)?.panel_bytes()?)?.checked_add(QUANTIZED_HEADER)
}

/// Packs a quantized matrix for [`Weights::Quantized`](crate::Weights::Quantized) into memory of [`quantized_len`] bytes, all of
/// which are written: [`quantized_header`] and [`quantized_panels`].
///
/// # Panics
/// If `packed` or another slice has another length.
pub fn quantized(packed: &mut [u8], matrix: &QuantizedMatrix, columns: &[i8], scales: &[f32], zeros: &[i8]) {
    assert_eq!(Some(packed.len()), quantized_len(matrix), "length of the packed weights");
    let Some(header) = quantized_header(matrix) else { return };
    let (head, panels) = packed.split_at_mut(QUANTIZED_HEADER);
    head.copy_from_slice(&header);
    quantized_panels(panels, matrix, columns, scales, zeros);
}

/// The header of a packed quantized matrix, of 16 bytes: the number of bits, whether there are zero points, two reserved bytes, the
/// rows of a group and the columns as little-endian `u32`, four reserved bytes. `None` where [`quantized_len`] is.
pub fn quantized_header(matrix: &QuantizedMatrix) -> Option<[u8; QUANTIZED_HEADER]> {
    Some(QuantizedLayout::of(matrix)?.head(u32::try_from(matrix.n).ok()?))
}

/// Packs what follows the header: the panels of all columns, or of those of a part that begins with a whole panel. `columns` is the
/// transpose of their integers, row-major of shape `[n, k]`, and `scales` and `zeros` are those of the groups,
/// `[n, ceil(k / group)]`; without zero points, `zeros` is empty.
///
/// `[ceil(n / 16)][ceil(rows / group)]` groups: 16 scales as little-endian `f32`, 16 zero points as bytes if there are any, and the
/// weights, 16 bytes per row. With 4 bits, a byte has an even row in its low nibble and the next row in the high one. Integers
/// and zero points are stored unsigned, with a bias of 8 (4 bits) or 128 (8 bits).
///
/// # Panics
/// If `packed` or another slice has another length.
pub fn quantized_panels(packed: &mut [u8], matrix: &QuantizedMatrix, columns: &[i8], scales: &[f32], zeros: &[i8]) {
    let len = quantized_len(matrix).map(|len| len - QUANTIZED_HEADER);
    assert_eq!(Some(packed.len()), len, "length of the packed weights");
    let (Some(shape), &QuantizedMatrix { k, n, .. }) = (QuantizedLayout::of(matrix), matrix) else { return };
    let groups = k.div_ceil(shape.group);
    let count = if shape.has_zeros { n * groups } else { 0 };
    assert_eq!((columns.len(), scales.len(), zeros.len()), (n * k, n * groups, count), "lengths of the parts");
    if k == 0 {
        return;
    }
    let bias = if shape.is_four_bits { 8u8 } else { 128 };
    let panel_bytes = shape.panel_bytes().unwrap_or(usize::MAX);
    for (panel, packed) in packed.chunks_exact_mut(panel_bytes).enumerate() {
        let columns = &columns[panel * PANEL * k..columns.len().min((panel + 1) * PANEL * k)];
        let lanes = columns.len() / k;
        let mut rest = packed;
        for group in 0..groups {
            let rows = group * shape.group..k.min((group + 1) * shape.group);
            let (bytes, others) = rest.split_at_mut(shape.group_bytes(rows.len().next_multiple_of(2)));
            rest = others;
            let of = |lane: usize| (panel * PANEL + lane) * groups + group;
            // Padding columns have a scale of 0.
            let (to, bytes) = bytes.split_at_mut(PANEL * size_of::<f32>());
            for (lane, to) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *to = if lane < lanes { scales[of(lane)] } else { 0.0 }.to_le_bytes();
            }
            let (to, bytes) = bytes.split_at_mut(if shape.has_zeros { PANEL } else { 0 });
            for (lane, to) in to.iter_mut().enumerate() {
                *to = bias.wrapping_add(if lane < lanes { zeros[of(lane)].cast_unsigned() } else { 0 });
            }
            let tile = Tile { columns: &columns[rows.start..], k, lanes, bias };
            for (lines, bytes) in bytes.chunks_mut(PANEL * PANEL).enumerate() {
                if shape.is_four_bits {
                    tile.pack::<2>(lines * PANEL, rows.len(), bytes);
                } else {
                    tile.pack::<1>(lines * PANEL, rows.len(), bytes);
                }
            }
        }
    }
}

/// The columns of a panel, from the first row of a group on.
struct Tile<'c> {
    columns: &'c [i8],
    /// Elements from one column to the next.
    k: usize,
    lanes: usize,
    bias: u8,
}

impl Tile<'_> {
    /// Packs lines of a byte of each column, from a line on: up to 16, each of `ROWS` rows. The group has `rows` rows.
    #[inline(always)]
    fn pack<const ROWS: usize>(&self, first: usize, rows: usize, packed: &mut [u8]) {
        let bias = self.bias;
        let padding = if ROWS == 2 { 0x88 } else { bias };
        // A byte of each line, by column.
        let mut bytes = [[padding; PANEL]; PANEL];
        let start = first * ROWS;
        let count = (rows - start).min(PANEL * ROWS);
        for (column, to) in self.columns.chunks(self.k).take(self.lanes).zip(&mut bytes) {
            let column = &column[start..start + count];
            let (whole, rest) = column.as_chunks::<ROWS>();
            for (to, rows) in to.iter_mut().zip(whole) {
                let rows = rows.map(|row| row.cast_unsigned().wrapping_add(bias));
                *to = if ROWS == 2 { rows[0] & 15 | rows[ROWS - 1] << 4 } else { rows[0] };
            }
            // A last row without another in its byte.
            if let ([row], Some(to)) = (rest, to.get_mut(whole.len())) {
                *to = row.cast_unsigned().wrapping_add(bias) & 15 | bias << 4;
            }
        }
        for (line, to) in packed.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
            *to = core::array::from_fn(|lane| bytes[lane][line]);
        }
    }
}

/// Size of the header of a packed quantized matrix, in bytes.
pub const QUANTIZED_HEADER: usize = 16;

/// Layout of the panels of a packed quantized matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuantizedLayout {
    pub(crate) is_four_bits: bool,
    pub(crate) has_zeros: bool,
    /// Rows per group, an even number; the last group of a panel may have fewer.
    pub(crate) group: usize,
    /// Rows of a panel.
    pub(crate) rows: usize,
}

impl QuantizedLayout {
    pub(crate) fn of(matrix: &QuantizedMatrix) -> Option<Self> {
        let &QuantizedMatrix { k, is_four_bits, has_zeros, group, .. } = matrix;
        let rows = padded_rows(k);
        let group = group.min(rows).max(2);
        group.is_multiple_of(2).then_some(Self { is_four_bits, has_zeros, group, rows })
    }

    pub(crate) fn head(&self, columns: u32) -> [u8; QUANTIZED_HEADER] {
        let mut head = [0; QUANTIZED_HEADER];
        head[0] = if self.is_four_bits { 4 } else { 8 };
        head[1] = u8::from(self.has_zeros);
        head[4..8].copy_from_slice(&(self.group as u32).to_le_bytes());
        head[8..12].copy_from_slice(&columns.to_le_bytes());
        head
    }

    /// Size in bytes of a group of `rows` rows.
    pub(crate) const fn group_bytes(&self, rows: usize) -> usize {
        let zeros = if self.has_zeros { PANEL } else { 0 };
        let weights = if self.is_four_bits { rows / 2 * PANEL } else { rows * PANEL };
        PANEL * size_of::<f32>() + zeros + weights
    }

    /// Size of a panel in bytes; `None` if it overflows `usize`.
    pub(crate) fn panel_bytes(&self) -> Option<usize> {
        let (whole, rest) = (self.rows / self.group, self.rows % self.group);
        self.rows.checked_mul(PANEL)?;
        let last = if rest > 0 { self.group_bytes(rest) } else { 0 };
        whole.checked_mul(self.group_bytes(self.group))?.checked_add(last)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn rows_are_where_the_layout_has_them() {
        let shapes = [(1, 1, 2), (7, 17, 4), (32, 16, 32), (70, 33, 34), (64, 40, 64), (33, 5, 1000)];
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        for ((k, n, group), (is_four_bits, has_zeros)) in
            shapes.into_iter().flat_map(|shape| flags.map(|flags| (shape, flags)))
        {
            let matrix = QuantizedMatrix { k, n, is_four_bits, has_zeros, group };
            let (levels, bias) = if is_four_bits { (16, 8) } else { (256, 128) };
            let integer = |at: usize| ((at * 37 % 251 % levels) as i16 - levels as i16 / 2) as i8;
            let columns: Vec<i8> = (0..k * n).map(integer).collect();
            let groups = k.div_ceil(group);
            let scales: Vec<f32> = (0..groups * n).map(|at| (at + 1) as f32 / 64.0).collect();
            let zeros: Vec<i8> = (0..if has_zeros { groups * n } else { 0 }).map(|at| integer(at + 5)).collect();
            let mut packed = vec![99; quantized_len(&matrix).unwrap()];
            quantized(&mut packed, &matrix, &columns, &scales, &zeros);
            let biased = |integer: i8| (i16::from(integer) + bias) as u8;
            let mut expected = QuantizedLayout::of(&matrix).unwrap().head(n as u32).to_vec();
            for panel in 0..n.div_ceil(PANEL) {
                let lanes = || panel * PANEL..(panel + 1) * PANEL;
                for start in (0..k).step_by(group) {
                    let of = |column: usize| column * groups + start / group;
                    let scale = |column: usize| if column < n { scales[of(column)] } else { 0.0 };
                    expected.extend(lanes().flat_map(|column| scale(column).to_le_bytes()));
                    if has_zeros {
                        expected.extend(lanes().map(|column| biased(if column < n { zeros[of(column)] } else { 0 })));
                    }
                    let weight = |row: usize, column: usize| {
                        biased(if row < k && column < n { columns[column * k + row] } else { 0 })
                    };
                    for row in (start..(start + group).min(k)).step_by(2) {
                        if is_four_bits {
                            expected.extend(lanes().map(|column| weight(row, column) | weight(row + 1, column) << 4));
                        } else {
                            expected.extend([row, row + 1].iter().flat_map(|row| lanes().map(|at| weight(*row, at))));
                        }
                    }
                }
            }
            assert_eq!(packed, expected, "{matrix:?}");
        }
    }
}
