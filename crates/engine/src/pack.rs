//! Packing of weights: the memory layouts that are the contract between a compiler and the engine.
//!
//! A `[k, n]` matrix is packed into panels of 16 columns, `[ceil(n / 16)][padded_rows(k)][16]`. `padded_rows(k)` rounds
//! `k` up to an even number, because bf16 dot products consume pairs of rows; padding rows and columns are zero. All
//! instruction sets read the same layout. The functions here are portable scalar code and run on any machine.

use alloc::vec;
use alloc::vec::Vec;

use crate::conv::transposed::Phase;
use crate::convert::{to_bf16, to_f16};
use crate::{Conv2d, Conv3d, ConvTranspose2d, Half, Winograd};

/// Columns of a panel.
pub const PANEL: usize = crate::arch::LANES;

/// Rows of a panel: `k` rounded up to an even number.
pub(crate) const fn padded_rows(k: usize) -> usize {
    k.saturating_add(k % 2)
}

/// Returns the size of a packed `[k, n]` matrix in floats; `None` if it overflows `usize`.
pub const fn matrix_f32_len(k: usize, n: usize) -> Option<usize> {
    match (n.div_ceil(PANEL).checked_mul(PANEL), k.checked_add(k % 2)) {
        (Some(columns), Some(rows)) => columns.checked_mul(rows),
        _ => None,
    }
}

/// Packs the `[k, n]` matrix with elements `get(k, n)`.
///
/// For `y = x W^T` as in `aten::linear`, with `W` row-major of shape `[n, k]`: `get = |k, n| w[n * K + k]`.
///
/// # Panics
/// If the packed matrix does not fit in memory.
pub fn matrix_f32(k: usize, n: usize, get: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    let mut packed = vec![0.0; matrix_f32_len(k, n).expect("a matrix fits in memory")];
    matrix_f32_into(&mut packed, k, n, get);
    packed
}

/// Like [`matrix_f32`], into memory of [`matrix_f32_len`] floats, all of which are written.
///
/// # Panics
/// If `packed` is too short.
pub fn matrix_f32_into(packed: &mut [f32], k: usize, n: usize, get: impl Fn(usize, usize) -> f32) {
    if k == 0 {
        return;
    }
    for (panel, rows) in packed.chunks_exact_mut(padded_rows(k) * PANEL).take(n.div_ceil(PANEL)).enumerate() {
        let (rows, last) = rows.split_at_mut(k * PANEL);
        last.fill(0.0);
        for (row, lanes) in rows.chunks_exact_mut(PANEL).enumerate() {
            for (lane, value) in lanes.iter_mut().enumerate() {
                let column = panel * PANEL + lane;
                *value = if column < n { get(row, column) } else { 0.0 };
            }
        }
    }
}

/// Returns the size of a convolution's packed weights in floats; `None` if it overflows `usize`.
pub fn conv2d_f32_len(conv: &Conv2d) -> Option<usize> {
    conv3d_f32_len(&conv.in_3d())
}

/// Packs the weights of a convolution, of shape `[out_c, in_c / groups, kernel_h, kernel_w]` (OIHW) with elements
/// `get(o, i, h, w)`: one packed matrix per group, with rows in the order (h, w, i).
///
/// # Panics
/// If the packed weights do not fit in memory.
pub fn conv2d_f32(conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> f32) -> Vec<f32> {
    conv3d_f32(&conv.in_3d(), |o, i, [_, h, w]| get(o, i, h, w))
}

/// Returns the size of a 3D convolution's packed weights in floats; `None` if it overflows `usize`.
pub fn conv3d_f32_len(conv: &Conv3d) -> Option<usize> {
    let taps = conv.kernel.iter().try_fold(1usize, |product, &size| product.checked_mul(size))?;
    grouped_len(conv.groups, taps, conv.in_c, conv.out_c)
}

/// Packs the weights of a 3D convolution, of shape `[out_c, in_c / groups, kernel_d, kernel_h, kernel_w]` with elements
/// `get(o, i, [d, h, w])`: one packed matrix per group, with rows in the order (d, h, w, i).
///
/// # Panics
/// If the packed weights do not fit in memory.
pub fn conv3d_f32(conv: &Conv3d, get: impl Fn(usize, usize, [usize; 3]) -> f32) -> Vec<f32> {
    let [kernel_d, kernel_h, kernel_w] = conv.kernel;
    let taps = kernel_d * kernel_h * kernel_w;
    let mut packed = Vec::with_capacity(conv3d_f32_len(conv).expect("weights fit in memory"));
    extend_grouped(&mut packed, conv.groups, taps, conv.in_c, conv.out_c, |o, i, tap| {
        get(o, i, [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h, tap % kernel_w])
    });
    packed
}

/// Returns the size of a transposed convolution's packed weights in floats; `None` if it overflows `usize`.
pub fn conv_transpose2d_f32_len(conv: &ConvTranspose2d) -> Option<usize> {
    conv.sum_of_phases(|taps| grouped_len(conv.groups, taps, conv.in_c, conv.out_c))
}

/// Packs the weights of a transposed convolution, of shape `[in_c, out_c / groups, kernel_h, kernel_w]` with elements
/// `get(i, o, h, w)`. Each phase of the output (height before width) has its taps packed like the weights of a
/// convolution.
///
/// # Panics
/// If the packed weights do not fit in memory.
pub fn conv_transpose2d_f32(conv: &ConvTranspose2d, get: impl Fn(usize, usize, usize, usize) -> f32) -> Vec<f32> {
    let groups = conv.groups.max(1);
    let (channels, columns) = (conv.in_c / groups, conv.out_c / groups);
    let mut packed = Vec::with_capacity(conv_transpose2d_f32_len(conv).expect("weights fit in memory"));
    for phase @ [phase_h, phase_w] in phases_with_taps(conv) {
        extend_grouped(&mut packed, groups, phase_h.taps * phase_w.taps, conv.in_c, conv.out_c, |o, i, tap| {
            let [h, w] = tap_of_phase(phase, tap);
            get(o / columns * channels + i, o % columns, h, w)
        });
    }
    packed
}

/// The phases with taps, in the order in which their weights are packed.
fn phases_with_taps(conv: &ConvTranspose2d) -> impl Iterator<Item = [Phase; 2]> {
    let [vertical, horizontal] = conv.phases_with_taps();
    vertical.into_iter().flat_map(move |h| horizontal.clone().into_iter().map(move |w| [h, w]))
}

/// Kernel position of tap number `tap` of a phase.
fn tap_of_phase([phase_h, phase_w]: [Phase; 2], tap: usize) -> [usize; 2] {
    let (h, w) = (tap / phase_w.taps, tap % phase_w.taps);
    [phase_h.first_tap + h * phase_h.tap_step, phase_w.first_tap + w * phase_w.tap_step]
}

/// Returns the size of Winograd-transformed packed weights in floats; `None` if it overflows `usize`.
pub fn winograd_f32_len(form: Winograd, conv: &Conv2d) -> Option<usize> {
    matrix_f32_len(conv.in_c, conv.out_c)?.checked_mul(form.points())
}

/// Transforms and packs the weights of a 3x3 convolution, with elements `get(o, i, h, w)`, for
/// [`conv2d_winograd`](crate::conv2d_winograd): one packed `[in_c, out_c]` matrix per point of the transformed tile.
///
/// # Panics
/// If the packed weights do not fit in memory.
pub fn winograd_f32(form: Winograd, conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> f32) -> Vec<f32> {
    let mut packed = vec![0.0; winograd_f32_len(form, conv).expect("weights fit in memory")];
    winograd_f32_into(&mut packed, form, conv, get);
    packed
}

/// Like [`winograd_f32`], into zeroed memory of [`winograd_f32_len`] floats.
///
/// # Panics
/// If `packed` is too short.
pub fn winograd_f32_into(
    packed: &mut [f32],
    form: Winograd,
    conv: &Conv2d,
    get: impl Fn(usize, usize, usize, usize) -> f32,
) {
    let one = matrix_f32_len(conv.in_c, conv.out_c).expect("weights fit in memory");
    let (width, rows_of_panel) = (form.points().isqrt(), padded_rows(conv.in_c));
    // The filters of a panel are transformed together, so that a whole cache line is written at once.
    let columns = |panel: usize| (panel * PANEL..conv.out_c).take(PANEL);
    for (panel, i) in (0..conv.out_c.div_ceil(PANEL)).flat_map(|panel| (0..conv.in_c).map(move |i| (panel, i))) {
        for o in columns(panel) {
            let rows = [0, 1, 2].map(|h| form.transform_filter([0, 1, 2].map(|w| f64::from(get(o, i, h, w)))));
            for x in 0..width {
                let column = form.transform_filter(rows.map(|row| row[x]));
                for y in 0..width {
                    let at = (y * width + x) * one + (o / PANEL * rows_of_panel + i) * PANEL + o % PANEL;
                    packed[at] = column[y] as f32;
                }
            }
        }
    }
}

fn grouped_len(groups: usize, taps: usize, in_c: usize, out_c: usize) -> Option<usize> {
    let groups = groups.max(1);
    matrix_f32_len(taps.checked_mul(in_c / groups)?, out_c / groups)?.checked_mul(groups)
}

/// Appends one packed matrix per group, with rows in the order (tap, input channel of the group) and elements
/// `get(o, i, tap)`.
fn extend_grouped(
    packed: &mut Vec<f32>,
    groups: usize,
    taps: usize,
    in_c: usize,
    out_c: usize,
    get: impl Fn(usize, usize, usize) -> f32,
) {
    let groups = groups.max(1);
    let (channels, columns) = (in_c / groups, out_c / groups);
    let Some(one) = matrix_f32_len(taps * channels, columns) else { return };
    for group in 0..groups {
        let start = packed.len();
        packed.resize(start + one, 0.0);
        matrix_f32_into(&mut packed[start..], taps * channels, columns, |k, n| {
            get(group * columns + n, k % channels, k / channels)
        });
    }
}

/// Reorders the weights of a depthwise convolution, of shape `[c, 1, kernel_h, kernel_w]` with elements `get(c, h, w)`,
/// to `[kernel_h * kernel_w][c]`.
pub fn depthwise2d_f32(channels: usize, kernel: [usize; 2], get: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
    let mut packed = Vec::with_capacity(channels * kernel[0] * kernel[1]);
    for h in 0..kernel[0] {
        for w in 0..kernel[1] {
            packed.extend((0..channels).map(|channel| get(channel, h, w)));
        }
    }
    packed
}

/// Rounds packed matrices to a 16-bit format.
///
/// [`Half::F16`] keeps the layout. [`Half::Bf16`] interleaves each two rows of 16 into one row of 16 pairs,
/// `[n / 16][k / 2][16][2]`, the operand layout of bf16 dot products.
///
/// # Panics
/// If the lengths differ or are not those of packed matrices.
pub fn narrow(half: Half, packed: &[f32], to: &mut [u16]) {
    assert_eq!(packed.len(), to.len(), "equal lengths");
    assert!(packed.len().is_multiple_of(2 * PANEL), "an even number of rows");
    match half {
        Half::F16 => to.iter_mut().zip(packed).for_each(|(to, &x)| *to = to_f16(x)),
        Half::Bf16 => {
            for (to, rows) in to.chunks_exact_mut(2 * PANEL).zip(packed.chunks_exact(2 * PANEL)) {
                for (at, &x) in rows.iter().enumerate() {
                    to[at % PANEL * 2 + at / PANEL] = to_bf16(x);
                }
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
    let Some(shape) = QuantizedLayout::of(matrix) else { return };
    let (head, mut rest) = packed.split_at_mut(QUANTIZED_HEADER);
    head.copy_from_slice(&shape.head(u32::try_from(matrix.n).unwrap_or(u32::MAX)));
    let bias = if shape.is_four_bits { 8 } else { 128 };
    let above = |number: i8| number.cast_unsigned().wrapping_add(bias);
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
            zeros.iter_mut().enumerate().for_each(|(lane, zero)| *zero = above(of(lane).1));
            // Padding rows are not read, and padding columns have a scale of 0.
            let weight = |row: usize, lane: usize| {
                let column = panel * PANEL + lane;
                above(if row < matrix.k && column < matrix.n { get(row, column) } else { 0 })
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

/// Rounds `k` up to a multiple of four, the step of int8 dot products.
pub(crate) const fn pad_to_4(k: usize) -> usize {
    k.saturating_add(k.wrapping_neg() % 4)
}

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
fn taps_i8_into(packed: &mut [i8], taps: usize, depth: usize, n: usize, get: impl Fn(usize, usize, usize) -> i8) {
    let rows = pad_to_4(depth);
    if taps * rows == 0 {
        return;
    }
    for (panel, packed) in packed.chunks_exact_mut(taps * rows * PANEL).take(n.div_ceil(PANEL)).enumerate() {
        for (tap, packed) in packed.chunks_exact_mut(rows * PANEL).enumerate() {
            for (at, four) in packed.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let (first, column) = (at / PANEL * 4, panel * PANEL + at % PANEL);
                for (k, value) in (first..).zip(four) {
                    *value = if k < depth && column < n { get(tap, k, column) } else { 0 };
                }
            }
        }
    }
}

/// Rows that share a scale in a [`GroupwiseMatrix`].
pub const GROUP_SIZE: usize = 32;

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
    fn above(&self) -> u8 {
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
    let above = |number: i8| number.cast_unsigned().wrapping_add(matrix.above());
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
                    *to = above(zero);
                }
            }
            for (at, byte) in packed[weights..][..matrix.weights()].iter_mut().enumerate() {
                let (row, column) =
                    (group * GROUP_SIZE + at / (4 * PANEL) * 4 + at % 4, panel * PANEL + at / 4 % PANEL);
                let weight = |row: usize| if column < matrix.n { get(row, column) } else { 0 };
                *byte = if matrix.is_four_bits {
                    above(weight(row)) & 15 | above(weight(row + GROUP_SIZE / 2)) << 4
                } else {
                    weight(row).cast_unsigned()
                };
            }
        }
    }
}

/// How the kernel of an int8 convolution is divided into taps.
pub(crate) struct ConvLayout {
    pub(crate) taps: usize,
    /// Elements of a tap.
    pub(crate) depth: usize,
    /// A tap is a row of the kernel instead of a pixel: used when there are too few channels for steps of four.
    pub(crate) by_kernel_rows: bool,
}

impl ConvLayout {
    /// Returns the layout of a convolution; `None` if a size overflows `usize`.
    pub(crate) fn of(conv: &Conv3d) -> Option<Self> {
        let [kernel_d, kernel_h, kernel_w] = conv.kernel;
        let channels = conv.in_c / conv.groups.max(1);
        let kernel_rows = kernel_d.checked_mul(kernel_h)?;
        let is_dense = conv.groups == 1 && conv.in_stride == conv.in_c && conv.dilation[2] == 1;
        let by_kernel_rows = is_dense && kernel_w > 1 && channels < 8 && !channels.is_multiple_of(4);
        Some(if by_kernel_rows {
            Self { taps: kernel_rows, depth: kernel_w.checked_mul(channels)?, by_kernel_rows }
        } else {
            Self { taps: kernel_rows.checked_mul(kernel_w)?, depth: channels, by_kernel_rows }
        })
    }

    /// Bytes of the packed weights of all groups.
    pub(crate) fn len(&self, conv: &Conv3d) -> Option<usize> {
        let rows = self.depth.checked_next_multiple_of(4)?.checked_mul(self.taps)?;
        matrix_i8_len(rows, conv.out_c / conv.groups.max(1))?.checked_mul(conv.groups)
    }
}

/// Returns the size of an int8 convolution's packed weights in bytes; `None` if it overflows `usize`.
pub fn conv2d_i8_len(conv: &Conv2d) -> Option<usize> {
    let conv = conv.in_3d();
    ConvLayout::of(&conv)?.len(&conv)
}

/// Packs the weights of an int8 convolution, of shape `[out_c, in_c / groups, kernel_h, kernel_w]` with elements
/// `get(o, i, h, w)`, into memory of [`conv2d_i8_len`] bytes, all of which are written.
///
/// # Panics
/// If `packed` has another length.
pub fn conv2d_i8_into(packed: &mut [i8], conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> i8) {
    assert_eq!(Some(packed.len()), conv2d_i8_len(conv), "length of the packed weights");
    let Some(layout) = ConvLayout::of(&conv.in_3d()) else { return };
    let groups = conv.groups.max(1);
    let (columns, channels, kernel_w) = (conv.out_c / groups, conv.in_c / groups, conv.kernel[1]);
    let each = packed.len() / groups;
    if each == 0 {
        return;
    }
    for (group, packed) in packed.chunks_exact_mut(each).enumerate() {
        taps_i8_into(packed, layout.taps, layout.depth, columns, |tap, at, column| {
            let column = group * columns + column;
            if layout.by_kernel_rows {
                get(column, at % channels, tap, at / channels)
            } else {
                get(column, at, tap / kernel_w, tap % kernel_w)
            }
        });
    }
}

/// Returns the size of an int8 transposed convolution's packed weights in bytes; `None` if it overflows `usize`.
pub fn conv_transpose2d_i8_len(conv: &ConvTranspose2d) -> Option<usize> {
    conv.sum_of_phases(|taps| phase_i8_len(conv, taps))
}

/// Bytes of the packed weights of a phase with `taps` taps, for all groups.
pub(crate) fn phase_i8_len(conv: &ConvTranspose2d, taps: usize) -> Option<usize> {
    let groups = conv.groups.max(1);
    let rows = (conv.in_c / groups).checked_next_multiple_of(4)?.checked_mul(taps)?;
    matrix_i8_len(rows, conv.out_c / groups)?.checked_mul(groups)
}

/// Packs the weights of an int8 transposed convolution, of shape `[in_c, out_c / groups, kernel_h, kernel_w]` with
/// elements `get(i, o, h, w)`, into memory of [`conv_transpose2d_i8_len`] bytes, all of which are written. Each phase
/// of the output (height before width) has its taps packed like the weights of a convolution.
///
/// # Panics
/// If `packed` has another length.
pub fn conv_transpose2d_i8_into(
    packed: &mut [i8],
    conv: &ConvTranspose2d,
    get: impl Fn(usize, usize, usize, usize) -> i8,
) {
    assert_eq!(Some(packed.len()), conv_transpose2d_i8_len(conv), "length of the packed weights");
    let groups = conv.groups.max(1);
    let (channels, columns) = (conv.in_c / groups, conv.out_c / groups);
    let mut rest = packed;
    for phase @ [phase_h, phase_w] in phases_with_taps(conv) {
        let taps = phase_h.taps * phase_w.taps;
        let (own, others) = rest.split_at_mut(phase_i8_len(conv, taps).unwrap_or(0));
        rest = others;
        let each = own.len() / groups;
        if each == 0 {
            continue;
        }
        for (group, packed) in own.chunks_exact_mut(each).enumerate() {
            taps_i8_into(packed, taps, channels, columns, |tap, i, o| {
                let [h, w] = tap_of_phase(phase, tap);
                get(group * channels + i, o, h, w)
            });
        }
    }
}

/// Returns the sum of the weights of each output channel for each phase of a transposed convolution, `[phases][out_c]`,
/// with elements as in [`conv_transpose2d_i8_into`].
pub fn conv_transpose2d_i8_sums(conv: &ConvTranspose2d, get: impl Fn(usize, usize, usize, usize) -> i8) -> Vec<i64> {
    let groups = conv.groups.max(1);
    let (channels, columns) = (conv.in_c / groups, conv.out_c / groups);
    let mut sums = Vec::new();
    for phase @ [phase_h, phase_w] in conv.phase_pairs() {
        sums.extend((0..conv.out_c).map(|o| {
            let inputs = o / columns * channels..(o / columns + 1) * channels;
            let taps = (0..phase_h.taps * phase_w.taps).map(|tap| tap_of_phase(phase, tap));
            let weights = taps.flat_map(|[h, w]| inputs.clone().map(move |i| (i, h, w)));
            weights.map(|(i, h, w)| i64::from(get(i, o % columns, h, w))).sum::<i64>()
        }));
    }
    sums
}

/// Returns the size of an int8 depthwise convolution's packed weights in bytes; `None` if it overflows `usize`.
pub fn depthwise2d_i8_len(conv: &Conv2d) -> Option<usize> {
    let [kernel_h, kernel_w] = conv.kernel;
    matrix_i8_len(kernel_h.checked_next_multiple_of(4)?.checked_mul(kernel_w)?, conv.in_c)
}

/// Packs the weights of an int8 depthwise convolution, of shape `[c, 1, kernel_h, kernel_w]` with elements
/// `get(c, h, w)`, into memory of [`depthwise2d_i8_len`] bytes, all of which are written:
/// `[ceil(c / 16)][kernel_w][ceil(kernel_h / 4)][16][4]`, zero-padded.
///
/// # Panics
/// If `packed` is too short.
pub fn depthwise2d_i8_into(packed: &mut [i8], conv: &Conv2d, get: impl Fn(usize, usize, usize) -> i8) {
    let [kernel_h, kernel_w] = conv.kernel;
    taps_i8_into(packed, kernel_w, kernel_h, conv.in_c, |w, h, channel| get(channel, h, w));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_the_last_panel() {
        let packed = matrix_f32(2, 17, |k, n| (100 * k + n) as f32);
        assert_eq!(packed.len(), 2 * 2 * 16);
        assert_eq!(packed[0], 0.0);
        assert_eq!(packed[16], 100.0);
        assert_eq!(packed[32], 16.0);
        assert_eq!(packed[33], 0.0);
        assert_eq!(packed[48], 116.0);
        assert_eq!(matrix_f32_len(usize::MAX, 16), None);
    }
}
