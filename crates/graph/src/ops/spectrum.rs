//! Short-time Fourier transforms and window functions.

use std::f64::consts::PI;

use rushlight_format::ScalarType;

use crate::Error;
use crate::operators::aten;
use crate::{Arg, Builder, Expr, Graph, Type, ValueId};

use super::fft::complex_dtype;
use super::inference::one;
use super::slices::slice;
use super::views::{expand, squeeze, transpose, unsqueeze};
use super::{Definition, Lowered, Operands, by_lowering, composite, done};

pub(crate) const OPS: &[Definition] = &[
    composite(aten::STFT, by_lowering, |b, o| stft(b, o, None)),
    composite(aten::STFT_CENTER, by_lowering, |b, o| stft(b, o, Some(5))),
    composite(aten::ISTFT, by_lowering, istft),
    composite(aten::KAISER_WINDOW, window_type, |b, o| window(b, o, kaiser(12.0))),
    composite(aten::KAISER_WINDOW_PERIODIC, window_type, |b, o| window(b, o, kaiser(12.0))),
    composite(aten::KAISER_WINDOW_BETA, window_type, |b, o| window(b, o, kaiser(o.float(2)?))),
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
fn window(b: &mut Builder<'_>, operands: &Operands<'_>, at: impl Fn(f64) -> f64) -> Lowered {
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

/// Kaiser's window of a shape: `I0(beta sqrt(1 - x²)) / I0(beta)`, where `x` runs from -1 to 1.
fn kaiser(beta: f64) -> impl Fn(f64) -> f64 {
    // The modified Bessel function, whose series has positive terms only.
    let bessel = |x: f64| {
        let quarter = x * x / 4.0;
        let next = |(term, k): (f64, f64)| (term * quarter / (k * k), k + 1.0);
        let terms = std::iter::successors(Some((1.0, 1.0)), move |state| Some(next(*state)));
        terms.map(|(term, _)| term).take(1000).sum::<f64>()
    };
    let whole = bessel(beta);
    move |phase| {
        let x = 2.0 * phase - 1.0;
        bessel(beta * (1.0 - x * x).max(0.0).sqrt()) / whole
    }
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

/// Inverse short-time Fourier transform: overlap-add of windowed frames, divided by the overlap-add of the squared windows.
fn istft(b: &mut Builder<'_>, operands: &Operands<'_>) -> Lowered {
    let n_fft = operands.int(1)?;
    let hop = if operands.has(2) { operands.int(2)? } else { n_fft / 4 };
    let length = if operands.has(3) { operands.int(3)? } else { n_fft };
    if n_fft <= 0 || hop <= 0 || length <= 0 || length > n_fft {
        return Err(operands.wrong(1, "a transform no shorter than the window, and positive steps"));
    }
    let x = operands.value(0)?;
    let ty = b.tensor(x)?;
    if !ty.dtype.is_complex() || !matches!(ty.rank(), 2 | 3) {
        return Err(operands.wrong(0, "a complex tensor, `[.., frequency, frame]`"));
    }
    if operands.bool(9)? {
        return Err(Error::unsupported("`aten::istft` of a complex signal").help("leave `return_complex` false"));
    }
    let spectrum = if ty.rank() == 2 { unsqueeze(b, x, 0)? } else { x };
    let spectrum = transpose(b, spectrum, 1, 2)?;
    let spectrum = slice(b, spectrum, 2, 0, n_fft / 2 + 1)?;
    // The normalization is PyTorch's: by the root of the size, or by the size.
    let mode = if operands.bool(6)? { 1i64 } else { 2 };
    let args = vec![spectrum.into(), Arg::from([2]), Arg::from(mode), Arg::from(n_fft)];
    let frames = b.one(aten::_FFT_C2R, args)?;
    let frames_ty = b.tensor(frames)?;
    let [batch, count, _] = frames_ty.shape.as_slice() else { return Ok(None) };
    let whole = count.sub(1).mul(hop).add(n_fft);
    let window = match padded_window(b, operands, frames_ty.dtype, length, n_fft)? {
        Some(window) => window,
        None => super::creation::filled(b, Arg::from([n_fft]), Arg::from(1), frames_ty.dtype)?,
    };
    let windowed = b.mul(frames, window)?;
    let squares = b.mul(window, window)?;
    let squares = expand(b, squares, vec![Expr::Int(1), count.clone(), Expr::Int(n_fft)])?;
    let one = Expr::Int(1);
    let mut overlap = |frames: ValueId, batch: &Expr| {
        let columns = transpose(b, frames, 1, 2)?;
        let size = Arg::from(vec![one.clone(), whole.clone()]);
        let (kernel, unit, none, step) = ([1, n_fft], [1, 1], [0, 0], [1, hop]);
        let args = vec![columns.into(), size, kernel.into(), unit.into(), none.into(), step.into()];
        let signal = b.one(aten::COL2IM, args)?;
        b.view(signal, vec![batch.clone(), whole.clone()])
    };
    let (signal, envelope) = (overlap(windowed, batch)?, overlap(squares, &one)?);
    let start = if operands.bool(5)? { n_fft / 2 } else { 0 };
    let natural = whole.sub(2 * start);
    let wanted = if operands.has(8) { operands.expr(8)? } else { natural.clone() };
    let there = whole.sub(start);
    let more = wanted.sub(there.clone()).as_int();
    let Some(more) = more.or_else(|| (wanted == natural).then_some(0)) else {
        return Err(Error::unsupported("`aten::istft` to a length beside a number of frames that depends on an input")
            .help("leave `length` out, and cut the signal afterwards"));
    };
    let kept = if more > 0 { there } else { wanted };
    let (signal, envelope) = (slice(b, signal, 1, start, kept.clone())?, slice(b, envelope, 1, start, kept)?);
    let mut signal = b.div(signal, envelope)?;
    if more > 0 {
        signal = b.one(aten::CONSTANT_PAD_ND, vec![signal.into(), [0, more].into()])?;
    }
    let signal = if ty.rank() == 2 { squeeze(b, signal, 0)? } else { signal };
    done(signal)
}
