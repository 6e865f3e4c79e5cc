//! Packing of convolution weights: matrices of the taps of each group, phase or Winograd point.

use alloc::vec;
use alloc::vec::Vec;

use super::transposed::Phase;
use super::{Conv2d, Conv3d, ConvTranspose2d, Winograd};
use crate::pack::{PANEL, matrix_f32_into, matrix_f32_len, matrix_i8_len, padded_rows, taps_i8_into};

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

/// Returns the size of an int8 convolution's packed weights in bytes; `None` if it overflows `usize`.
pub fn conv2d_i8_len(conv: &Conv2d) -> Option<usize> {
    conv3d_i8_len(&conv.in_3d())
}

/// Packs the weights of an int8 convolution, of shape `[out_c, in_c / groups, kernel_h, kernel_w]` with elements
/// `get(o, i, h, w)`, into memory of [`conv2d_i8_len`] bytes, all of which are written.
///
/// # Panics
/// If `packed` has another length.
pub fn conv2d_i8_into(packed: &mut [i8], conv: &Conv2d, get: impl Fn(usize, usize, usize, usize) -> i8) {
    conv3d_i8_into(packed, &conv.in_3d(), |o, i, [_, h, w]| get(o, i, h, w));
}

/// Returns the size of an int8 3D convolution's packed weights in bytes; `None` if it overflows `usize`.
pub fn conv3d_i8_len(conv: &Conv3d) -> Option<usize> {
    ConvLayout::of(conv)?.len(conv)
}

/// Packs the weights of an int8 3D convolution, of shape `[out_c, in_c / groups, kernel_d, kernel_h, kernel_w]` with
/// elements `get(o, i, [d, h, w])`, into memory of [`conv3d_i8_len`] bytes, all of which are written.
///
/// # Panics
/// If `packed` has another length.
pub fn conv3d_i8_into(packed: &mut [i8], conv: &Conv3d, get: impl Fn(usize, usize, [usize; 3]) -> i8) {
    assert_eq!(Some(packed.len()), conv3d_i8_len(conv), "length of the packed weights");
    let Some(layout) = ConvLayout::of(conv) else { return };
    let groups = conv.groups.max(1);
    let (columns, channels, [_, kernel_h, kernel_w]) = (conv.out_c / groups, conv.in_c / groups, conv.kernel);
    let each = packed.len() / groups;
    if each == 0 {
        return;
    }
    for (group, packed) in packed.chunks_exact_mut(each).enumerate() {
        taps_i8_into(packed, layout.taps, layout.depth, columns, |tap, at, column| {
            let column = group * columns + column;
            if layout.by_kernel_rows {
                get(column, at % channels, [tap / kernel_h, tap % kernel_h, at / channels])
            } else {
                get(column, at, [tap / kernel_w / kernel_h, tap / kernel_w % kernel_h, tap % kernel_w])
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

/// The division of an int8 convolution's kernel into taps.
pub(crate) struct ConvLayout {
    pub(crate) taps: usize,
    /// Elements of a tap.
    pub(crate) depth: usize,
    /// True if a tap is a row of the kernel instead of a pixel: used when there are too few channels for steps of four.
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
