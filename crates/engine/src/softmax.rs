//! Softmax of rows.

use crate::Engine;
use crate::arch::{Job, Simd, math};
use crate::error::{Error, at_least, size};
use crate::fold;

/// `y = exp(x) / sum(exp(x))` of each row, or its logarithm. A row with NaN, with inf, or of -inf alone gives NaN.
///
/// # Errors
/// When a slice is too short.
pub fn softmax(engine: &Engine, rows: usize, columns: usize, log: bool, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    let elements = size("x", &[rows, columns])?;
    at_least("x", x.len(), elements)?;
    at_least("y", y.len(), elements)?;
    if elements == 0 {
        return Ok(());
    }
    engine.for_rows(columns, LEAST, &x[..elements], &mut y[..elements], |x, y| {
        engine.level.run(Rows { columns, log, x, y });
    });
    Ok(())
}

/// Elements for which a task is worth handing over.
const LEAST: usize = 4 << 10;

struct Rows<'a> {
    columns: usize,
    log: bool,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Job for Rows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.chunks_exact(self.columns).zip(self.y.chunks_exact_mut(self.columns)) {
            let max = fold::max(s, x);
            let shift = s.splat(max);
            fold::map(
                s,
                x,
                y,
                #[inline(always)]
                |x| math::exp(s, s.sub(x, shift)),
            );
            let sum = fold::sum(
                s,
                y,
                0.0,
                #[inline(always)]
                |y| y,
            ) as f32;
            if self.log {
                let log = s.lanes(math::log(s, s.splat(sum)))[0];
                let log = s.splat(log);
                fold::map(
                    s,
                    x,
                    y,
                    #[inline(always)]
                    |x| s.sub(s.sub(x, shift), log),
                );
            } else {
                fold::scale(s, y, 1.0 / sum);
            }
        }
    }
}
