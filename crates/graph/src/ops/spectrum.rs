//! Short-time Fourier transforms and window functions.

use std::f64::consts::PI;

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::fft::complex_dtype;
use super::inference::one;
use super::{Definition, Lowered, Operands, by_lowering, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::STFT, by_lowering, |b, o| stft(b, o, None)),
    composite(aten::STFT_CENTER, by_lowering, |b, o| stft(b, o, Some(5))),
    composite(aten::HANN_WINDOW, window_type, |b, o| window(b, o, hann)),
    composite(aten::HANN_WINDOW_PERIODIC, window_type, |b, o| window(b, o, hann)),
    composite(aten::HAMMING_WINDOW, window_type, |b, o| window(b, o, hamming)),
    composite(aten::HAMMING_WINDOW_PERIODIC, window_type, |b, o| window(b, o, hamming)),
    composite(aten::BLACKMAN_WINDOW, window_type, |b, o| window(b, o, blackman)),
    composite(aten::BLACKMAN_WINDOW_PERIODIC, window_type, |b, o| window(b, o, blackman)),
    composite(aten::BARTLETT_WINDOW, window_type, |b, o| window(b, o, bartlett)),
    composite(aten::BARTLETT_WINDOW_PERIODIC, window_type, |b, o| window(b, o, bartlett)),
];

fn window_type(operands: &Operands<'_>, _: &Graph) -> Result<Vec<Type>, Error> {
    let dtype = operands.schema.position("dtype").unwrap_or(usize::MAX);
    one(operands.dtype_or(dtype, ScalarType::Float)?, vec![operands.expr(0)?])
}

/// The phase runs from 0 to 1, or to just before it for a window that repeats.
fn window(b: &mut Builder<'_>, operands: &Operands<'_>, at: fn(f64) -> f64) -> Lowered {
    let length = operands.int(0)?;
    let periodic = operands.schema.position("periodic").map_or(Ok(true), |index| operands.bool(index))?;
    let dtype = operands.dtype_or(operands.schema.position("dtype").unwrap_or(usize::MAX), ScalarType::Float)?;
    super::number::check_computed(&operands.schema.name, length)?;
    let steps = if periodic { length } else { length.saturating_sub(1) };
    let value = |index: i64| if length == 1 { 1.0 } else { at(index as f64 / steps as f64) };
    let values: Vec<f64> = (0..length.max(0)).map(value).collect();
    super::creation::constant(b, &values, dtype).and_then(done)
}

fn hann(phase: f64) -> f64 {
    0.5 - 0.5 * (2.0 * PI * phase).cos()
}

fn hamming(phase: f64) -> f64 {
    0.54 - 0.46 * (2.0 * PI * phase).cos()
}

fn blackman(phase: f64) -> f64 {
    0.42 - 0.5 * (2.0 * PI * phase).cos() + 0.08 * (4.0 * PI * phase).cos()
}

fn bartlett(phase: f64) -> f64 {
    1.0 - (2.0 * phase - 1.0).abs()
}

/// Frames of the signal, times a window, transformed. `center` is the position of the parameter of that name, which the
/// padding mode follows, in the overload that has them.
fn stft(b: &mut Builder<'_>, operands: &Operands<'_>, center: Option<usize>) -> Lowered {
    let later = center.map_or(5, |center| center + 2);
    let n_fft = operands.int(1)?;
    let hop = if operands.has(2) { operands.int(2)? } else { n_fft / 4 };
    let length = if operands.has(3) { operands.int(3)? } else { n_fft };
    if n_fft <= 0 || hop <= 0 || length <= 0 || length > n_fft {
        return Err(operands.wrong(1, "a transform no shorter than the window, and positive steps"));
    }
    let mut x = operands.value(0)?;
    let ty = b.tensor(x)?;
    let rank = ty.rank();
    if let Some(center) = center
        && operands.bool(center)?
    {
        x = centred(b, x, n_fft / 2, operands.str(center + 1)?.unwrap_or("reflect"))?;
    }
    // [.., time] to [.., frame, n_fft].
    let mut frames = b.one(aten::UNFOLD_COPY, vec![x.into(), Arg::from(-1), Arg::from(n_fft), Arg::from(hop)])?;
    if let Some(window) = padded_window(b, operands, ty.dtype, length, n_fft)? {
        frames = b.mul(frames, window)?;
    }
    let complex = ty.dtype.is_complex() || b.tensor(frames)?.dtype.is_complex();
    let onesided = if operands.has(later + 1) { operands.bool(later + 1)? } else { !complex };
    let mode = i64::from(operands.bool(later)?);
    let spectrum = if complex {
        b.one(aten::_FFT_C2C, vec![frames.into(), Arg::from([-1]), Arg::from(mode), Arg::from(true)])?
    } else {
        let last = b.tensor(frames)?.rank() as i64 - 1;
        b.one(aten::_FFT_R2C, vec![frames.into(), Arg::from([last]), Arg::from(mode), Arg::from(onesided)])?
    };
    // [.., frame, frequency] to [.., frequency, frame].
    let rank = rank as i64;
    let dims: Vec<i64> = (0..rank - 1).chain([rank, rank - 1]).collect();
    let spectrum = b.one(aten::PERMUTE_COPY, vec![spectrum.into(), dims.as_slice().into()])?;
    let wanted = if operands.has(later + 2) { operands.bool(later + 2)? } else { complex };
    debug_assert!(b.tensor(spectrum)?.dtype == complex_dtype(ty.dtype) || complex);
    if wanted { done(spectrum) } else { b.unary(aten::VIEW_AS_REAL_COPY, spectrum).and_then(done) }
}

/// The signal with `by` more elements on both sides.
fn centred(b: &mut Builder<'_>, x: ValueId, by: i64, mode: &str) -> Result<ValueId, Error> {
    let shape = b.tensor(x)?.shape;
    let time = shape.last().cloned().unwrap_or(Expr::Int(1));
    // Padding wants a batch and channels before time.
    let batch = Expr::product(shape.iter().take(shape.len().saturating_sub(1)));
    let flat = b.view(x, vec![Expr::Int(1), batch, time.clone()])?;
    let padding = Arg::from([by, by]);
    let padded = match mode {
        "reflect" => b.one(aten::REFLECTION_PAD1D, vec![flat.into(), padding])?,
        "replicate" => b.one(aten::REPLICATION_PAD1D, vec![flat.into(), padding])?,
        "constant" => b.one(aten::CONSTANT_PAD_ND, vec![flat.into(), padding])?,
        other => return Err(Error::unsupported(format!("`aten::stft` with the padding mode \"{other}\""))),
    };
    let mut padded_shape = shape.clone();
    if let Some(last) = padded_shape.last_mut() {
        *last = time.add(2 * by);
    }
    b.view(padded, padded_shape)
}

/// The window of parameter 4, or one of ones, with zeros on both sides up to the transform's length.
fn padded_window(
    b: &mut Builder<'_>,
    operands: &Operands<'_>,
    dtype: ScalarType,
    length: i64,
    n_fft: i64,
) -> Result<Option<ValueId>, Error> {
    let window = match operands.optional(4)? {
        Some(window) => window,
        None if length == n_fft => return Ok(None),
        None => super::creation::filled(b, Arg::from([length]), Arg::from(1), dtype)?,
    };
    if length == n_fft {
        return Ok(Some(window));
    }
    let left = (n_fft - length) / 2;
    let padding = Arg::from([left, n_fft - length - left]);
    b.one(aten::CONSTANT_PAD_ND, vec![window.into(), padding]).map(Some)
}
