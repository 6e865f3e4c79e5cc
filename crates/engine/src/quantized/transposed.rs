//! Int8 transposed convolution, phase by phase like the [f32 version](crate::conv::transposed).

use crate::conv::transposed::PhaseGemm;
use crate::error::{Error, at_least, size};
use crate::{ConvTranspose2d, Engine};

use super::igemm::{U8Igemm, check_window};
use super::lhs::U8ConvWindow;
use super::{QuantEpilogue, QuantOut};

/// Computes `out = epilogue(conv_transpose2d(input))` with weights packed by
/// [`pack::conv_transpose2d_i8_into`](crate::pack::conv_transpose2d_i8_into). `zero` is the zero point of the input,
/// and pads it. Phases see different weights: the epilogue's offsets are `[phases][out_c]`, in the order of
/// [`pack::conv_transpose2d_i8_sums`](crate::pack::conv_transpose2d_i8_sums).
///
/// # Errors
/// If a slice is too short, a size is zero or too large, or a window has more than [`MAX_QUANT_K`](crate::MAX_QUANT_K)
/// elements or too many taps.
pub fn conv_transpose2d_u8(
    engine: &Engine,
    conv: &ConvTranspose2d,
    zero: u8,
    input: &[u8],
    packed: &[i8],
    mut out: QuantOut,
    epilogue: &QuantEpilogue,
) -> Result<(), Error> {
    let pixels = conv.check(input.len(), out.len())?;
    epilogue.check_windows(pixels, conv.out_c)?;
    // Also bounds the number of phases: there is an offset for each.
    at_least("offsets", epilogue.offsets.len(), size("offsets", &[conv.stride[0], conv.stride[1], conv.out_c])?)?;
    let (channels, columns) = (conv.in_c / conv.groups, conv.out_c / conv.groups);
    if columns == 0 {
        return Ok(());
    }
    let weights = crate::conv::pack::conv_transpose2d_i8_len(conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights)?;
    check_window(conv.kernel[0].saturating_mul(conv.kernel[1]), channels, true)?;
    let mut packed = packed;
    for (phase, offsets) in conv.phase_pairs().zip(epilogue.offsets.chunks_exact(conv.out_c)) {
        let PhaseGemm { window, layout } = conv.phase_gemm(phase, input);
        let (own, rest) = packed.split_at(crate::conv::pack::phase_i8_len(conv, window.taps()).unwrap_or(0));
        packed = rest;
        let [_, out_rows, m_inner] = window.out_size;
        let igemm = U8Igemm {
            lhs: &U8ConvWindow(window),
            m_outer: conv.batch * out_rows,
            m_inner,
            groups: conv.groups,
            columns,
            packed: own,
            out_stride: conv.out_stride,
            layout,
            epilogue: QuantEpilogue { offsets, ..*epilogue }.args(&out),
            out: out.start(),
            zero,
        };
        // SAFETY: the sizes were checked above, and the phase's positions are within the output.
        unsafe { igemm.run(engine) };
    }
    Ok(())
}
