//! Packing of weight-only quantized matrices, which are multiplied by f32 rows.

use crate::float16::to_f16;

use super::{PANEL, padded_rows};

/// Shape and layout of a weight-only quantized matrix for GEMM by f32 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizedMatrix {
    pub k: usize,
    pub n: usize,
    pub bits: Bits,
    pub offsets: Offsets,
    pub scales: ScaleFormat,
    /// Consecutive rows that share scales, an even number; `k` or more for per-column scales.
    pub group: usize,
}

/// Width of the integers of a weight-only quantized matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    Four,
    /// Rows and groups come in multiples of 4.
    Six,
    Eight,
}

/// The constant term of the weights of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offsets {
    /// `integer * scale`, of signed integers.
    None,
    /// `(integer - zero point) * scale`, of signed integers.
    ZeroPoints,
    /// `integer * scale + minimum`, of unsigned integers.
    Minima,
}

/// Storage of scales and minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleFormat {
    F32,
    F16,
    /// An f16 unit for [`UNIT_ROWS`] rows, of which `k` is a multiple and `group` a divisor, times an 8-bit factor for each group.
    Products,
}

/// Rows that share the units of [`ScaleFormat::Products`].
pub const UNIT_ROWS: usize = 256;

/// Numbers of the groups of a matrix, in the order `[n, groups]`.
#[derive(Debug, Clone, Copy)]
pub enum GroupNumbers<'a> {
    /// f32 or f16, to which they are rounded.
    Each(&'a [f32]),
    /// Units `[n, k / UNIT_ROWS]`, which are rounded to f16, and factors `[n, groups]`.
    Products { units: &'a [f32], factors: &'a [i8] },
}

/// Scales and offsets of the groups of a matrix.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedGroups<'a> {
    pub scales: GroupNumbers<'a>,
    /// In the range of the integers; empty without zero points.
    pub zeros: &'a [i8],
    /// `Each` of nothing without minima.
    pub minima: GroupNumbers<'a>,
}

impl<'a> QuantizedGroups<'a> {
    /// Groups without minima.
    pub const fn new(scales: &'a [f32], zeros: &'a [i8]) -> Self {
        Self { scales: GroupNumbers::Each(scales), zeros, minima: GroupNumbers::Each(&[]) }
    }
}

impl Bits {
    /// Number of bits.
    pub const fn count(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Six => 6,
            Self::Eight => 8,
        }
    }
}

/// Returns the size of a packed quantized matrix in bytes; `None` if it overflows `usize`, `n` exceeds 32 bits or
/// its groups do not suit its layout.
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
pub fn quantized(packed: &mut [u8], matrix: &QuantizedMatrix, columns: &[i8], groups: &QuantizedGroups<'_>) {
    assert_eq!(Some(packed.len()), quantized_len(matrix), "length of the packed weights");
    let Some(header) = quantized_header(matrix) else { return };
    let (head, panels) = packed.split_at_mut(QUANTIZED_HEADER);
    head.copy_from_slice(&header);
    quantized_panels(panels, matrix, columns, groups);
}

/// The header of a packed quantized matrix, of 16 bytes: the number of bits, the kind of offsets, the format of scales, a reserved
/// byte, the rows of a group and the columns as little-endian `u32`, four reserved bytes. `None` where [`quantized_len`] is.
pub fn quantized_header(matrix: &QuantizedMatrix) -> Option<[u8; QUANTIZED_HEADER]> {
    Some(QuantizedLayout::of(matrix)?.head(u32::try_from(matrix.n).ok()?))
}

/// Packs what follows the header: the panels of all columns, or of those of a part that begins with a whole panel. `columns` is the
/// transpose of their integers, row-major of shape `[n, k]`, and the numbers of `groups` are `[n, ceil(k / group)]`.
///
/// `[ceil(n / 16)][ceil(rows / group)]` groups: 16 scales, 16 zero points as bytes or minima if there are any, and the weights, 16
/// bytes per row. With 4 bits, a byte has an even row in its low nibble and the next row in the high one. With 6 bits, four rows
/// are those of 4 bits, then a byte with the upper two bits of each, the first row lowest. Scales and minima are little-endian
/// `f32` or `f16`, or bytes that multiply units: of those, the 16 of the scales and then of the minima precede the first group
/// that they belong to. Integers are stored unsigned: with a bias of 8, 32 or 128 for 4, 6 or 8 bits, as zero points are; without
/// one where there are minima. Factors have a bias of 128.
///
/// # Panics
/// If `packed` or another slice has another length.
pub fn quantized_panels(packed: &mut [u8], matrix: &QuantizedMatrix, columns: &[i8], groups: &QuantizedGroups<'_>) {
    let len = quantized_len(matrix).map(|len| len - QUANTIZED_HEADER);
    assert_eq!(Some(packed.len()), len, "length of the packed weights");
    let (Some(shape), &QuantizedMatrix { k, n, .. }) = (QuantizedLayout::of(matrix), matrix) else { return };
    let count = k.div_ceil(shape.group);
    let zeros = if shape.offsets == Offsets::ZeroPoints { n * count } else { 0 };
    assert_eq!((columns.len(), groups.zeros.len()), (n * k, zeros), "lengths of the parts");
    groups.scales.check(&shape, n * count);
    groups.minima.check(&shape, if shape.offsets == Offsets::Minima { n * count } else { 0 });
    if k == 0 {
        return;
    }
    let bias = shape.bias();
    let panel_bytes = shape.panel_bytes().unwrap_or(usize::MAX);
    for (panel, packed) in packed.chunks_exact_mut(panel_bytes).enumerate() {
        let columns = &columns[panel * PANEL * k..columns.len().min((panel + 1) * PANEL * k)];
        let lanes = columns.len() / k;
        let mut rest = Unwritten(packed);
        for group in 0..count {
            let rows = group * shape.group..k.min((group + 1) * shape.group);
            let of = |lane: usize| (lane < lanes).then_some((panel * PANEL + lane) * count + group);
            if group % shape.unit_groups() == 0 {
                let mut units = |numbers: &GroupNumbers<'_>| {
                    let GroupNumbers::Products { units, .. } = numbers else { return };
                    let unit = |lane| of(lane).map_or(0.0, |at| units[at / shape.unit_groups()]);
                    rest.write(|lane| to_f16(unit(lane)).to_le_bytes());
                };
                units(&groups.scales);
                units(&groups.minima);
            }
            // Padding columns have a scale of 0.
            groups.scales.write(&mut rest, shape.scales, of);
            match shape.offsets {
                Offsets::None => {}
                Offsets::ZeroPoints => {
                    let zero = |lane| of(lane).map_or(0, |at| groups.zeros[at].cast_unsigned());
                    rest.write(|lane| [bias.wrapping_add(zero(lane))]);
                }
                Offsets::Minima => groups.minima.write(&mut rest, shape.scales, of),
            }
            let bytes = rest.take(shape.weight_bytes(rows.len().next_multiple_of(2)));
            let tile = Tile { columns: &columns[rows.start..], k, lanes, bias };
            match shape.bits {
                Bits::Four => tile.pack_group::<2, 1>(rows.len(), bytes),
                Bits::Six => tile.pack_group::<4, 3>(rows.len(), bytes),
                Bits::Eight => tile.pack_group::<1, 1>(rows.len(), bytes),
            }
        }
    }
}

/// The part of a panel that is not written yet.
struct Unwritten<'a>(&'a mut [u8]);

impl<'a> Unwritten<'a> {
    fn take(&mut self, len: usize) -> &'a mut [u8] {
        let (taken, rest) = core::mem::take(&mut self.0).split_at_mut(len);
        self.0 = rest;
        taken
    }

    /// Writes a number of `B` bytes for each column.
    fn write<const B: usize>(&mut self, number: impl Fn(usize) -> [u8; B]) {
        for (lane, to) in self.take(PANEL * B).as_chunks_mut().0.iter_mut().enumerate() {
            *to = number(lane);
        }
    }
}

impl GroupNumbers<'_> {
    fn check(&self, shape: &QuantizedLayout, count: usize) {
        match *self {
            Self::Each(numbers) => {
                assert_eq!(numbers.len(), count, "numbers of groups");
                assert!(count == 0 || shape.scales != ScaleFormat::Products, "units and factors of groups");
            }
            Self::Products { units, factors } => {
                let expected = (count.div_ceil(shape.unit_groups()), count, ScaleFormat::Products);
                assert_eq!((units.len(), factors.len(), shape.scales), expected, "units and factors of groups");
            }
        }
    }

    /// Writes those of a group of a panel, whose index is `of` each lane, or nothing for padding.
    fn write(&self, rest: &mut Unwritten<'_>, format: ScaleFormat, of: impl Fn(usize) -> Option<usize>) {
        match *self {
            Self::Each(numbers) => {
                let number = |lane| of(lane).map_or(0.0, |at| numbers[at]);
                match format {
                    ScaleFormat::F32 => rest.write(|lane| number(lane).to_le_bytes()),
                    _ => rest.write(|lane| to_f16(number(lane)).to_le_bytes()),
                }
            }
            Self::Products { factors, .. } => {
                rest.write(|lane| [FACTOR_BIAS.wrapping_add(of(lane).map_or(0, |at| factors[at].cast_unsigned()))]);
            }
        }
    }
}

/// Added to the factors of [`ScaleFormat::Products`].
pub(crate) const FACTOR_BIAS: u8 = 128;

/// The columns of a panel, from the first row of a group on.
struct Tile<'c> {
    columns: &'c [i8],
    /// Elements from one column to the next.
    k: usize,
    lanes: usize,
    bias: u8,
}

impl Tile<'_> {
    /// Packs a group of `rows` rows: `BYTES` bytes of each column for `ROWS` rows, at most 16 times at once.
    #[inline(always)]
    fn pack_group<const ROWS: usize, const BYTES: usize>(&self, rows: usize, packed: &mut [u8]) {
        for (lines, packed) in packed.chunks_mut(PANEL * BYTES * PANEL).enumerate() {
            self.pack::<ROWS, BYTES>(lines * PANEL * ROWS, rows, packed);
        }
    }

    /// Packs the rows from `start` on.
    #[inline(always)]
    fn pack<const ROWS: usize, const BYTES: usize>(&self, start: usize, rows: usize, packed: &mut [u8]) {
        let bias = self.bias;
        let padding = encoded::<ROWS, BYTES>([bias; ROWS]);
        // The bytes of each line, by column.
        let mut bytes = [[padding; PANEL]; PANEL];
        let count = (rows - start).min(PANEL * ROWS);
        for (column, to) in self.columns.chunks(self.k).take(self.lanes).zip(&mut bytes) {
            let column = &column[start..start + count];
            let (whole, rest) = column.as_chunks::<ROWS>();
            for (to, rows) in to.iter_mut().zip(whole) {
                *to = encoded(rows.map(|row| row.cast_unsigned().wrapping_add(bias)));
            }
            // Last rows without others in their bytes.
            if let (false, Some(to)) = (rest.is_empty(), to.get_mut(whole.len())) {
                let row = |row: usize| rest.get(row).map_or(0, |row| row.cast_unsigned());
                *to = encoded::<ROWS, BYTES>(core::array::from_fn(|at| row(at).wrapping_add(bias)));
            }
        }
        for (line, to) in packed.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
            *to = core::array::from_fn(|lane| bytes[lane][line / BYTES][line % BYTES]);
        }
    }
}

/// The bytes of `ROWS` unsigned integers: two nibbles, a byte, or two pairs of nibbles and the upper two bits of each.
#[inline(always)]
fn encoded<const ROWS: usize, const BYTES: usize>(rows: [u8; ROWS]) -> [u8; BYTES] {
    let nibbles = |pair: usize| rows[2 * pair] & 15 | rows[2 * pair + 1] << 4;
    core::array::from_fn(|byte| match (ROWS, byte) {
        (1, _) => rows[0],
        (2, _) | (4, 0 | 1) => nibbles(byte),
        _ => rows.iter().rev().fold(0, |bits, row| bits << 2 | row >> 4 & 3),
    })
}

/// Size of the header of a packed quantized matrix, in bytes.
pub const QUANTIZED_HEADER: usize = 16;

/// Layout of the panels of a packed quantized matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuantizedLayout {
    pub(crate) bits: Bits,
    pub(crate) offsets: Offsets,
    pub(crate) scales: ScaleFormat,
    /// Rows per group, an even number; the last group of a panel may have fewer.
    pub(crate) group: usize,
    /// Rows of a panel.
    pub(crate) rows: usize,
}

impl QuantizedLayout {
    pub(crate) fn of(matrix: &QuantizedMatrix) -> Option<Self> {
        let &QuantizedMatrix { k, bits, offsets, scales, group, .. } = matrix;
        let rows = padded_rows(k);
        let group = group.min(rows).max(2);
        let is_whole = match bits {
            Bits::Six => k.is_multiple_of(4) && (group.is_multiple_of(4) || k == 0),
            Bits::Four | Bits::Eight => group.is_multiple_of(2),
        };
        let has_units = match scales {
            ScaleFormat::Products => k.is_multiple_of(UNIT_ROWS) && UNIT_ROWS.is_multiple_of(group),
            ScaleFormat::F32 | ScaleFormat::F16 => true,
        };
        (is_whole && has_units).then_some(Self { bits, offsets, scales, group, rows })
    }

    pub(crate) fn head(&self, columns: u32) -> [u8; QUANTIZED_HEADER] {
        let mut head = [0; QUANTIZED_HEADER];
        head[0] = self.bits.count() as u8;
        head[1] = match self.offsets {
            Offsets::None => 0,
            Offsets::ZeroPoints => 1,
            Offsets::Minima => 2,
        };
        head[2] = match self.scales {
            ScaleFormat::F32 => 0,
            ScaleFormat::F16 => 1,
            ScaleFormat::Products => 2,
        };
        head[4..8].copy_from_slice(&(self.group as u32).to_le_bytes());
        head[8..12].copy_from_slice(&columns.to_le_bytes());
        head
    }

    /// Added to signed integers and zero points.
    pub(crate) const fn bias(&self) -> u8 {
        match (self.offsets, self.bits) {
            (Offsets::Minima, _) => 0,
            (_, Bits::Four) => 8,
            (_, Bits::Six) => 32,
            (_, Bits::Eight) => 128,
        }
    }

    /// Groups that share units.
    pub(crate) const fn unit_groups(&self) -> usize {
        match self.scales {
            ScaleFormat::Products => UNIT_ROWS / self.group,
            ScaleFormat::F32 | ScaleFormat::F16 => 1,
        }
    }

    /// Size in bytes of the units that precede the groups that share them.
    pub(crate) const fn unit_bytes(&self) -> usize {
        match self.offsets {
            Offsets::Minima => 2 * self.unit_bytes_of_part(),
            Offsets::None | Offsets::ZeroPoints => self.unit_bytes_of_part(),
        }
    }

    /// Size in bytes of the units of scales, or of minima.
    pub(crate) const fn unit_bytes_of_part(&self) -> usize {
        match self.scales {
            ScaleFormat::Products => HALVES,
            ScaleFormat::F32 | ScaleFormat::F16 => 0,
        }
    }

    /// Size in bytes of the scales of a group of 16 columns, or of its minima.
    pub(crate) const fn scale_bytes(&self) -> usize {
        match self.scales {
            ScaleFormat::F32 => PANEL * size_of::<f32>(),
            ScaleFormat::F16 => HALVES,
            ScaleFormat::Products => PANEL,
        }
    }

    /// Size in bytes of the scales and offsets of a group.
    pub(crate) const fn head_bytes(&self) -> usize {
        let offsets = match self.offsets {
            Offsets::None => 0,
            Offsets::ZeroPoints => PANEL,
            Offsets::Minima => self.scale_bytes(),
        };
        self.scale_bytes() + offsets
    }

    /// Size in bytes of the weights of `rows` rows.
    pub(crate) const fn weight_bytes(&self, rows: usize) -> usize {
        match self.bits {
            Bits::Four => rows / 2 * PANEL,
            Bits::Six => rows / 4 * 3 * PANEL,
            Bits::Eight => rows * PANEL,
        }
    }

    /// Size in bytes of a group of `rows` rows.
    pub(crate) const fn group_bytes(&self, rows: usize) -> usize {
        self.head_bytes() + self.weight_bytes(rows)
    }

    /// Size of a panel in bytes; `None` if it overflows `usize`.
    pub(crate) fn panel_bytes(&self) -> Option<usize> {
        let (whole, rest) = (self.rows / self.group, self.rows % self.group);
        // Of the largest group: the sizes of groups do not overflow.
        self.rows.checked_mul(PANEL)?.checked_add(self.head_bytes())?;
        let last = if rest > 0 { self.group_bytes(rest) } else { 0 };
        let units = (whole / self.unit_groups()).checked_mul(self.unit_bytes())?;
        whole.checked_mul(self.group_bytes(self.group))?.checked_add(last)?.checked_add(units)
    }
}

/// Size in bytes of 16 f16 numbers.
const HALVES: usize = PANEL * size_of::<u16>();

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn rows_are_where_the_layout_has_them() {
        let shapes = [(1, 1, 2), (7, 17, 4), (32, 16, 32), (72, 33, 36), (64, 40, 64), (33, 5, 1000), (512, 18, 32)];
        for (k, n, group) in shapes {
            for (bits, offsets, scales) in layouts() {
                let matrix = QuantizedMatrix { k, n, bits, offsets, scales, group };
                let (Some(layout), Some(len)) = (QuantizedLayout::of(&matrix), quantized_len(&matrix)) else {
                    assert!(bits == Bits::Six && k % 4 != 0 || scales == ScaleFormat::Products && k != 512);
                    continue;
                };
                check_layout(&matrix, layout, len);
            }
        }
    }

    #[test]
    fn sizes_that_overflow_are_none() {
        // Rows up to the largest number of them whose weights fit in memory, without and with their scales.
        for k in [usize::MAX / PANEL - 1, usize::MAX / PANEL - 3, usize::MAX / PANEL, usize::MAX - 1, usize::MAX] {
            for ((bits, offsets, scales), group) in
                layouts().flat_map(|layout| [(layout, 32), (layout, usize::MAX - 1)])
            {
                let matrix = QuantizedMatrix { k, n: PANEL, bits, offsets, scales, group };
                let len = quantized_len(&matrix);
                let least = (k as u128 * u128::from(bits.count()) / 8) * PANEL as u128;
                assert!(len.is_none_or(|len| len as u128 >= least), "{matrix:?}: {len:?}");
            }
        }
    }

    fn layouts() -> impl Iterator<Item = (Bits, Offsets, ScaleFormat)> {
        let with_scales = |bits, offsets| {
            [ScaleFormat::F32, ScaleFormat::F16, ScaleFormat::Products].map(|scales| (bits, offsets, scales))
        };
        let with_offsets = move |bits| {
            let offsets = [Offsets::None, Offsets::ZeroPoints, Offsets::Minima];
            offsets.into_iter().flat_map(move |offsets| with_scales(bits, offsets))
        };
        [Bits::Four, Bits::Six, Bits::Eight].into_iter().flat_map(with_offsets)
    }

    fn check_layout(matrix: &QuantizedMatrix, layout: QuantizedLayout, len: usize) {
        let &QuantizedMatrix { k, n, bits, offsets, scales, group } = matrix;
        let (levels, bias) = match (bits, offsets) {
            (Bits::Four, Offsets::Minima) => (16, 0),
            (Bits::Six, Offsets::Minima) => (64, 0),
            (Bits::Eight, Offsets::Minima) => (128, 0),
            (Bits::Four, _) => (16, 8),
            (Bits::Six, _) => (64, 32),
            (Bits::Eight, _) => (256, 128),
        };
        let integer = |at: usize| ((at * 37 % 251 % levels) as i16 - bias) as i8;
        let columns: Vec<i8> = (0..k * n).map(integer).collect();
        let groups = k.div_ceil(group);
        let number = |at: usize| (at + 1) as f32 / 64.0;
        let has = |wanted: bool| if wanted { groups * n } else { 0 };
        let (has_zeros, has_minima) = (offsets == Offsets::ZeroPoints, offsets == Offsets::Minima);
        let zeros: Vec<i8> = (0..has(has_zeros)).map(|at| integer(at + 5)).collect();
        // Those of minima are others than those of scales.
        let floats = |count: usize, more: usize| (0..count).map(|at| number(at + more)).collect::<Vec<f32>>();
        let bytes = |count: usize, more: usize| (0..count).map(|at| (at * 29 + more) as i8).collect::<Vec<i8>>();
        let counts = [has(true), has(has_minima)];
        let (each, factors) = (
            [(0, counts[0]), (7, counts[1])].map(|(more, count)| floats(count, more)),
            [(0, counts[0]), (7, counts[1])].map(|(more, count)| bytes(count, more)),
        );
        let unit = layout.unit_groups();
        let are_products = scales == ScaleFormat::Products;
        let numbers = [0, 1].map(|of| match scales {
            ScaleFormat::Products => {
                GroupNumbers::Products { units: &each[of][..counts[of] / unit], factors: &factors[of] }
            }
            _ => GroupNumbers::Each(&each[of]),
        });
        let minima = if has_minima { numbers[1] } else { GroupNumbers::Each(&[]) };
        let mut packed = vec![99; len];
        quantized(&mut packed, matrix, &columns, &QuantizedGroups { scales: numbers[0], zeros: &zeros, minima });

        let mut expected = layout.head(n as u32).to_vec();
        let float = |number: f32| match scales {
            ScaleFormat::F32 => number.to_le_bytes().to_vec(),
            _ => to_f16(number).to_le_bytes().to_vec(),
        };
        for panel in 0..n.div_ceil(PANEL) {
            let lanes = || panel * PANEL..(panel + 1) * PANEL;
            for start in (0..k).step_by(group) {
                let of = |column: usize| column * groups + start / group;
                let parts = if has_minima { 0..2 } else { 0..1 };
                if are_products && start % UNIT_ROWS == 0 {
                    for part in parts.clone() {
                        let unit = |column| if column < n { each[part][of(column) / unit] } else { 0.0 };
                        expected.extend(lanes().flat_map(|column| float(unit(column))));
                    }
                }
                let mut scale = |part: usize| {
                    if are_products {
                        let factor = |column| if column < n { factors[part][of(column)] } else { 0 };
                        expected.extend(lanes().map(|column| (i16::from(factor(column)) + 128) as u8));
                    } else {
                        let number = |column| if column < n { each[part][of(column)] } else { 0.0 };
                        expected.extend(lanes().flat_map(|column| float(number(column))));
                    }
                };
                parts.for_each(&mut scale);
                let biased = |integer: i8| (i16::from(integer) + bias) as u8;
                if has_zeros {
                    expected.extend(lanes().map(|column| biased(if column < n { zeros[of(column)] } else { 0 })));
                }
                let weight = |row: usize, column: usize| {
                    biased(if row < k && column < n { columns[column * k + row] } else { 0 })
                };
                let end = (start + group).min(k);
                match bits {
                    Bits::Four => {
                        for row in (start..end).step_by(2) {
                            expected.extend(lanes().map(|column| weight(row, column) | weight(row + 1, column) << 4));
                        }
                    }
                    Bits::Six => {
                        for row in (start..end).step_by(4) {
                            for row in [row, row + 2] {
                                let nibble = |row, column| weight(row, column) & 15;
                                expected.extend(lanes().map(|at| nibble(row, at) | nibble(row + 1, at) << 4));
                            }
                            let upper = |column| (0..4).map(move |at| (weight(row + at, column) >> 4) << (2 * at));
                            expected.extend(lanes().map(|column| upper(column).sum::<u8>()));
                        }
                    }
                    Bits::Eight => {
                        for row in start..end.next_multiple_of(2) {
                            expected.extend(lanes().map(|column| weight(row, column)));
                        }
                    }
                }
            }
        }
        assert!(packed == expected, "{matrix:?}");
    }
}
