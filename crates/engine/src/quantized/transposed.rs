//! Transposed convolution of bytes, a phase at a time as that of floats is.

use crate::conv::window::Window;
use crate::error::{Error, at_least, size};
use crate::pack::quads;
use crate::product::Place;
use crate::{ConvTranspose2d, Engine};

use super::product::{ByteProduct, MAX_PAD, MAX_POINTERS};
use super::rows::BytePixels;
use super::{MAX_QUANT_K, QuantOut, QuantTail};

/// Computes `out = tail(transposed convolution of input)` with weights packed by
/// [`pack::conv_transpose2d_i8_into`](crate::pack::conv_transpose2d_i8_into). Pixels outside the input have the byte `zero`.
/// Each phase sees other weights: the tail's offsets are `[phases][out_c]`, in the order of
/// [`pack::conv_transpose2d_i8_sums`](crate::pack::conv_transpose2d_i8_sums).
///
/// # Errors
/// When a slice is too short, a size is zero or too large, a window has more than [`MAX_QUANT_K`] elements or too many
/// positions.
pub fn conv_transpose2d_u8(
    engine: &Engine,
    conv: &ConvTranspose2d,
    zero: u8,
    input: &[u8],
    packed: &[i8],
    mut out: QuantOut,
    tail: &QuantTail,
) -> Result<(), Error> {
    let pixels = conv.check(input.len(), out.len())?;
    tail.check_windows(pixels, conv.out_c)?;
    // So many phases that there is an offset for each.
    at_least("offsets", tail.offsets.len(), size("offsets", &[conv.stride[0], conv.stride[1], conv.out_c])?)?;
    let (channels, columns) = (conv.in_c / conv.groups, conv.out_c / conv.groups);
    if columns == 0 {
        return Ok(());
    }
    let weights = crate::pack::conv_transpose2d_i8_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights)?;
    let taps = conv.kernel[0].saturating_mul(conv.kernel[1]);
    if taps > MAX_POINTERS / 16 || quads(channels) > MAX_PAD || taps.saturating_mul(quads(channels)) > MAX_QUANT_K {
        return Err(Error::Size { what: "a window of bytes" });
    }
    let (out_h, out_w) = (conv.out_h(), conv.out_w());
    let mut packed = packed;
    for ([phase_h, phase_w], offsets) in conv.phase_pairs().zip(tail.offsets.chunks_exact(conv.out_c)) {
        let taps = phase_h.taps * phase_w.taps;
        let (own, rest) = packed.split_at(crate::pack::phase_i8_len(conv, taps).unwrap_or(0));
        packed = rest;
        let lines = phase_h.positions(out_h, conv.stride[0]);
        let rows_per_line = phase_w.positions(out_w, conv.stride[1]);
        let rows = BytePixels(Window {
            input,
            in_size: [1, conv.in_h, conv.in_w],
            out_size: [1, lines, rows_per_line],
            kernel: [1, phase_h.taps, phase_w.taps],
            stride: [1; 3],
            dilation: [1, phase_h.dilation, phase_w.dilation],
            shift: [0, phase_h.shift, phase_w.shift],
            pixel: conv.in_stride,
            channels,
        });
        let product = ByteProduct {
            rows: &rows,
            lines: conv.batch * lines,
            rows_per_line,
            groups: conv.groups,
            columns,
            packed: own,
            out_stride: conv.out_stride,
            place: Place {
                first: phase_h.first * out_w + phase_w.first,
                step: conv.stride[1],
                line: conv.stride[0] * out_w,
                lines_per_image: lines.max(1),
                image: out_h * out_w,
            },
            steps: QuantTail { offsets, ..*tail }.steps(&out),
            out: out.start(),
            zero,
        };
        // SAFETY: the sizes were checked above, and the phase's positions are within the output.
        unsafe { product.run(engine) };
    }
    Ok(())
}
