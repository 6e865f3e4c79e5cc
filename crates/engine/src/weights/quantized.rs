//! Weight-only quantization: packed weights of 4, 6 or 8 bits and how they are read.

use crate::arch::{I16Pairs, I32, LANES, Simd, U8Quads};
use crate::float16::from_f16;
use crate::pack::{Bits, FACTOR_BIAS, Offsets, QUANTIZED_HEADER, QuantizedLayout, QuantizedMatrix, ScaleFormat};

/// A packed matrix from [`pack::quantized`](crate::pack::quantized). A weight is `(integer - zero point) * scale`, or
/// `integer * scale + minimum`, with the parameters of its group of rows and column.
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

    pub(crate) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// Rows of a group; the last may have fewer.
    pub(crate) fn group(&self) -> usize {
        self.layout.group
    }

    /// Width of the integers.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn bits(&self) -> Bits {
        self.layout.bits
    }

    /// True if groups have minima.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_minima(&self) -> bool {
        self.layout.offsets == Offsets::Minima
    }

    /// True if groups have a multiple of eight rows, of 4 bits.
    pub(crate) fn has_nibbles_in_eights(&self) -> bool {
        self.layout.bits == Bits::Four && self.layout.group.min(self.layout.rows).is_multiple_of(8)
    }

    /// True if all integers less their zero points, which have the range of the integers, fit in i8.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn fits_i8(&self) -> bool {
        self.layout.bits != Bits::Eight || self.layout.offsets == Offsets::None
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Dequantizes a column, from the first row on.
    pub(crate) fn column(&self, column: usize, to: &mut [f32]) {
        let (panel, lane) = (column / LANES, column % LANES);
        for (group, to) in self.groups(panel, 0, to.len()).zip(to.chunks_mut(self.layout.group)) {
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

    /// Prefetches about the `part`-th of `parts` of the rows `from..to` of a panel.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn prefetch_rows<S: Simd>(&self, s: S, panel: usize, [from, to]: [usize; 2], [part, parts]: [usize; 2]) {
        let [from, to] = [from, to].map(|row| panel * self.panel_bytes + self.panel_bytes * row / self.layout.rows);
        for line in crate::parallel::chunk_range(part, parts, (to - from) / 64) {
            s.prefetch(self.bytes.as_ptr().wrapping_add(from + line * 64).cast());
        }
    }

    /// The groups of the rows `from..to` of a panel, of which the first and the last may be a part.
    #[inline(always)]
    pub(crate) fn groups(&self, panel: usize, from: usize, to: usize) -> PanelGroups<'a> {
        let layout = self.layout;
        let group_bytes = layout.group_bytes(layout.group);
        let group = from / layout.group;
        let (unit, in_unit) = (group / layout.unit_groups(), group % layout.unit_groups());
        let units = panel * self.panel_bytes + unit * (layout.unit_bytes() + layout.unit_groups() * group_bytes);
        PanelGroups {
            layout,
            head_bytes: layout.head_bytes(),
            group_bytes,
            unit_bytes: layout.unit_bytes(),
            bytes: self.bytes,
            start: group * layout.group,
            from,
            to: to.min(layout.rows),
            units,
            at: units + layout.unit_bytes() + in_unit * group_bytes,
            left_in_unit: layout.unit_groups() - in_unit,
        }
    }
}

/// The groups of some rows of a panel, one after the other.
pub(crate) struct PanelGroups<'a> {
    layout: QuantizedLayout,
    /// Sizes of the layout.
    head_bytes: usize,
    group_bytes: usize,
    unit_bytes: usize,
    bytes: &'a [u8],
    /// First row of the next group.
    start: usize,
    /// The requested range of rows.
    from: usize,
    to: usize,
    /// Where the units of the next group begin, and the group itself.
    units: usize,
    at: usize,
    /// Groups that have these units, from the next one on.
    left_in_unit: usize,
}

impl<'a> Iterator for PanelGroups<'a> {
    type Item = QuantizedGroup<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<QuantizedGroup<'a>> {
        let Self { layout, bytes, start, .. } = *self;
        if start >= self.to {
            return None;
        }
        if self.left_in_unit == 0 {
            self.left_in_unit = layout.unit_groups();
            self.units = self.at;
            self.at += self.unit_bytes;
        }
        let rows = layout.group.min(layout.rows - start);
        let size = if rows == layout.group { self.group_bytes } else { layout.group_bytes(rows) };
        let units = bytes.get(self.units..self.units + self.unit_bytes)?;
        let (head, weights) = bytes.get(self.at..self.at + size)?.split_at_checked(self.head_bytes)?;
        self.at += size;
        self.left_in_unit -= 1;
        self.start += rows;
        let (from, to) = (start.max(self.from), self.start.min(self.to));
        Some(QuantizedGroup { layout, start, from, to, units, head, weights })
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
    units: &'a [u8],
    /// Scales and offsets.
    head: &'a [u8],
    weights: &'a [u8],
}

impl QuantizedGroup<'_> {
    /// Dequantizes the first rows of a column.
    fn column(&self, lane: usize, to: &mut [f32]) {
        let layout = &self.layout;
        let Self { head, weights, .. } = self;
        let scale = self.number_of(lane, 0);
        let (zero, minimum) = match layout.offsets {
            Offsets::None => (layout.bias(), 0.0),
            Offsets::ZeroPoints => (head[layout.scale_bytes() + lane], 0.0),
            Offsets::Minima => (0, self.number_of(lane, 1)),
        };
        for (row, to) in to.iter_mut().enumerate() {
            let nibble = |line: usize| weights[line * LANES + lane] >> (row % 2 * 4) & 15;
            let integer = match layout.bits {
                Bits::Four => nibble(row / 2),
                Bits::Six => {
                    let upper = weights[(row / 4 * 3 + 2) * LANES + lane] >> (row % 4 * 2) & 3;
                    nibble(row / 4 * 3 + row % 4 / 2) | upper << 4
                }
                Bits::Eight => weights[row * LANES + lane],
            };
            let number = (f32::from(integer) - f32::from(zero)) * scale;
            *to = if layout.offsets == Offsets::Minima { number + minimum } else { number };
        }
    }

    /// The scale of a column for `part` 0, its minimum for `part` 1.
    fn number_of(&self, lane: usize, part: usize) -> f32 {
        let bytes = &self.head[part * self.layout.scale_bytes()..];
        let half = |bytes: &[u8]| from_f16(u16::from_le_bytes(bytes.as_chunks().0[lane]));
        match self.layout.scales {
            ScaleFormat::F32 => f32::from_le_bytes(bytes.as_chunks().0[lane]),
            ScaleFormat::F16 => half(bytes),
            ScaleFormat::Products => {
                half(&self.units[part * self.layout.unit_bytes_of_part()..])
                    * (f32::from(bytes[lane]) - f32::from(FACTOR_BIAS))
            }
        }
    }

    /// Scales of the 16 columns.
    #[inline(always)]
    pub(crate) fn scales<S: Simd>(&self, s: S) -> S::V {
        self.numbers(s, 0)
    }

    /// Minima of the 16 columns, if there are any.
    #[inline(always)]
    pub(crate) fn minima<S: Simd>(&self, s: S) -> Option<S::V> {
        (self.layout.offsets == Offsets::Minima).then(|| self.numbers(s, 1))
    }

    /// The scales for `part` 0, the minima for `part` 1.
    #[inline(always)]
    fn numbers<S: Simd>(&self, s: S, part: usize) -> S::V {
        let at = self.head.as_ptr().wrapping_add(part * self.layout.scale_bytes());
        match self.layout.scales {
            // SAFETY: a group begins with the scales and the minima of 16 columns.
            ScaleFormat::F32 => unsafe { s.load(at.cast()) },
            // SAFETY: likewise.
            ScaleFormat::F16 => unsafe { s.load_f16(at.cast()) },
            ScaleFormat::Products => {
                let units = self.units.as_ptr().wrapping_add(part * self.layout.unit_bytes_of_part());
                // SAFETY: there is a unit for each of 16 columns.
                let units = unsafe { s.load_f16(units.cast()) };
                // SAFETY: as above, with a byte each.
                let factors = s.i32_to_f32(unsafe { s.load_u8(at, LANES) });
                s.mul(units, s.sub(factors, s.splat(f32::from(FACTOR_BIAS))))
            }
        }
    }

    /// The zero points of the stored integers of the 16 columns.
    #[inline(always)]
    pub(crate) fn zeros<S: Simd>(&self, s: S) -> S::V {
        s.i32_to_f32(self.zeros_i32(s))
    }

    /// Prefetches the bytes at the offset `ahead` after the group.
    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(&self, s: S, ahead: usize) {
        for at in (0..self.head.len() + self.weights.len()).step_by(64) {
            s.prefetch(self.head.as_ptr().wrapping_add(ahead + at).cast());
        }
    }

    /// The zero points of the stored integers of the 16 columns, as integers; 0 where there are minima.
    #[inline(always)]
    pub(crate) fn zeros_i32<S: Simd>(&self, s: S) -> I32<S> {
        if self.layout.offsets == Offsets::ZeroPoints {
            // SAFETY: the zeros follow the scales.
            unsafe { s.load_u8(self.head.as_ptr().wrapping_add(self.layout.scale_bytes()), LANES) }
        } else {
            s.splat_i32(i32::from(self.layout.bias()))
        }
    }

    /// Width of the integers.
    #[inline(always)]
    pub(crate) fn bits(&self) -> Bits {
        self.layout.bits
    }

    /// Loads `ROWS` rows of `BITS` bits as they are stored, from row `row` of the panel on, a multiple of `ROWS` in the group.
    ///
    /// # Safety
    /// The group has these rows, and [`bits`](Self::bits) is `BITS`. `ROWS` is 4 for 6 bits, and 2 otherwise.
    #[inline(always)]
    pub(crate) unsafe fn load_rows<S: Simd, const BITS: u32, const ROWS: usize>(
        &self,
        s: S,
        row: usize,
    ) -> [S::V; ROWS] {
        let row = row - self.start;
        let lines = self.weights.as_ptr();
        // SAFETY: the caller guarantees the rows, whose lines have 16 bytes.
        let line = |line: usize| unsafe { s.load_u8(lines.wrapping_add(line * LANES), LANES) };
        let mut rows = [s.splat(0.0); ROWS];
        if const { BITS == 4 } {
            let pair = line(row / 2);
            rows[0] = s.bits_to_f32::<0, 4>(pair);
            rows[1] = s.bits_to_f32::<4, 4>(pair);
        } else if const { BITS == 6 } {
            let [first, second, upper] = [0, 1, 2].map(|at| line(row / 4 * 3 + at));
            let above = s.splat(16.0);
            rows[0] = s.fma(s.bits_to_f32::<0, 2>(upper), above, s.bits_to_f32::<0, 4>(first));
            rows[1] = s.fma(s.bits_to_f32::<2, 2>(upper), above, s.bits_to_f32::<4, 4>(first));
            rows[2] = s.fma(s.bits_to_f32::<4, 2>(upper), above, s.bits_to_f32::<0, 4>(second));
            rows[3] = s.fma(s.bits_to_f32::<6, 2>(upper), above, s.bits_to_f32::<4, 4>(second));
        } else {
            rows[0] = s.i32_to_f32(line(row));
            rows[1] = s.i32_to_f32(line(row + 1));
        }
        rows
    }

    /// Loads eight rows of 4 bits as they are stored, from row `row` of the panel on, a multiple of 8 in the group: four lines of 16 bytes.
    ///
    /// # Safety
    /// The group has these rows, and [`bits`](Self::bits) is 4.
    #[inline(always)]
    pub(crate) unsafe fn load_nibbles<S: Simd>(&self, s: S, row: usize) -> U8Quads<S> {
        let lines = self.weights.as_ptr().wrapping_add((row - self.start) / 2 * LANES);
        // SAFETY: the caller guarantees the rows.
        unsafe { s.load_u8_quads(lines) }
    }

    /// Loads rows of 4 bits as they are stored, from row `row` of the panel on, even in the group: pairs of the row and the one `apart`
    /// after it in their low four bits, and the next two above these.
    ///
    /// # Safety
    /// The group has the rows `row`, `row + 1`, `row + apart` and `row + apart + 1`, and [`bits`](Self::bits) is 4.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) unsafe fn load_nibble_pairs<S: Simd>(&self, s: S, row: usize, apart: usize) -> I16Pairs<S> {
        let [first, second] = [row, row + apart].map(|row| {
            let line = self.weights.as_ptr().wrapping_add((row - self.start) / 2 * LANES);
            // SAFETY: the caller guarantees the rows, whose lines have 16 bytes.
            unsafe { s.load_u8(line, LANES) }
        });
        I16Pairs::of(s.join_bits::<16>(second, first))
    }

    /// Loads `PAIRS` pairs of rows of `BITS` bits as they are stored, from row `row` of the panel on, a multiple of `2 * PAIRS` in
    /// the group.
    ///
    /// # Safety
    /// The group has these rows, and [`bits`](Self::bits) is `BITS`. `PAIRS` is 2 for 6 bits.
    #[inline(always)]
    pub(crate) unsafe fn load_pairs<S: Simd, const BITS: u32, const PAIRS: usize>(
        &self,
        s: S,
        row: usize,
    ) -> [I16Pairs<S>; PAIRS] {
        let row = row - self.start;
        let lines = self.weights.as_ptr();
        // SAFETY: the caller guarantees the rows, whose lines have 16 bytes.
        let line = |line: usize| unsafe { s.load_u8(lines.wrapping_add(line * LANES), LANES) };
        let mut pairs = [I16Pairs::of(s.splat_i32(0)); PAIRS];
        if const { BITS == 6 } {
            let [first, second, upper] = [0, 1, 2].map(|at| line(row / 4 * 3 + at));
            let above = [s.bit_pairs::<0, 2>(upper), s.bit_pairs::<4, 2>(upper)];
            for (at, lower) in [first, second].into_iter().enumerate() {
                let lower = s.bit_pairs::<0, 4>(lower);
                pairs[at] = I16Pairs::of(s.join_bits::<4>(above[at].into_i32(), lower.into_i32()));
            }
        } else {
            for at in 0..PAIRS {
                pairs[at] = if const { BITS == 4 } {
                    s.bit_pairs::<0, 4>(line(row / 2 + at))
                } else {
                    let row = row + 2 * at;
                    I16Pairs::of(s.join_bits::<16>(line(row + 1), line(row)))
                };
            }
        }
        pairs
    }

    /// Dequantizes the requested rows to `to`.
    ///
    /// # Safety
    /// As for [`load_rows`](Self::load_rows), and 16 floats for each row are writable at `to`.
    #[inline(always)]
    unsafe fn widen<S: Simd, const BITS: u32, const ROWS: usize>(&self, s: S, to: *mut f32) {
        let (scales, minima, zeros) = (self.scales(s), self.minima(s), self.zeros(s));
        let dequantized = |integers: S::V| match minima {
            // Not fused, as the floats of a file of such blocks are.
            Some(minima) => s.add(s.mul(integers, scales), minima),
            None => s.mul(s.sub(integers, zeros), scales),
        };
        let to = |row: usize| to.wrapping_add((row - self.from) * LANES);
        let mut row = self.from;
        while row < self.to {
            let first = row - (row - self.start) % ROWS;
            // SAFETY: groups have a multiple of `ROWS` rows.
            let rows = unsafe { self.load_rows::<S, BITS, ROWS>(s, first) };
            let end = self.to.min(first + ROWS);
            if end - row == ROWS {
                for at in 0..ROWS {
                    // SAFETY: the caller guarantees the destination.
                    unsafe { s.store(to(first + at), dequantized(rows[at])) };
                }
            } else {
                for row in row..end {
                    // SAFETY: likewise.
                    unsafe { s.store(to(row), dequantized(rows[row - first])) };
                }
            }
            row = end;
        }
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
    for group in integers.groups(panel, from, from + rows) {
        let to = to.wrapping_add((group.from - from) * LANES);
        match group.bits() {
            // SAFETY: the caller guarantees the destination, and the group has its rows.
            Bits::Four => unsafe { group.widen::<S, 4, 2>(s, to) },
            // SAFETY: likewise.
            Bits::Six => unsafe { group.widen::<S, 6, 4>(s, to) },
            // SAFETY: likewise.
            Bits::Eight => unsafe { group.widen::<S, 8, 2>(s, to) },
        }
    }
}
