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

impl QuantizedMatrix {
    fn shape(&self) -> Option<QuantizedLayout> {
        QuantizedLayout::new(self.is_four_bits, self.has_zeros, self.group, self.k)
    }
}

/// Returns the size of a packed quantized matrix in bytes; `None` if it overflows `usize`, `n` exceeds 32 bits or
/// `group` is odd.
pub fn quantized_len(matrix: &QuantizedMatrix) -> Option<usize> {
    u32::try_from(matrix.n).ok()?;
    let panels = matrix.n.div_ceil(PANEL);
    panels.checked_mul(matrix.shape()?.panel_bytes()?)?.checked_add(QUANTIZED_HEADER)
}

/// Packs the quantized matrix with integers `get(k, n)` and the (scale, zero point) of each group,
/// `parameters(k / group, n)`, for [`Weights::Quantized`](crate::Weights::Quantized), into memory of [`quantized_len`]
/// bytes, all of which are written.
///
/// A header of 16 bytes: the number of bits, whether there are zero points, two reserved bytes, the rows of a group and
/// the columns as little-endian `u32`, four reserved bytes. Then `[ceil(n / 16)][ceil(rows / group)]` groups: 16 scales
/// as little-endian `f32`, 16 zero points as bytes if there are any, and the weights, 16 bytes per row. With 4 bits, a
/// byte has an even row in its low nibble and the next row in the high one. Integers and zero points are stored
/// unsigned, with a bias of 8 (4 bits) or 128 (8 bits).
///
/// # Panics
/// If `packed` has another length.
pub fn quantized(
    packed: &mut [u8],
    matrix: &QuantizedMatrix,
    get: impl Fn(usize, usize) -> i8,
    parameters: impl Fn(usize, usize) -> (f32, i8),
) {
    assert_eq!(Some(packed.len()), quantized_len(matrix), "length of the packed weights");
    let Some(shape) = matrix.shape() else { return };
    let (head, mut rest) = packed.split_at_mut(QUANTIZED_HEADER);
    head.copy_from_slice(&shape.head(u32::try_from(matrix.n).unwrap_or(u32::MAX)));
    let bias = if shape.is_four_bits { 8 } else { 128 };
    let biased = |number: i8| number.cast_unsigned().wrapping_add(bias);
    for panel in 0..matrix.n.div_ceil(PANEL) {
        for start in (0..shape.rows).step_by(shape.group) {
            let rows = (shape.rows - start).min(shape.group);
            let (bytes, others) = core::mem::take(&mut rest).split_at_mut(shape.group_bytes(rows));
            rest = others;
            let of = |lane: usize| {
                let column = panel * PANEL + lane;
                if column < matrix.n { parameters(start / shape.group, column) } else { (0.0, 0) }
            };
            let (scales, bytes) = bytes.split_at_mut(PANEL * size_of::<f32>());
            for (lane, bytes) in scales.chunks_exact_mut(size_of::<f32>()).enumerate() {
                bytes.copy_from_slice(&of(lane).0.to_le_bytes());
            }
            let (zeros, bytes) = bytes.split_at_mut(if shape.has_zeros { PANEL } else { 0 });
            zeros.iter_mut().enumerate().for_each(|(lane, zero)| *zero = biased(of(lane).1));
            // Padding rows are not read, and padding columns have a scale of 0.
            let weight = |row: usize, lane: usize| {
                let column = panel * PANEL + lane;
                biased(if row < matrix.k && column < matrix.n { get(row, column) } else { 0 })
            };
            for (at, byte) in bytes.iter_mut().enumerate() {
                let (line, lane) = (at / PANEL, at % PANEL);
                *byte = if shape.is_four_bits {
                    let row = start + 2 * line;
                    weight(row, lane) & 15 | weight(row + 1, lane) << 4
                } else {
                    weight(start + line, lane)
                };
            }
        }
    }
}

/// Size of the header of a packed quantized matrix, in bytes.
pub(crate) const QUANTIZED_HEADER: usize = 16;

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
    fn new(is_four_bits: bool, has_zeros: bool, group: usize, k: usize) -> Option<Self> {
        let rows = padded_rows(k);
        let group = group.min(rows).max(2);
        group.is_multiple_of(2).then_some(Self { is_four_bits, has_zeros, group, rows })
    }

    /// Parses the header of a matrix of `k` rows; returns the layout and the number of columns.
    pub(crate) fn from_head(head: &[u8; QUANTIZED_HEADER], k: usize) -> Option<(Self, usize)> {
        let [bits, has_zeros, 0, 0, g0, g1, g2, g3, n0, n1, n2, n3, rest @ ..] = *head else { return None };
        let group = usize::try_from(u32::from_le_bytes([g0, g1, g2, g3])).ok()?;
        let columns = usize::try_from(u32::from_le_bytes([n0, n1, n2, n3])).ok()?;
        let is_known = matches!(bits, 4 | 8) && has_zeros <= 1 && rest == [0; 4];
        let shape = Self::new(bits == 4, has_zeros == 1, group, k).filter(|_| is_known)?;
        (shape.group == group).then_some((shape, columns))
    }

    fn head(&self, columns: u32) -> [u8; QUANTIZED_HEADER] {
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
