//! Functions of one byte, from a table.

use crate::Engine;
use crate::error::{Error, at_least};
use crate::split::Output;

/// Bytes for which a task is worth handing over.
const LEAST: usize = 32 << 10;

/// Computes `y[i] = table[x[i]]`.
///
/// # Errors
/// When `y` is shorter than `x`.
pub fn lookup(engine: &Engine, table: &[u8; 256], x: &[u8], y: &mut [u8]) -> Result<(), Error> {
    at_least("y", y.len(), x.len())?;
    let y = Output::new(y);
    engine.for_ranges(x.len(), LEAST, |range| {
        // SAFETY: ranges are disjoint.
        let y = unsafe { y.slice(range.clone()) };
        y.iter_mut().zip(&x[range]).for_each(|(y, x)| *y = table[usize::from(*x)]);
    });
    Ok(())
}
