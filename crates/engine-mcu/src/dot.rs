//! Dot products of int8 vectors with 32-bit sums that wrap.

/// The sum of `(x + offset) * w`, over the shorter of the two.
#[inline]
pub(crate) fn dot(x: &[i8], w: &[i8], offset: i32) -> i32 {
    x.iter()
        .zip(w)
        .fold(0, |sum: i32, (&x, &w)| sum.wrapping_add(i32::from(x).wrapping_add(offset).wrapping_mul(i32::from(w))))
}

/// Adds the dot products of `x` with four rows of `w`, which begin `stride` elements apart.
///
/// One load of `x` serves four multiplications. The four sums have names, because LLVM vectorizes no loop over an array
/// of sums.
#[inline]
pub(crate) fn dot4(sums: &mut [i32; 4], x: &[i8], w: &[i8], stride: usize, offset: i32) {
    let row = |i: usize| &w[i * stride..i * stride + x.len()];
    let (w0, w1, w2, w3) = (row(0), row(1), row(2), row(3));
    let [mut s0, mut s1, mut s2, mut s3] = *sums;
    for ((((&x, &w0), &w1), &w2), &w3) in x.iter().zip(w0).zip(w1).zip(w2).zip(w3) {
        let x = i32::from(x).wrapping_add(offset);
        s0 = s0.wrapping_add(x.wrapping_mul(i32::from(w0)));
        s1 = s1.wrapping_add(x.wrapping_mul(i32::from(w1)));
        s2 = s2.wrapping_add(x.wrapping_mul(i32::from(w2)));
        s3 = s3.wrapping_add(x.wrapping_mul(i32::from(w3)));
    }
    *sums = [s0, s1, s2, s3];
}
