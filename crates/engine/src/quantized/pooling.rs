//! The greatest of windows of bytes, and means.

use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least, size};
use crate::split::Output;
use crate::{Engine, Pool2d};

use super::tail::{Affine, Levels, QuantOut, Start};

/// Bytes for which a task is worth handing over.
const LEAST: usize = 64 << 10;

/// The most bytes of a sum of 32 bits.
const MOST: usize = 1 << 23;

/// The greatest of each window; 0 if none of it is inside.
///
/// # Errors
/// When a slice is too short, a size is zero or too large, or means are asked for.
pub fn max_pool2d_u8(engine: &Engine, pool: &Pool2d, x: &[u8], y: &mut [u8]) -> Result<(), Error> {
    pool.check(x.len(), y.len())?;
    if pool.mean.is_some() {
        return Err(Error::Size { what: "means of bytes" });
    }
    if size("y", &[pool.batch, pool.out_h, pool.out_w, pool.channels])? == 0 {
        return Ok(());
    }
    let line = pool.out_w * pool.channels;
    let y = Output::new(y);
    let least = LEAST.div_ceil(line.saturating_mul(pool.kernel[0]).saturating_mul(pool.kernel[1]));
    engine.for_ranges(pool.batch * pool.out_h, least, |lines| {
        // SAFETY: ranges of lines are disjoint.
        let y = unsafe { y.slice(lines.start * line..lines.end * line) };
        engine.level.run(Lines { pool, x, y, first: lines.start });
    });
    Ok(())
}

/// Lines of the output.
struct Lines<'a> {
    pool: &'a Pool2d,
    x: &'a [u8],
    y: &'a mut [u8],
    /// The first line, among those of all images.
    first: usize,
}

impl Job for Lines<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pool = self.pool;
        for (line, y) in self.y.chunks_exact_mut(pool.out_w * pool.channels).enumerate() {
            let (image, out_y) = ((self.first + line) / pool.out_h, (self.first + line) % pool.out_h);
            let rows = pool.taps(0, out_y);
            let x = &self.x[image * pool.in_h * pool.in_w * pool.channels..];
            for (out_x, y) in y.chunks_exact_mut(pool.channels).enumerate() {
                let columns = pool.taps(1, out_x);
                y.fill(0);
                for row in 0..rows.count {
                    let in_y = rows.first + row * pool.dilation[0];
                    for column in 0..columns.count {
                        let in_x = columns.first + column * pool.dilation[1];
                        let x = &x[(in_y * pool.in_w + in_x) * pool.channels..][..pool.channels];
                        // Compilers make vectors of it.
                        y.iter_mut().zip(x).for_each(|(y, x)| *y = (*y).max(*x));
                    }
                }
            }
        }
    }
}

/// The mean of `[outer, reduced, inner]` over the one in the middle, as `[outer, inner]`.
///
/// # Errors
/// When a slice is too short, or the mean is of none or of too many.
pub fn mean_u8(
    engine: &Engine,
    [outer, reduced, inner]: [usize; 3],
    x: &[u8],
    affine: Affine,
    mut y: QuantOut,
) -> Result<(), Error> {
    at_least("x", x.len(), size("x", &[outer, reduced, inner])?)?;
    at_least("y", y.len(), size("y", &[outer, inner])?)?;
    if reduced == 0 || reduced > MOST {
        return Err(Error::Size { what: "bytes of a mean" });
    }
    if outer == 0 || inner == 0 {
        return Ok(());
    }
    let to = match &y {
        QuantOut::Floats(_) => None,
        QuantOut::Bytes(_, affine) => Some(Levels::of(*affine)),
    };
    let means = Means { x, affine, reduced, inner, y: y.start(), to };
    let vectors = inner.div_ceil(LANES);
    engine.for_ranges(outer * vectors, LEAST.div_ceil(reduced * LANES), |range| {
        for one in range {
            engine.level.run(Mean { means: &means, outer: one / vectors, first: one % vectors * LANES });
        }
    });
    Ok(())
}

struct Means<'a> {
    x: &'a [u8],
    affine: Affine,
    reduced: usize,
    inner: usize,
    y: Start,
    to: Option<Levels>,
}

// SAFETY: tasks write disjoint parts of `y`, which `mean_u8` borrows exclusively.
unsafe impl Sync for Means<'_> {}

/// Sixteen means.
struct Mean<'a> {
    means: &'a Means<'a>,
    outer: usize,
    first: usize,
}

impl Job for Mean<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Means { x, affine, reduced, inner, y, to } = *self.means;
        let n = (inner - self.first).min(LANES);
        let x = &x[self.outer * reduced * inner..][..reduced * inner];
        let mut sums = [0u32; LANES];
        if n == LANES {
            for x in x[self.first..].chunks(inner) {
                // Compilers make vectors of it.
                sums.iter_mut().zip(&x[..LANES]).for_each(|(sum, x)| *sum += u32::from(*x));
            }
        } else {
            for x in x[self.first..].chunks(inner) {
                sums.iter_mut().zip(&x[..n]).for_each(|(sum, x)| *sum += u32::from(*x));
            }
        }
        let count = reduced as f32;
        let mut numbers = [0.0; LANES];
        for (number, sum) in numbers.iter_mut().zip(sums) {
            // Exact, as far as it is cut: sums are below 2^31.
            let centred = i64::from(sum) - i64::from(affine.zero) * reduced as i64;
            *number = centred as f32 / count * affine.scale;
        }
        let v = s.read(&numbers);
        let at = self.outer * inner + self.first;
        match (y, to) {
            // SAFETY: `mean_u8` has checked the length, and each task has its own elements.
            (Start::Bytes(y), Some(levels)) => unsafe { s.store_bytes(y.wrapping_add(at), n, levels.round(s, v)) },
            // SAFETY: likewise.
            (Start::Floats(y), _) => unsafe { s.store_part(y.wrapping_add(at), n, v) },
            (Start::Bytes(_), None) => {}
        }
    }
}
