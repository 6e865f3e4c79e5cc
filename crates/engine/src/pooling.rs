//! Max and average pooling.
#![allow(unsafe_code)]

use crate::arch::{Kernel, LANES, Simd};
use crate::element::Element;
use crate::error::{Error, at_least, positive, size};
use crate::parallel::SharedOutput;
use crate::{Engine, FloatSlice, FloatSliceMut};

/// Shape of a pooling from `[batch, in_h, in_w, channels]` to `[batch, out_h, out_w, channels]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool2d {
    pub batch: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub channels: usize,
    /// Independent of padding and kernel: windows may end beyond the padding, as in PyTorch's ceil mode, where elements
    /// beyond do not count.
    pub out_h: usize,
    pub out_w: usize,
    /// Height and width, as in all pairs here.
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// Before and after.
    pub padding: [[usize; 2]; 2],
    pub dilation: [usize; 2],
    pub kind: PoolKind,
}

/// The reduction of each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolKind {
    Max,
    Average(AveragePool),
}

/// The divisor of average pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AveragePool {
    /// Counts padding, as zeros, instead of only the elements inside.
    pub count_include_pad: bool,
    /// Overrides the divisor.
    pub divisor_override: Option<u32>,
}

impl AveragePool {
    /// Returns the divisor of a window.
    #[inline(always)]
    pub(crate) fn divisor_of(self, rows: Taps, columns: Taps) -> f32 {
        let inside = rows.count * columns.count;
        let count = if self.count_include_pad { rows.padded * columns.padded } else { inside };
        self.divisor_override.map_or(count, |divisor| divisor as usize).max(1) as f32
    }
}

/// Pools. Max pooling propagates NaN and gives -inf for a window entirely in the padding; the average of an empty
/// window is 0.
///
/// # Errors
/// If a slice is too short, a size is zero or too large, only one of input and output is bf16, or the processor does
/// not support bf16.
pub fn pool2d<'a>(
    engine: &Engine,
    pool: &Pool2d,
    x: impl Into<FloatSlice<'a>>,
    y: impl Into<FloatSliceMut<'a>>,
) -> Result<(), Error> {
    pool2d_impl(engine, pool, x.into(), y.into())
}

fn pool2d_impl(engine: &Engine, pool: &Pool2d, x: FloatSlice<'_>, y: FloatSliceMut<'_>) -> Result<(), Error> {
    engine.check_bf16_support(x.is_bf16() || y.is_bf16())?;
    pool.check(x.len(), y.len())?;
    if size("y", &[pool.batch, pool.out_h, pool.out_w, pool.channels])? == 0 {
        return Ok(());
    }
    match (x, y) {
        (FloatSlice::F32(x), FloatSliceMut::F32(y)) => all(engine, pool, x, y),
        (FloatSlice::Bf16(x), FloatSliceMut::Bf16(y)) => all(engine, pool, x, y),
        _ => return Err(Error::Type { what: "y" }),
    }
    Ok(())
}

/// Runs all tasks. The sizes were checked.
fn all<T: Element>(engine: &Engine, pool: &Pool2d, x: &[T], y: &mut [T]) {
    let out_row = pool.out_w * pool.channels;
    let y = SharedOutput::new(y);
    let min_rows = MIN_TASK_ELEMENTS.div_ceil(out_row.saturating_mul(pool.kernel[0]).saturating_mul(pool.kernel[1]));
    engine.parallel_for(pool.batch * pool.out_h, min_rows, |out_rows| {
        // SAFETY: ranges of rows are disjoint.
        let y = unsafe { y.slice(out_rows.start * out_row..out_rows.end * out_row) };
        engine.dispatch.run_for::<T, _>(PoolRows { pool, x, y, first: out_rows.start });
    });
}

/// Minimum window elements of a task.
const MIN_TASK_ELEMENTS: usize = 32 << 10;

/// A range of output rows.
struct PoolRows<'a, T> {
    pool: &'a Pool2d,
    x: &'a [T],
    y: &'a mut [T],
    /// First output row, counted over all images.
    first: usize,
}

/// The part of a window inside the input, along one axis.
#[derive(Clone, Copy)]
pub(crate) struct Taps {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Count including padding.
    padded: usize,
}

impl Pool2d {
    #[inline]
    pub(crate) fn taps(&self, axis: usize, out: usize) -> Taps {
        let size = if axis == 0 { self.in_h } else { self.in_w };
        let [before, after] = self.padding[axis];
        let (kernel, dilation) = (self.kernel[axis], self.dilation[axis]);
        let start = out * self.stride[axis];
        // Taps at positions below an end, counted from the start of the padding.
        let below = |end: usize| end.saturating_sub(start).div_ceil(dilation).min(kernel);
        let skipped = below(before);
        let inside = below(before + size).saturating_sub(skipped);
        let first = (start + skipped * dilation).saturating_sub(before);
        Taps { first, count: inside, padded: below(before + size + after) }
    }
}

impl<T: Element> Kernel for PoolRows<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let pool = self.pool;
        for (out_row, y) in self.y.chunks_exact_mut(pool.out_w * pool.channels).enumerate() {
            let (image, out_y) = ((self.first + out_row) / pool.out_h, (self.first + out_row) % pool.out_h);
            let rows = pool.taps(0, out_y);
            let x = &self.x[image * pool.in_h * pool.in_w * pool.channels..];
            for (out_x, y) in y.chunks_exact_mut(pool.channels).enumerate() {
                let columns = pool.taps(1, out_x);
                let window = PoolWindow { pool, x, rows, columns };
                match pool.kind {
                    PoolKind::Max => window.fold(
                        s,
                        y,
                        f32::NEG_INFINITY,
                        1.0,
                        #[inline(always)]
                        |a, b| s.maximum(a, b),
                    ),
                    PoolKind::Average(mean) => {
                        window.fold(
                            s,
                            y,
                            0.0,
                            mean.divisor_of(rows, columns),
                            #[inline(always)]
                            |a, b| s.add(a, b),
                        );
                    }
                }
            }
        }
    }
}

/// The window of one output pixel.
struct PoolWindow<'a, T> {
    pool: &'a Pool2d,
    /// The image.
    x: &'a [T],
    rows: Taps,
    columns: Taps,
}

impl<T: Element> PoolWindow<'_, T> {
    /// Folds the pixels of the window channel by channel, and divides.
    #[inline(always)]
    fn fold<S: Simd>(&self, s: S, y: &mut [T], start: f32, divisor: f32, step: impl Fn(S::V, S::V) -> S::V) {
        let mut channel = 0;
        while y.len() - channel >= 4 * LANES {
            self.vectors::<S, 4>(s, channel, &mut y[channel..], start, divisor, &step);
            channel += 4 * LANES;
        }
        while channel < y.len() {
            self.vectors::<S, 1>(s, channel, &mut y[channel..], start, divisor, &step);
            channel += LANES;
        }
    }

    /// Folds `V` vectors of channels.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(
        &self,
        s: S,
        channel: usize,
        y: &mut [T],
        start: f32,
        divisor: f32,
        step: &impl Fn(S::V, S::V) -> S::V,
    ) {
        let pool = self.pool;
        let mut folded = [s.splat(start); V];
        for row in 0..self.rows.count {
            let in_y = self.rows.first + row * pool.dilation[0];
            for column in 0..self.columns.count {
                let in_x = self.columns.first + column * pool.dilation[1];
                let x = &self.x[(in_y * pool.in_w + in_x) * pool.channels..][..pool.channels];
                for v in 0..V {
                    let x = &x[channel + v * LANES..];
                    // SAFETY: the slice has enough elements.
                    folded[v] = step(folded[v], unsafe { T::load(s, x.as_ptr(), x.len().min(LANES)) });
                }
            }
        }
        for v in 0..V {
            let folded = if divisor == 1.0 { folded[v] } else { s.div(folded[v], s.splat(divisor)) };
            let y = &mut y[v * LANES..];
            // SAFETY: the slice has enough elements.
            unsafe { T::store(s, y.as_mut_ptr(), y.len().min(LANES), folded) };
        }
    }
}

impl Pool2d {
    /// Checks all sizes, and that slices of `x` and `y` elements hold the images.
    pub(crate) fn check(&self, x: usize, y: usize) -> Result<(), Error> {
        for (what, pair) in [("kernel", self.kernel), ("stride", self.stride), ("dilation", self.dilation)] {
            for value in pair {
                positive(what, value)?;
            }
        }
        if let PoolKind::Average(AveragePool { divisor_override: Some(divisor), .. }) = self.kind {
            positive("divisor", divisor as usize)?;
        }
        for (axis, (input, output)) in [(self.in_h, self.out_h), (self.in_w, self.out_w)].into_iter().enumerate() {
            let padded = self.padding[axis].iter().try_fold(input, |sum, &padding| sum.checked_add(padding));
            let last = size("output", &[output, self.stride[axis]])?;
            let reach = size("kernel", &[self.kernel[axis], self.dilation[axis]])?;
            let fits = padded.and_then(|padded| padded.checked_add(last)?.checked_add(reach));
            // Positions must fit in `isize`.
            if fits.is_none_or(|fits| isize::try_from(fits).is_err()) {
                return Err(Error::Size { what: "padding" });
            }
        }
        at_least("x", x, size("x", &[self.batch, self.in_h, self.in_w, self.channels])?)?;
        at_least("y", y, size("y", &[self.batch, self.out_h, self.out_w, self.channels])?)
    }
}
