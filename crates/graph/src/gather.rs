//! Strided elements, brought into row-major order.

/// Rows and columns of the tiles in which a matrix is transposed, with each cache line read once and written once.
pub(super) const TILE: usize = 64;

/// Puts the elements of a strided tensor in row-major order into `to`, whose content goes; `None` if one is outside of
/// `storage`, there are too many to hold, or their size is none that a dtype has. `offset` and `strides` count elements of
/// `size` bytes.
pub(super) fn gather(
    storage: &[u8],
    offset: usize,
    strides: &[usize],
    sizes: &[usize],
    size: usize,
    to: &mut Vec<u8>,
) -> Option<()> {
    let count = sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
    if count == 0 {
        to.clear();
        return Some(());
    }
    let last = sizes
        .iter()
        .zip(strides)
        .try_fold(offset, |at, (size, stride)| at.checked_add(size.checked_sub(1)?.checked_mul(*stride)?))?;
    if sizes.len() != strides.len() || last >= storage.len().checked_div(size)? {
        return None;
    }
    let bytes = count.checked_mul(size)?;
    to.truncate(bytes);
    to.try_reserve_exact(bytes - to.len()).ok()?;
    to.resize(bytes, 0);
    let tensor = Strided { offset, strides, sizes };
    match size {
        1 => tensor.gather::<1>(storage, to),
        2 => tensor.gather::<2>(storage, to),
        4 => tensor.gather::<4>(storage, to),
        8 => tensor.gather::<8>(storage, to),
        16 => tensor.gather::<16>(storage, to),
        _ => return None,
    }
    Some(())
}

/// Strided elements, all of them inside of their storage.
struct Strided<'a> {
    offset: usize,
    strides: &'a [usize],
    sizes: &'a [usize],
}

impl Strided<'_> {
    /// Fills `to`, which has room for all elements, which are of `N` bytes.
    fn gather<const N: usize>(&self, storage: &[u8], to: &mut [u8]) {
        let (from, to) = (storage.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        let columns = self.sizes.last().copied().unwrap_or(1);
        let step = self.strides.last().copied().unwrap_or(1);
        let outer = self.sizes.len().saturating_sub(1);
        // Neighbours in the storage become a column.
        let rows_dim = (0..outer).find(|dim| self.strides[*dim] == 1 && self.sizes[*dim] > 1).filter(|_| step != 1);
        let rows = rows_dim.map_or(1, |dim| self.sizes[dim]);
        let row_step = rows_dim.map_or(0, |dim| self.sizes[dim + 1..].iter().product());
        let mut index = vec![0usize; outer];
        loop {
            let (mut start, mut at) = (0, self.offset);
            for ((i, size), stride) in index.iter().zip(self.sizes).zip(self.strides) {
                start = start * size + i;
                at += i * stride;
            }
            let (to, from) = (&mut to[start * columns..], &from[at..]);
            if step == 1 {
                to[..columns].copy_from_slice(&from[..columns]);
            } else {
                for left in (0..columns).step_by(TILE) {
                    for first in (0..rows).step_by(TILE) {
                        let (from, to) = (&from[first + left * step..], &mut to[first * row_step + left..]);
                        let (rows, columns) = ((rows - first).min(TILE), (columns - left).min(TILE));
                        transpose(from, step, to, row_step, rows, columns);
                    }
                }
            }
            let mut dims = (0..outer).rev().filter(|dim| Some(*dim) != rows_dim);
            let next = dims.find(|dim| {
                index[*dim] += 1;
                let is_inside = index[*dim] < self.sizes[*dim];
                if !is_inside {
                    index[*dim] = 0;
                }
                is_inside
            });
            if next.is_none() {
                break;
            }
        }
    }
}

/// Transposes a tile: of `from` each column, `step` elements after the one before, follows itself; of `to` each row,
/// `row_step` elements after the one before.
fn transpose<const N: usize>(
    from: &[[u8; N]],
    step: usize,
    to: &mut [[u8; N]],
    row_step: usize,
    rows: usize,
    columns: usize,
) {
    let mut tile = [[[0; N]; TILE]; TILE];
    for (column, tile) in tile[..columns].iter_mut().enumerate() {
        tile[..rows].copy_from_slice(&from[column * step..column * step + rows]);
    }
    for row in 0..rows {
        let to = &mut to[row * row_step..row * row_step + columns];
        for (to, column) in to.iter_mut().zip(&tile) {
            *to = column[row];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, element by element.
    fn expected(storage: &[u8], offset: usize, strides: &[usize], sizes: &[usize], size: usize) -> Vec<u8> {
        let count: usize = sizes.iter().product();
        let mut out = Vec::new();
        for element in 0..count {
            let (mut rest, mut at) = (element, offset);
            for (size, stride) in sizes.iter().zip(strides).rev() {
                at += rest % size * stride;
                rest /= size;
            }
            out.extend(&storage[at * size..(at + 1) * size]);
        }
        out
    }

    #[test]
    fn elements_come_in_row_major_order() {
        let storage: Vec<u8> = (0..80_000u32).map(|at| (at * 31 % 251) as u8).collect();
        let cases: &[(usize, &[usize], &[usize])] = &[
            (0, &[1, 70], &[70, 50]),
            (3, &[1, 33], &[33, 31]),
            (5, &[9 * 16, 3, 1, 9], &[8, 3, 3, 16]),
            (0, &[1, 40, 400], &[40, 10, 5]),
            (1, &[100, 1], &[7, 50]),
            (0, &[0, 2], &[4, 6]),
            (2, &[0, 0], &[3, 3]),
            (7, &[], &[]),
        ];
        for &(offset, strides, sizes) in cases {
            for size in [1, 2, 4, 8] {
                let mut found = vec![7; 5000];
                gather(&storage, offset, strides, sizes, size, &mut found).unwrap();
                assert_eq!(found, expected(&storage, offset, strides, sizes, size), "{strides:?} {sizes:?} {size}");
            }
        }
    }

    #[test]
    fn what_is_outside_is_found_out() {
        let fails = |offset, strides: &[usize], sizes: &[usize], size| {
            gather(&[0; 16], offset, strides, sizes, size, &mut Vec::new()).is_none()
        };
        assert!(fails(0, &[1], &[5], 4));
        assert!(fails(4, &[], &[], 4));
        assert!(fails(0, &[usize::MAX, 2], &[2, 2], 4));
        assert!(fails(0, &[1], &[2], 3));
        assert!(!fails(9, &[1], &[0], 4));
    }
}
