use super::{Numbers, engines};
use crate::{Extent, extent};

#[test]
fn extents_of_numbers_with_wild_ones_among_them() {
    let mut numbers = Numbers(37);
    for n in [0, 1, 15, 16, 17, 31, 32, 33, 64, 100, 1000] {
        for wild in
            [&[][..], &[f32::NAN], &[f32::INFINITY, f32::NAN], &[f32::NEG_INFINITY], &[-f32::NAN, f32::INFINITY]]
        {
            let mut x = numbers.vector(n);
            if n > 40 {
                let at = numbers.below(n);
                x[at] = -0.0;
            }
            for wild in wild.iter().take(n) {
                let at = numbers.below(n);
                x[at] = *wild;
            }
            let finite: Vec<f32> = x.iter().copied().filter(|x| x.is_finite()).collect();
            let expected = Extent {
                least: finite.iter().copied().fold(f32::INFINITY, f32::min),
                greatest: finite.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                finite: finite.len(),
            };
            for engine in engines() {
                assert_eq!(extent(&engine, &x), expected, "{engine:?} {n} {wild:?}");
            }
        }
    }
}
