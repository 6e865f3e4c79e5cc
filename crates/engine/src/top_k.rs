//! The largest elements of rows.

use crate::error::{Error, at_least, size};

/// Finds the `k` largest elements of each of `rows` rows of `columns` elements, the largest first: `values` and `indices` become
/// `[rows, k]`. Of equal elements the first comes first; NaN is larger than everything, as in PyTorch.
///
/// # Errors
/// If a slice is too short, or a row has fewer than `k` elements.
pub fn top_k([rows, columns, k]: [usize; 3], x: &[f32], values: &mut [f32], indices: &mut [f32]) -> Result<(), Error> {
    at_least("x", x.len(), size("x", &[rows, columns])?)?;
    let count = size("values", &[rows, k])?;
    at_least("values", values.len(), count)?;
    at_least("indices", indices.len(), count)?;
    at_least("columns", columns, k)?;
    if k == 0 {
        return Ok(());
    }
    let is_larger = |x: f32, other: f32| x > other || (x.is_nan() && !other.is_nan());
    for ((row, values), indices) in
        x.chunks_exact(columns).zip(values.chunks_exact_mut(k)).zip(indices.chunks_exact_mut(k)).take(rows)
    {
        let mut found = 0;
        for (index, element) in row.iter().enumerate() {
            if found == k && !is_larger(*element, values[k - 1]) {
                continue;
            }
            let place = values[..found].iter().position(|value| is_larger(*element, *value)).unwrap_or(found);
            found = (found + 1).min(k);
            values[place..found].rotate_right(1);
            indices[place..found].rotate_right(1);
            (values[place], indices[place]) = (*element, index as f32);
        }
    }
    Ok(())
}
