//! Copies in another layout.

use crate::Mismatch;

/// Copies `x`, a dense tensor of four dimensions, into `out` with `before[d]` and `after[d]` elements of `value` around it.
pub fn pad(
    sizes: [usize; 4],
    before: [usize; 4],
    after: [usize; 4],
    value: i8,
    x: &[i8],
    out: &mut [i8],
) -> Result<(), Mismatch> {
    let mut padded = [0; 4];
    for d in 0..4 {
        padded[d] = before[d].checked_add(sizes[d]).and_then(|n| n.checked_add(after[d])).ok_or(Mismatch)?;
    }
    Mismatch::unless(elements(sizes) == Some(x.len()) && elements(padded) == Some(out.len()))?;
    out.fill(value);
    if x.is_empty() {
        return Ok(());
    }
    for (row, x) in x.chunks_exact(sizes[3]).enumerate() {
        let (plane, j) = (row / sizes[2], row % sizes[2]);
        let (image, i) = (plane / sizes[1], plane % sizes[1]);
        let at = ((before[0] + image) * padded[1] + before[1] + i) * padded[2] + before[2] + j;
        out[at * padded[3] + before[3]..][..sizes[3]].copy_from_slice(x);
    }
    Ok(())
}

/// Copies `x`, a dense tensor with `sizes`, into `out` with its dimensions in the order `order`.
pub fn transpose(sizes: [usize; 4], order: [usize; 4], x: &[i8], out: &mut [i8]) -> Result<(), Mismatch> {
    let is_order = (0..4).all(|d| order.contains(&d));
    Mismatch::unless(is_order && elements(sizes) == Some(x.len()) && x.len() == out.len())?;
    if x.is_empty() {
        return Ok(());
    }
    let strides = [sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1];
    let [s0, s1, s2, s3] = order.map(|d| strides[d]);
    let [_, n1, n2, n3] = order.map(|d| sizes[d]);
    for (row, out) in out.chunks_exact_mut(n3).enumerate() {
        let (plane, k) = (row / n2, row % n2);
        let at = plane / n1 * s0 + plane % n1 * s1 + k * s2;
        for (out, x) in out.iter_mut().zip(x[at..].iter().step_by(s3)) {
            *out = *x;
        }
    }
    Ok(())
}

fn elements(sizes: [usize; 4]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size))
}
