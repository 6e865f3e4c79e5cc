//! Layer norm and RMS norm of rows.
#![allow(unsafe_code)]

use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::fold;
use crate::numbers::Number;
use crate::{Engine, NumbersMut};

/// Rows of `columns`, each normalised by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalise {
    pub rows: usize,
    pub columns: usize,
    pub eps: f32,
    /// Layer norm, `(x - mean) / sqrt(variance + eps)`, rather than RMS norm, `x / sqrt(mean(x^2) + eps)`. The variance is
    /// the biased one.
    pub centred: bool,
}

/// `y = normalised(x) * weight + bias`, with a weight and a bias for each column.
///
/// # Errors
/// When a slice is too short, or the result is bf16 and the processor does not take them.
pub fn normalise<'y>(
    engine: &Engine,
    normalise: &Normalise,
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    y: impl Into<NumbersMut<'y>>,
) -> Result<(), Error> {
    let &Normalise { rows, columns, eps, centred } = normalise;
    let y = y.into();
    engine.check_numbers(y.is_bf16())?;
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    for (what, parameter) in [("weight", weight), ("bias", bias)] {
        if let Some(parameter) = parameter {
            at_least(what, parameter.len(), columns)?;
        }
    }
    if elements == 0 {
        return Ok(());
    }
    let (weight, bias) = (weight.map(|weight| &weight[..columns]), bias.map(|bias| &bias[..columns]));
    let all = Rows { columns, eps, centred, x: &x[..elements], weight, bias, y: () };
    match y {
        NumbersMut::F32(y) => all.to(engine, y),
        NumbersMut::Bf16(y) => all.to(engine, y),
    }
    Ok(())
}

/// Elements for which a task is worth handing over.
const LEAST: usize = 8 << 10;

#[derive(Clone, Copy)]
struct Rows<'a, Y> {
    columns: usize,
    eps: f32,
    centred: bool,
    x: &'a [f32],
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    y: Y,
}

impl Rows<'_, ()> {
    /// All rows, in tasks.
    fn to<T: Number>(self, engine: &Engine, y: &mut [T]) {
        let Self { columns, eps, centred, x, weight, bias, .. } = self;
        engine.for_rows(columns, LEAST, x, &mut y[..x.len()], |x, y| {
            engine.level.run_on::<T, _>(Rows { columns, eps, centred, x, weight, bias, y });
        });
    }
}

impl<T: Number> Job for Rows<'_, &mut [T]> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.columns as f64;
        for (x, y) in self.x.chunks_exact(self.columns).zip(self.y.chunks_exact_mut(self.columns)) {
            let sum = if self.centred {
                fold::sum(
                    s,
                    x,
                    0.0,
                    #[inline(always)]
                    |x| x,
                )
            } else {
                0.0
            };
            let mean = (sum / n) as f32;
            let centre = s.splat(mean);
            let squares = fold::sum(
                s,
                x,
                mean,
                #[inline(always)]
                |x| {
                    let x = s.sub(x, centre);
                    s.mul(x, x)
                },
            );
            let deviation = s.sqrt(s.splat((squares / n) as f32 + self.eps));
            let scale = s.div(s.splat(1.0), deviation);
            match (self.weight, self.bias) {
                (Some(weight), Some(bias)) => each(
                    s,
                    x,
                    y,
                    [weight, bias],
                    #[inline(always)]
                    |x, [weight, bias]| s.fma(s.mul(s.sub(x, centre), scale), weight, bias),
                ),
                (Some(weight), None) => each(
                    s,
                    x,
                    y,
                    [weight],
                    #[inline(always)]
                    |x, [weight]| s.mul(s.mul(s.sub(x, centre), scale), weight),
                ),
                (None, Some(bias)) => each(
                    s,
                    x,
                    y,
                    [bias],
                    #[inline(always)]
                    |x, [bias]| s.add(s.mul(s.sub(x, centre), scale), bias),
                ),
                (None, None) => each(
                    s,
                    x,
                    y,
                    [],
                    #[inline(always)]
                    |x, []| s.mul(s.sub(x, centre), scale),
                ),
            }
        }
    }
}

/// Writes `f` of each vector of `x` and of the parameters, which are as long, to `y`.
#[inline(always)]
fn each<S: Simd, T: Number, const N: usize>(
    s: S,
    x: &[f32],
    y: &mut [T],
    parameters: [&[f32]; N],
    f: impl Fn(S::V, [S::V; N]) -> S::V,
) {
    let mut at = 0;
    for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
        let mut values = [s.splat(0.0); N];
        for i in 0..N {
            values[i] = s.read(&parameters[i][at..]);
        }
        at += LANES;
        // SAFETY: the chunk has so many numbers.
        unsafe { T::store(s, y.as_mut_ptr(), y.len(), f(s.read(x), values)) };
    }
}
