//! Quotients by one number, faster than the divider gives them.

/// The kernel of `x / b`.
///
/// A third of the elements is multiplied by the reciprocal in `f64` while the divider is busy with the others. That rounds
/// as the quotient does: where the quotient of two numbers of 24 bits is not right in the middle of two others, it is
/// 2^-49 of itself or more away from there, and the product is off by no more than 2^-52. In the middle it can only be
/// below the normal numbers, so where a product ends there all are divided.
pub(crate) fn divide_by(b: f32) -> impl Fn(&[f32], &mut [f32]) {
    const THIRD: usize = 128;
    // Without vectors of doubles the divider is faster.
    const HAS_DOUBLES: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    let reciprocal = 1.0 / f64::from(b);
    let divide = move |a: &[f32], out: &mut [f32]| out.iter_mut().zip(a).for_each(|(out, &x)| *out = x / b);
    move |a, out| {
        let chunk = if HAS_DOUBLES { 3 * THIRD } else { usize::MAX };
        for (a, out) in a.chunks(chunk).zip(out.chunks_mut(chunk)) {
            let (a_thirds, out_thirds) = (a.as_chunks::<THIRD>().0, out.as_chunks_mut::<THIRD>().0);
            let ([a0, a1, a2], [out0, out1, out2]) = (a_thirds, out_thirds) else {
                divide(a, out);
                continue;
            };
            let mut is_rare = false;
            for i in 0..THIRD {
                out0[i] = a0[i] / b;
                out1[i] = a1[i] / b;
                let product = (f64::from(a2[i]) * reciprocal) as f32;
                is_rare |= is_subnormal(product);
                out2[i] = product;
            }
            if is_rare {
                divide(a, out);
            }
        }
    }
}

/// True if x is the least normal number or below it, and not zero: in a form that few vector instructions compute.
#[inline(always)]
fn is_subnormal(x: f32) -> bool {
    // Without the sign the bits are 1 to 2^24, as numbers; less one and the half of all numbers they are the lowest.
    let magnitude = x.to_bits().wrapping_add(x.to_bits());
    (magnitude.wrapping_add(i32::MAX as u32) as i32) < i32::MIN + (1 << 24)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn quotients_are_those_of_the_divider() {
        let bits = |i: u32| f32::from_bits(i.wrapping_mul(2_654_435_761));
        let special = [0.0, -0.0, 1.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN, 1e-45, -3e-45, 1.5e-38];
        let divisors = special.into_iter().chain([3.0, -7.0, 0.1, 1e30, 255.0]).chain((0..40).map(bits));
        for (round, b) in divisors.enumerate() {
            // Any numbers; those whose quotients are near the least normal number, among them halves of the least of all;
            // and a last part that is no whole chunk.
            let near = |i: u32| b * f32::from_bits(i.wrapping_mul(977) & 0x00ff_ffff) * 0.5;
            let any = (0..2048).map(|i| bits(i + 4099 * round as u32));
            let ordinary = (0..2000).map(|i| 1.0 + i as f32 * 0.371);
            let a: Vec<f32> = any.chain((0..1536).map(near)).chain(ordinary).chain(special).collect();
            let mut out = vec![0.0; a.len()];
            divide_by(b)(&a, &mut out);
            for (&x, &got) in a.iter().zip(&out) {
                let want = x / b;
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{x:e} / {b:e} = {got:e}, not {want:e}");
            }
        }
    }

    #[test]
    fn subnormal_numbers_are_found() {
        for x in [1e-45_f32, -1e-40, 1.1e-38, f32::MIN_POSITIVE] {
            assert!(is_subnormal(x), "{x:e}");
        }
        for x in [0.0, -0.0, 1.2e-38, 1.0, -2.0, f32::MAX, f32::INFINITY, f32::NAN] {
            assert!(!is_subnormal(x), "{x:e}");
        }
    }
}
