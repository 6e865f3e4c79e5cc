//! Lookup tables: unary operators on u8.

use crate::Engine;
use crate::error::{Error, at_least};
use crate::parallel::SharedOutput;

/// Minimum bytes of a task.
const MIN_TASK_BYTES: usize = 32 << 10;

/// Computes `y[i] = table[x[i]]`.
///
/// # Errors
/// When `y` is shorter than `x`.
pub fn lookup(engine: &Engine, table: &[u8; 256], x: &[u8], y: &mut [u8]) -> Result<(), Error> {
    at_least("y", y.len(), x.len())?;
    let y = SharedOutput::new(y);
    engine.parallel_for(x.len(), MIN_TASK_BYTES, |range| {
        // SAFETY: ranges are disjoint.
        let y = unsafe { y.slice(range.clone()) };
        y.iter_mut().zip(&x[range]).for_each(|(y, x)| *y = table[usize::from(*x)]);
    });
    Ok(())
}
