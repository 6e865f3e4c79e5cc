//! The int8 kernels: which layers they support, and how many bytes their packed weights take.

use rushlight_engine::pack;
use rushlight_engine::{Conv3d, MAX_QUANT_K, depthwise2d_u8_takes};
use rushlight_graph::quantization::{ConvolutionShape, LayerShape};

use super::constants;

/// Maximum number of kernel positions: the driver has a pointer for each.
const MAX_TAPS: usize = 256;

/// Maximum number of phases of a transposed convolution: each has offsets of its own.
const MAX_PHASES: usize = 256;

/// Maximum number of columns that a window spans.
const MAX_REACH: usize = 128;

/// True if an int8 kernel supports weights of this shape.
pub fn has_kernel(layer: &LayerShape<'_>) -> bool {
    match (&layer.convolution, layer.sizes) {
        (Some(window), [inputs, _, taps @ ..]) if window.is_transposed && taps.len() <= 2 => {
            let phases = window.stride.iter().fold(1usize, |product, step| product.saturating_mul(*step));
            fits_window(inputs / window.groups.max(1), taps) && phases <= MAX_PHASES
        }
        (Some(window), [outputs, 1, taps @ ..]) if is_depthwise(window, *outputs) && taps.len() <= 2 => {
            let fits = triple(taps)
                .zip(triple(&window.dilation))
                .is_some_and(|([_, taps @ ..], [_, dilation @ ..])| depthwise2d_u8_takes(taps, dilation));
            fits && fits_window(1, taps) && reach(taps, window) <= MAX_REACH
        }
        (Some(window), [_, channels, taps @ ..]) if !window.is_transposed && (1..=3).contains(&taps.len()) => {
            fits_window(*channels, taps) && reach(taps, window) <= MAX_REACH
        }
        (None, [_, k]) => *k <= MAX_QUANT_K / 2,
        _ => false,
    }
}

/// Extends one to three numbers, for the innermost dimensions, to depth, height and width. The others are 1.
pub fn triple<T: Copy + From<u8>>(list: &[T]) -> Option<[T; 3]> {
    let one = T::from(1);
    match *list {
        [width] => Some([one, one, width]),
        [height, width] => Some([one, height, width]),
        [depth, height, width] => Some([depth, height, width]),
        _ => None,
    }
}

/// True for a depthwise convolution: it has a group for each output channel.
fn is_depthwise(window: &ConvolutionShape, outputs: usize) -> bool {
    window.groups > 1 && window.groups == outputs && !window.is_transposed
}

/// Upper bound of the columns that a window spans.
fn reach(taps: &[usize], window: &ConvolutionShape) -> usize {
    let dilation = window.dilation.last().copied().unwrap_or(usize::MAX);
    taps.last().copied().unwrap_or(1).saturating_mul(dilation)
}

/// Returns the bytes of the packed weights: as integers with two vectors of the outputs, and as floats.
pub fn packed_bytes(layer: &LayerShape<'_>) -> (usize, usize) {
    let (groups, inputs, outputs, taps) = match (&layer.convolution, layer.sizes) {
        (Some(window), [inputs, of_group, taps @ ..]) if window.is_transposed => {
            let groups = window.groups.max(1);
            (groups, inputs / groups, groups.saturating_mul(*of_group), taps)
        }
        (Some(window), [outputs, of_group, taps @ ..]) => (window.groups.max(1), *of_group, *outputs, taps),
        (_, [outputs, inputs, ..]) => (1, *inputs, *outputs, &[][..]),
        _ => return (0, 0),
    };
    let product = |factors: &[usize]| factors.iter().fold(1usize, |product, factor| product.saturating_mul(*factor));
    let (count, vectors) = (product(taps), outputs.saturating_mul(8));
    let is_transposed = layer.convolution.as_ref().is_some_and(|window| window.is_transposed);
    if groups > 1
        && inputs == 1
        && outputs == groups
        && !is_transposed
        && let Some([1, height, width]) = triple(taps)
    {
        // Depthwise: rows of the kernel are packed four together; a kernel of one dimension has one row.
        let integers = product(&[height.next_multiple_of(4), width, outputs.next_multiple_of(pack::PANEL)]);
        return (integers.saturating_add(vectors), product(&[4, count, outputs]));
    }
    if let (Some(window), false) = (&layer.convolution, is_transposed) {
        let [kernel, dilation] = [taps, &window.dilation].map(|list| triple(list).unwrap_or([1; 3]));
        let in_c = inputs.saturating_mul(groups);
        let conv = convolution([in_c, outputs], kernel, dilation, groups);
        let packed = pack::conv3d_i8_len(&conv).zip(constants::convolution_len(layer.sizes, groups));
        return packed
            .map_or((0, 0), |(integers, floats)| (integers.saturating_add(vectors), floats.saturating_mul(4)));
    }
    let columns = product(&[groups, (outputs / groups).next_multiple_of(pack::PANEL), count]);
    let integers = columns.saturating_mul(inputs.next_multiple_of(4)).saturating_add(vectors);
    (integers, product(&[4, columns, inputs]))
}

/// A convolution, as far as the packing of its weights depends on it.
pub fn convolution([in_c, out_c]: [usize; 2], kernel: [usize; 3], dilation: [usize; 3], groups: usize) -> Conv3d {
    Conv3d {
        batch: 1,
        in_size: [1; 3],
        in_c,
        out_c,
        kernel,
        stride: [1; 3],
        padding: [[0; 2]; 3],
        dilation,
        groups,
        in_stride: in_c,
        out_stride: out_c,
    }
}

/// True if the int8 kernels support windows of these taps over `channels` channels.
fn fits_window(channels: usize, taps: &[usize]) -> bool {
    let taps = taps.iter().fold(1usize, |product, size| product.saturating_mul(*size));
    taps <= MAX_TAPS && channels <= 4096 && (channels + 3).saturating_mul(taps) <= MAX_QUANT_K / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depthwise_windows_that_are_taken_are_those_of_the_engine() {
        for (taps, is_taken) in
            [([65, 1], false), ([33, 3], false), ([32, 3], true), ([1, 65], true), ([1, 130], false)]
        {
            let window = ConvolutionShape { stride: vec![1; 2], dilation: vec![1; 2], groups: 4, is_transposed: false };
            let sizes = [4, 1, taps[0], taps[1]];
            assert_eq!(has_kernel(&LayerShape { sizes: &sizes, convolution: Some(window) }), is_taken, "{taps:?}");
        }
    }

    #[test]
    fn volumes_are_convolved_and_not_transposed() {
        for (sizes, groups, is_transposed, expected) in [
            ([16, 8, 3, 3, 3], 1, false, true),
            ([64, 3, 3, 7, 7], 1, false, true),
            ([16, 1, 3, 3, 3], 16, false, true),
            ([16, 8, 7, 7, 7], 1, false, false),
            ([16, 8, 1, 1, 256], 1, false, false),
            ([16, 8, 3, 3, 3], 1, true, false),
        ] {
            let window = ConvolutionShape { stride: vec![1; 3], dilation: vec![1; 3], groups, is_transposed };
            let shape = LayerShape { sizes: &sizes, convolution: Some(window) };
            assert_eq!(has_kernel(&shape), expected, "{shape:?}");
        }
        let window = ConvolutionShape { stride: vec![1; 3], dilation: vec![1; 3], groups: 1, is_transposed: false };
        // 27 taps of 8 channels over 16 outputs, each of which has a scale and a sum.
        let sizes = [16, 8, 3, 3, 3];
        let bytes = packed_bytes(&LayerShape { sizes: &sizes, convolution: Some(window) });
        assert_eq!(bytes, (27 * 8 * 16 + 16 * 8, 4 * 27 * 8 * 16));
    }
}
