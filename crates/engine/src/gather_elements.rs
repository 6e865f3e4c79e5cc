//! Elements of rows, selected by indices of the same rows.

use crate::error::{Error, at_least, size};

/// Picks `k` elements of each row of `x`, `[rows, columns]`, and writes them to `y`, `[rows, k]`. The positions in
/// `index`, `[rows, k]`, are integers.
///
/// # Errors
/// [`Error::Index`] for an index that is negative or out of range, in which case nothing is written; or if a slice is
/// too short.
pub fn gather_elements([rows, columns, k]: [usize; 3], x: &[f32], index: &[f32], y: &mut [f32]) -> Result<(), Error> {
    at_least("x", x.len(), size("x", &[rows, columns])?)?;
    let count = size("y", &[rows, k])?;
    at_least("y", y.len(), count)?;
    at_least("index", index.len(), count)?;
    let index = &index[..count];
    if let Some(outside) = index.iter().find(|index| !(0.0..columns as f32).contains(*index)) {
        return Err(Error::Index { what: "index", index: *outside as i64, size: columns });
    }
    if count == 0 {
        return Ok(());
    }
    for ((row, index), y) in x.chunks_exact(columns).zip(index.chunks_exact(k)).zip(y.chunks_exact_mut(k)) {
        for (y, index) in y.iter_mut().zip(index) {
            *y = row[*index as usize];
        }
    }
    Ok(())
}
