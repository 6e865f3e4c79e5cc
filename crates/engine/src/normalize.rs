//! Layer norm and RMS norm over rows.
#![allow(unsafe_code)]

use crate::arch::{Kernel, LANES, Simd};
use crate::element::Element;
use crate::error::{Error, at_least, size};
use crate::slice_ops;
use crate::{Engine, FloatSliceMut};

/// Shape and kind of a normalization of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalization {
    pub rows: usize,
    pub columns: usize,
    pub eps: f32,
    /// Layer norm, `(x - mean) / sqrt(variance + eps)` with the biased variance, instead of RMS norm,
    /// `x / sqrt(mean(x^2) + eps)`.
    pub centered: bool,
}

/// Computes `y = norm(x) * weight + bias`, with a weight and a bias per column.
///
/// # Errors
/// If a slice is too short, or the output is bf16 and the processor does not support that.
pub fn normalize<'y>(
    engine: &Engine,
    normalize: &Normalization,
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    y: impl Into<FloatSliceMut<'y>>,
) -> Result<(), Error> {
    normalize_impl(engine, normalize, x, [weight, bias], y.into())
}

fn normalize_impl(
    engine: &Engine,
    normalize: &Normalization,
    x: &[f32],
    [weight, bias]: [Option<&[f32]>; 2],
    y: FloatSliceMut<'_>,
) -> Result<(), Error> {
    let &Normalization { rows, columns, eps, centered } = normalize;
    engine.check_bf16_support(y.is_bf16())?;
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
    let all = NormalizeRows { columns, eps, centered, x: &x[..elements], weight, bias, y: () };
    match y {
        FloatSliceMut::F32(y) => all.to(engine, y),
        FloatSliceMut::Bf16(y) => all.to(engine, y),
    }
    Ok(())
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 8 << 10;

#[derive(Clone, Copy)]
struct NormalizeRows<'a, Y> {
    columns: usize,
    eps: f32,
    centered: bool,
    x: &'a [f32],
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    y: Y,
}

impl NormalizeRows<'_, ()> {
    /// Runs all rows, in tasks.
    fn to<T: Element>(self, engine: &Engine, y: &mut [T]) {
        let Self { columns, eps, centered, x, weight, bias, .. } = self;
        engine.parallel_rows(columns, MIN_TASK_ELEMENTS, x, &mut y[..x.len()], |x, y| {
            engine.dispatch.run_for::<T, _>(NormalizeRows { columns, eps, centered, x, weight, bias, y });
        });
    }
}

impl<T: Element> Kernel for NormalizeRows<'_, &mut [T]> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.columns as f64;
        for (x, y) in self.x.chunks_exact(self.columns).zip(self.y.chunks_exact_mut(self.columns)) {
            let sum = if self.centered {
                slice_ops::sum(
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
            let squares = slice_ops::sum(
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

/// Stores `f` of each vector of `x` and of the parameters, which have the same length, to `y`.
#[inline(always)]
fn each<S: Simd, T: Element, const N: usize>(
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
            values[i] = s.load_slice(&parameters[i][at..]);
        }
        at += LANES;
        // SAFETY: the chunk has enough elements.
        unsafe { T::store(s, y.as_mut_ptr(), y.len(), f(s.load_slice(x), values)) };
    }
}
