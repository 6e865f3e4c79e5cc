//! The layout of weights, the contract between whoever compiles a model and the engine.
//!
//! A matrix of `k` rows and `n` columns becomes panels of 16 columns, `[ceil(n / 16)][rows(k)][16]`, with zeros in the
//! columns beyond `n` and in a last row that makes their number even: pairs of rows have instructions of their own. Every
//! instruction set reads this layout. These functions are plain scalar code, for any machine.

use alloc::vec;
use alloc::vec::Vec;

use crate::conv::transposed::Phase;
use crate::convert::{to_bf16, to_f16};
use crate::{Conv2d, Conv3d, ConvTranspose2d, Half, Winograd};

/// Columns of a panel.
pub const PANEL: usize = crate::arch::LANES;

/// Rows of a panel: `k`, or one more if that is odd.
pub(crate) const fn rows(k: usize) -> usize {
    k.saturating_add(k % 2)
}

/// Floats of a packed matrix of `k` rows and `n` columns; `None` if that does not fit in `usize`.
pub const fn matrix_f32_len(k: usize, n: usize) -> Option<usize> {
    match (n.div_ceil(PANEL).checked_mul(PANEL), k.checked_add(k % 2)) {
        (Some(columns), Some(rows)) => columns.checked_mul(rows),
        _ => None,
    }
}

/// Packs a matrix whose element of row `k` and column `n` is `get(k, n)`.
///
/// For `y = x W^T`, as of `aten::linear`, with `W` of shape `[n, k]` in row-major order: `get = |k, n| w[n * K + k]`.
///
/// # Panics
/// When the packed matrix does not fit in memory.
pub fn matrix_f32(k: usize, n: usize, get: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    let mut packed = vec![0.0; matrix_f32_len(k, n).expect("a matrix fits in memory")];
    matrix_f32_into(&mut packed, k, n, get);
    packed
}

/// Like [`matrix_f32`] into memory of [`matrix_f32_len`], all of which is written.
///
/// # Panics
/// When `packed` is shorter.
pub fn matrix_f32_into(packed: &mut [f32], k: usize, n: usize, get: impl Fn(usize, usize) -> f32) {
    if k == 0 {
        return;
    }
    for (panel, rows) in packed.chunks_exact_mut(rows(k) * PANEL).take(n.div_ceil(PANEL)).enumerate() {
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

/// Floats of the packed weights of a convolution; `None` if that does not fit in `usize`.
pub fn conv2d_f32_len(conv: &Conv2d) -> Option<usize> {
    conv3d_f32_len(&conv.in_3d())
}

/// Packs the weights of a convolution, of shape `[out_c, in_c / groups, kernel_h, kernel_w]` (OIHW) and addressed by
/// `get(o, i, h, w)`: one packed matrix a group, with rows in the order (h, w, i).
///
/// # Panics
/// When the packed weights do not fit in memory.
pub fn conv2d_f32(conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> f32) -> Vec<f32> {
    conv3d_f32(&conv.in_3d(), |o, i, [_, h, w]| get(o, i, h, w))
}

/// Floats of the packed weights of a convolution over volumes; `None` if that does not fit in `usize`.
pub fn conv3d_f32_len(conv: &Conv3d) -> Option<usize> {
    let taps = conv.kernel.iter().try_fold(1usize, |product, &size| product.checked_mul(size))?;
    grouped_len(conv.groups, taps, conv.in_c, conv.out_c)
}

/// Packs the weights of a convolution over volumes, of shape `[out_c, in_c / groups, kernel_d, kernel_h, kernel_w]` and
/// addressed by `get(o, i, [d, h, w])`: one packed matrix a group, with rows in the order (d, h, w, i).
///
/// # Panics
/// When the packed weights do not fit in memory.
pub fn conv3d_f32(conv: &Conv3d, get: impl Fn(usize, usize, [usize; 3]) -> f32) -> Vec<f32> {
    let [kernel_d, kernel_h, kernel_w] = conv.kernel;
    let taps = kernel_d * kernel_h * kernel_w;
    let mut packed = Vec::with_capacity(conv3d_f32_len(conv).expect("weights fit in memory"));
    extend_grouped(&mut packed, conv.groups, taps, conv.in_c, conv.out_c, |o, i, tap| {
        get(o, i, [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h, tap % kernel_w])
    });
    packed
}

/// Floats of the packed weights of a transposed convolution; `None` if that does not fit in `usize`.
pub fn conv_transpose2d_f32_len(conv: &ConvTranspose2d) -> Option<usize> {
    conv.sum_of_phases(|taps| grouped_len(conv.groups, taps, conv.in_c, conv.out_c))
}

/// Packs the weights of a transposed convolution, of shape `[in_c, out_c / groups, kernel_h, kernel_w]` and addressed by
/// `get(i, o, h, w)`. For each phase of the output, height before width, the taps that it sees follow one another as the
/// weights of a convolution.
///
/// # Panics
/// When the packed weights do not fit in memory.
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

/// The phases that see taps, in the order in which their weights are packed.
fn phases_with_taps(conv: &ConvTranspose2d) -> impl Iterator<Item = [Phase; 2]> {
    let [vertical, horizontal] = conv.phases_with_taps();
    vertical.into_iter().flat_map(move |h| horizontal.clone().into_iter().map(move |w| [h, w]))
}

/// The position in the kernel of one of the taps that a phase sees.
fn tap_of_phase([phase_h, phase_w]: [Phase; 2], tap: usize) -> [usize; 2] {
    let (h, w) = (tap / phase_w.taps, tap % phase_w.taps);
    [phase_h.first_tap + h * phase_h.tap_step, phase_w.first_tap + w * phase_w.tap_step]
}

/// Floats of the packed weights of a convolution by Winograd's algorithm; `None` if that does not fit in `usize`.
pub fn winograd_f32_len(form: Winograd, conv: &Conv2d) -> Option<usize> {
    matrix_f32_len(conv.in_c, conv.out_c)?.checked_mul(form.points())
}

/// Transforms and packs the weights of a 3x3 convolution for [`conv2d_winograd`](crate::conv2d_winograd), addressed by
/// `get(o, i, h, w)`: a packed matrix of input by output channels for each position of a transformed tile.
///
/// # Panics
/// When the packed weights do not fit in memory.
pub fn winograd_f32(form: Winograd, conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> f32) -> Vec<f32> {
    let mut packed = vec![0.0; winograd_f32_len(form, conv).expect("weights fit in memory")];
    winograd_f32_into(&mut packed, form, conv, get);
    packed
}

/// Like [`winograd_f32`] into memory of [`winograd_f32_len`], which is zero before.
///
/// # Panics
/// When `packed` is shorter.
pub fn winograd_f32_into(
    packed: &mut [f32],
    form: Winograd,
    conv: &Conv2d,
    get: impl Fn(usize, usize, usize, usize) -> f32,
) {
    let one = matrix_f32_len(conv.in_c, conv.out_c).expect("weights fit in memory");
    let (width, rows_of_panel) = (form.points().isqrt(), rows(conv.in_c));
    // Filters of a panel side by side, so that a line of memory is written at once.
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

/// Appends one packed matrix a group with rows in the order (tap, input channel of the group), from `get(o, i, tap)`.
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

/// Orders the weights of a depthwise convolution, of shape `[c, 1, kernel_h, kernel_w]` and addressed by `get(c, h, w)`,
/// by taps: `[kernel_h * kernel_w][c]`.
pub fn depthwise2d_f32(channels: usize, kernel: [usize; 2], get: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
    let mut packed = Vec::with_capacity(channels * kernel[0] * kernel[1]);
    for h in 0..kernel[0] {
        for w in 0..kernel[1] {
            packed.extend((0..channels).map(|channel| get(channel, h, w)));
        }
    }
    packed
}

/// Rounds packed matrices to 16 bits. [`Half::F16`] stay where they are; of [`Half::Bf16`], each two lines of 16 become one of
/// 16 pairs, which is how processors multiply them.
///
/// # Panics
/// When the lengths differ, or are those of no matrices.
pub fn halves(half: Half, packed: &[f32], to: &mut [u16]) {
    assert_eq!(packed.len(), to.len(), "as many numbers as there are weights");
    assert!(packed.len().is_multiple_of(2 * PANEL), "an even number of rows");
    match half {
        Half::F16 => to.iter_mut().zip(packed).for_each(|(to, &x)| *to = to_f16(x)),
        Half::Bf16 => {
            for (to, lines) in to.chunks_exact_mut(2 * PANEL).zip(packed.chunks_exact(2 * PANEL)) {
                for (at, &x) in lines.iter().enumerate() {
                    to[at % PANEL * 2 + at / PANEL] = to_bf16(x);
                }
            }
        }
    }
}

/// Bytes before the groups of a packed matrix of integers.
pub(crate) const INTEGERS_HEAD: usize = 16;

/// How integers of a packed matrix lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntegersShape {
    pub(crate) is_four_bits: bool,
    pub(crate) has_zeros: bool,
    /// Rows with the same scales, an even number; the last of a panel may have fewer.
    pub(crate) group: usize,
    /// Rows of a panel.
    pub(crate) rows: usize,
}

impl IntegersShape {
    fn new(is_four_bits: bool, has_zeros: bool, group: usize, k: usize) -> Option<Self> {
        let rows = rows(k);
        let group = group.min(rows).max(2);
        group.is_multiple_of(2).then_some(Self { is_four_bits, has_zeros, group, rows })
    }

    /// What the first bytes say of a matrix of `k` rows, and its columns.
    pub(crate) fn from_head(head: &[u8; INTEGERS_HEAD], k: usize) -> Option<(Self, usize)> {
        let [bits, has_zeros, 0, 0, g0, g1, g2, g3, n0, n1, n2, n3, rest @ ..] = *head else { return None };
        let group = usize::try_from(u32::from_le_bytes([g0, g1, g2, g3])).ok()?;
        let columns = usize::try_from(u32::from_le_bytes([n0, n1, n2, n3])).ok()?;
        let is_known = matches!(bits, 4 | 8) && has_zeros <= 1 && rest == [0; 4];
        let shape = Self::new(bits == 4, has_zeros == 1, group, k).filter(|_| is_known)?;
        (shape.group == group).then_some((shape, columns))
    }

    fn head(&self, columns: u32) -> [u8; INTEGERS_HEAD] {
        let mut head = [0; INTEGERS_HEAD];
        head[0] = if self.is_four_bits { 4 } else { 8 };
        head[1] = u8::from(self.has_zeros);
        head[4..8].copy_from_slice(&(self.group as u32).to_le_bytes());
        head[8..12].copy_from_slice(&columns.to_le_bytes());
        head
    }

    /// Bytes of a group of so many rows.
    pub(crate) const fn group_bytes(&self, rows: usize) -> usize {
        let zeros = if self.has_zeros { PANEL } else { 0 };
        let weights = if self.is_four_bits { rows / 2 * PANEL } else { rows * PANEL };
        PANEL * size_of::<f32>() + zeros + weights
    }

    /// Bytes of a panel; `None` if that does not fit in `usize`.
    pub(crate) fn panel_bytes(&self) -> Option<usize> {
        let (whole, rest) = (self.rows / self.group, self.rows % self.group);
        self.rows.checked_mul(PANEL)?;
        let last = if rest > 0 { self.group_bytes(rest) } else { 0 };
        whole.checked_mul(self.group_bytes(self.group))?.checked_add(last)
    }
}

/// How a matrix of integers is packed for products with floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerMatrix {
    pub k: usize,
    pub n: usize,
    /// From -8 to 7; otherwise from -128 to 127. Zeros are likewise.
    pub is_four_bits: bool,
    pub has_zeros: bool,
    /// Rows in a row with the same scales, an even number; `k` or more if all have.
    pub group: usize,
}

impl IntegerMatrix {
    fn shape(&self) -> Option<IntegersShape> {
        IntegersShape::new(self.is_four_bits, self.has_zeros, self.group, self.k)
    }
}

/// Bytes of a packed matrix of integers; `None` if that does not fit in `usize` or its columns in 32 bits, or groups have an
/// odd number of rows.
pub fn integers_len(matrix: &IntegerMatrix) -> Option<usize> {
    u32::try_from(matrix.n).ok()?;
    let panels = matrix.n.div_ceil(PANEL);
    panels.checked_mul(matrix.shape()?.panel_bytes()?)?.checked_add(INTEGERS_HEAD)
}

/// Packs a matrix of integers, `get(k, n)`, each with the scale and the zero of its group, `parameters(k / group, n)`, into
/// memory of [`integers_len`], all of which is written, for [`Weights::Integers`](crate::Weights::Integers).
///
/// 16 bytes say what follows: the bits, whether there are zeros, two of nothing, the rows of a group and the columns as
/// little-endian `u32`, and four of nothing. Then `[ceil(n / 16)][ceil(rows / group)]` groups: 16 scales as little-endian `f32`,
/// 16 zeros as bytes if there are any, and the weights row by row, 16 bytes each. Of four bits a byte has the weight of an even
/// row in its low bits and that of the next in its high ones. Integers and zeros are 8, or 128, above themselves.
///
/// # Panics
/// When `packed` has another length.
pub fn integers(
    packed: &mut [u8],
    matrix: &IntegerMatrix,
    get: impl Fn(usize, usize) -> i8,
    parameters: impl Fn(usize, usize) -> (f32, i8),
) {
    assert_eq!(Some(packed.len()), integers_len(matrix), "memory for the weights");
    let Some(shape) = matrix.shape() else { return };
    let (head, mut rest) = packed.split_at_mut(INTEGERS_HEAD);
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
            // What lies beyond is multiplied by nothing, or has a scale of 0.
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

/// Elements of K of a product of bytes with those that make them a multiple of four.
pub(crate) const fn quads(k: usize) -> usize {
    k.saturating_add(k.wrapping_neg() % 4)
}

/// Bytes of a packed matrix of bytes of `k` rows and `n` columns; `None` if that does not fit in `usize`.
pub fn matrix_i8_len(k: usize, n: usize) -> Option<usize> {
    n.div_ceil(PANEL).checked_mul(PANEL)?.checked_mul(k.checked_next_multiple_of(4)?)
}

/// Packs a matrix of bytes, whose element of row `k` and column `n` is `get(k, n)`, into memory of [`matrix_i8_len`], all of
/// which is written: `[ceil(n / 16)][ceil(k / 4)][16][4]`, with zeros beyond.
///
/// # Panics
/// When `packed` is shorter.
pub fn matrix_i8_into(packed: &mut [i8], k: usize, n: usize, get: impl Fn(usize, usize) -> i8) {
    taps_i8_into(packed, 1, k, n, |_, k, n| get(k, n));
}

/// As [`matrix_i8_into`] with the rows of several taps, each a multiple of four.
fn taps_i8_into(packed: &mut [i8], taps: usize, depth: usize, n: usize, get: impl Fn(usize, usize, usize) -> i8) {
    let rows = quads(depth);
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

/// Weights of a column that have a scale of their own.
pub const GROUP: usize = 32;

/// How a matrix of integers for products with bytes, each group of [`GROUP`] rows with scales, lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMatrix {
    /// A multiple of [`GROUP`].
    pub k: usize,
    pub n: usize,
    /// From -8 to 7; otherwise from -128 to 127. Zeros are likewise.
    pub is_four_bits: bool,
    pub has_zeros: bool,
    /// Whether scales have 16 bits, as [`Half::F16`], which saves memory if there are several groups.
    pub has_half_scales: bool,
}

impl GroupMatrix {
    /// Bytes of the scales of a group of a panel, or of two groups if they have 16 bits: what follows is aligned for vectors.
    const SCALES: usize = PANEL * size_of::<f32>();

    /// The matrix that lies in so many bytes; `None` if none does. With one group scales have 32 bits.
    pub fn of_len(k: usize, n: usize, len: usize) -> Option<Self> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let of = |is_four_bits: bool| {
            all.map(|(has_zeros, has_half_scales)| Self { k, n, is_four_bits, has_zeros, has_half_scales })
        };
        of(true).into_iter().chain(of(false)).find(|matrix| matrix.len() == Some(len))
    }

    /// Bytes; `None` if that does not fit in `usize`, or `k` is no multiple of [`GROUP`].
    pub fn len(&self) -> Option<usize> {
        let groups = self.k.is_multiple_of(GROUP).then_some(self.k / GROUP)?;
        let zeros = if self.has_zeros { groups.checked_mul(PANEL)? } else { 0 };
        groups.checked_mul(self.weights() + Self::SCALES)?;
        self.panels().checked_mul(self.panel_bytes().checked_add(zeros)?)
    }

    /// Whether there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Bytes of the weights of a group of a panel.
    #[inline(always)]
    const fn weights(&self) -> usize {
        if self.is_four_bits { PANEL * GROUP / 2 } else { PANEL * GROUP }
    }

    /// How far integers of four bits, and zeros of either width, lie above themselves.
    fn above(&self) -> u8 {
        if self.is_four_bits { 8 } else { 128 }
    }

    /// Bytes of a panel without its zeros.
    pub(crate) const fn panel_bytes(&self) -> usize {
        let groups = self.k / GROUP;
        let scales = if self.has_half_scales { groups.div_ceil(2) } else { groups };
        groups * self.weights() + scales * Self::SCALES
    }

    /// Where in a panel the scales and the weights of a group begin.
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

/// Packs a matrix of integers, `get(k, n)`, each with the scale and the zero of its group, `parameters(k / 32, n)`, into memory
/// of [`GroupMatrix::len`], all of which is written. Scales of 16 bits are the nearest.
///
/// `[ceil(n / 16)][k / 32]` groups: 16 scales as little-endian `f32`, then the weights. Of eight bits these are `[8][16][4]`
/// bytes, of which `[j][n][i]` is the weight of row `4 j + i` of the group. Of four bits they are `[4][16][4]` bytes, with that
/// weight in the low four bits and that of row `16 + 4 j + i` in the high ones, 8 above themselves. If scales have 16 bits, those
/// of two groups come before the weights of both, or of the last and nothing. After all groups the zeros,
/// `[ceil(n / 16)][k / 32][16]` bytes, 8 above themselves, or 128.
///
/// # Panics
/// When `packed` has another length.
pub fn groups_into(
    packed: &mut [u8],
    matrix: &GroupMatrix,
    get: impl Fn(usize, usize) -> i8,
    parameters: impl Fn(usize, usize) -> (f32, i8),
) {
    assert_eq!(Some(packed.len()), matrix.len(), "memory for the weights");
    let (panel_bytes, groups) = (matrix.panel_bytes(), matrix.k / GROUP);
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
                let (row, column) = (group * GROUP + at / (4 * PANEL) * 4 + at % 4, panel * PANEL + at / 4 % PANEL);
                let weight = |row: usize| if column < matrix.n { get(row, column) } else { 0 };
                *byte = if matrix.is_four_bits {
                    above(weight(row)) & 15 | above(weight(row + GROUP / 2)) << 4
                } else {
                    weight(row).cast_unsigned()
                };
            }
        }
    }
}

/// How the window of a convolution of bytes is cut into taps.
pub(crate) struct ConvLayout {
    pub(crate) taps: usize,
    /// Elements of a tap.
    pub(crate) depth: usize,
    /// Whether a tap is a line of the window rather than a pixel: there are too few channels for steps of four.
    pub(crate) by_lines: bool,
}

impl ConvLayout {
    /// `None` if sizes do not fit in `usize`.
    pub(crate) fn of(conv: &Conv3d) -> Option<Self> {
        let [kernel_d, kernel_h, kernel_w] = conv.kernel;
        let channels = conv.in_c / conv.groups.max(1);
        let lines = kernel_d.checked_mul(kernel_h)?;
        let is_dense = conv.groups == 1 && conv.in_stride == conv.in_c && conv.dilation[2] == 1;
        let by_lines = is_dense && kernel_w > 1 && channels < 8 && !channels.is_multiple_of(4);
        Some(if by_lines {
            Self { taps: lines, depth: kernel_w.checked_mul(channels)?, by_lines }
        } else {
            Self { taps: lines.checked_mul(kernel_w)?, depth: channels, by_lines }
        })
    }

    /// Bytes of the weights of all groups.
    pub(crate) fn len(&self, conv: &Conv3d) -> Option<usize> {
        let rows = self.depth.checked_next_multiple_of(4)?.checked_mul(self.taps)?;
        matrix_i8_len(rows, conv.out_c / conv.groups.max(1))?.checked_mul(conv.groups)
    }
}

/// Bytes of the packed weights of a convolution of bytes; `None` if that does not fit in `usize`.
pub fn conv2d_i8_len(conv: &Conv2d) -> Option<usize> {
    let conv = conv.in_3d();
    ConvLayout::of(&conv)?.len(&conv)
}

/// Packs the weights of a convolution of bytes, of shape `[out_c, in_c / groups, kernel_h, kernel_w]` and addressed by
/// `get(o, i, h, w)`, into memory of [`conv2d_i8_len`], all of which is written.
///
/// # Panics
/// When `packed` has another length.
pub fn conv2d_i8_into(packed: &mut [i8], conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> i8) {
    assert_eq!(Some(packed.len()), conv2d_i8_len(conv), "memory for the weights");
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
            if layout.by_lines {
                get(column, at % channels, tap, at / channels)
            } else {
                get(column, at, tap / kernel_w, tap % kernel_w)
            }
        });
    }
}

/// Bytes of the packed weights of a transposed convolution of bytes; `None` if that does not fit in `usize`.
pub fn conv_transpose2d_i8_len(conv: &ConvTranspose2d) -> Option<usize> {
    conv.sum_of_phases(|taps| phase_i8_len(conv, taps))
}

/// Bytes of the packed weights of a phase with so many taps, of all groups.
pub(crate) fn phase_i8_len(conv: &ConvTranspose2d, taps: usize) -> Option<usize> {
    let groups = conv.groups.max(1);
    let rows = (conv.in_c / groups).checked_next_multiple_of(4)?.checked_mul(taps)?;
    matrix_i8_len(rows, conv.out_c / groups)?.checked_mul(groups)
}

/// Packs the weights of a transposed convolution of bytes, of shape `[in_c, out_c / groups, kernel_h, kernel_w]` and
/// addressed by `get(i, o, h, w)`, into memory of [`conv_transpose2d_i8_len`], all of which is written. For each phase
/// of the output, height before width, the taps that it sees follow one another as the weights of a convolution.
///
/// # Panics
/// When `packed` has another length.
pub fn conv_transpose2d_i8_into(
    packed: &mut [i8],
    conv: &ConvTranspose2d,
    get: impl Fn(usize, usize, usize, usize) -> i8,
) {
    assert_eq!(Some(packed.len()), conv_transpose2d_i8_len(conv), "memory for the weights");
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

/// For each phase of a transposed convolution the sums of the weights of each output channel, `[phases][out_c]`,
/// addressed as in [`conv_transpose2d_i8_into`].
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

/// Bytes of the packed weights of a depthwise convolution of bytes; `None` if that does not fit in `usize`.
pub fn depthwise2d_i8_len(conv: &Conv2d) -> Option<usize> {
    let [kernel_h, kernel_w] = conv.kernel;
    matrix_i8_len(kernel_h.checked_next_multiple_of(4)?.checked_mul(kernel_w)?, conv.in_c)
}

/// Packs the weights of a depthwise convolution of bytes, of shape `[c, 1, kernel_h, kernel_w]` and addressed by
/// `get(c, h, w)`, into memory of [`depthwise2d_i8_len`], all of which is written: for each 16 channels the columns of the
/// window, of each four lines together.
///
/// # Panics
/// When `packed` is shorter.
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
