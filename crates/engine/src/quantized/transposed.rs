//! Transposed convolution of bytes, a phase at a time as that of floats is.

use crate::conv::transposed::PhaseRows;
use crate::error::{Error, at_least, size};
use crate::{ConvTranspose2d, Engine};

use super::product::{ByteProduct, check_window};
use super::rows::BytePixels;
use super::{QuantOut, QuantTail};

/// Computes `out = tail(transposed convolution of input)` with weights packed by
/// [`pack::conv_transpose2d_i8_into`](crate::pack::conv_transpose2d_i8_into). Pixels outside the input have the byte
/// `zero`. Each phase sees other weights: the tail's offsets are `[phases][out_c]`, in the order of
/// [`pack::conv_transpose2d_i8_sums`](crate::pack::conv_transpose2d_i8_sums).
///
/// # Errors
/// When a slice is too short, a size is zero or too large, a window has more than
/// [`MAX_QUANT_K`](crate::MAX_QUANT_K) elements or too many positions.
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
    check_window(conv.kernel[0].saturating_mul(conv.kernel[1]), channels, true)?;
    let mut packed = packed;
    for (phase, offsets) in conv.phase_pairs().zip(tail.offsets.chunks_exact(conv.out_c)) {
        let PhaseRows { window, place } = conv.rows_of(phase, input);
        let (own, rest) = packed.split_at(crate::pack::phase_i8_len(conv, window.taps()).unwrap_or(0));
        packed = rest;
        let [_, lines, rows_per_line] = window.out_size;
        let product = ByteProduct {
            rows: &BytePixels(window),
            lines: conv.batch * lines,
            rows_per_line,
            groups: conv.groups,
            columns,
            packed: own,
            out_stride: conv.out_stride,
            place,
            steps: QuantTail { offsets, ..*tail }.steps(&out),
            out: out.start(),
            zero,
        };
        // SAFETY: the sizes were checked above, and the phase's positions are within the output.
        unsafe { product.run(engine) };
    }
    Ok(())
}
