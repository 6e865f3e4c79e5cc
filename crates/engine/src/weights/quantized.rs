//! Weight-only quantization: packed weights of 4 or 8 bits that are dequantized to f32 on the fly.

use crate::arch::{LANES, Simd};
use crate::pack::{QUANTIZED_HEADER, QuantizedLayout, QuantizedMatrix};

/// A packed matrix from [`pack::quantized`](crate::pack::quantized). A weight is `(integer - zero point) * scale`, with
/// the parameters of its group of rows and column.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedWeights<'a> {
    layout: QuantizedLayout,
    columns: usize,
    /// Number of weights, including padding columns.
    len: usize,
    panel_bytes: usize,
    bytes: &'a [u8],
}

impl<'a> QuantizedWeights<'a> {
    /// Borrows the packed matrix in `packed`; `None` if it has another shape or layout than `matrix`, or is not aligned
    /// to 4 bytes.
    pub fn new(packed: &'a [u8], matrix: &QuantizedMatrix) -> Option<Self> {
        let (head, bytes) = packed.split_first_chunk::<QUANTIZED_HEADER>()?;
        let (layout, columns) = (QuantizedLayout::of(matrix)?, matrix.n);
        if *head != layout.head(u32::try_from(columns).ok()?) {
            return None;
        }
        let panels = columns.div_ceil(LANES);
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<f32>());
        let panel_bytes = layout.panel_bytes()?;
        if !is_aligned || bytes.len() != panels.checked_mul(panel_bytes)? {
            return None;
        }
        let len = panels.checked_mul(layout.rows)?.checked_mul(LANES)?;
        Some(Self { layout, columns, len, panel_bytes, bytes })
    }

    /// The columns `first..first + columns`, where `first` and their end begin panels of 16; `None` if there are not as many.
    pub fn window(&self, first: usize, columns: usize) -> Option<Self> {
        let end = first.checked_add(columns).filter(|end| *end <= self.columns)?;
        if !first.is_multiple_of(LANES) || !(end.is_multiple_of(LANES) || end == self.columns) {
            return None;
        }
        let panels = first / LANES..end.div_ceil(LANES);
        let bytes = self.bytes.get(panels.start * self.panel_bytes..panels.end * self.panel_bytes)?;
        let len = panels.len() * self.layout.rows * LANES;
        Some(Self { columns, len, bytes, ..*self })
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Dequantizes a column, from the first row on.
    pub(crate) fn column(&self, column: usize, to: &mut [f32]) {
        let (panel, lane) = (column / LANES, column % LANES);
        for (start, to) in (0..).step_by(self.layout.group).zip(to.chunks_mut(self.layout.group)) {
            let Some(group) = self.group(panel, start, start + to.len()) else { return };
            group.column(lane, to);
        }
    }

    /// Number of weights, including padding.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Rows of a panel.
    pub(crate) fn rows(&self) -> usize {
        self.layout.rows
    }

    /// Returns the group that contains row `row` of a panel, restricted to the rows before `end`; `None` if there is
    /// no such row.
    #[inline(always)]
    pub(crate) fn group(&self, panel: usize, row: usize, end: usize) -> Option<QuantizedGroup<'a>> {
        let layout = self.layout;
        let group = row / layout.group;
        let start = group * layout.group;
        let rows = layout.rows.checked_sub(start)?.min(layout.group);
        let at = panel * self.panel_bytes + group * layout.group_bytes(layout.group);
        let bytes = self.bytes.get(at..at + layout.group_bytes(rows))?;
        let to = end.min(start + rows);
        (row < to).then_some(QuantizedGroup { layout, start, from: row, to, bytes })
    }
}

/// A group of rows with common scales.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedGroup<'a> {
    layout: QuantizedLayout,
    /// First row of the group in its panel.
    start: usize,
    /// The requested range of rows.
    pub(crate) from: usize,
    pub(crate) to: usize,
    bytes: &'a [u8],
}

impl QuantizedGroup<'_> {
    /// Dequantizes the first rows of a column.
    fn column(&self, lane: usize, to: &mut [f32]) {
        let (scales, bytes) = self.bytes.split_at(LANES * size_of::<f32>());
        let scale = scales.as_chunks::<{ size_of::<f32>() }>().0[lane];
        let scale = f32::from_le_bytes(scale);
        let is_four_bits = self.layout.is_four_bits;
        let (zero, bytes) = if self.layout.has_zeros {
            (bytes[lane], &bytes[LANES..])
        } else {
            (if is_four_bits { 8 } else { 128 }, bytes)
        };
        for (row, to) in to.iter_mut().enumerate() {
            let integer = if is_four_bits {
                bytes[row / 2 * LANES + lane] >> (row % 2 * 4) & 15
            } else {
                bytes[row * LANES + lane]
            };
            *to = (f32::from(integer) - f32::from(zero)) * scale;
        }
    }

    /// Scales of the 16 columns.
    #[inline(always)]
    pub(crate) fn scales<S: Simd>(&self, s: S) -> S::V {
        // SAFETY: a group begins with 16 floats.
        unsafe { s.load(self.bytes.as_ptr().cast()) }
    }

    /// Returns the rows as integers minus their zero points.
    #[inline(always)]
    pub(crate) fn integer_rows<S: Simd>(&self, s: S) -> IntegerRows<S> {
        let layout = &self.layout;
        let scales = LANES * size_of::<f32>();
        let zeros = if layout.has_zeros {
            // SAFETY: the zeros follow the scales.
            s.i32_to_f32(unsafe { s.load_u8(self.bytes.as_ptr().wrapping_add(scales), LANES) })
        } else {
            s.splat(if layout.is_four_bits { 8.0 } else { 128.0 })
        };
        let head = scales + if layout.has_zeros { LANES } else { 0 };
        IntegerRows {
            is_four_bits: layout.is_four_bits,
            start: self.start,
            zeros,
            bytes: self.bytes.as_ptr().wrapping_add(head),
        }
    }
}

/// Rows of a group as integral f32 values; rows are counted within the panel.
#[derive(Clone, Copy)]
pub(crate) struct IntegerRows<S: Simd> {
    is_four_bits: bool,
    start: usize,
    zeros: S::V,
    bytes: *const u8,
}

impl<S: Simd> IntegerRows<S> {
    /// Loads a row and the next one; the first must be an even row of the group.
    ///
    /// # Safety
    /// The group has both rows.
    #[inline(always)]
    pub(crate) unsafe fn load_pair(self, s: S, row: usize) -> [S::V; 2] {
        let row = row - self.start;
        if self.is_four_bits {
            // SAFETY: the caller guarantees the pair, which has 16 bytes.
            let packed = s.i32_to_f32(unsafe { s.load_u8(self.bytes.wrapping_add(row / 2 * LANES), LANES) });
            let high = s.floor(s.mul(packed, s.splat(1.0 / 16.0)));
            let low = s.fma(high, s.splat(-16.0), packed);
            return [s.sub(low, self.zeros), s.sub(high, self.zeros)];
        }
        let first = self.bytes.wrapping_add(row * LANES);
        // SAFETY: the caller guarantees the rows, which have 16 bytes each.
        let one = s.i32_to_f32(unsafe { s.load_u8(first, LANES) });
        // SAFETY: as above.
        let other = s.i32_to_f32(unsafe { s.load_u8(first.wrapping_add(LANES), LANES) });
        [s.sub(one, self.zeros), s.sub(other, self.zeros)]
    }
}

/// Dequantizes `rows` rows of a panel to f32, from element `first` on, a multiple of 16.
///
/// # Safety
/// The panel has these rows, and `16 * rows` floats are writable at `to`.
#[inline(always)]
pub(super) unsafe fn widen<S: Simd>(s: S, integers: &QuantizedWeights<'_>, first: usize, rows: usize, to: *mut f32) {
    if rows == 0 {
        return;
    }
    let (panel, from) = (first / LANES / integers.rows(), first / LANES % integers.rows());
    let (mut row, end) = (from, from + rows);
    while row < end {
        let Some(group) = integers.group(panel, row, end) else { return };
        let (scales, rows_as_integers) = (group.scales(s), group.integer_rows(s));
        // Pairs begin at even rows of the group, which itself begins at an even row.
        let first = row + (row - group.start) % 2;
        let last = first.max(group.to - (group.to - group.start) % 2);
        for row in (first..last).step_by(2) {
            // SAFETY: the group has both rows.
            let two = unsafe { rows_as_integers.load_pair(s, row) };
            for (next, v) in two.into_iter().enumerate() {
                // SAFETY: the caller guarantees the destination.
                unsafe { s.store(to.wrapping_add((row + next - from) * LANES), s.mul(v, scales)) };
            }
        }
        for row in (row..first).chain(last..group.to) {
            let second = (row - group.start) % 2;
            // SAFETY: groups have an even number of rows.
            let two = unsafe { rows_as_integers.load_pair(s, row - second) };
            // SAFETY: the caller guarantees the destination.
            unsafe { s.store(to.wrapping_add((row - from) * LANES), s.mul(two[second], scales)) };
        }
        row = group.to;
    }
}
