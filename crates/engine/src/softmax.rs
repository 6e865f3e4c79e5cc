//! Softmax of rows.

use crate::Engine;
use crate::arch::{Kernel, Simd, math};
use crate::error::{Error, at_least, size};
use crate::slice_ops;

/// Computes `y = exp(x) / sum(exp(x))` of each row, or its logarithm. A row with NaN or inf, or of -inf only, gives
/// NaN.
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
    engine.parallel_rows(columns, MIN_TASK_ELEMENTS, &x[..elements], &mut y[..elements], |x, y| {
        engine.dispatch.run(SoftmaxRows { columns, log, x, y });
    });
    Ok(())
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 4 << 10;

struct SoftmaxRows<'a> {
    columns: usize,
    log: bool,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for SoftmaxRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, y) in self.x.chunks_exact(self.columns).zip(self.y.chunks_exact_mut(self.columns)) {
            let max = slice_ops::max(s, x);
            let shift = s.splat(max);
            slice_ops::map(
                s,
                x,
                y,
                #[inline(always)]
                |x| math::exp(s, s.sub(x, shift)),
            );
            let sum = slice_ops::sum(
                s,
                y,
                0.0,
                #[inline(always)]
                |y| y,
            ) as f32;
            if self.log {
                let log = s.to_array(math::log(s, s.splat(sum)))[0];
                let log = s.splat(log);
                slice_ops::map(
                    s,
                    x,
                    y,
                    #[inline(always)]
                    |x| s.sub(s.sub(x, shift), log),
                );
            } else {
                slice_ops::scale(s, y, 1.0 / sum);
            }
        }
    }
}
