//! Int8 max pooling, average pooling and mean.

use crate::arch::{I32, Kernel, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;
use crate::pooling::Taps;
use crate::{AveragePool, Engine, Pool2d, PoolKind};

use super::epilogue::{Affine, OutPtr, QuantOut, U8Quantizer};

/// Minimum bytes of a task.
const MIN_TASK_BYTES: usize = 64 << 10;

/// Maximum number of bytes of a mean: their sum fits in 32 bits.
const MAX_MEAN_COUNT: usize = 1 << 23;

/// Max pooling of u8; 0 for a window entirely in the padding.
///
/// # Errors
/// If a slice is too short, a size is zero or too large, or `pool` is average pooling.
pub fn max_pool2d_u8(engine: &Engine, pool: &Pool2d, x: &[u8], y: &mut [u8]) -> Result<(), Error> {
    pool.check(x.len(), y.len())?;
    if pool.kind != PoolKind::Max {
        return Err(Error::Size { what: "average pooling in max_pool2d_u8" });
    }
    if size("y", &[pool.batch, pool.out_h, pool.out_w, pool.channels])? == 0 {
        return Ok(());
    }
    let out_row = pool.out_w * pool.channels;
    let y = SharedOutput::new(y);
    let min_rows = MIN_TASK_BYTES.div_ceil(out_row.saturating_mul(pool.kernel[0]).saturating_mul(pool.kernel[1]));
    engine.parallel_for(pool.batch * pool.out_h, min_rows, |out_rows| {
        // SAFETY: ranges of rows are disjoint.
        let y = unsafe { y.slice(out_rows.start * out_row..out_rows.end * out_row) };
        engine.dispatch.run(MaxPoolRows { pool, x, y, first: out_rows.start });
    });
    Ok(())
}

/// A range of output rows.
struct MaxPoolRows<'a> {
    pool: &'a Pool2d,
    x: &'a [u8],
    y: &'a mut [u8],
    /// First output row, counted over all images.
    first: usize,
}

impl Kernel for MaxPoolRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pool = self.pool;
        for (out_row, y) in self.y.chunks_exact_mut(pool.out_w * pool.channels).enumerate() {
            let (image, out_y) = ((self.first + out_row) / pool.out_h, (self.first + out_row) % pool.out_h);
            let rows = pool.taps(0, out_y);
            let x = &self.x[image * pool.in_h * pool.in_w * pool.channels..];
            for (out_x, y) in y.chunks_exact_mut(pool.channels).enumerate() {
                let window = U8Window { pool, x, rows, columns: pool.taps(1, out_x) };
                let (blocks, rest) = y.as_chunks_mut();
                for (block, y) in blocks.iter_mut().enumerate() {
                    *y = window.maxima::<BLOCK_CHANNELS>(block * BLOCK_CHANNELS);
                }
                let first = blocks.len() * BLOCK_CHANNELS;
                let (blocks, rest) = rest.as_chunks_mut();
                for (block, y) in blocks.iter_mut().enumerate() {
                    *y = window.maxima::<LANES>(first + block * LANES);
                }
                let first = first + blocks.len() * LANES;
                for (channel, y) in rest.iter_mut().enumerate() {
                    [*y] = window.maxima::<1>(first + channel);
                }
            }
        }
    }
}

/// Channels whose maxima are kept in registers.
const BLOCK_CHANNELS: usize = 4 * LANES;

/// The window of one output pixel.
struct U8Window<'a> {
    pool: &'a Pool2d,
    /// The image.
    x: &'a [u8],
    rows: Taps,
    columns: Taps,
}

impl U8Window<'_> {
    /// Maxima of `N` channels.
    #[inline(always)]
    fn maxima<const N: usize>(&self, channel: usize) -> [u8; N] {
        let mut maxima = [0; N];
        self.for_each_pixel(
            channel,
            #[inline(always)]
            |x| {
                if let Some(x) = x.first_chunk::<N>() {
                    // Auto-vectorized.
                    maxima.iter_mut().zip(x).for_each(|(maxima, x)| *maxima = (*maxima).max(*x));
                }
            },
        );
        maxima
    }

    /// Calls `visit` for each pixel of the window, with its channels from `channel` on.
    #[inline(always)]
    fn for_each_pixel(&self, channel: usize, mut visit: impl FnMut(&[u8])) {
        let Self { pool, x, rows, columns } = self;
        for row in 0..rows.count {
            let in_y = rows.first + row * pool.dilation[0];
            for column in 0..columns.count {
                let in_x = columns.first + column * pool.dilation[1];
                visit(&x[(in_y * pool.in_w + in_x) * pool.channels + channel..]);
            }
        }
    }
}

/// Mean of a quantized `[outer, reduced, inner]` tensor over the middle dimension, as `[outer, inner]`.
///
/// # Errors
/// If a slice is too short, or `reduced` is 0 or too large.
pub fn mean_u8(
    engine: &Engine,
    [outer, reduced, inner]: [usize; 3],
    x: &[u8],
    affine: Affine,
    mut y: QuantOut,
) -> Result<(), Error> {
    at_least("x", x.len(), size("x", &[outer, reduced, inner])?)?;
    at_least("y", y.len(), size("y", &[outer, inner])?)?;
    if reduced == 0 || reduced > MAX_MEAN_COUNT {
        return Err(Error::Size { what: "elements of an int8 mean" });
    }
    if outer == 0 || inner == 0 {
        return Ok(());
    }
    let means = Means::new(affine, &mut y);
    let vectors = inner.div_ceil(LANES);
    engine.parallel_for(outer * vectors, MIN_TASK_BYTES.div_ceil(reduced * LANES), |range| {
        for one in range {
            let (outer, first) = (one / vectors, one % vectors * LANES);
            let x = &x[outer * reduced * inner..][..reduced * inner];
            engine.dispatch.run(MeanColumns { means: &means, x, reduced, inner, first, at: outer * inner + first });
        }
    });
    Ok(())
}

/// Average pooling of u8; 0 for an empty window, and padding that counts contributes 0.
///
/// # Errors
/// If a slice is too short, a size is zero or too large, a window has too many elements, or `pool` is max pooling.
pub fn avg_pool2d_u8(engine: &Engine, pool: &Pool2d, x: &[u8], affine: Affine, mut y: QuantOut) -> Result<(), Error> {
    pool.check(x.len(), y.len())?;
    let PoolKind::Average(mean) = pool.kind else {
        return Err(Error::Size { what: "max pooling in avg_pool2d_u8" });
    };
    if pool.kernel[0].saturating_mul(pool.kernel[1]) > MAX_MEAN_COUNT {
        return Err(Error::Size { what: "elements of an int8 mean" });
    }
    if size("y", &[pool.batch, pool.out_h, pool.out_w, pool.channels])? == 0 {
        return Ok(());
    }
    let means = Means::new(affine, &mut y);
    let out_row = pool.out_w * pool.channels;
    let min_rows = MIN_TASK_BYTES.div_ceil(out_row.saturating_mul(pool.kernel[0]).saturating_mul(pool.kernel[1]));
    engine.parallel_for(pool.batch * pool.out_h, min_rows, |out_rows| {
        for out_row in out_rows {
            engine.dispatch.run(MeanPoolRow { means: &means, pool, mean, x, out_row });
        }
    });
    Ok(())
}

/// Quantization of the input, and destination of the means.
struct Means {
    affine: Affine,
    y: OutPtr,
    to: Option<U8Quantizer>,
}

// SAFETY: tasks write disjoint parts of `y`, which the functions above borrow exclusively.
unsafe impl Sync for Means {}

impl Means {
    fn new(affine: Affine, y: &mut QuantOut) -> Self {
        let to = match y {
            QuantOut::Floats(_) => None,
            QuantOut::Bytes(_, affine) => Some(U8Quantizer::of(*affine)),
        };
        Self { affine, y: y.start(), to }
    }

    /// Stores elements `at..at + n` of the output: the sums of `count` bytes each, divided by `divisor`.
    ///
    /// # Safety
    /// The output has these elements, and nobody else accesses them.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, sums: I32<S>, count: usize, divisor: f32, at: usize, n: usize) {
        let (mut means, mut all) = ([0.0; LANES], [0i32; LANES]);
        // SAFETY: the array has 16 elements.
        unsafe { s.store_i32(all.as_mut_ptr(), sums) };
        for (mean, sum) in means.iter_mut().zip(all) {
            // The subtraction is exact: sums are below 2^31.
            let centered = i64::from(sum) - i64::from(self.affine.zero_point) * count as i64;
            *mean = centered as f32 / divisor * self.affine.scale;
        }
        let v = s.load_slice(&means);
        match (self.y, self.to) {
            // SAFETY: the caller guarantees the elements.
            (OutPtr::Bytes(y), Some(quantizer)) => unsafe {
                s.store_as_u8(y.wrapping_add(at), n, quantizer.round(s, v));
            },
            // SAFETY: likewise.
            (OutPtr::Floats(y), _) => unsafe { s.store_partial(y.wrapping_add(at), n, v) },
            (OutPtr::Bytes(_), None) => {}
        }
    }
}

/// Accumulates up to 16 bytes.
#[inline(always)]
fn add<S: Simd>(s: S, sums: I32<S>, x: &[u8]) -> I32<S> {
    // SAFETY: the slice has these bytes.
    s.add_i32(sums, unsafe { s.load_u8(x.as_ptr(), x.len().min(LANES)) })
}

/// Sixteen means.
struct MeanColumns<'a> {
    means: &'a Means,
    /// `[reduced, inner]`
    x: &'a [u8],
    reduced: usize,
    inner: usize,
    /// First element within `x`, and within the output.
    first: usize,
    at: usize,
}

impl Kernel for MeanColumns<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = (self.inner - self.first).min(LANES);
        let mut sums = s.splat_i32(0);
        for x in self.x[self.first..].chunks(self.inner) {
            sums = add(s, sums, &x[..n]);
        }
        // SAFETY: `mean_u8` has checked the length, and each task has its own elements.
        unsafe { self.means.write(s, sums, self.reduced, self.reduced as f32, self.at, n) };
    }
}

/// Average pooling of one output row.
struct MeanPoolRow<'a> {
    means: &'a Means,
    pool: &'a Pool2d,
    mean: AveragePool,
    x: &'a [u8],
    /// Counted over all images.
    out_row: usize,
}

impl Kernel for MeanPoolRow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let pool = self.pool;
        let (image, out_y) = (self.out_row / pool.out_h, self.out_row % pool.out_h);
        let rows = pool.taps(0, out_y);
        let x = &self.x[image * pool.in_h * pool.in_w * pool.channels..];
        for out_x in 0..pool.out_w {
            let columns = pool.taps(1, out_x);
            let window = U8Window { pool, x, rows, columns };
            let divisor = self.mean.divisor_of(rows, columns);
            for first in (0..pool.channels).step_by(LANES) {
                let n = (pool.channels - first).min(LANES);
                let mut sums = s.splat_i32(0);
                window.for_each_pixel(
                    first,
                    #[inline(always)]
                    |x| sums = add(s, sums, &x[..n]),
                );
                let at = (self.out_row * pool.out_w + out_x) * pool.channels + first;
                // SAFETY: `avg_pool2d_u8` has checked the length, and each task has its own rows.
                unsafe { self.means.write(s, sums, rows.count * columns.count, divisor, at, n) };
            }
        }
    }
}
