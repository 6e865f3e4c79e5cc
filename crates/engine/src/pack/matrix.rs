//! Packing of f32 matrices into panels, and their rounding to 16-bit formats.

use alloc::vec;
use alloc::vec::Vec;

use crate::float16::{Half, to_bf16, to_f16};

/// Number of columns of a panel.
pub const PANEL: usize = crate::arch::LANES;

/// Number of rows of a panel: `k` rounded up to an even number.
pub(crate) const fn padded_rows(k: usize) -> usize {
    k.saturating_add(k % 2)
}

/// Returns the size of a packed `[k, n]` matrix in floats; `None` if it overflows `usize`.
pub const fn matrix_f32_len(k: usize, n: usize) -> Option<usize> {
    match (n.div_ceil(PANEL).checked_mul(PANEL), k.checked_add(k % 2)) {
        (Some(columns), Some(rows)) => columns.checked_mul(rows),
        _ => None,
    }
}

/// Packs the `[k, n]` matrix with elements `get(k, n)`.
///
/// For `y = x W^T` as in `aten::linear`, with `W` row-major of shape `[n, k]`: `get = |k, n| w[n * K + k]`.
///
/// # Panics
/// If the packed matrix does not fit in memory.
pub fn matrix_f32(k: usize, n: usize, get: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    let mut packed = vec![0.0; matrix_f32_len(k, n).expect("a matrix fits in memory")];
    matrix_f32_into(&mut packed, k, n, get);
    packed
}

/// Like [`matrix_f32`], into memory of [`matrix_f32_len`] floats, all of which are written.
///
/// # Panics
/// If `packed` is too short.
pub fn matrix_f32_into(packed: &mut [f32], k: usize, n: usize, get: impl Fn(usize, usize) -> f32) {
    if k == 0 {
        return;
    }
    for (panel, rows) in packed.chunks_exact_mut(padded_rows(k) * PANEL).take(n.div_ceil(PANEL)).enumerate() {
        let (rows, last) = rows.split_at_mut(k * PANEL);
        last.fill(0.0);
        for (row, lanes) in rows.chunks_exact_mut(PANEL).enumerate() {
            for (lane, value) in lanes.iter_mut().enumerate() {
                let column = panel * PANEL + lane;
                *value = if column < n { get(row, column) } else { 0.0 };
            }
        }
    }
}

/// Like [`matrix_f32_into`], of a matrix of which `columns` is the transpose, row-major of shape `[n, k]`. Row `k` of the
/// packed matrix is row `order(k)` of the matrix.
///
/// # Panics
/// If `packed` or `columns` is too short, or `order` gives something else than 0 to `k - 1`.
pub fn columns_f32_into(packed: &mut [f32], k: usize, n: usize, columns: &[f32], order: impl Fn(usize) -> usize) {
    if k == 0 {
        return;
    }
    let whole = n / PANEL * PANEL;
    let (panels, last) = packed.split_at_mut(whole * padded_rows(k));
    let sources = columns.chunks_exact(k * PANEL);
    for (panel, source) in panels.chunks_exact_mut(padded_rows(k) * PANEL).zip(sources) {
        let (rows, padding) = panel.split_at_mut(k * PANEL);
        padding.fill(0.0);
        // Slices of one length, so that an index is checked once for all of them.
        let source: [&[f32]; PANEL] = core::array::from_fn(|lane| &source[lane * k..][..k]);
        for (row, lanes) in rows.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
            let row = order(row);
            for (lane, column) in lanes.iter_mut().zip(&source) {
                *lane = column[row];
            }
        }
    }
    let rest = &columns[whole * k..n * k];
    matrix_f32_into(last, k, n - whole, |row, column| rest[column * k + order(row)]);
}

/// Like [`matrix_f32_into`], of the row-major matrix `rows` of shape `[k, n]`.
///
/// # Panics
/// If `packed` or `rows` is too short.
pub fn rows_f32_into(packed: &mut [f32], k: usize, n: usize, rows: &[f32]) {
    if k == 0 {
        return;
    }
    for (panel, packed) in packed.chunks_exact_mut(padded_rows(k) * PANEL).take(n.div_ceil(PANEL)).enumerate() {
        let (packed, padding) = packed.split_at_mut(k * PANEL);
        padding.fill(0.0);
        let first = panel * PANEL;
        let columns = first..n.min(first + PANEL);
        for (row, lanes) in rows.chunks_exact(n).zip(packed.chunks_exact_mut(PANEL)) {
            let (lanes, padding) = lanes.split_at_mut(columns.len());
            lanes.copy_from_slice(&row[columns.clone()]);
            padding.fill(0.0);
        }
    }
}

/// Rounds a packed matrix to a 16-bit format.
///
/// [`Half::F16`] keeps the layout. [`Half::Bf16`] interleaves each two rows of 16 into one row of 16 pairs,
/// `[n / 16][k / 2][16][2]`, the operand layout of bf16 dot products.
///
/// # Panics
/// If the lengths differ or are not those of packed matrices.
pub fn narrow(half: Half, packed: &[f32], narrowed: &mut [u16]) {
    assert_eq!(packed.len(), narrowed.len(), "equal lengths");
    assert!(packed.len().is_multiple_of(2 * PANEL), "an even number of rows");
    match half {
        Half::F16 => narrowed.iter_mut().zip(packed).for_each(|(half, &x)| *half = to_f16(x)),
        Half::Bf16 => {
            for (pairs, rows) in narrowed.chunks_exact_mut(2 * PANEL).zip(packed.chunks_exact(2 * PANEL)) {
                for (index, &x) in rows.iter().enumerate() {
                    pairs[index % PANEL * 2 + index / PANEL] = to_bf16(x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_are_packed_as_elements_are() {
        for (k, n) in [(0, 3), (1, 1), (3, 16), (4, 33), (5, 47)] {
            let get = |row: usize, column: usize| (100 * row + column + 1) as f32;
            let rows: Vec<f32> = (0..k * n).map(|at| get(at / n, at % n)).collect();
            let columns: Vec<f32> = (0..k * n).map(|at| get(at % k, at / k)).collect();
            let packed = || vec![f32::NAN; matrix_f32_len(k, n).unwrap()];
            let [mut of_rows, mut of_columns, mut reversed] = [packed(), packed(), packed()];
            rows_f32_into(&mut of_rows, k, n, &rows);
            columns_f32_into(&mut of_columns, k, n, &columns, |row| row);
            columns_f32_into(&mut reversed, k, n, &columns, |row| k - 1 - row);
            assert_eq!(of_rows, matrix_f32(k, n, get), "{k} x {n}");
            assert_eq!(of_columns, matrix_f32(k, n, get), "{k} x {n}");
            assert_eq!(reversed, matrix_f32(k, n, |row, column| get(k - 1 - row, column)), "{k} x {n}");
        }
    }

    #[test]
    fn pads_the_last_panel() {
        let packed = matrix_f32(2, 17, |k, n| (100 * k + n) as f32);
        assert_eq!(packed.len(), 2 * 2 * 16);
        assert_eq!(packed[0], 0.0);
        assert_eq!(packed[16], 100.0);
        assert_eq!(packed[32], 16.0);
        assert_eq!(packed[33], 0.0);
        assert_eq!(packed[48], 116.0);
        assert_eq!(matrix_f32_len(usize::MAX, 16), None);
    }
}
